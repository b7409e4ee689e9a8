// A page that got here says so, so that a test can wait for it.

pageTools();
for (const row of document.querySelectorAll("table.compared tbody tr")) {
  row.lastElementChild.append(" ", copyButton("copy row", () => csvLines(shownRows({ rows: [row] }))));
}
for (const fold of document.querySelectorAll("details.question")) {
  fold.append(copyButton("copy link", () => `${location.href.split("#")[0]}#${fold.id}`));
}
function follow() {
  const fold = document.getElementById(location.hash.slice(1))?.closest("details");
  if (!fold) return;
  fold.open = true;
  fold.scrollIntoView();
}
window.addEventListener("hashchange", follow);
follow();
document.documentElement.dataset.drawn = "true";
