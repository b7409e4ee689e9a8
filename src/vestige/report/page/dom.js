// Elements and text. Whatever a model or a data set wrote enters the page through text nodes only.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
}

// What acts unseen (controls, ANSI's escape, bidirectional overrides, zero-width signs) is spelt out by its number.
const UNSEEN = /(?![\n\t])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

function visible(text) {
  const fragment = document.createDocumentFragment();
  const whole = text.replaceAll("\r\n", "\n");
  let from = 0;
  for (const match of whole.matchAll(UNSEEN)) {
    fragment.append(whole.slice(from, match.index));
    const number = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    fragment.append(el("span", { class: "unseen" }, `U+${number}`));
    from = match.index + match[0].length;
  }
  fragment.append(whole.slice(from));
  return fragment;
}

// The same as one string, for attributes, options and SVG's text.
function plain(text, length) {
  return visible(shortened(text, length)).textContent;
}

// A name or a short text in the middle of our own words: its direction stays its own.
function name(text) {
  return el("bdi", {}, visible(text));
}

function shortened(text, length) {
  const signs = [...text];
  return signs.length <= length ? text : signs.slice(0, length - 1).join("") + "…";
}

function select(label, options, chosen, onChange) {
  const box = el(
    "select",
    { name: label },
    options.map(([value, words]) => el("option", { value, selected: value === chosen }, plain(words, 60))),
  );
  box.addEventListener("change", () => onChange(box.value));
  return el("label", { class: "control" }, el("span", {}, label), box);
}

function checkbox(label, checked, onChange) {
  const box = el("input", { type: "checkbox", name: label, checked });
  box.addEventListener("change", () => onChange(box.checked));
  return el("label", { class: "control check" }, box, el("span", {}, label));
}

// Draw as soon as the place has a width that a plot fits into, and again whenever it changes.
const LEAST_WIDTH = 120;

function drawnToWidth(place, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (place.clientWidth < LEAST_WIDTH || Math.abs(place.clientWidth - width) < 1) return;
    width = place.clientWidth;
    draw(width);
  }).observe(place);
}
