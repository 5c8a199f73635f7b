// Elements without innerHTML: whatever a user types stays text.

const SVG = "http://www.w3.org/2000/svg";

function build(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") element.textContent = value;
    else if (name === "value") element.value = value;
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

export function h(tag, properties, ...children) {
  return build(document.createElement(tag), properties, children);
}

export function s(tag, properties, ...children) {
  return build(document.createElementNS(SVG, tag), properties, children);
}

let fields = 0;

// A label with its control; `hint` is read out with it.
export function field(label, control, hint) {
  control.id ||= `field-${++fields}`;
  const parts = [h("label", { for: control.id, text: label }), control];
  if (hint) {
    const described = h("small", { id: `${control.id}-hint`, text: hint });
    control.setAttribute("aria-describedby", described.id);
    parts.push(described);
  }
  return h("div", { class: "field" }, parts);
}

export function select(options, value, onchange) {
  const control = h(
    "select",
    { onchange: () => onchange(control.value) },
    options.map(([key, text]) => h("option", { value: key, text })),
  );
  control.value = value;
  return control;
}

// A sentence is sent by Enter; Shift+Enter starts a new line.
export function sentence(value, { rows = 2, placeholder = "", oninput, onsubmit, name }) {
  const control = h("textarea", {
    rows, placeholder, name, dir: "auto", spellcheck: "false", autocomplete: "off",
    oninput: () => oninput(control.value),
    onkeydown: (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        onsubmit();
      }
    },
  });
  control.value = value;
  return control;
}

// Left and right move between the items of a group; only one of them is a tab stop.
export function roving(container, items) {
  items.forEach((item, number) => (item.tabIndex = number ? -1 : 0));
  container.addEventListener("keydown", (event) => {
    const at = items.indexOf(document.activeElement);
    if (at < 0) return;
    const forward = getComputedStyle(container).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
    const steps = { [forward]: 1, [forward === "ArrowLeft" ? "ArrowRight" : "ArrowLeft"]: -1 };
    const next =
      event.key === "Home" ? 0 : event.key === "End" ? items.length - 1
        : event.key in steps ? Math.min(items.length - 1, Math.max(0, at + steps[event.key])) : -1;
    if (next < 0) return;
    event.preventDefault();
    items.forEach((item, number) => (item.tabIndex = number === next ? 0 : -1));
    items[next].focus();
  });
}

// A number that may be negative, with a proper minus sign.
export function signed(value, digits) {
  return value.toFixed(digits).replace("-", "−");
}

export function percent(value) {
  return value >= 0.9995 ? "1" : value >= 0.0005 ? value.toFixed(3) : value > 0 ? "<0.001" : "0";
}
