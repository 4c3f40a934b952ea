// Small tools for the page's elements.

export const byId = (id) => document.getElementById(id);

// An element with attributes and children; text is always text, never markup.
export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const number = (value) => value.toLocaleString("en");

// Four digits, as in the report: scores have any scale, and near 0 or 1 three decimals would all look alike.
export const score = (value) => String(Number(value.toPrecision(4)));

export const word = (value) => ({ 1: "present", "-1": "absent", 0: "skipped" })[value];

export const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

let fading = 0;

export function toast(text) {
  const node = byId("toast");
  node.textContent = text;
  node.hidden = false;
  clearTimeout(fading);
  fading = setTimeout(() => { node.hidden = true; }, 4500);
}
