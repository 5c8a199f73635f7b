// A table of probabilities: target words down, source words across, entropy beside every row.

import { percent, s } from "./dom.js";
import { FONT, over, shade, shorten, shown, textWidth } from "./palette.js";

const LABEL = 13;
const ENTROPY = 54;

// As large as the space allows; where that would be too small to read, the map scrolls.
function cellSize(columns, space) {
  const usual = columns <= 14 ? 34 : columns <= 28 ? 27 : 19;
  const fitting = Math.floor(space / columns);
  return fitting >= 19 ? Math.min(34, fitting) : usual;
}

// options: title, rows, columns, matrix, entropy, palette, marks (rows to point out), space (pixels across)
export function heatmap({ title, rows, columns, matrix, entropy, palette = shown(), marks = new Set(), space = 0 }) {
  const left = Math.max(...rows.map((word) => textWidth(shorten(word), LABEL)), 30) + 30;
  const cell = cellSize(columns.length, space - left - ENTROPY - 44);
  const longest = Math.max(...columns.map((word) => textWidth(shorten(word), LABEL)), 20);
  const top = 30 + longest * 0.82 + 8;
  const right = columns.length * cell + left;
  const overhang = longest * 0.58;
  const width = right + Math.max(ENTROPY + 44, overhang);
  const height = top + rows.length * cell + 10;
  const svg = s("svg", {
    xmlns: "http://www.w3.org/2000/svg", width: Math.ceil(width), height: Math.ceil(height),
    viewBox: `0 0 ${Math.ceil(width)} ${Math.ceil(height)}`, "font-family": FONT, "font-size": LABEL,
  });
  svg.append(
    s("rect", { width: "100%", height: "100%", fill: palette.paper }),
    s("text", { x: left, y: 17, fill: palette.ink, "font-weight": 600, text: title }),
    columnLabels(columns, { left, top, cell, palette }),
  );
  const most = Math.max(...entropy, Math.log(2));
  svg.append(s("text", { x: right + 10, y: top - 6, fill: palette.faint, "font-size": 10, text: "entropy" }));
  rows.forEach((word, row) => {
    const y = top + row * cell;
    const marked = marks.has(row);
    svg.append(rowLabel(word, { x: left - 8, y: y + cell / 2, palette, marked, row }));
    columns.forEach((_, column) => {
      svg.append(square(matrix[row][column], { x: left + column * cell, y, cell, palette, row, column }));
    });
    const share = (ENTROPY * entropy[row]) / most;
    svg.append(
      s("rect", { x: right + 10, y: y + cell * 0.28, width: Math.max(1, share), height: cell * 0.44, fill: palette.accent, opacity: 0.55 }),
      s("text", { x: right + 14 + share, y: y + cell / 2 + 4, fill: palette.faint, "font-size": 10, text: entropy[row].toFixed(2) }),
    );
  });
  svg.dataset.geometry = JSON.stringify({ left, top, cell, rows: rows.length, columns: columns.length });
  return svg;
}

function columnLabels(columns, { left, top, cell, palette }) {
  return s("g", { fill: palette.ink }, columns.map((word, number) => {
    const x = left + (number + 0.5) * cell + 3;
    return s("text", { transform: `translate(${x} ${top - 7}) rotate(-55)`, text: shorten(word) });
  }));
}

function rowLabel(word, { x, y, palette, marked, row }) {
  return s(
    "g",
    { "data-row": row, class: "row-label" },
    marked && s("circle", { cx: 7, cy: y, r: 4, fill: palette.mark }),
    s("text", { x, y: y + 4.5, fill: palette.ink, "text-anchor": "end", "font-weight": marked ? 600 : 400, text: shorten(word) }),
  );
}

function square(value, { x, y, cell, palette, row, column }) {
  const box = s("rect", {
    x, y, width: cell, height: cell, fill: shade(palette, value), stroke: palette.line,
    class: "cell", "data-row": row, "data-column": column,
  });
  if (cell < 24 || value < 0.005) return box;
  const text = value >= 0.995 ? "1" : value.toFixed(2).slice(1);
  return s("g", {}, box, s("text", {
    x: x + cell / 2, y: y + cell / 2 + 4, "text-anchor": "middle", "font-size": cell < 30 ? 10 : 11,
    fill: over(palette, value), "pointer-events": "none", text,
  }));
}

// Mouse, touch and arrow keys move one cursor over several heat maps of the same words.
export function cursor(svgs, { describe, onmove, onrow }) {
  const boxes = [];
  const place = { row: 0, column: 0 };
  const { rows, columns } = JSON.parse(svgs[0].dataset.geometry);
  for (const svg of svgs) {
    const geometry = JSON.parse(svg.dataset.geometry);
    const box = s("rect", { class: "cursor", width: geometry.cell, height: geometry.cell, fill: "none", visibility: "hidden" });
    svg.append(box);
    boxes.push([box, geometry]);
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("role", "application");
    svg.addEventListener("pointerover", (event) => {
      const cell = event.target.closest(".cell");
      if (cell) move(Number(cell.dataset.row), Number(cell.dataset.column));
    });
    svg.addEventListener("click", (event) => {
      const found = event.target.closest("[data-row]");
      if (found) onrow(Number(found.dataset.row));
    });
    svg.addEventListener("focus", () => move(place.row, place.column));
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (event.key === "Enter" || event.key === " ") onrow(place.row);
      else if (step) move(place.row + step[0], place.column + step[1]);
      else return;
      event.preventDefault();
    });
  }
  function move(row, column) {
    place.row = Math.min(rows - 1, Math.max(0, row));
    place.column = Math.min(columns - 1, Math.max(0, column));
    for (const [box, geometry] of boxes) {
      box.setAttribute("x", geometry.left + place.column * geometry.cell);
      box.setAttribute("y", geometry.top + place.row * geometry.cell);
      box.setAttribute("visibility", "visible");
    }
    onmove(describe(place.row, place.column));
  }
  return { move };
}

export function describeCell(rows, columns, matrices) {
  return (row, column) => {
    const values = matrices.map(([name, matrix]) => `${name} ${percent(matrix[row][column])}`);
    return `“${rows[row]}” ← “${columns[column]}”: ${values.join(", ")}`;
  };
}
