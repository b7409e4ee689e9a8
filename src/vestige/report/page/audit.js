// The audit: what is told of a mark when it is pointed at, and the curves along each attack.

function tells() {
  for (const mark of document.querySelectorAll("[data-tell]")) {
    const [title, rows] = JSON.parse(mark.dataset.tell);
    explains(mark, () => [title, rows]);
  }
}

function recovery(root, audit) {
  if (!audit.curves.length) {
    root.append(el("p", { class: "note" }, "No attack was asked about."));
    return;
  }
  const plots = el("div", { class: "attacks" });
  const draw = (format) => plots.replaceChildren(...audit.attacks.map((_, attack) => attackFigure(audit, attack, format)).filter((f) => f !== null));
  root.append(
    el("div", { class: "controls" }, select("Asked as", audit.formats.map((f, i) => [String(i), formatWords(f)]), "0", (value) => draw(Number(value)))),
    curvesLegend(audit),
    plots,
  );
  draw(0);
}

function formatWords(f) {
  return f.name.replaceAll("_", " ") + (f.bits && !f.name.includes("bits") ? ", bits" : "");
}

// Of the data's [value, low, high, n].
function numbers([value, low, high, n]) {
  return { value, low, high, n };
}

function curvesLegend(audit) {
  const shown = audit.subjects.filter((s) => s.role === "unlearned");
  const sample = (css, ...marks) => svg("svg", { class: `sample ${css}`, width: 26, height: 12, "aria-hidden": "true" }, ...marks);
  return el(
    "div",
    { class: "legend curves-legend" },
    shown.map((s) => el("span", {}, sample(s.css, svg("line", { class: "curve", x1: 0, x2: 26, y1: 6, y2: 6 })), " ", name(shortened(s.name, 40)))),
    el("span", {}, sample("role-target", svg("line", { class: "curve known", x1: 0, x2: 26, y1: 6, y2: 6 })), " target"),
    el("span", {}, sample("role-retrained", svg("rect", { class: "carried", width: 26, height: 12 })), " controls, all seeds: what the attack adds"),
  );
}

function attackFigure(audit, attack, format) {
  const lines = audit.curves
    .filter(([, a, f]) => a === attack && f === format)
    .map(([subject, , , points, mixed]) => ({
      ...audit.subjects[subject],
      points: points.map(([at, ...level]) => ({ at, ...levelOf(level) })),
      mixed: mixed && levelOf(mixed),
    }));
  if (!lines.length) return null;
  const untold = [...new Set(audit.curves.filter(([, a, f]) => a === attack && f === format).map(([, , , , , why]) => why))].filter((why) => why);
  const { name: title, mark, along, points } = audit.attacks[attack];
  const place = el("div", { class: "plot" });
  drawnToWidth(place, (width) => place.replaceChildren(curves(lines, points, audit.formats[format].bits, title, width)));
  return el("figure", { class: mark ? "ceiling" : null }, el("figcaption", {}, el("strong", {}, name(title)), along ? el("small", {}, ` ${along}`) : null, mark ? el("span", { class: "mark-note" }, " no evidence: ", name(mark)) : null), place, untold.map((why) => el("p", { class: "remark" }, "No gain is told from these levels: ", name(why), ".")));
}

function levelOf([value, low, high, n, carried]) {
  return { carried, ...numbers([value, low, high, n]) };
}

// Room to the right of the lines for the prompt with its tokens in another order, which is no share of it.
const ASIDE = 66;
// The least room that the name of a point takes.
const NAMED = 44;

function curves(lines, points, bits, title, width) {
  const height = 190;
  const aside = lines.some((l) => l.mixed);
  const box = { left: 34, right: width - 10 - (aside ? ASIDE : 0), top: 8, bottom: height - 24 };
  const all = lines.flatMap((l) => [...l.points, ...(l.mixed ? [l.mixed] : [])]);
  const least = bits ? Math.min(...all.map((p) => p.low ?? p.value)) : 0;
  const most = bits ? Math.max(...all.map((p) => p.high ?? p.value)) : 1;
  const y = (v) => box.bottom - ((v - least) / (most - least || 1)) * (box.bottom - box.top);
  const span = box.right - box.left - 16;
  // The model as it is has a place of its own, left of the shares of a prompt.
  const lead = points.length > 2 && points[0] === "before" ? Math.max(NAMED, span / (points.length - 1)) : 0;
  const step = points.length > 1 ? (span - lead) / (points.length - (lead ? 2 : 1)) : 0;
  const along = (at) => (lead ? (at ? lead + (at - 1) * step : 0) : at * step);
  const x = (at) => (points.length > 1 ? box.left + 8 + along(at) : (box.left + box.right) / 2);
  // Where points stand closer than their names are wide, every so many are named, the first and last in any case.
  const every = Math.max(1, Math.ceil(NAMED / (step || NAMED)));
  const told = (i) => (lead && i === 0) || (points.length - 1 - i) % every === 0;
  const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": plain(title, 80) });
  const ticks = bits ? [least, (least + most) / 2, most] : [0, 0.5, 1];
  root.append(
    ...ticks.flatMap((v) => [
      svg("line", { class: "grid", x1: box.left, x2: box.right + (aside ? ASIDE : 0), y1: y(v), y2: y(v) }),
      svg("text", { class: "tick", x: box.left - 5, y: y(v) + 4, "text-anchor": "end" }, bits ? number(v) : String(v)),
    ]),
    ...points.flatMap((p, i) => (told(i) ? [svg("text", { class: "tick", x: x(i), y: height - 8, "text-anchor": "middle" }, plain(p, 12))] : [])),
    ...carriedIn(lines.filter((l) => l.role === "retrained"), points, x, y, box),
    ...lines.filter((l) => l.role === "target").map((l) => oneCurve(l, points, x, y, box, 0)),
  );
  const own = lines.filter((l) => l.role === "unlearned");
  // Where there is one point alone, subjects stand side by side.
  const apart = (i) => (points.length > 1 ? 0 : ((i + 0.5) / own.length - 0.5) * (box.right - box.left) * 0.7);
  root.append(...own.map((l, i) => oneCurve(l, points, x, y, box, apart(i))));
  if (aside) root.append(svg("text", { class: "tick", x: box.right + ASIDE / 2 + 4, y: height - 8, "text-anchor": "middle" }, "shuffled"), ...mixedMarks(lines, box, y));
  return root;
}

// What the prompt brings with its tokens in another order: open marks beside the lines.
function mixedMarks(lines, box, y) {
  const own = lines.filter((l) => l.mixed);
  return own.map((l, i) => {
    const at = box.right + 16 + ((i + 0.5) / own.length) * (ASIDE - 24);
    const group = svg(
      "g",
      { class: `curve-group mixed ${l.css}`, tabindex: 0, role: "img", "aria-label": plain(`${l.name}, shuffled: ${number(l.mixed.value)}`, 100) },
      svg("line", { class: "whisk", x1: at, x2: at, y1: y(l.mixed.low ?? l.mixed.value), y2: y(l.mixed.high ?? l.mixed.value) }),
      svg("circle", { cx: at, cy: y(l.mixed.value), r: 3 }),
    );
    return explains(group, () => [`${l.name}, shuffled`, [["level", inBits(l.mixed)]]]);
  });
}

function inBits(p) {
  return p.carried === null ? inWords(p) : `${inWords(p)}; ${number(p.carried)} bits of prompt`;
}

// Between the seeds of the models that never knew lies what the attack carries in.
function carriedIn(lines, points, x, y, box) {
  const spans = points.map((_, i) => lines.flatMap((l) => l.points).filter((p) => p.at === i).map((p) => p.value)).map((v, i) => ({ at: i, low: Math.min(...v), high: Math.max(...v) })).filter((s) => Number.isFinite(s.low));
  if (!spans.length) return [];
  const sides = points.length > 1 ? [[0, spans]] : [[box.left - x(0), spans], [box.right - x(0), spans]];
  const upper = sides.flatMap(([dx, s]) => s.map((p) => `${x(p.at) + dx},${y(p.high) - 1}`));
  const lower = sides.flatMap(([dx, s]) => s.map((p) => `${x(p.at) + dx},${y(p.low) + 1}`));
  const seeds = lines.map((l) => l.points.map((p) => `${x(p.at)},${y(p.value)}`).join(" "));
  return [
    svg("polygon", { class: "carried", points: [...upper, ...lower.reverse()].join(" ") }),
    ...seeds.map((points) => svg("polyline", { class: "seed", points })),
  ];
}

function oneCurve(line, points, x, y, box, aside) {
  const known = line.role === "target";
  const ends = known && points.length === 1 ? [[box.left, line.points[0]], [box.right, line.points[0]]] : line.points.map((p) => [x(p.at), p]);
  const last = line.points.at(-1);
  const group = svg(
    "g",
    { class: `curve-group ${line.css}`, tabindex: 0, role: "img", "aria-label": plain(`${line.name}: ${number(last.value)}`, 100) },
    ends.length > 1 ? svg("polyline", { class: known ? "curve known" : "curve", points: ends.map(([at, p]) => `${at},${y(p.value)}`).join(" ") }) : null,
    ends.length > 1 ? svg("polyline", { class: "catch", points: ends.map(([at, p]) => `${at},${y(p.value)}`).join(" ") }) : null,
    known ? null : svg("line", { class: "whisk", x1: x(last.at) + aside, x2: x(last.at) + aside, y1: y(last.low ?? last.value), y2: y(last.high ?? last.value) }),
    known ? null : svg("circle", { cx: x(last.at) + (ends.length > 1 ? 0 : aside), cy: y(last.value), r: 3.5 }),
  );
  return explains(group, () => [line.name, line.points.map((p) => [points[p.at], inBits(p)])]);
}
