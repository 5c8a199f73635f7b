// Save what is shown: SVG and PNG are drawn anew in print colours, JSON and Pharaoh are the API's own words.

import { h, s } from "./dom.js";

export function save(name, content, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const anchor = h("a", { href: address, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// what XML has no way to write
const UNPRINTABLE = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g;

export function serialize(svg) {
  const copy = svg.cloneNode(true);
  for (const element of [copy, ...copy.querySelectorAll("*")]) {
    for (const name of ["class", "tabindex", "role", ...element.getAttributeNames().filter((found) => found.startsWith("data-"))]) {
      element.removeAttribute(name);
    }
  }
  // an embedded picture gets its address only here: in the page the policy would refuse to load it
  const text = new XMLSerializer().serializeToString(copy)
    .replaceAll(' embedded="data:', ' href="data:')
    .replace(UNPRINTABLE, "\ufffd");
  return `<?xml version="1.0" encoding="UTF-8"?>\n${text}\n`;
}

export async function toPng(svg, scale = 2) {
  const width = Number(svg.getAttribute("width"));
  const height = Number(svg.getAttribute("height"));
  const address = URL.createObjectURL(new Blob([serialize(svg)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = h("canvas", { width: width * scale, height: height * scale });
    canvas.getContext("2d").drawImage(image, 0, 0, width * scale, height * scale);
    return await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}

// Several pictures as one, side by side.
export function beside(pictures, gap = 24) {
  const sizes = pictures.map((svg) => [Number(svg.getAttribute("width")), Number(svg.getAttribute("height"))]);
  const width = sizes.reduce((sum, [wide]) => sum + wide, gap * (sizes.length - 1));
  const height = Math.max(...sizes.map(([, high]) => high));
  const all = s("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` });
  all.append(s("rect", { width: "100%", height: "100%", fill: "#ffffff" }));
  let x = 0;
  pictures.forEach((svg, number) => {
    svg.setAttribute("x", x);
    x += sizes[number][0] + gap;
    all.append(svg);
  });
  return all;
}

// name, picture() -> svg or a promise of one, json() -> object, pharaoh() -> text or null
export function exportBar({ name, picture, json, pharaoh }) {
  const button = (label, onclick) => h("button", { type: "button", text: label, onclick });
  return h(
    "div",
    { class: "exports", role: "group", "aria-label": "Save" },
    h("span", { text: "Save:" }),
    picture && button("SVG", async () => save(`${name}.svg`, serialize(await picture()), "image/svg+xml")),
    picture && button("PNG", async () => save(`${name}.png`, await toPng(await picture()))),
    button("JSON", () => save(`${name}.json`, `${JSON.stringify(json(), null, 1)}\n`, "application/json")),
    pharaoh && button("Pharaoh", () => save(`${name}.links`, `${pharaoh()}\n`, "text/plain")),
  );
}
