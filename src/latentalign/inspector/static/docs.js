// The API's own description, as tables.

import { get } from "./api.js";
import { h } from "./dom.js";

const main = document.getElementById("main");

function resolve(found, schema) {
  return schema?.$ref ? found.components.schemas[schema.$ref.split("/").pop()] : schema;
}

function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${kind(schema.items ?? schema.prefixItems?.[0])}`;
  return schema.type ?? "";
}

const BOUNDS = { minimum: "≥", exclusiveMinimum: ">", maximum: "≤", maxLength: "characters ≤", minItems: "items ≥", maxItems: "items ≤", pattern: "like" };

function bounds(schema) {
  return [schema, ...(schema.anyOf ?? [])].flatMap((part) =>
    Object.entries(BOUNDS).filter(([name]) => part[name] !== undefined).map(([name, sign]) => `${sign} ${part[name]}`)).join(", ");
}

function fields(schema) {
  return h("table", {},
    h("thead", {}, h("tr", {}, ["field", "type", "default", "meaning"].map((text) => h("th", { text })))),
    h("tbody", {}, Object.entries(schema.properties ?? {}).map(([name, field]) => h("tr", {},
      h("td", {}, h("code", { text: name })),
      h("td", { text: [kind(field), bounds(field)].filter(Boolean).join("; ") }),
      h("td", { text: (schema.required ?? []).includes(name) ? "required" : JSON.stringify(field.default ?? null) }),
      h("td", { text: field.description ?? "" })))));
}

const EXAMPLES = {
  TranslateRequest: { sentences: ["Ein Hund bellt ."], beam: 5 },
  AlignRequest: { pairs: [{ source: "Ein Hund bellt .", target: "A dog barks ." }], scores: true },
  ScoreRequest: { pairs: [{ source: "Ein Hund bellt .", target: "A dog barks ." }] },
  NextRequest: { source: "Ein Hund bellt .", prefix: "A", inferences: ["exact", "kmax:2"] },
  AnswerRequest: { question: "Where is Ada?", story: ["Ada walked to the attic."] },
};

function operation(found, path, method, described) {
  const body = described.requestBody?.content?.["application/json"]?.schema;
  const answer = described.responses?.["200"]?.content?.["application/json"]?.schema;
  const address = new URL(path.slice(1), location.href).href;
  const example = EXAMPLES[body?.$ref?.split("/").pop()];
  const command = example
    ? `curl ${address} -H 'Content-Type: application/json' -d '${JSON.stringify(example)}'`
    : `curl ${address}`;
  return h("section", { class: "card" },
    h("h3", {}, h("span", { class: "method", text: method.toUpperCase() }), h("code", { text: path })),
    h("p", { text: described.description ?? described.summary ?? "" }),
    h("pre", { tabindex: 0, text: command }),
    body && fields(resolve(found, body)),
    answer?.$ref && h("p", {}, "answers ", h("a", { href: `#${kind(answer)}`, text: kind(answer) })),
    h("small", { text: `errors: ${Object.keys(described.responses).filter((status) => status >= "400").join(", ")}` }));
}

async function start() {
  const found = await get("openapi.json");
  const paths = Object.entries(found.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, described]) => operation(found, path, method, described)));
  const schemas = Object.entries(found.components.schemas).filter(([, schema]) => schema.properties).map(([name, schema]) =>
    h("section", { class: "card", id: name }, h("h3", { text: name }), schema.description && h("p", { text: schema.description }), fields(schema)));
  main.replaceChildren(h("p", { text: found.info.description }), h("h2", { text: "Paths" }), ...paths, h("h2", { text: "Types" }), ...schemas);
}

start().catch((error) => main.replaceChildren(h("p", { class: "error", role: "alert", text: error.message })));
