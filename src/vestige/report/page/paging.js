// Long lists and long texts: one page at a time, and the beginning first.

const PAGE = 25;
const CLAMP = 280;

// A long text shows its beginning, and the rest on demand.
function clamped(text, render = visible) {
  const box = el("bdi", { class: "foreign", dir: "auto" });
  if (text.length <= CLAMP) {
    box.append(render(text));
    return box;
  }
  const head = text.slice(0, CLAMP - 40).replace(/[\ud800-\udbff]$/, "");
  const button = el("button", { type: "button", class: "more", "aria-expanded": "false" }, `… all ${text.length.toLocaleString("en")} characters`);
  box.append(render(head));
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    button.textContent = open ? `… all ${text.length.toLocaleString("en")} characters` : "less";
    box.replaceChildren(render(open ? head : text));
  });
  return el("span", {}, box, button);
}

function pageButtons(state, last, go) {
  if (last === 0) return [];
  const button = (words, page, enabled) => {
    const b = el("button", { type: "button", disabled: !enabled }, words);
    b.addEventListener("click", () => go(page));
    return b;
  };
  return [
    button("← previous", state.page - 1, state.page > 0),
    el("span", {}, `page ${state.page + 1} of ${last + 1}`),
    button("next →", state.page + 1, state.page < last),
  ];
}
