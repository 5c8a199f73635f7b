// Two rows of words and the links between them; and the same words as text that answers to hovering.

import { h, percent, roving, s } from "./dom.js";
import { FONT, shorten, shown, textWidth } from "./palette.js";

const SIZE = 15;
const GAP = 16;

// Whether the first letter that has a direction runs from right to left.
function isRightToLeft(words) {
  const letter = words.join(" ").match(/\p{L}/u);
  return letter !== null && /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/.test(letter[0]);
}

function placed(words) {
  let x = 0;
  const found = words.map((word) => {
    const text = shorten(word, 26);
    const width = textWidth(text, SIZE);
    const at = { text, width, center: x + width / 2 };
    x += width + GAP;
    return at;
  });
  const width = Math.max(0, x - GAP);
  if (isRightToLeft(words)) for (const word of found) word.center = width - word.center;
  return { words: found, width };
}

export function diagram({ source, target, links, palette = shown() }) {
  const rows = [placed(source), placed(target)];
  const width = Math.max(rows[0].width, rows[1].width, 60) + 24;
  const shift = rows.map((row) => (width - row.width) / 2);
  const svg = s("svg", {
    xmlns: "http://www.w3.org/2000/svg", width: Math.ceil(width), height: 150, viewBox: `0 0 ${Math.ceil(width)} 150`,
    "font-family": FONT, "font-size": SIZE, role: "img", "aria-label": "Links between the words",
  });
  svg.append(s("rect", { width: "100%", height: "100%", fill: palette.paper }));
  for (const { source: i, target: j, probability } of links) {
    const from = shift[0] + rows[0].words[i].center;
    const to = shift[1] + rows[1].words[j].center;
    svg.append(s("path", {
      d: `M${from.toFixed(1)} 34C${from.toFixed(1)} 76 ${to.toFixed(1)} 70 ${to.toFixed(1)} 114`, fill: "none",
      stroke: palette.accent, "stroke-width": (1 + 2 * probability).toFixed(2), opacity: (0.2 + 0.8 * probability).toFixed(2),
      class: "link", "data-source": i, "data-target": j,
    }));
  }
  rows.forEach((row, number) => {
    for (const word of row.words) {
      svg.append(s("text", { x: (shift[number] + word.center).toFixed(1), y: number ? 132 : 26, fill: palette.ink, "text-anchor": "middle", text: word.text }));
    }
  });
  return svg;
}

// The words of both sides; pointing at one (or reaching it by keyboard) shows what it is linked to.
export function linkedWords({ source, target, links, picture }) {
  const caption = h("p", { class: "caption", role: "status", "aria-live": "polite", text: "Point at a word to see its links." });
  const sides = { source: [], target: [] };
  const wordsOf = { source, target };
  const show = (side, number) => {
    const other = side === "source" ? "target" : "source";
    const found = links.filter((link) => link[side] === number);
    clear();
    sides[side][number].classList.add("here");
    for (const link of found) {
      const word = sides[other][link[other]];
      word.classList.add("linked");
      word.style.setProperty("--strength", link.probability.toFixed(3));
    }
    for (const path of picture?.querySelectorAll(".link") ?? []) {
      path.classList.toggle("dim", Number(path.dataset[side]) !== number);
    }
    const named = found.map((link) => `“${wordsOf[other][link[other]]}” ${percent(link.probability)}`);
    caption.textContent = `“${wordsOf[side][number]}” ↔ ${named.join(", ") || "no word"}`;
  };
  const clear = () => {
    for (const word of [...sides.source, ...sides.target]) word.classList.remove("here", "linked");
    for (const path of picture?.querySelectorAll(".link.dim") ?? []) path.classList.remove("dim");
  };
  const rows = ["source", "target"].map((side) => {
    const row = h("div", { class: `words ${side}`, dir: "auto", role: "group", "aria-label": side === "source" ? "Source" : "Translation" });
    row.addEventListener("pointerleave", clear);
    wordsOf[side].forEach((word, number) => {
      const button = h("button", {
        type: "button", class: "word", text: word,
        onpointerenter: () => show(side, number), onfocus: () => show(side, number), onblur: clear,
      });
      sides[side].push(button);
      row.append(button, " ");
    });
    roving(row, sides[side]);
    return row;
  });
  return h("div", { class: "linked-words" }, rows, caption);
}
