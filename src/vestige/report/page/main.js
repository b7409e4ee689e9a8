// Puts the parts into their places. A page that got here says so, so that a test can wait for it.

// The page leaves out parts that have nothing to show.
const within = (root, draw) => root && draw(root);
const showItems = within(document.getElementById("items-body"), items);
within(document.getElementById("tradeoff-body"), tradeoff);
DATA.audits.forEach((audit, i) => within(document.querySelector(`#recovery-${i} .recovery-body`), (root) => recovery(root, audit)));
DATA.probes.forEach((found, i) => probe(document.getElementById(`holes-${i}`), found));
tells();
pageTools();
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
  const item = DATA.items.rows.findIndex((row) => location.hash === `#item=${row.id}`);
  if (item >= 0) {
    showItems?.({ item });
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
