// A search for knowledge holes: the map of prompts that were tested, and the list of them with both answers.
//
// A row that was tested has target, unlearned: [answer or null, score or null]; placebos: [name, answer, score];
// `at`: its place in the map. One that was dropped has the reason instead.

const SHOWN = [["holes", "holes"], ["tested", "all prompts tested"], ["dropped", "candidates not tested"]];
const TOLD = 160;

function probe(section, found) {
  const show = holeList(section.querySelector(".hole-list"), found);
  holeMap(section.querySelector(".hole-map"), found, show);
}

function holeMap(root, found, show) {
  const rows = found.rows.map((row, i) => ({ ...row, i })).filter((row) => row.at);
  if (!rows.length) {
    if (found.mapped) root.append(el("p", { class: "note" }, "No prompt was tested, so there is nothing to draw."));
    return;
  }
  const place = el("div", { class: "plot" });
  root.append(place, mapLegend(found, rows));
  drawnToWidth(place, (width) => place.replaceChildren(mapDrawing(found, rows, width, show)));
}

function mapDrawing(found, rows, width, show) {
  const edge = 14;
  const span = (axis) => {
    const values = rows.map((row) => row.at[axis]);
    return [Math.min(...values), Math.max(...values)];
  };
  const [[left, right], [low, high]] = [span(0), span(1)];
  // One scale for both axes, so that distances can be compared; the height follows, within bounds.
  const room = Math.min((width - 2 * edge) / (right - left || 1), (Math.min(560, 1.1 * width) - 2 * edge) / (high - low || 1));
  const height = Math.max(160, room * (high - low) + 2 * edge);
  const x = (row) => width / 2 + room * (row.at[0] - (left + right) / 2);
  const y = (row) => height / 2 - room * (row.at[1] - (low + high) / 2);
  const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "map of the prompts tested" });
  // Holes are drawn last, so that none is hidden by a prompt that is none.
  const ordered = [...rows.filter((row) => !row.hole), ...rows.filter((row) => row.hole)];
  root.append(...ordered.map((row) => mapDot(found, row, x(row), y(row), show)));
  return root;
}

function mapDot(found, row, x, y, show) {
  const group = row.hole ? found.groups[row.group] ?? null : null;
  const dot = sign(row.hole ? group?.sign ?? 0 : -1, x, y, row.hole ? (group ? `method-${group.colour}` : "") : "plain");
  fill(dot, { tabindex: row.hole ? 0 : null, role: "button", "aria-label": plain(row.prompt, 100) }, []);
  dot.addEventListener("click", () => show(row.i));
  dot.addEventListener("keydown", (event) => {
    if (event.key === "Enter") show(row.i);
  });
  return explains(dot, () => [row.prompt, told(found, row, group)]);
}

function told(found, row, group) {
  const said = ([answer, score]) => el("span", { class: "told" }, answer === null ? "no answer" : visible(shortened(answer.trim(), TOLD) || "(nothing)"), ` (${scoreWords(score)})`);
  return [
    ["target", said(row.target)],
    ["unlearned", said(row.unlearned)],
    [found.sources[row.source], el("span", { class: "told" }, row.hole ? "hole: " : "no hole", group ? name(group.name) : null)],
  ];
}

// A circle, a diamond or a square for the first, the next and the last eight groups; -1: a small circle for no hole.
function sign(kind, x, y, css) {
  const classes = { class: `hole-dot ${css}` };
  if (kind <= 0) return svg("circle", { ...classes, cx: x, cy: y, r: kind < 0 ? 3.5 : 5.5 });
  if (kind === 1) return svg("path", { ...classes, d: `M${x} ${y - 7}l7 7l-7 7l-7-7z` });
  return svg("rect", { ...classes, x: x - 5, y: y - 5, width: 10, height: 10 });
}

function mapLegend(found, rows) {
  const key = (kind, css, words) => el("span", { class: "key" }, svg("svg", { width: 16, height: 16, "aria-hidden": "true" }, sign(kind, 8, 8, css)), words);
  const n = rows.filter((row) => !row.hole).length;
  return el(
    "div",
    { class: "legend" },
    found.groups.map((group) => key(group.sign, `method-${group.colour}`, name(shortened(group.name, 60)))),
    n ? key(-1, "plain", `tested, no hole (${n.toLocaleString("en")})`) : null,
  );
}

function scoreWords(score) {
  return score === null ? "not judged" : String(Number(score.toFixed(1)));
}

function kindOf(row) {
  return row.dropped ? "dropped" : row.hole ? "holes" : "tested";
}

// Returns a function that shows one row alone.
function holeList(root, found) {
  const has = new Set(found.rows.map(kindOf));
  const state = { kind: has.has("holes") ? "holes" : has.has("tested") ? "tested" : "dropped", source: "", group: "", text: "", order: "found", only: -1, page: 0 };
  const controls = el("div", { class: "controls" });
  const counted = el("p", { class: "found", role: "status" });
  const list = el("div", { class: "items" });
  const pages = el("nav", { class: "pages", "aria-label": "pages of prompts" });
  const draw = () => {
    const rows = chosenPrompts(found, state);
    const last = Math.max(0, Math.ceil(rows.length / PAGE) - 1);
    state.page = Math.min(state.page, last);
    counted.replaceChildren(...countWords(found, state, rows.length, () => change("only", -1)));
    list.replaceChildren(...rows.slice(state.page * PAGE, (state.page + 1) * PAGE).map((row) => holeCard(found, row)));
    pages.replaceChildren(...pageButtons(state, last, (page) => { state.page = page; draw(); root.scrollIntoView(); }));
  };
  const change = (key, value) => {
    Object.assign(state, { only: -1, [key]: value, page: 0 });
    draw();
  };
  if (!found.rows.length) {
    root.append(el("p", { class: "note" }, "There were no candidates."));
    return () => {};
  }
  controls.append(...holeControls(found, state, has, change));
  root.append(controls, counted, list, pages);
  draw();
  return (row) => {
    hideTooltip();
    change("only", row);
    root.scrollIntoView();
  };
}

function holeControls(found, state, has, change) {
  const search = el("input", { type: "search", name: "Text", placeholder: "in prompts and answers" });
  search.addEventListener("input", () => change("text", search.value));
  const groups = found.groups.map((group, i) => [String(i), group.name]);
  return [
    select("Show", SHOWN.filter(([kind]) => has.has(kind) || (kind === "tested" && has.has("holes"))), state.kind, (v) => change("kind", v)),
    found.sources.length > 1 ? select("Source", [["", "every source"], ...found.sources.map((s, i) => [String(i), s])], "", (v) => change("source", v)) : null,
    groups.length > 1 ? select("Group", [["", "every group"], ...groups], "", (v) => change("group", v)) : null,
    select("Order", [["found", "as they were found"], ["drop", "largest drop first"]], state.order, (v) => change("order", v)),
    el("label", { class: "control" }, el("span", {}, "Text"), search),
  ].filter((control) => control !== null);
}

function countWords(found, state, n, all) {
  if (state.only < 0) return [`${n.toLocaleString("en")} of ${found.rows.length.toLocaleString("en")} candidates`];
  const button = el("button", { type: "button" }, "show all");
  button.addEventListener("click", all);
  return ["chosen in the map", button];
}

function chosenPrompts(found, state) {
  if (state.only >= 0) return [found.rows[state.only]];
  const words = state.text.toLowerCase();
  const contains = (text) => text !== null && text.toLowerCase().includes(words);
  const rows = found.rows.filter((row) => (state.kind === "tested" ? !row.dropped : kindOf(row) === state.kind)
    && (!state.source || String(row.source) === state.source)
    && (!state.group || (row.hole && String(row.group) === state.group))
    && (!words || contains(row.prompt) || (!row.dropped && (contains(row.target[0]) || contains(row.unlearned[0])))));
  const drop = (row) => (row.dropped || row.target[1] === null || row.unlearned[1] === null ? -Infinity : row.target[1] - row.unlearned[1]);
  return state.order === "drop" ? rows.map((row, i) => [row, i]).sort(([a, i], [b, j]) => (drop(a) === drop(b) ? i - j : drop(b) - drop(a))).map(([row]) => row) : rows;
}

function holeCard(found, row) {
  const group = row.hole ? found.groups[row.group] : undefined;
  const where = [
    row.hole ? el("span", { class: "chip is-hole" }, "hole") : null,
    el("span", {}, name(found.sources[row.source])),
    group ? el("span", { class: `method-${group.colour}` }, el("span", { class: "dot" }), name(shortened(group.name, 60))) : null,
  ];
  const head = el(
    "header",
    {},
    el("p", { class: "question" }, clamped(row.prompt)),
    row.origin ? el("p", { class: "gold" }, el("span", { class: "kicker" }, "begun from"), clamped(row.origin)) : null,
    el("p", { class: "where" }, where.filter((part) => part !== null)),
  );
  if (row.dropped) return el("article", { class: "item" }, head, el("p", { class: "none" }, `not tested: ${row.dropped}`));
  return el("article", { class: "item" }, head, el(
    "div",
    { class: "replies" },
    answerBox("target", "target", row.target),
    answerBox("unlearned", "unlearned", row.unlearned),
    row.placebos.map(([label, ...said]) => answerBox("placebo", label, said)),
  ));
}

function answerBox(role, label, [answer, score]) {
  const share = score === null ? 0 : (score - 1) / 9;
  return el(
    "div",
    { class: `reply ${role}` },
    el("div", { class: "reply-head" }, el("span", { class: "kicker" }, el("span", { class: "dot" }), name(shortened(label, 40))), el("span", { class: "figures", title: "the judge's score, 1 to 10" }, el("b", {}, scoreWords(score)))),
    svg("svg", { class: "score", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { class: "back", width: 100, height: 4 }), svg("rect", { class: "front", width: 100 * share, height: 4 })),
    el("p", { class: "reply-text" }, answer === null ? el("span", { class: "none" }, "no answer") : answer.trim() ? clamped(answer) : el("span", { class: "none" }, "(nothing)")),
  );
}
