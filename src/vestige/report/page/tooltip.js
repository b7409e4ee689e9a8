// One tooltip for the whole page, shown on hover and on focus.

const TOOLTIP = el("div", { class: "tooltip", role: "tooltip", id: "tooltip", hidden: true });
document.body.append(TOOLTIP);

function showTooltip(title, rows, x, y) {
  TOOLTIP.replaceChildren(
    el("strong", {}, name(shortened(title, 80))),
    el("dl", {}, rows.flatMap(([label, words]) => [el("dt", {}, name(shortened(label, 60))), el("dd", {}, words)])),
  );
  TOOLTIP.hidden = false;
  const { width, height } = TOOLTIP.getBoundingClientRect();
  const left = Math.min(Math.max(8, x + 14), document.documentElement.clientWidth - width - 8);
  const top = y + height + 20 > window.innerHeight ? y - height - 12 : y + 14;
  TOOLTIP.style.left = `${left}px`;
  TOOLTIP.style.top = `${Math.max(8, top)}px`;
}

function hideTooltip() {
  TOOLTIP.hidden = true;
}

// `tell` gives [title, rows] when it is asked.
function explains(mark, tell) {
  mark.addEventListener("pointermove", (event) => showTooltip(...tell(), event.clientX, event.clientY));
  mark.addEventListener("pointerleave", hideTooltip);
  mark.addEventListener("focus", () => {
    const box = mark.getBoundingClientRect();
    showTooltip(...tell(), box.left + box.width / 2, box.top + box.height / 2);
  });
  mark.addEventListener("blur", hideTooltip);
  return mark;
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTooltip();
});
window.addEventListener("scroll", hideTooltip, { passive: true });
