// What was forgotten against what was kept: one plot for each forget set, anchors included.

const KEPT_SPLITS = { retain: "retain set", independent: "independent set", factual: "factual set" };

const SCOPE_WORDS = { free: "not given away by other facts", guessable: "guessable", entailed: "given away by kept facts" };

function tradeoff(root) {
  const state = { scope: "finding", kept: "retain" };
  const plots = el("div", { class: "facets" });
  const shown = DATA.forgets.filter((f) => f.subjects.length);
  const draw = () => plots.replaceChildren(...shown.map((f) => facet(f, state, floorOf(shown, state.kept))));
  const kept = Object.entries(KEPT_SPLITS).filter(([split]) => DATA.splits.includes(split));
  // In place of the picture that stands there without this script.
  root.replaceChildren(
    el(
      "div",
      { class: "controls" },
      select(
        "Forget answers",
        [["finding", "those that are compared"], ["all", "all"], ...DATA.scopes.map((s) => [s, SCOPE_WORDS[s]])],
        state.scope,
        (value) => { state.scope = value; draw(); },
      ),
      select("Against", kept, state.kept, (value) => { state.kept = value; draw(); }),
    ),
    plots,
  );
  draw();
}

// Where the vertical axis of all plots begins: a quarter that leaves no whisker out.
function floorOf(forgets, kept) {
  const lows = forgets.flatMap((f) => withRole(f, "target", "retrained", "unlearned").map((s) => estimate(f.index, s, kept)?.low ?? 1));
  return Math.min(0.75, Math.floor(4 * Math.min(1, ...lows)) / 4);
}

function facet(forget, state, floor) {
  const scope = state.scope === "finding" ? forget.scope : state.scope;
  const place = el("div", { class: "plot" });
  drawnToWidth(place, (width) => place.replaceChildren(scatter(forget, scope, state.kept, floor, width)));
  return el("figure", {}, el("figcaption", {}, el("strong", {}, name(forget.label)), ` (answers: ${SCOPE_WORDS[scope] ?? scope})`), place);
}

function scatter(forget, scope, kept, floor, width) {
  const height = Math.min(420, Math.max(280, width * 0.7));
  const box = { left: 40, right: width - 12, top: 26, bottom: height - 42 };
  const x = (v) => box.left + ((v + 0.05) / 1.1) * (box.right - box.left);
  const y = (v) => box.bottom - ((v - floor + 0.05 * (1 - floor)) / (1.1 * (1 - floor))) * (box.bottom - box.top);
  const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  root.append(svg("title", {}, plain(`${forget.label}: forget set against ${KEPT_SPLITS[kept]}`, 100)));
  root.append(...axes(x, y, box, floor, KEPT_SPLITS[kept]), ...neverKnew(forget, scope, x, box));
  const points = withRole(forget, "target", "retrained", "unlearned")
    .map((s) => ({ subject: s, forget: estimate(forget.index, s, "forget", scope), kept: estimate(forget.index, s, kept) }))
    .filter((p) => p.forget && p.kept);
  if (!points.length) root.append(svg("text", { x: width / 2, y: height / 2, class: "empty" }, "nothing was measured here"));
  const marks = points.map((p) => mark(p, kept, scope, x, y));
  root.append(...marks);
  // Labels are placed by their measured size, which they have once they are on the page.
  // Several models that never knew are named by their band; of many others those that stand out are.
  const never = points.filter((p) => DATA.subjects[p.subject].role === "retrained");
  const own = never.length > 1 ? points.filter((p) => !never.includes(p)) : points;
  const named = own.length <= MOST_NAMED ? own : standingOut(own);
  requestAnimationFrame(() => root.isConnected && root.append(...labels(root, named, x, y, box)));
  return root;
}

const MOST_NAMED = 40;

function standingOut(points) {
  const ordered = (of) => [...points].sort((a, b) => a[of].value - b[of].value);
  const ends = ["forget", "kept"].flatMap((of) => [...ordered(of).slice(0, 5), ...ordered(of).slice(-5)]);
  const controls = points.filter((p) => DATA.subjects[p.subject].role !== "unlearned");
  return [...new Set([...controls, ...ends])];
}

function axes(x, y, box, floor, keptWords) {
  const quarters = [0, 0.25, 0.5, 0.75, 1];
  const steps = floor >= 0.5 ? [0.5, 0.6, 0.7, 0.8, 0.9, 1] : quarters;
  return [
    ...quarters.flatMap((v) => [
      svg("line", { class: "grid", x1: x(v), x2: x(v), y1: box.top, y2: box.bottom }),
      svg("text", { class: "tick", x: x(v), y: box.bottom + 15, "text-anchor": "middle" }, number(v)),
    ]),
    ...steps.filter((v) => v >= floor).flatMap((v) => [
      svg("line", { class: "grid", x1: box.left, x2: box.right, y1: y(v), y2: y(v) }),
      svg("text", { class: "tick", x: box.left - 6, y: y(v) + 4, "text-anchor": "end" }, number(v)),
    ]),
    svg("text", { class: "axis", x: box.right, y: box.bottom + 34, "text-anchor": "end" }, "still answered of the forget set →"),
    svg("text", { class: "axis", x: 0, y: 14 }, `↑ still answered of the ${keptWords}`),
  ];
}

function neverKnew(forget, scope, x, box) {
  const e = anchorOf(forget, "retrained", "forget", scope);
  if (!e) return [];
  return [
    svg("rect", { class: "band", x: x(e.low), width: x(e.high) - x(e.low), y: box.top, height: box.bottom - box.top }),
    svg("line", { class: "band-middle", x1: x(e.value), x2: x(e.value), y1: box.top, y2: box.bottom }),
    svg("text", { class: "band-label", x: x(e.value) + 5, y: box.bottom - 7 }, "controls"),
  ];
}

function mark(point, kept, scope, x, y) {
  const { subject, forget, kept: rest } = point;
  const label = DATA.subjects[subject].label;
  const shape = DATA.subjects[subject].role === "unlearned"
    ? svg("circle", { cx: x(forget.value), cy: y(rest.value), r: 5 })
    : svg("path", { d: `M${x(forget.value)} ${y(rest.value) - 7}l7 7l-7 7l-7-7z` });
  const group = svg(
    "g",
    { class: `mark ${colourClass(subject)}`, tabindex: 0, role: "img", "aria-label": plain(`${label}: ${number(forget.value)}, ${number(rest.value)}`, 100) },
    svg("line", { x1: x(forget.low), x2: x(forget.high), y1: y(rest.value), y2: y(rest.value) }),
    svg("line", { x1: x(forget.value), x2: x(forget.value), y1: y(rest.low), y2: y(rest.high) }),
    shape,
  );
  return explains(group, () => [label, [[`forget (${scope})`, inWords(forget)], [kept, inWords(rest)]]]);
}

// Places for a label around its dot, nearest first: how far right and down, and which end of the text stands there.
const OFFSETS = [0, 12, 26, 42, 60].flatMap((further) => [
  [9 + further, 4, "start", further],
  [-9 - further, 4, "end", further],
  [0, -11 - further, "middle", further],
  [0, 20 + further, "middle", further],
  [9 + further / 2, -10 - further, "start", further],
  [9 + further / 2, 19 + further, "start", further],
  [-9 - further / 2, -10 - further, "end", further],
  [-9 - further / 2, 19 + further, "end", further],
]);

// Each label takes the place in which it covers least: dots and labels weigh more than whiskers. A line joins it to a
// far dot.
function labels(root, points, x, y, inside) {
  const taken = points.flatMap((p) => [
    { box: [x(p.forget.value) - 7, y(p.kept.value) - 7, 14, 14], weight: 4 },
    { box: [x(p.forget.low), y(p.kept.value) - 2, x(p.forget.high) - x(p.forget.low), 4], weight: 1 },
    { box: [x(p.forget.value) - 2, y(p.kept.high), 4, y(p.kept.low) - y(p.kept.high)], weight: 1 },
  ]);
  // From the top down, so that labels of dots above each other do not change places.
  return [...points].sort((a, b) => b.kept.value - a.kept.value).flatMap((p) => {
    const text = svg("text", { class: `label ${colourClass(p.subject)}` }, plain(DATA.subjects[p.subject].label, 28));
    root.append(text);
    const { width } = text.getBBox();
    const places = OFFSETS.map(([dx, dy, anchor, further]) => {
      const at = [x(p.forget.value) + dx, y(p.kept.value) + dy];
      const left = anchor === "start" ? at[0] : anchor === "end" ? at[0] - width : at[0] - width / 2;
      const box = [left - 3, at[1] - 11, width + 6, 14];
      const outside = left < inside.left || left + width > inside.right || box[1] < inside.top - 6 || at[1] > inside.bottom;
      const covered = taken.reduce((sum, t) => sum + t.weight * overlap(t.box, box), 0);
      return { at, anchor, box, far: further > 0, cost: (outside ? 1e6 : 0) + 3 * further + covered };
    });
    const best = places.reduce((a, b) => (b.cost < a.cost ? b : a));
    taken.push({ box: best.box, weight: 4 });
    fill(text, { x: best.at[0], y: best.at[1], "text-anchor": best.anchor }, []);
    const leader = svg("line", { class: "leader", x1: x(p.forget.value), y1: y(p.kept.value), x2: best.at[0], y2: best.at[1] - 4 });
    return best.far ? [leader, text] : [text];
  });
}

function overlap([ax, ay, aw, ah], [bx, by, bw, bh]) {
  return Math.max(0, Math.min(ax + aw, bx + bw) - Math.max(ax, bx)) * Math.max(0, Math.min(ay + ah, by + bh) - Math.max(ay, by));
}
