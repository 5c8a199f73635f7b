// What is on the page, and its link. It stands after the # and so never reaches the server or its log.

export const defaults = {
  view: "translate",
  run: "",
  other: "",
  source: "",
  target: "",
  beam: 10,
  mode: "",
  k: 5,
  samples: 20,
  panel: "",
  row: -1,
  alternative: 0,
  question: "",
  story: "",
  image: -1,
  answer: "",
};

export const state = { ...defaults };

export function read() {
  const found = new URLSearchParams(location.hash.slice(1));
  Object.assign(state, defaults);
  for (const [name, standard] of Object.entries(defaults)) {
    if (!found.has(name)) continue;
    const text = found.get(name);
    if (typeof standard !== "number") state[name] = text;
    else if (Number.isInteger(Number(text))) state[name] = Number(text);
  }
}

export function link() {
  const found = new URLSearchParams();
  for (const [name, standard] of Object.entries(defaults)) {
    if (state[name] !== standard) found.set(name, state[name]);
  }
  return `${location.origin}${location.pathname}#${found}`;
}

export function write() {
  history.replaceState(null, "", link());
}

export function set(changes) {
  Object.assign(state, changes);
  write();
}

// exact, kmax:5, sample:20 or soft, as the API wants it; null leaves it to the run
export function inference() {
  if (state.mode === "kmax") return `kmax:${state.k}`;
  if (state.mode === "sample") return `sample:${state.samples}`;
  return state.mode || null;
}
