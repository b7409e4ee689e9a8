// A search for knowledge holes: the list of prompts that were tested, with both answers.
//
// A row that was tested has target, unlearned: [answer or null, score or null]; placebos: [name, answer, score].
// One that was dropped has the reason instead.

const SHOWN = [["holes", "holes"], ["tested", "all prompts tested"], ["dropped", "candidates not tested"]];

function probe(section, found) {
  holeList(section.querySelector(".hole-list"), found);
}

function scoreWords(score) {
  return score === null ? "not judged" : String(Number(score.toFixed(1)));
}

function kindOf(row) {
  return row.dropped ? "dropped" : row.hole ? "holes" : "tested";
}

function holeList(root, found) {
  const has = new Set(found.rows.map(kindOf));
  const state = { kind: has.has("holes") ? "holes" : has.has("tested") ? "tested" : "dropped", source: "", text: "", order: "found", page: 0 };
  const controls = el("div", { class: "controls" });
  const counted = el("p", { class: "found", role: "status" });
  const list = el("div", { class: "items" });
  const pages = el("nav", { class: "pages", "aria-label": "pages of prompts" });
  const draw = () => {
    const rows = chosenPrompts(found, state);
    const last = Math.max(0, Math.ceil(rows.length / PAGE) - 1);
    state.page = Math.min(state.page, last);
    counted.textContent = `${rows.length.toLocaleString("en")} of ${found.rows.length.toLocaleString("en")} candidates`;
    list.replaceChildren(...rows.slice(state.page * PAGE, (state.page + 1) * PAGE).map((row) => holeCard(found, row)));
    pages.replaceChildren(...pageButtons(state, last, (page) => { state.page = page; draw(); root.scrollIntoView(); }));
  };
  const change = (key, value) => {
    Object.assign(state, { [key]: value, page: 0 });
    draw();
  };
  if (!found.rows.length) {
    root.append(el("p", { class: "note" }, "There were no candidates."));
    return;
  }
  controls.append(...holeControls(found, state, has, change));
  root.append(controls, counted, list, pages);
  draw();
}

function holeControls(found, state, has, change) {
  const search = el("input", { type: "search", name: "Text", placeholder: "in prompts and answers" });
  search.addEventListener("input", () => change("text", search.value));
  return [
    select("Show", SHOWN.filter(([kind]) => has.has(kind) || (kind === "tested" && has.has("holes"))), state.kind, (v) => change("kind", v)),
    found.sources.length > 1 ? select("Source", [["", "every source"], ...found.sources.map((s, i) => [String(i), s])], "", (v) => change("source", v)) : null,
    select("Order", [["found", "as they were found"], ["drop", "largest drop first"]], state.order, (v) => change("order", v)),
    el("label", { class: "control" }, el("span", {}, "Text"), search),
  ].filter((control) => control !== null);
}

function chosenPrompts(found, state) {
  const words = state.text.toLowerCase();
  const contains = (text) => text !== null && text.toLowerCase().includes(words);
  const rows = found.rows.filter((row) => (state.kind === "tested" ? !row.dropped : kindOf(row) === state.kind)
    && (!state.source || String(row.source) === state.source)
    && (!words || contains(row.prompt) || (!row.dropped && (contains(row.target[0]) || contains(row.unlearned[0])))));
  const drop = (row) => (row.dropped || row.target[1] === null || row.unlearned[1] === null ? -Infinity : row.target[1] - row.unlearned[1]);
  return state.order === "drop" ? rows.map((row, i) => [row, i]).sort(([a, i], [b, j]) => (drop(a) === drop(b) ? i - j : drop(b) - drop(a))).map(([row]) => row) : rows;
}

function holeCard(found, row) {
  const where = [
    row.hole ? el("span", { class: "chip is-hole" }, "hole") : null,
    el("span", {}, name(found.sources[row.source])),
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
