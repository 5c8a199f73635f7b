// The next word under one way to predict, beside the reference.

import { Latest, post } from "./api.js";
import { field, h } from "./dom.js";
import { inference, set, state } from "./state.js";

const NAMES = { exact: "exact", kmax: "K-max", sample: "sampled", soft: "soft" };
const latest = new Latest();

// run: its description; limits; source, prefix; word: what the translation itself says next
export function nextPanel({ run, limits, source, prefix, word, onerror }) {
  if (!run.inferences.includes(state.mode)) state.mode = run.inferences.includes("kmax") ? "kmax" : "sample";
  const reference = run.inferences.includes("exact") ? "exact" : "soft";
  const bars = h("div", { class: "bars" });
  const summary = h("p", { class: "caption", role: "status", "aria-live": "polite" });
  const slider = h("input", { type: "range", min: 1 });
  const sliderLabel = h("label", { for: "next-slider" });
  slider.id = "next-slider";
  let positions = 0;

  const number = () => (state.mode === "kmax" ? "k" : "samples");
  function arrange() {
    const sliding = state.mode === "kmax" || state.mode === "sample";
    slider.disabled = !sliding;
    slider.max = state.mode === "sample" ? limits.samples : Math.max(1, Math.min(positions || 20, limits.k));
    slider.value = state[number()];
    sliderLabel.textContent = sliding
      ? `${state.mode === "sample" ? "N" : "K"} = ${slider.value}${state.mode === "kmax" && positions ? ` of ${positions} positions` : ""}`
      : "K";
  }
  async function update() {
    try {
      const body = { run: run.name, source, prefix, inferences: [reference, inference()], top: 8 };
      const found = await latest.run((signal) => post("api/next", body, signal));
      if (!found) return;
      positions = found.positions;
      arrange();
      draw(bars, found, word);
      const [before, now] = found.distributions;
      summary.textContent = `entropy ${now.entropy.toFixed(3)} (${NAMES[reference]}: ${before.entropy.toFixed(3)}), ` +
        `distance from ${NAMES[reference]} ${now.distance.toFixed(3)}`;
      onerror(null);
    } catch (error) {
      onerror(error);
    }
  }
  slider.addEventListener("input", () => {
    set({ [number()]: Number(slider.value) });
    arrange();
    update();
  });
  const choices = run.inferences.map((mode) => {
    const radio = h("input", {
      type: "radio", name: "mode", value: mode, checked: mode === state.mode,
      onchange: () => { set({ mode }); arrange(); update(); },
    });
    return h("label", { class: "choice" }, radio, NAMES[mode]);
  });
  arrange();
  update();
  return h(
    "section",
    { class: "card next", "aria-label": "The next word" },
    h("h3", {}, "The next word after ", h("q", { dir: "auto", text: prefix || "(the beginning)" })),
    h("div", { class: "controls" },
      h("fieldset", { class: "modes" }, h("legend", { text: "Predict" }), choices),
      h("div", { class: "field slider" }, sliderLabel, slider)),
    bars,
    summary,
  );
}

function draw(bars, found, word) {
  const [before, now] = found.distributions;
  const order = found.words.map((_, n) => n)
    .sort((a, b) => Math.max(now.probabilities[b], before.probabilities[b]) - Math.max(now.probabilities[a], before.probabilities[a]))
    .slice(0, 10);
  bars.replaceChildren(...order.map((n) => {
    const piece = found.words[n];
    const own = word === null ? piece.is_end : !piece.is_end && piece.starts_word && piece.text !== "" && word.startsWith(piece.text);
    const name = piece.is_end ? "(end)" : `${piece.starts_word ? "" : "‑"}${piece.text}`;
    const bar = h("div", { class: "bar" }, h("i", { class: "now" }), h("i", { class: "before" }));
    bar.children[0].style.width = `${(100 * now.probabilities[n]).toFixed(2)}%`;
    bar.children[1].style.left = `${(100 * before.probabilities[n]).toFixed(2)}%`;
    return h(
      "div",
      { class: `bar-row${own ? " own" : ""}` },
      h("span", { class: "piece", dir: "auto", text: name, title: own ? "what this translation says" : undefined }),
      bar,
      h("span", { class: "value", text: now.probabilities[n].toFixed(3) }),
      h("span", { class: "value faint", text: before.probabilities[n].toFixed(3) }),
    );
  }));
  bars.prepend(h("div", { class: "bar-row head" }, h("span"), h("span"),
    h("span", { class: "value", text: now.inference }), h("span", { class: "value faint", text: before.inference })));
}
