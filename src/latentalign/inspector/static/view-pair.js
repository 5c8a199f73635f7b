// A pair of sentences: prior and posterior side by side, where they disagree, and what each step would say.

import { Latest, post } from "./api.js";
import { field, h, select, sentence, signed } from "./dom.js";
import { beside, exportBar } from "./exporting.js";
import { cursor, describeCell, heatmap } from "./heatmap.js";
import { nextPanel } from "./next.js";
import { printed } from "./palette.js";
import { set, state } from "./state.js";

const latest = new Latest();
export const TITLES = { prior: "Prior", posterior: "Posterior", filtered: "Filtered", exact: "Exact posterior" };
const BY_ALIGNER = { posterior: "how likely each link is, both directions together" };
const EXPLAIN = {
  prior: "where the translator looks before it knows the word",
  posterior: "where the inference network looks, given the whole pair",
  filtered: "by Bayes' rule, given the words so far and this one",
  exact: "by Bayes' rule, given the word",
};

export function pairView(page) {
  const runs = page.runs("translation", "aligner");
  const run = page.find(state.run, runs);
  const others = run.by.filter((name) => name !== "prior");
  if (!others.includes(state.panel)) state.panel = others[0] ?? "";
  const results = h("div", { class: "results" });
  const go = async () => {
    if (!state.source.trim() || !state.target.trim()) return page.hint(results, "Type a sentence and its translation first.");
    page.busy(results);
    const body = { run: run.name, pairs: [{ source: state.source, target: state.target }], scores: true, matrices: true };
    try {
      const found = await latest.run((signal) => post("api/align", body, signal));
      if (found) show(page, results, run, found);
    } catch (error) {
      page.fail(results, error, go);
    }
  };
  const submit = () => { set({ row: -1 }); go(); };
  const source = sentence(state.source, { name: "source", placeholder: "A sentence", onsubmit: submit, oninput: (text) => set({ source: text }) });
  const target = sentence(state.target, { name: "target", placeholder: "Its translation", onsubmit: submit, oninput: (text) => set({ target: text }) });
  const form = h(
    "form",
    { class: "card", onsubmit: (event) => { event.preventDefault(); submit(); } },
    h("div", { class: "two" }, field("Source", source), field("Translation", target)),
    h("div", { class: "controls" },
      runs.length > 1 && field("Run", select(runs.map((one) => [one.name, one.name]), run.name, (name) => { set({ run: name }); page.draw(); })),
      run.by.includes("prior") && others.length > 0 && field("Beside the prior", select(others.map((name) => [name, TITLES[name]]), state.panel, (panel) => { set({ panel }); page.draw(); })),
      h("button", { type: "submit", class: "primary", text: "Align" })),
  );
  if (state.source.trim() && state.target.trim()) go();
  else page.hint(results, "The heat maps appear here.");
  return [form, results];
}

function show(page, results, run, found) {
  const result = found.results[0];
  // a chain: what later words change stands beside what was known at the time
  const isChain = Boolean(result.matrices.filtered) && state.panel === "exact";
  const isAligner = run.task === "aligner"; // it has one distribution, and predicts no words
  const names = isChain ? ["prior", "filtered", "exact"] : [...(isAligner ? [] : ["prior"]), ...(state.panel ? [state.panel] : [])];
  const explain = isAligner ? BY_ALIGNER : isChain ? { ...EXPLAIN, exact: "smoothed: by Bayes' rule, given the whole translation" } : EXPLAIN;
  const tables = names.map((name) => [name, result.matrices[name]]);
  const distance = names.length > 1 ? distances(tables.at(-2)[1], tables.at(-1)[1]) : [];
  const worst = largest(distance, 3);
  const wide = results.clientWidth > 720;
  const space = (results.clientWidth - 36 - (wide ? 32 : 0)) / (wide ? names.length : 1);
  const pictures = (palette) => names.map((name) => heatmap({
    title: TITLES[name], rows: result.target_words, columns: result.source_words, matrix: result.matrices[name],
    entropy: result.matrices.entropy[name], marks: new Set(worst), palette, space: palette ? 0 : space,
  }));
  const readout = h("p", { class: "caption", role: "status", "aria-live": "polite", text: "Point at a cell, or use the arrow keys." });
  const svgs = pictures(undefined);
  svgs.forEach((svg, n) => svg.setAttribute("aria-label", `${TITLES[names[n]]}: arrow keys move, Enter chooses a word`));
  const next = h("div", { class: "next-place" });
  const choose = (row) => {
    set({ row });
    for (const svg of svgs) {
      for (const text of svg.querySelectorAll(".row-label")) text.classList.toggle("chosen", Number(text.dataset.row) === row);
    }
    if (isAligner) return;
    const words = result.target_words;
    next.replaceChildren(nextPanel({
      run, limits: page.limits, source: result.source_words.join(" "), prefix: words.slice(0, row).join(" "),
      word: words[row] ?? null, onerror: (error) => (error ? page.notice(error.message) : null),
    }));
  };
  const pointer = cursor(svgs, {
    describe: describeCell(result.target_words, result.source_words, tables),
    onmove: (text) => (readout.textContent = text), onrow: choose,
  });
  results.replaceChildren(
    h("section", { class: "card", "aria-label": "Alignment" },
      h("div", { class: "maps" }, svgs.map((svg, n) => h("figure", {}, h("div", { class: "scroll" }, svg), h("figcaption", { text: explain[names[n]] })))),
      readout,
      worst.length > 0 && disagreements(result, tables, distance, worst, (row) => { pointer.move(row, 0); choose(row); }),
      h("div", { class: "row" },
        exportBar({ name: "alignment", json: () => found, pharaoh: () => result.pharaoh, picture: () => beside(pictures(printed())) }),
        h("small", { text: `${isAligner ? "score per word" : "mean log p per piece"} ${result.score === null ? "–" : signed(result.score, 4)}; entropy in nats` }))),
    next,
  );
  choose(state.row >= 0 && state.row <= result.target_words.length ? state.row : worst[0] ?? 0);
}

const rest = (row) => Math.max(0, 1 - row.reduce((sum, value) => sum + value, 0));

// total variation, what lies on no word included
export function distances(one, other) {
  return one.map((row, n) =>
    0.5 * (row.reduce((sum, value, m) => sum + Math.abs(value - other[n][m]), 0) + Math.abs(rest(row) - rest(other[n]))));
}

export function largest(values, count, least = 0.05) {
  return values.map((_, n) => n).filter((n) => values[n] >= least).sort((a, b) => values[b] - values[a]).slice(0, count);
}

export function disagreements(result, tables, distance, worst, onchoose) {
  const best = (row) => {
    const at = row.indexOf(Math.max(...row));
    return rest(row) > row[at] ? "no word" : `“${result.source_words[at]}”`;
  };
  return h("div", { class: "disagreements" },
    h("h3", { text: "Where the two disagree most" }),
    h("ol", {}, worst.map((row) => h("li", {}, h("button", { type: "button", onclick: () => onchoose(row) },
      h("b", { dir: "auto", text: result.target_words[row] }), ` ${distance[row].toFixed(2)}: `,
      tables.map(([name, matrix]) => `${name} ${best(matrix[row])}`).join(", "))))));
}
