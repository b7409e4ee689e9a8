// Puts the parts into their places. A page that got here says so, so that a test can wait for it.

const showItems = items(document.getElementById("items-body"));
tradeoff(document.getElementById("tradeoff-body"));
graph(document.getElementById("graph-body"), showItems);
table(document.getElementById("table-body"));
document.documentElement.dataset.drawn = "true";
