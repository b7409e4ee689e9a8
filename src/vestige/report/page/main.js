// Puts the parts into their places. A page that got here says so, so that a test can wait for it.

const showItems = items(document.getElementById("items-body"));
tradeoff(document.getElementById("tradeoff-body"));
graph(document.getElementById("graph-body"), showItems);
table(document.getElementById("table-body"));
DATA.audits.forEach((audit, i) => recovery(document.querySelector(`#recovery-${i} .recovery-body`), audit));
DATA.probes.forEach((found, i) => probe(document.getElementById(`holes-${i}`), found));
tells();
document.documentElement.dataset.drawn = "true";
