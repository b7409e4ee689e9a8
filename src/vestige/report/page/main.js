// Puts the parts into their places. A page that got here says so, so that a test can wait for it.

const showItems = items(document.getElementById("items-body"));
tradeoff(document.getElementById("tradeoff-body"));
graph(document.getElementById("graph-body"), showItems);
DATA.audits.forEach((audit, i) => recovery(document.querySelector(`#recovery-${i} .recovery-body`), audit));
DATA.probes.forEach((found, i) => probe(document.getElementById(`holes-${i}`), found));
tells();
const showCell = cells(document.getElementById("table-body"));

// A link to a number shows it; one to a reason opens it.
function follow() {
  const link = location.hash.match(/^#cell=(.*)/);
  if (link) {
    try {
      showCell(decodeURIComponent(link[1]));
    } catch {
      // A link that was cut names nothing.
    }
    return;
  }
  const place = document.getElementById(location.hash.slice(1));
  const fold = place?.closest("details");
  if (fold) {
    fold.open = true;
    place.scrollIntoView();
  }
}
window.addEventListener("hashchange", follow);
follow();
document.documentElement.dataset.drawn = "true";
