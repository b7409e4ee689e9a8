// What each model answered, question by question, side by side.
//
// A reply is [text, rouge, probability, refused, empty, truncated]; the text is an index into DATA.items.texts.

const EVERY = "every";
const EDGE_NAMES = new Map(DATA.contracts.map(([id, name]) => [id, `${name} (${id})`]));

function firstChoice(forget) {
  return withRole(forget, "unlearned")[0] ?? withRole(forget, "retrained")[0];
}

function items(root) {
  const first = DATA.forgets.find((f) => f.subjects.length);
  if (!first || !DATA.items.rows.length) {
    root.append(el("p", { class: "note" }, "No answers have been collected yet."));
    return () => {};
  }
  const state = { forget: first.index, subject: String(firstChoice(first) ?? EVERY), edge: "", split: "", text: "", differs: false, order: "run", page: 0, only: null };
  const controls = el("div", { class: "controls" });
  const found = el("p", { class: "found", role: "status" });
  const list = el("div", { class: "items" });
  const pages = el("nav", { class: "pages", "aria-label": "pages of items" });
  const draw = () => {
    const rows = chosenRows(state);
    const last = Math.max(0, Math.ceil(rows.length / PAGE) - 1);
    state.page = Math.min(state.page, last);
    const carried = DATA.items.rows.length;
    const sampled = carried < DATA.items.asked ? `; ${DATA.items.asked.toLocaleString("en")} were asked, and this page carries those of the forget sets first, then others evenly spaced. tables/items.csv has all` : "";
    found.replaceChildren(`${rows.length.toLocaleString("en")} of ${carried.toLocaleString("en")} questions${sampled}`);
    list.replaceChildren(...rows.slice(state.page * PAGE, (state.page + 1) * PAGE).map((i) => itemCard(i, state)));
    pages.replaceChildren(...pageButtons(state, last, (page) => { state.page = page; draw(); root.scrollIntoView(); }));
  };
  const change = (key, value) => {
    state.only = null;
    state[key] = value;
    state.page = 0;
    draw();
  };
  const offer = () => controls.replaceChildren(...itemControls(state, change, (forget) => {
    state.forget = forget;
    state.subject = String(firstChoice(DATA.forgets[forget]) ?? EVERY);
    offer();
    change("page", 0);
  }));
  root.append(controls, found, list, pages);
  offer();
  draw();
  // Shows one question with the replies of all models, or those of a contract.
  return (wanted) => {
    if (wanted.item !== undefined) {
      const forget = DATA.forgets.findIndex((f) => f.subjects.length && f.splits[wanted.item]);
      Object.assign(state, { forget, subject: EVERY, edge: "", split: "", text: "", differs: false, only: wanted.item });
      offer();
      draw();
      root.scrollIntoView();
      return;
    }
    Object.assign(state, { forget: wanted.forget, subject: String(wanted.subject), edge: wanted.edge, split: "", text: "", differs: false });
    offer();
    change("page", 0);
    root.scrollIntoView();
  };
}

function itemControls(state, change, changeForget) {
  const forget = DATA.forgets[state.forget];
  const edges = [...new Set(DATA.items.rows.map((r) => r.edge).filter((e) => e))];
  const splits = [...new Set(forget.splits)];
  const search = el("input", { type: "search", name: "Text", placeholder: "in questions and answers", value: state.text });
  search.addEventListener("input", () => change("text", search.value));
  const models = withRole(forget, "unlearned").map((s) => [String(s), DATA.subjects[s].label]);
  return [
    select("Forget set", DATA.forgets.filter((f) => f.subjects.length).map((f) => [String(f.index), f.label]), String(state.forget), (v) => changeForget(Number(v))),
    select("Unlearned by", [...models, [EVERY, "every method"]], state.subject, (v) => change("subject", v)),
    select("Split", [["", "every split"], ...splits.map((s) => [s, s])], state.split, (v) => change("split", v)),
    edges.length ? select("Contract", [["", "every contract"], ...edges.map((e) => [e, EDGE_NAMES.get(e) ?? e])], state.edge, (v) => change("edge", v)) : null,
    select("Order", [["run", "of the run"], ["change", "largest drop first"]], state.order, (v) => change("order", v)),
    el("label", { class: "control" }, el("span", {}, "Text"), search),
    checkbox("differs from target", state.differs, (v) => change("differs", v)),
  ].filter((control) => control !== null);
}

function comparedSubjects(state) {
  const unlearned = withRole(DATA.forgets[state.forget], "unlearned");
  return state.subject === EVERY ? unlearned : unlearned.concat(withRole(DATA.forgets[state.forget], "retrained")).filter((s) => String(s) === state.subject);
}

function chosenRows(state) {
  const forget = DATA.forgets[state.forget];
  const targets = withRole(forget, "target");
  const compared = comparedSubjects(state);
  const shown = [...new Set([...targets, ...withRole(forget, "retrained"), ...compared])];
  const words = state.text.toLowerCase();
  const reply = (s, i) => DATA.items.replies[s]?.[i] ?? null;
  const contains = (text) => text.toLowerCase().includes(words);
  const differs = (i) => compared.some((s) => targets.some((t) => reply(s, i) && reply(t, i) && reply(s, i)[0] !== reply(t, i)[0]));
  const drop = (i) => Math.max(-2, ...compared.flatMap((s) => targets.map((t) => (reply(s, i) && reply(t, i) ? reply(t, i)[1] - reply(s, i)[1] : -2))));
  if (state.only !== null) return [state.only];
  const rows = DATA.items.rows.map((_, i) => i).filter((i) => {
    const row = DATA.items.rows[i];
    return (!state.edge || row.edge === state.edge)
      && (!state.split || forget.splits[i] === state.split)
      && (!state.differs || differs(i))
      && (!words || contains(row.question) || contains(row.answer) || shown.some((s) => reply(s, i) && contains(DATA.items.texts[reply(s, i)[0]])));
  });
  return state.order === "change" ? rows.sort((a, b) => drop(b) - drop(a) || a - b) : rows;
}

function itemCard(i, state) {
  const forget = DATA.forgets[state.forget];
  const row = DATA.items.rows[i];
  const split = forget.splits[i];
  const shown = [...new Set([...withRole(forget, "target"), ...comparedSubjects(state), ...withRole(forget, "retrained").slice(0, state.only === null ? 1 : undefined)])];
  return el(
    "article",
    { class: "item" },
    el(
      "header",
      {},
      el("p", { class: "question" }, clamped(row.question)),
      el("p", { class: "gold" }, el("span", { class: "kicker" }, "true answer"), clamped(row.answer)),
      el("p", { class: "where" }, el("a", { href: `#item=${row.id}` }, "all models"), copyButton("copy link", () => `${location.href.split("#")[0]}#item=${row.id}`), el("span", { class: `chip split-${split}` }, split), [row.edge, row.group, row.attribute].filter((w) => w).map((w) => el("span", {}, name(shortened(w, 40))))),
    ),
    el("div", { class: "replies" }, shown.map((s) => replyBox(s, DATA.items.replies[s]?.[i] ?? null, row.answer))),
  );
}

// The words of a text that `stated` has not are marked.
function against(stated) {
  const words = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  const known = new Set(words(stated));
  return (text) => {
    const fragment = document.createDocumentFragment();
    for (const part of text.split(/(\s+)/)) {
      const other = words(part).some((w) => !known.has(w));
      fragment.append(other ? el("mark", {}, visible(part)) : visible(part));
    }
    return fragment;
  };
}

function replyBox(subject, reply, stated) {
  const label = el("span", { class: "kicker" }, el("span", { class: "dot" }), name(shortened(DATA.subjects[subject].label, 40)));
  if (reply === null) return el("div", { class: `reply ${colourClass(subject)}` }, label, el("p", { class: "none" }, "not asked"));
  const [text, rouge, probability, refused, empty, truncated] = reply;
  const marks = [["refused", refused], ["empty", empty], ["truncated", truncated]].filter(([, there]) => there);
  const bar = svg("svg", { class: "score", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { class: "back", width: 100, height: 4 }), svg("rect", { class: "front", width: 100 * (rouge ?? 0), height: 4 }));
  return el(
    "div",
    { class: `reply ${colourClass(subject)}` },
    el("div", { class: "reply-head" }, label, el("span", { class: "figures", title: "ROUGE-1 recall of the reply; probability per token of the true answer" }, el("b", {}, rouge === null ? "no ROUGE" : number(rouge)), probability === null ? null : el("small", {}, ` p ${number(probability)}`))),
    bar,
    el("p", { class: "reply-text" }, clamped(DATA.items.texts[text], against(stated))),
    marks.length ? el("p", { class: "marks" }, marks.map(([word]) => el("span", { class: "chip warn" }, word))) : null,
  );
}
