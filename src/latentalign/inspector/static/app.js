// The page: its views, its runs, its theme and its link.

import { get } from "./api.js";
import { h, roving } from "./dom.js";
import { isDark } from "./palette.js";
import { link, read, set, state } from "./state.js";
import { askView } from "./view-ask.js";
import { compareView } from "./view-compare.js";
import { pairView } from "./view-pair.js";
import { translateView } from "./view-translate.js";

const VIEWS = {
  translate: ["Translate", translateView, ["translation"]],
  pair: ["Align a pair", pairView, ["translation", "aligner"]],
  compare: ["Compare runs", compareView, ["translation"]],
  ask: ["Ask", askView, ["vqa", "memory"]],
};
const main = document.getElementById("main");
const tabs = document.getElementById("tabs");
const notice = document.getElementById("notice");
let served = null;
let fading = 0;

// what a view may use
const page = {
  get limits() { return served.limits; },
  runs: (...tasks) => served.runs.filter((run) => tasks.includes(run.task)),
  find: (name, runs) => runs.find((run) => run.name === name) ?? runs[0],
  draw,
  notice: say,
  hint: (place, text) => place.replaceChildren(h("p", { class: "hint", text })),
  busy: (place) => place.setAttribute("aria-busy", "true"),
  fail: (place, error, retry) => place.replaceChildren(
    h("div", { class: "error", role: "alert" }, h("p", { text: error.message }),
      h("button", { type: "button", text: "Try again", onclick: retry }))),
};

function say(text) {
  notice.textContent = text;
  notice.classList.add("shown");
  clearTimeout(fading);
  fading = setTimeout(() => notice.classList.remove("shown"), 4000);
}

function usable() {
  return Object.entries(VIEWS).filter(([, [, , tasks]]) => page.runs(...tasks).length);
}

function draw() {
  const views = usable();
  if (!views.some(([name]) => name === state.view)) state.view = views[0][0];
  set({});
  const buttons = views.map(([name, [title]]) => h("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-selected": String(name === state.view), "aria-controls": "main", text: title,
    onclick: () => { set({ view: name }); draw(); document.getElementById(`tab-${name}`).focus(); },
  }));
  tabs.replaceChildren(...buttons);
  roving(tabs, buttons);
  buttons.forEach((button) => (button.tabIndex = button.id === `tab-${state.view}` ? 0 : -1));
  main.replaceChildren(...VIEWS[state.view][1](page));
}

// a view that got its answer is no longer busy
new MutationObserver((changes) => {
  for (const { target } of changes) if (target.matches?.(".results")) target.removeAttribute("aria-busy");
}).observe(main, { childList: true, subtree: true });

function paint() {
  document.getElementById("theme").textContent = isDark() ? "Light" : "Dark";
  if (served) draw();
}

document.getElementById("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("latentalign-theme", document.documentElement.dataset.theme);
  } catch { /* a private window may keep nothing */ }
  paint();
});

document.getElementById("copy-link").addEventListener("click", async () => {
  set({});
  try {
    await navigator.clipboard.writeText(link());
    say("The link is copied.");
  } catch {
    say("The link is in the address bar.");
  }
});

addEventListener("hashchange", () => { read(); if (served) draw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);

async function start() {
  try {
    const chosen = localStorage.getItem("latentalign-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch { /* as above */ }
  read();
  try {
    served = await get("api/runs");
    paint();
  } catch (error) {
    page.fail(main, error, start);
  }
}

start();
