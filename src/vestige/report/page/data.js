// The run, as the page carries it, and how estimates are found in it.
//
// A result is [forget, subject, split, scope, measure, value, low, high, n]; the first, second and fifth are indices.

const DATA = JSON.parse(document.getElementById("data").textContent);

const RESULTS = new Map(
  DATA.results.map(([forget, subject, split, scope, measure, value, low, high, n]) => [
    JSON.stringify([forget, subject, split, scope, measure]),
    { value, low, high, n },
  ]),
);

function estimate(forget, subject, split, scope = "all", measure = DATA.leading) {
  return RESULTS.get(JSON.stringify([forget, subject, split, scope, measure])) ?? null;
}

// The mean of several models of one role, within the envelope of their intervals, as findings.py has it.
function pooled(estimates) {
  const found = estimates.filter((e) => e !== null);
  if (!found.length) return null;
  return {
    value: found.reduce((sum, e) => sum + e.value, 0) / found.length,
    low: Math.min(...found.map((e) => e.low)),
    high: Math.max(...found.map((e) => e.high)),
    n: Math.min(...found.map((e) => e.n)),
  };
}

function anchorOf(forget, role, split, scope = "all") {
  return pooled(forget.subjects.filter((s) => DATA.subjects[s].role === role).map((s) => estimate(forget.index, s, split, scope)));
}

function withRole(forget, ...roles) {
  return forget.subjects.filter((s) => roles.includes(DATA.subjects[s].role));
}

function number(x) {
  const digits = Math.abs(x) >= 100 ? 0 : Math.abs(x) >= 10 ? 1 : 2;
  const words = x.toFixed(digits).replace("-", "−");
  return /^−0(\.0+)?$/.test(words) ? words.slice(1) : words;
}

function interval(e) {
  if (e.low === null || e.high === null) return "[no interval]";
  return `[${number(e.low)}, ${number(e.high)}]`;
}

function inWords(e) {
  return e === null ? "not measured" : `${number(e.value)} ${interval(e)}, n = ${e.n}`;
}

function colourClass(subject) {
  const { role, colour } = DATA.subjects[subject];
  return role === "unlearned" ? `method-${colour % 8}` : `role-${role}`;
}
