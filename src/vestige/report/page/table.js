// Every model on every split, by any measure, sortable by any column.

const SHARES = ["share_refused", "share_empty", "share_truncated"];

function table(root) {
  const first = DATA.forgets.find((f) => f.subjects.length);
  if (!first) {
    root.append(el("p", { class: "note" }, "Nothing has been evaluated yet."));
    return;
  }
  const state = { forget: first.index, measure: DATA.leading, scope: "all", edges: false, sort: null, down: true };
  const place = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "all estimates" });
  const draw = () => place.replaceChildren(estimatesTable(state, draw));
  root.append(
    el(
      "div",
      { class: "controls" },
      select("Forget set", DATA.forgets.filter((f) => f.subjects.length).map((f) => [String(f.index), f.label]), String(state.forget), (v) => { state.forget = Number(v); draw(); }),
      select("Measure", DATA.measures.map((m, i) => [String(i), measureWords(m)]), String(state.measure), (v) => { state.measure = Number(v); draw(); }),
      select("Forget answers", ["all", ...DATA.scopes].map((s) => [s, s]), state.scope, (v) => { state.scope = v; draw(); }),
      DATA.splits.some((s) => s.startsWith("edge:")) ? checkbox("single edges", state.edges, (v) => { state.edges = v; draw(); }) : null,
    ),
    place,
  );
  draw();
}

function measureWords(m) {
  return `${m.metric.replaceAll("_", " ")}, ${m.format}${m.attack ? `, under ${m.attack}` : ""} (${m.unit})`;
}

function columnsOf(state) {
  const splits = DATA.splits.filter((s) => state.edges || !s.startsWith("edge:"));
  const shares = SHARES.map((metric) => DATA.measures.findIndex((m) => m.metric === metric && !m.attack)).filter((i) => i >= 0 && i !== state.measure);
  return [
    ...splits.map((split) => ({ title: split.replace(/^edge:/, "").replaceAll("_", split.startsWith("edge:") ? "_" : " "), split, scope: split === "forget" ? state.scope : "all", measure: state.measure })),
    ...shares.map((measure) => ({ title: `forget, ${DATA.measures[measure].metric.replace("share_", "")}`, split: "forget", scope: state.scope, measure })),
  ];
}

function estimatesTable(state, redraw) {
  const forget = DATA.forgets[state.forget];
  const columns = columnsOf(state).map((c) => ({
    ...c,
    cells: new Map(forget.subjects.map((s) => [s, estimate(forget.index, s, c.split, c.scope, c.measure)])),
  })).filter((c) => [...c.cells.values()].some((e) => e !== null));
  const rows = [...forget.subjects];
  const key = columns.find((c) => `${c.split} ${c.measure}` === state.sort);
  if (key) rows.sort((a, b) => (state.down ? -1 : 1) * ((key.cells.get(a)?.value ?? -Infinity) - (key.cells.get(b)?.value ?? -Infinity)));
  const head = columns.map((c) => heading(c, state, redraw));
  return el(
    "table",
    { class: "estimates" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "model"), head)),
    el("tbody", {}, rows.map((s) => el(
      "tr",
      { class: colourClass(s) },
      el("th", { scope: "row" }, el("span", { class: "dot" }), name(DATA.subjects[s].label)),
      columns.map((c) => cell(c.cells.get(s), sameCount(c))),
    ))),
  );
}

function sameCount(column) {
  const counts = new Set([...column.cells.values()].filter((e) => e !== null).map((e) => e.n));
  return counts.size === 1 ? [...counts][0] : null;
}

function heading(column, state, redraw) {
  const id = `${column.split} ${column.measure}`;
  const sorted = state.sort === id;
  const n = sameCount(column);
  const button = el("button", { type: "button" }, name(shortened(column.title, 30)), el("span", { class: "arrow", "aria-hidden": "true" }, sorted ? (state.down ? "↓" : "↑") : "↕"));
  button.addEventListener("click", () => {
    state.down = sorted ? !state.down : true;
    state.sort = id;
    redraw();
  });
  const note = [column.split === "forget" && column.scope !== "all" ? column.scope : null, n === null ? null : `n = ${n}`].filter((w) => w !== null).join(", ");
  return el("th", { scope: "col", "aria-sort": sorted ? (state.down ? "descending" : "ascending") : "none" }, button, el("small", {}, note));
}

function cell(e, n) {
  if (e === null) return el("td", { class: "none" }, "–");
  return el("td", {}, el("b", {}, number(e.value)), el("small", {}, ` ${interval(e)}${n === null ? ` n = ${e.n}` : ""}`));
}
