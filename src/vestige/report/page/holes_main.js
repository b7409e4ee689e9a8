// Puts the parts of a search for holes into their places. A page that got here says so, so that a test can wait for it.

JSON.parse(document.getElementById("data").textContent).probes.forEach((found, i) => probe(document.getElementById(`holes-${i}`), found));
document.documentElement.dataset.drawn = "true";
