// A question to a run that answers questions: over the facts of a story, or the regions of an image.

import { Latest, post } from "./api.js";
import { field, h, percent, s, select, sentence } from "./dom.js";
import { beside, exportBar } from "./exporting.js";
import { FONT, printed, shown } from "./palette.js";
import { set, state } from "./state.js";
import { fitting, label } from "./view-translate.js";

const latest = new Latest();
const TITLES = { prior: "Prior", posterior: "Posterior" };

export function askView(page) {
  const runs = page.runs("vqa", "memory");
  const run = page.find(state.run, runs);
  const memory = run.task === "memory";
  if (!memory && !run.images.includes(state.image)) state.image = run.images[0] ?? -1;
  const results = h("div", { class: "results" });
  const go = async () => {
    if (!state.question.trim()) return page.hint(results, "Type a question first.");
    page.busy(results);
    const about = memory ? { story: state.story.split("\n").filter((line) => line.trim()) } : { image: state.image };
    const body = { run: run.name, question: state.question, ...about, answer: state.answer.trim() || null, inference: fitting(run) };
    try {
      const found = await latest.run((signal) => post("api/answer", body, signal));
      if (found) results.replaceChildren(...(memory ? overFacts(found) : overRegions(found)));
    } catch (error) {
      page.fail(results, error, go);
    }
  };
  const text = (name, rows, placeholder) => sentence(state[name], { name, rows, placeholder, onsubmit: go, oninput: (value) => set({ [name]: value }) });
  const story = h("textarea", { rows: 6, name: "story", dir: "auto", spellcheck: "false", placeholder: "Ada walked to the attic.\nBoris went to the market.", oninput: () => set({ story: story.value }) });
  story.value = state.story;
  const modes = [["", `as usual (${run.inference})`], ...run.inferences.map((mode) => [mode, label(mode)])];
  const form = h(
    "form",
    { class: "card", onsubmit: (event) => { event.preventDefault(); go(); } },
    h("div", { class: "two" },
      memory ? field("Story", story, "One fact a line.") : chooseImage(page, run),
      h("div", {},
        field("Question", text("question", 2, memory ? "Where is Ada?" : "What colour is the circle?")),
        field("Answer, if you know it", text("answer", 1, "shows where the posterior looks")))),
    h("div", { class: "controls" },
      runs.length > 1 && field("Run", select(runs.map((one) => [one.name, one.name]), run.name, (name) => { set({ run: name }); page.draw(); })),
      field("Predict", select(modes, run.inferences.includes(state.mode) ? state.mode : "", (mode) => set({ mode }))),
      h("button", { type: "submit", class: "primary", text: "Ask" })),
  );
  if (state.question.trim()) go();
  else page.hint(results, "The answers appear here, with what they rest on.");
  return [form, results];
}

function chooseImage(page, run) {
  if (!run.images.length) return h("p", { class: "hint", text: "The region features of this run are not on this machine: start “latentalign serve” with --features." });
  const picture = h("img", { class: "thumbnail", alt: "", src: address(run.name, state.image), onerror: () => (picture.hidden = true) });
  const choice = select(run.images.map((number) => [String(number), `image ${number}`]), String(state.image), (image) => { set({ image: Number(image) }); page.draw(); });
  return h("div", {}, field("Image", choice), picture);
}

const address = (run, image) => `api/image?${new URLSearchParams({ run, image })}`;

function answers(found) {
  return h("section", { class: "card", "aria-label": "Answers" },
    h("h3", { text: "Answers" }),
    h("div", { class: "bars" }, found.answers.map((one) => {
      const bar = h("div", { class: "bar" }, h("i", { class: "now" }));
      bar.firstChild.style.width = `${(100 * one.probability).toFixed(2)}%`;
      return h("div", { class: "bar-row answers" }, h("span", { class: "piece", dir: "auto", text: one.answer }), bar, h("span", { class: "value", text: one.probability.toFixed(3) }));
    })),
    found.unknown_words.length > 0 && h("p", { class: "caption", text: `never seen in training: ${found.unknown_words.join(", ")}` }));
}

// --- a story ---

function overFacts(found) {
  const hops = found.evidence[0]?.hops?.length ?? 1;
  const columns = [...Array(hops).keys()].map((n) => [hops > 1 ? `hop ${n + 1}` : "prior", (one) => one.hops?.[n] ?? one.prior]);
  if (found.evidence.some((one) => one.posterior !== null)) columns.push(["posterior", (one) => one.posterior]);
  const weight = (value) => {
    const cell = h("span", { class: "weight" }, h("i"), h("b", { text: percent(value) }));
    cell.firstChild.style.width = `${(100 * value).toFixed(1)}%`;
    return cell;
  };
  const list = h("ol", { class: "facts" },
    h("li", { class: "head" }, h("span"), columns.map(([name]) => h("span", { class: "weight", text: name }))),
    found.evidence.map((one) => {
      const strongest = Math.max(...columns.map(([, read]) => read(one)));
      const row = h("li", {}, h("span", { dir: "auto", text: one.text }), columns.map(([, read]) => weight(read(one))));
      row.style.setProperty("--strength", strongest.toFixed(3));
      return row;
    }));
  list.style.setProperty("--columns", columns.length);
  return [answers(found), h("section", { class: "card", "aria-label": "Facts" }, h("h3", { text: "Where it looked" }), h("div", { class: "scroll" }, list), exportBar({ name: "answer", json: () => found }))];
}

// --- an image ---

function overRegions(found) {
  const names = ["prior", ...(found.evidence.some((one) => one.posterior !== null) ? ["posterior"] : [])];
  const source = found.picture ? address(found.run, state.image) : null;
  const note = h("p", { class: "caption", role: "status", "aria-live": "polite", text: "Point at a region, or use the arrow keys, to see how much it counted." });
  const figures = names.map((name) => h("figure", { class: "picture" }, regions(found, name, { source, palette: shown(), onpoint: (text) => (note.textContent = text) }), h("figcaption", { text: TITLES[name] + (name === "posterior" ? ` (${found.posterior_by})` : "") })));
  const picture = async () => {
    const embedded = source ? await dataAddress(source) : null;
    return beside(names.map((name) => regions(found, name, { source: embedded, palette: printed(), title: TITLES[name] })));
  };
  return [answers(found), h("section", { class: "card", "aria-label": "Regions" }, h("h3", { text: "Where it looked" }), h("div", { class: "two" }, figures), note, exportBar({ name: "answer", json: () => found, picture }))];
}

function regions(found, name, { source, palette, title, onpoint }) {
  const [width, height] = found.size;
  const unit = Math.max(width, height) / 100;
  const svg = s("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT, role: "img", "aria-label": `${TITLES[name]} over the regions` });
  svg.append(source ? s("image", { [source.startsWith("data:") ? "embedded" : "href"]: source, width, height }) : s("rect", { width, height, fill: palette.line }));
  svg.append(s("rect", { width, height, fill: palette.paper, opacity: 0.45 }));
  const order = [...found.evidence].sort((a, b) => a[name] - b[name]);
  const tell = (one) => onpoint(`${one.text}: ${name} ${percent(one[name])}`);
  for (const one of order) {
    const [x, y, right, bottom] = one.box;
    svg.append(s("rect", {
      x, y, width: right - x, height: bottom - y, stroke: palette.mark, "stroke-width": (0.4 + 1.1 * one[name]) * unit,
      "stroke-opacity": 0.12 + 0.88 * Math.sqrt(one[name]), fill: palette.mark, "fill-opacity": 0.3 * one[name],
      onpointerenter: onpoint && (() => tell(one)),
    }));
  }
  for (const one of order.slice(-3).filter((each) => each[name] >= 0.05)) {
    const [x, y] = one.box;
    const text = one[name].toFixed(2);
    svg.append(
      s("rect", { x, y, width: 11 * unit, height: 5.5 * unit, fill: palette.mark, "pointer-events": "none" }),
      s("text", { x: x + 5.5 * unit, y: y + 4.3 * unit, "font-size": 4.4 * unit, "text-anchor": "middle", fill: palette.over, "pointer-events": "none", text }));
  }
  if (onpoint) walk(svg, order.reverse(), tell, unit);
  if (title) svg.append(s("text", { x: unit, y: height - unit, "font-size": 4.4 * unit, fill: palette.ink, text: title }));
  return svg;
}

// Arrow keys go from the region that counts most to the one that counts least.
function walk(svg, order, tell, unit) {
  const box = s("rect", { class: "cursor", fill: "none", "stroke-dasharray": `${2 * unit} ${unit}`, visibility: "hidden" });
  let at = 0;
  const show = () => {
    const [x, y, right, bottom] = order[at].box;
    for (const [key, value] of Object.entries({ x, y, width: right - x, height: bottom - y, visibility: "visible" })) box.setAttribute(key, value);
    tell(order[at]);
  };
  svg.append(box);
  svg.setAttribute("tabindex", "0");
  svg.setAttribute("role", "application");
  svg.addEventListener("focus", () => { if (svg.matches(":focus-visible")) show(); });
  svg.addEventListener("blur", () => box.setAttribute("visibility", "hidden"));
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    at = Math.min(order.length - 1, Math.max(0, at + step));
    show();
  });
}

async function dataAddress(source) {
  const blob = await (await fetch(source)).blob();
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = reject;
    reader.readAsDataURL(blob);
  });
}
