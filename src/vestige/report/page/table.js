// Every number of the run, a row each: sorted and filtered by its columns, called by a link, with what it was made of.
//
// A row is { forget, key, cells: one text for each of FILTERS, css, value, low, high, n, unit, source }.

const FILTERS = ["Model", "Questions", "Asked as", "After", "Measure"];
const ALL = "\u0000";
const NUMBERS = ["value", "low", "high", "n"];
const CSV_HEADS = [...FILTERS, ...NUMBERS, "unit"];

function csvRow(row) {
  return [...row.cells, row.value, row.low, row.high, row.n, row.unit];
}

function cells(root) {
  const rows = [...auditCells(), ...plainCells()];
  if (!rows.length) {
    root.append(el("p", { class: "note" }, "Nothing has been evaluated yet."));
    return () => {};
  }
  const first = DATA.audits.length ? rows[0].cells[4] : (DATA.measures[DATA.leading]?.metric.replaceAll("_", " ") ?? ALL);
  const state = { chosen: [ALL, ALL, ALL, ALL, first], sort: null, down: true, page: 0, open: null };
  const controls = el("div", { class: "controls" });
  const found = el("p", { class: "found", role: "status" });
  const place = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "all numbers" });
  const pages = el("nav", { class: "pages", "aria-label": "pages of numbers" });
  const matching = () => {
    const kept = rows.filter((r) => state.chosen.every((want, i) => want === ALL || r.cells[i] === want));
    const value = (r) => (state.sort < FILTERS.length ? r.cells[state.sort] : r[NUMBERS[state.sort - FILTERS.length]] ?? -Infinity);
    if (state.sort !== null) kept.sort((a, b) => (state.down ? -1 : 1) * (value(a) > value(b) ? 1 : value(a) < value(b) ? -1 : 0));
    return kept;
  };
  const draw = () => {
    const kept = matching();
    const last = Math.max(0, Math.ceil(kept.length / PAGE) - 1);
    state.page = Math.min(state.page, last);
    found.replaceChildren(`${kept.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} numbers `, csvButton("numbers", () => [CSV_HEADS, ...kept.map(csvRow)]));
    place.replaceChildren(cellsTable(kept.slice(state.page * PAGE, (state.page + 1) * PAGE), state, draw));
    pages.replaceChildren(...pageButtons(state, last, (page) => { state.page = page; draw(); }));
  };
  const offer = () => controls.replaceChildren(...FILTERS.map((label, i) => {
    const values = [...new Set(rows.map((r) => r.cells[i]))].sort();
    return select(label, [[ALL, "all"], ...values.map((v) => [v, v || "nothing: as it stands"])], state.chosen[i], (v) => { state.chosen[i] = v; state.page = 0; draw(); });
  }));
  root.append(controls, found, place, pages);
  offer();
  draw();
  // Shows the number that a link names; says whether there is one.
  return (key) => {
    const row = rows.find((r) => r.key === key);
    if (!row) return false;
    Object.assign(state, { chosen: [...row.cells], sort: null, open: row, page: 0 });
    state.page = Math.floor(matching().indexOf(row) / PAGE);
    offer();
    draw();
    place.querySelector(".drawer").scrollIntoView({ block: "center", behavior: "instant" });
    return true;
  };
}

function plainCells() {
  return DATA.results.map(([forget, subject, split, scope, measure, value, low, high, n, made]) => {
    const { format, attack, metric, unit, asked, after } = DATA.measures[measure];
    const questions = split + (scope === "all" ? "" : `, ${scope}`);
    const { label } = DATA.subjects[subject];
    const key = [DATA.forgets[forget].selector, label, questions, format, attack, metric].join("|");
    const cells = [label, questions, asked.replaceAll("_", " "), after, metric.replaceAll("_", " ")];
    return { key, cells, css: colourClass(subject), value, low, high, n, unit, source: plainSource(made, { split, scope, format, metric }) };
  });
}

function auditCells() {
  return DATA.audits.flatMap((audit) => audit.cells.map(([subject, attack, format, quantity, value, low, high, n, unit]) => {
    const words = [subject, attack, format, quantity].map((w) => audit.words[w]);
    const shown = [subject, attack, format, quantity].map((w) => audit.shown[w]);
    const cells = [shown[0], DATA.audits.length > 1 ? audit.label : "forget", shown[2], shown[1], shown[3].replaceAll("_", " ")];
    return { key: [audit.forget, ...words].join("|"), cells, css: audit.css[subject], value, low, high, n, unit, source: () => auditSource(audit, words) };
  }));
}

function cellsTable(rows, state, redraw) {
  const heads = [...FILTERS, "Value", "from", "to", "n"].map((title, i) => {
    const sorted = state.sort === i;
    const button = el("button", { type: "button" }, title, el("span", { class: "arrow", "aria-hidden": "true" }, sorted ? (state.down ? "↓" : "↑") : "↕"));
    button.addEventListener("click", () => {
      Object.assign(state, { down: sorted ? !state.down : i >= FILTERS.length, sort: i, page: 0 });
      redraw();
    });
    return el("th", { scope: "col", "aria-sort": sorted ? (state.down ? "descending" : "ascending") : "none" }, button);
  });
  return el(
    "table",
    { class: "estimates" },
    el("thead", {}, el("tr", {}, heads, el("th", { scope: "col" }, "made of"))),
    el("tbody", {}, rows.flatMap((r) => cellRows(r, state, redraw))),
  );
}

function cellRows(row, state, redraw) {
  const open = state.open === row;
  const button = el("button", { type: "button", "aria-expanded": String(open) }, open ? "close" : "recompute");
  button.addEventListener("click", () => {
    state.open = open ? null : row;
    history.replaceState(null, "", open ? "#table" : `#cell=${encodeURIComponent(row.key.toWellFormed())}`);
    redraw();
  });
  const line = el(
    "tr",
    { class: row.css },
    el("th", { scope: "row" }, el("span", { class: "dot" }), name(shortened(row.cells[0], 40))),
    row.cells.slice(1).map((c) => el("td", {}, c ? name(shortened(c, 60)) : "–")),
    el("td", {}, el("b", {}, number(row.value)), row.unit === "bits" ? " bits" : ""),
    el("td", {}, row.low === null ? "–" : number(row.low)),
    el("td", {}, row.high === null ? "–" : number(row.high)),
    el("td", {}, row.n.toLocaleString("en")),
    el("td", {}, button),
  );
  return open ? [line, el("tr", { class: "drawer" }, el("td", { colspan: FILTERS.length + 5 }, el("p", { class: "tools" }, copyButton("copy row", () => csvLines([CSV_HEADS, csvRow(row)]))), row.source()))] : [line];
}

// The evaluations whose estimates are means over the lines of scores.jsonl, and the one measure of theirs that is none.
const MEANS = /\/evals\/(qa|choices|freeform|memory)-/;
const NO_MEAN = "truth_ratio_score";

function plainSource(made, { split, scope, format, metric }) {
  return () => {
    const [folder, summary, digest] = DATA.evals[made];
    const text = JSON.stringify;
    const keys = ["generate", "forced"].includes(format) ? metric : `${format}/${metric}`;
    const code = [
      "import json, pathlib, statistics",
      `folder = pathlib.Path(${text(folder)})`,
      `held = set(json.loads((folder / ${text(summary)}).read_bytes())["splits"][${text(split)}])`,
      'scores = map(json.loads, (folder / "scores.jsonl").read_bytes().splitlines())',
      `print(statistics.fmean(s[${text(keys)}] for s in scores if s["item"] in held and ${text(keys)} in s))`,
    ].join("\n");
    const whole = scope === "all" && DATA.wholeSplits.includes(split) && MEANS.test(folder) && metric !== NO_MEAN;
    return sourceWords(
      whole ? ["The mean over the questions of ", el("b", {}, split), ", in Python, from the folder of the run:"] : [`It is in tables/results.csv, and comes from those lines of scores.jsonl whose questions are ${split}, ${scope}.`],
      whole ? code : null,
      [[folder, digest]],
    );
  };
}

function auditSource(audit, [subject, attack]) {
  const own = audit.sources.filter(([s, a]) => s === subject && (a === attack || a === ""));
  return sourceWords(
    ["The audit computes it from stored scores, against the controls and the target. To compute it again, without a model, in the folder above the run:"],
    `vestige audit --rejudge ${/^[\w.-]+$/.test(DATA.run) ? DATA.run : "RUN"}`,
    own.map(([, , path, digest]) => [path, digest]),
  );
}

function sourceWords(words, code, files) {
  return el(
    "div",
    {},
    el("p", {}, words),
    code === null ? null : el("pre", {}, el("code", {}, visible(code))),
    code === null ? null : copyButton("copy", () => code),
    files.length ? el("p", {}, "Files:") : null,
    el("ul", {}, files.map(([path, digest]) => el("li", {}, el("code", {}, visible(`${path}/scores.jsonl`)), digest ? el("small", {}, ` SHA-256 ${digest}…`) : null))),
  );
}
