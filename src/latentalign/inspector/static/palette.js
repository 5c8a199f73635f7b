// Colours are attributes and not styles, so that an exported picture is complete in itself.

const LIGHT = { paper: "#ffffff", ink: "#1b2027", faint: "#66707c", line: "#dde2e8", low: [248, 250, 252], high: [13, 71, 140], accent: "#1d5fa8", mark: "#c2410c", over: "#ffffff" };
const DARK = { paper: "#161a20", ink: "#e7ebf0", faint: "#97a1ae", line: "#2f3742", low: [28, 33, 40], high: [132, 192, 255], accent: "#7cb8f5", mark: "#fb923c", over: "#0b1420" };

export const FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export const shown = () => (isDark() ? DARK : LIGHT);
export const printed = () => LIGHT;

// Small probabilities stay visible: the square root spreads them.
export function shade(palette, probability) {
  const share = Math.sqrt(Math.min(1, Math.max(0, probability)));
  const mixed = palette.low.map((low, n) => Math.round(low + (palette.high[n] - low) * share));
  return `rgb(${mixed.join(",")})`;
}

export function over(palette, probability) {
  return Math.sqrt(probability) > 0.55 ? palette.over : palette.ink;
}

const canvas = document.createElement("canvas").getContext("2d");

export function textWidth(text, size) {
  canvas.font = `${size}px ${FONT}`;
  return canvas.measureText(text).width;
}

export function shorten(word, most = 22) {
  const letters = [...word];
  return letters.length <= most ? word : `${letters.slice(0, most - 1).join("")}…`;
}
