// The knowledge graph: an edge is redder the less the chosen model says of it than the target did.

const DASHES = ["none", "7 4", "2 4", "9 3 2 3"];
const FOCUSABLE_EDGES = 60;
const NAMED_NODES = 80;
// Pixels that a line must be long for the names of parties to fit below their nodes.
const ROOMY = 90;

function graph(root, showItems) {
  if (!DATA.graph) return;
  const candidates = DATA.forgets.filter((f) => withRole(f, "unlearned", "retrained").length);
  if (!candidates.length) {
    root.append(el("p", { class: "note" }, "No model that forgot anything has been evaluated yet."));
    return;
  }
  const state = { forget: candidates[0].index, subject: firstChoice(candidates[0]) };
  const controls = el("div", { class: "controls" });
  const place = el("div", { class: "plot" });
  const draw = () => place.clientWidth && place.replaceChildren(drawing(state, place.clientWidth, showItems));
  const offer = () => {
    const forget = DATA.forgets[state.forget];
    controls.replaceChildren(
      select("Forget set", candidates.map((f) => [String(f.index), f.label]), String(state.forget), (value) => {
        state.forget = Number(value);
        state.subject = firstChoice(DATA.forgets[state.forget]);
        offer();
        draw();
      }),
      select(
        "Model",
        withRole(forget, "unlearned", "retrained").map((s) => [String(s), DATA.subjects[s].label]),
        String(state.subject),
        (value) => { state.subject = Number(value); draw(); },
      ),
    );
  };
  root.append(controls, place, legend());
  offer();
  drawnToWidth(place, draw);
}

function firstChoice(forget) {
  return withRole(forget, "unlearned")[0] ?? withRole(forget, "retrained")[0];
}

function drawing(state, width, showItems) {
  const forget = DATA.forgets[state.forget];
  const { graph } = DATA;
  const scale = Math.min(width / graph.width, 140);
  const height = graph.height * scale;
  const left = (width - graph.width * scale) / 2;
  const at = (node) => [left + graph.nodes[node].x * scale, graph.nodes[node].y * scale];
  const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "knowledge graph" });
  root.append(...graph.edges.map((edge) => edgeMark(edge, forget, state.subject, at, showItems)));
  const ends = new Set(graph.edges.filter((e) => forget.edges?.includes(e.id)).flatMap((e) => [e.a, e.b]));
  const isNamed = (index) => graph.nodes.length <= NAMED_NODES || ends.has(index);
  const radius = Math.max(4, Math.min(15, scale * 0.17));
  graph.nodes.forEach((node, index) => {
    const [x, y] = at(index);
    // Where there is room a party's name stands below its node, else its id in or above it.
    const roomy = scale >= ROOMY;
    const words = roomy ? plain(node.name, 18) : plain(node.id, 12);
    const named = isNamed(index);
    const inside = radius >= 11 && words.length <= 3;
    root.append(
      svg(
        "g",
        { class: "node" },
        svg("circle", { cx: x, cy: y, r: inside ? radius : Math.min(radius, 6) }),
        named ? svg("text", { x, y: inside ? y + 4 : roomy ? y + 18 : y - 10, "text-anchor": "middle" }, words) : null,
        svg("title", {}, plain(node.name === node.id ? node.id : `${node.name} (${node.id})`, 100)),
      ),
    );
  });
  return root;
}

function edgeMark(edge, forget, subject, at, showItems) {
  const target = anchorOf(forget, "target", `edge:${edge.id}`);
  const own = estimate(forget.index, subject, `edge:${edge.id}`);
  const loss = target && own ? target.value - own.value : null;
  const share = loss === null ? null : Math.min(Math.max(loss, 0), 1);
  const d = path(at(edge.a), at(edge.b), edge.bend);
  const width = share === null ? 1.5 : 2.4 + 2.4 * share;
  const forgotten = forget.edges !== null && forget.edges.includes(edge.id);
  const line = svg("path", { class: share === null ? "edge unmeasured" : "edge", d, "stroke-width": width, "stroke-dasharray": DASHES[edge.type % DASHES.length] });
  if (share !== null) line.style.setProperty("--share", `${Math.round(share * 100)}%`);
  const group = svg(
    "g",
    { class: "edge-group", tabindex: DATA.graph.edges.length <= FOCUSABLE_EDGES ? 0 : null, role: "button", "aria-label": plain(`${edge.name}: ${loss === null ? "not measured" : `lost ${number(loss)}`}`, 100) },
    forgotten ? svg("path", { class: "outline", d, "stroke-width": width + 7 }) : null,
    forgotten ? svg("path", { class: "outline-inside", d, "stroke-width": width + 4 }) : null,
    line,
    svg("path", { class: "edge-catch", d }),
  );
  const show = () => showItems?.({ forget: forget.index, subject, edge: edge.id });
  group.addEventListener("click", show);
  group.addEventListener("keydown", (event) => {
    if (event.key === "Enter") show();
  });
  return explains(group, () => [
    edge.name === edge.id ? edge.id : `${edge.name} (${edge.id})`,
    [
      ["contract", DATA.graph.types[edge.type] || "of no stated type"],
      ["in the forget set", forget.edges === null ? "not known" : forgotten ? "yes" : "no"],
      ["target", inWords(target)],
      ["controls", inWords(anchorOf(forget, "retrained", `edge:${edge.id}`))],
      [DATA.subjects[subject].label, inWords(own)],
      ["lost against target", loss === null ? "not measured" : number(loss)],
      ["inter-connectivity", edge.connectivity === null ? "not known" : String(edge.connectivity)],
      ["answers others give away", edge.entailed === null ? "not known" : String(edge.entailed)],
    ],
  ]);
}

function path([ax, ay], [bx, by], bend) {
  const x = (ax + bx) / 2 - (by - ay) * bend * 0.35;
  const y = (ay + by) / 2 + (bx - ax) * bend * 0.35;
  return `M${ax.toFixed(1)} ${ay.toFixed(1)}Q${x.toFixed(1)} ${y.toFixed(1)} ${bx.toFixed(1)} ${by.toFixed(1)}`;
}

function legend() {
  const steps = 10;
  const ramp = svg("svg", { width: 160, height: 12, "aria-hidden": "true" });
  for (let i = 0; i < steps; i += 1) {
    const cell = svg("rect", { class: "ramp", x: i * 16, width: 16, height: 12 });
    cell.style.setProperty("--share", `${Math.round((100 * i) / (steps - 1))}%`);
    ramp.append(cell);
  }
  const sample = (...marks) => svg("svg", { width: 44, height: 14, "aria-hidden": "true" }, ...marks);
  const stroke = (attributes) => svg("path", { d: "M2 7L42 7", ...attributes });
  return el(
    "div",
    { class: "legend" },
    el("span", {}, "lost against target: 0 ", ramp, " 1"),
    el("span", {}, sample(stroke({ class: "outline", "stroke-width": 10 }), stroke({ class: "outline-inside", "stroke-width": 7 }), stroke({ class: "edge", "stroke-width": 3 })), " to be forgotten"),
    DATA.graph.types.map((type, i) =>
      el("span", {}, sample(stroke({ class: "edge", "stroke-width": 3, "stroke-dasharray": DASHES[i % DASHES.length] })), " ", name(shortened(type || "no stated type", 30))),
    ),
  );
}
