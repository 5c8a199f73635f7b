// Type a sentence, see its translation and where every word came from.

import { Latest, post } from "./api.js";
import { diagram, linkedWords } from "./diagram.js";
import { field, h, select, sentence, signed } from "./dom.js";
import { exportBar } from "./exporting.js";
import { printed } from "./palette.js";
import { inference, set, state } from "./state.js";

const latest = new Latest();
const LINKS = { prior: "prior", posterior: "posterior", exact: "exact posterior" };

export function translateView(page) {
  const runs = page.runs("translation");
  const run = page.find(state.run, runs);
  const results = h("div", { class: "results" });
  const go = async () => {
    const sentences = state.source.split("\n").filter((line) => line.trim());
    if (!sentences.length) return page.hint(results, "Type a sentence first.");
    page.busy(results);
    const body = {
      run: run.name, sentences, beam: state.beam, n_best: Math.min(5, state.beam), inference: fitting(run),
    };
    try {
      const found = await latest.run((signal) => post("api/translate", body, signal));
      if (found) results.replaceChildren(...found.results.map((one) => card(page, found, one)));
    } catch (error) {
      page.fail(results, error, go);
    }
  };
  const submit = () => {
    set({ alternative: 0 });
    go();
  };
  const text = sentence(state.source, {
    rows: 3, name: "source", placeholder: "A sentence in the run's source language", onsubmit: submit,
    oninput: (source) => set({ source }),
  });
  const beam = h("input", { type: "number", min: 1, max: page.limits.beam, value: state.beam, onchange: () => set({ beam: Number(beam.value) || 10 }) });
  const modes = [["", `as trained (${run.inference})`], ...run.inferences.map((mode) => [mode, label(mode)])];
  const form = h(
    "form",
    { class: "card", onsubmit: (event) => { event.preventDefault(); submit(); } },
    field("Sentence", text, "Enter translates; Shift+Enter starts another sentence."),
    h("div", { class: "controls" },
      runs.length > 1 && field("Run", select(runs.map((one) => [one.name, one.name]), run.name, (name) => { set({ run: name }); page.draw(); })),
      field("Beam", beam),
      field("Predict", select(modes, run.inferences.includes(state.mode) ? state.mode : "", (mode) => set({ mode }))),
      h("button", { type: "submit", class: "primary", text: "Translate" })),
  );
  if (state.source.trim()) go();
  else page.hint(results, "The translation appears here, with the links of every word.");
  return [form, results];
}

export function label(mode) {
  return { exact: "exact", kmax: `K-max, K = ${state.k}`, sample: `sampled, N = ${state.samples}`, soft: "soft" }[mode];
}

export function fitting(run) {
  return run.inferences.includes(state.mode) ? inference() : null;
}

function card(page, found, result) {
  const best = result.translations;
  const box = h("article", { class: "card translation" });
  const show = (number) => {
    const chosen = best[number];
    const words = { source: result.source_words, target: chosen.words, links: chosen.links ?? [] };
    const picture = diagram(words);
    box.replaceChildren(
      linkedWords({ ...words, picture }),
      h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Picture of the links" }, picture),
      best.length > 1 ? alternatives(best, number, (next) => { set({ alternative: next }); show(next); }) : "",
      h("div", { class: "row" },
        h("button", {
          type: "button", text: "Look closer",
          title: "Prior and posterior of this pair",
          onclick: () => { set({ view: "pair", source: result.source_words.join(" "), target: chosen.text, row: -1 }); page.draw(); },
        }),
        exportBar({
          name: "translation", json: () => ({ ...found, results: [result] }), pharaoh: () => chosen.pharaoh,
          picture: () => diagram({ ...words, palette: printed() }),
        }),
        h("small", { text: `links by the ${LINKS[found.links_by]}; predicted by ${found.inference}; log p = ${signed(chosen.log_prob, 3)}` })),
    );
  };
  show(Math.min(state.alternative, best.length - 1));
  return box;
}

function alternatives(best, chosen, onchoose) {
  return h("ol", { class: "alternatives", "aria-label": "Alternatives of the beam" }, best.map((one, number) =>
    h("li", {}, h("button", {
      type: "button", "aria-pressed": String(number === chosen), onclick: () => onchoose(number),
    }, h("span", { dir: "auto", text: one.text || "(empty)" }), h("span", { class: "value", text: signed(one.score, 4) })))));
}
