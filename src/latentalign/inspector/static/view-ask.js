// A question to a run that answers questions: over a story's facts, or an image's regions.

import { h } from "./dom.js";

export function askView() {
  return [h("p", { class: "hint", text: "" })];
}
