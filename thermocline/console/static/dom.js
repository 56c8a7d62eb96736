// Builds elements. Texts go in as text nodes only: no value of a table, a name or an error becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "open") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

export const el = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);

export const svg = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

export function put(node, ...children) {
  node.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// Sets text and leaves the node alone where it is the same: readers of screens and selections are not disturbed.
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
  return node;
}

export function say(text) {
  write(document.getElementById("live"), text);
}

export function button(text, onclick, attributes) {
  return el("button", { type: "button", onclick, ...attributes }, text);
}

// A list of rows that stay the same nodes while their keys do: focus and scrolling survive an update.
export function keyed(parent, items, keyOf, make, update) {
  const nodes = (parent.nodesByKey ??= new Map());
  const present = new Set();
  let before = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    present.add(key);
    let node = nodes.get(key);
    if (!node) nodes.set(key, (node = make(item)));
    update(node, item);
    if (node === before) before = before.nextSibling;
    else parent.insertBefore(node, before);
  }
  for (const [key, node] of nodes) {
    if (!present.has(key)) {
      node.remove();
      nodes.delete(key);
    }
  }
}

export function problem(error) {
  return el("div", { class: "problem", role: "alert" }, el("strong", {}, "✕ "), error.message ?? String(error));
}
