// Two runs on the same sentence.

import { Latest, post } from "./api.js";
import { diagram, linkedWords } from "./diagram.js";
import { field, h, select, sentence, signed } from "./dom.js";
import { beside, exportBar } from "./exporting.js";
import { cursor, describeCell, heatmap } from "./heatmap.js";
import { printed } from "./palette.js";
import { set, state } from "./state.js";
import { TITLES, disagreements, distances, largest } from "./view-pair.js";
import { fitting } from "./view-translate.js";

const latest = new Latest();

export function compareView(page) {
  const runs = page.runs("translation");
  const one = page.find(state.run, runs);
  const two = runs.find((run) => run.name === state.other) ?? runs.find((run) => run.name !== one.name) ?? one;
  const kinds = ["prior", "posterior", "exact"].filter((kind) => one.by.includes(kind) && two.by.includes(kind));
  const kind = kinds.includes(state.panel) ? state.panel : "prior";
  const results = h("div", { class: "results" });
  const go = async () => {
    if (!state.source.trim()) return page.hint(results, "Type a sentence first.");
    page.busy(results);
    try {
      const found = await latest.run((signal) => Promise.all([one, two].map((run) => ask(run, signal))));
      if (found) show(results, [one, two], found, kind);
    } catch (error) {
      page.fail(results, error, go);
    }
  };
  const choices = runs.map((run) => [run.name, run.name]);
  const form = h(
    "form",
    { class: "card", onsubmit: (event) => { event.preventDefault(); go(); } },
    h("div", { class: "two" },
      field("Source", sentence(state.source, { name: "source", placeholder: "A sentence", onsubmit: go, oninput: (source) => set({ source }) })),
      field("Translation", sentence(state.target, { name: "target", placeholder: "Each run's own, unless you give one", onsubmit: go, oninput: (target) => set({ target }) }))),
    h("div", { class: "controls" },
      field("One run", select(choices, one.name, (run) => { set({ run }); page.draw(); })),
      field("The other", select(choices, two.name, (other) => { set({ other }); page.draw(); })),
      field("Show", select(kinds.map((name) => [name, TITLES[name]]), kind, (panel) => { set({ panel }); page.draw(); })),
      h("button", { type: "submit", class: "primary", text: "Compare" })),
  );
  if (state.source.trim()) go();
  else page.hint(results, runs.length > 1 ? "Both runs appear here, side by side." : "Only one translation run is served here: start “latentalign serve” with two to compare them.");
  return [form, results];
}

async function ask(run, signal) {
  const source = state.source.split(/\s+/).filter(Boolean).join(" ");
  let target = state.target;
  let translated = null;
  if (!target.trim()) {
    translated = await post("api/translate", { run: run.name, sentences: [source], beam: state.beam, inference: fitting(run), alignments: false }, signal);
    target = translated.results[0].translations[0].text;
  }
  const aligned = await post("api/align", { run: run.name, pairs: [{ source, target }], scores: true, matrices: true }, signal);
  return { translated, aligned, result: aligned.results[0] };
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

function show(results, runs, found, kind) {
  const usable = found.every(({ result }) => result.target_words.length && result.source_words.length);
  if (!usable) {
    results.replaceChildren(h("p", { class: "hint", text: "One of the runs has nothing to say to this sentence: its translation is empty." }));
    return;
  }
  const same = found[0].result.target_words.join(" ") === found[1].result.target_words.join(" ");
  const tables = found.map(({ result }, n) => [runs[n].name, result.matrices[kind]]);
  const distance = same && runs[0] !== runs[1] ? distances(tables[0][1], tables[1][1]) : [];
  const worst = largest(distance, 3);
  const space = results.clientWidth > 720 ? (results.clientWidth - 16) / 2 - 36 : results.clientWidth - 36;
  const picture = (n, palette) => heatmap({
    title: `${runs[n].name}: ${TITLES[kind].toLowerCase()}`, rows: found[n].result.target_words, columns: found[n].result.source_words,
    matrix: found[n].result.matrices[kind], entropy: found[n].result.matrices.entropy[kind], marks: new Set(worst), palette, space: palette ? 0 : space,
  });
  const readout = h("p", { class: "caption", role: "status", "aria-live": "polite", text: "Point at a cell, or use the arrow keys." });
  const svgs = [picture(0), picture(1)];
  const pointers = (same ? [svgs] : svgs.map((svg) => [svg])).map((group, n) => cursor(group, {
    describe: describeCell(found[n].result.target_words, found[n].result.source_words, same ? tables : [tables[n]]),
    onmove: (text) => (readout.textContent = text), onrow: () => {},
  }));
  svgs.forEach((svg, n) => svg.setAttribute("aria-label", `${runs[n].name}: arrow keys move over the cells`));
  const columns = found.map(({ result }, n) => h("section", { class: "card", "aria-label": runs[n].name },
    h("h3", { text: runs[n].name }),
    linkedWords({ source: result.source_words, target: result.target_words, links: result.links }),
    h("div", { class: "scroll" }, svgs[n]),
    h("dl", {},
      h("dt", { text: "log p per piece" }), h("dd", { text: result.score === null ? "–" : signed(result.score, 4) }),
      h("dt", { text: "mean entropy" }), h("dd", { text: `${mean(result.matrices.entropy[kind]).toFixed(3)} nats` }),
      h("dt", { text: "links by" }), h("dd", { text: found[n].aligned.by }))));
  results.replaceChildren(
    h("div", { class: "two" }, columns),
    readout,
    worst.length ? h("section", { class: "card" }, disagreements(found[0].result, tables, distance, worst, (row) => pointers[0].move(row, 0))) : "",
    exportBar({
      name: "comparison", json: () => found.map(({ translated, aligned }) => ({ translated, aligned })),
      pharaoh: () => found.map(({ result }) => result.pharaoh).join("\n"),
      picture: () => beside([picture(0, printed()), picture(1, printed())]),
    }),
  );
}
