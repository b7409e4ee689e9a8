// The audit: what is told of a mark when it is pointed at, the curves along each attack, the parts of each gain.

function tells() {
  for (const mark of document.querySelectorAll("[data-tell]")) {
    const [title, rows] = JSON.parse(mark.dataset.tell);
    explains(mark, () => [title, rows]);
  }
}

function recovery(root, audit) {
  if (!audit.gains.length && !audit.curves.length) {
    root.append(el("p", { class: "note" }, "Nothing that an attack brought could be judged; the reasons above say why."));
    return;
  }
  const state = { format: 0 };
  const plots = el("div", { class: "attacks" });
  const place = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "gains in their parts" });
  const draw = () => {
    plots.replaceChildren(...audit.attacks.map((_, attack) => attackFigure(audit, attack, state.format)).filter((f) => f !== null));
    place.replaceChildren(gainsTable(audit, state.format));
  };
  root.append(
    el("div", { class: "controls" }, select("Asked by", audit.formats.map((f, i) => [String(i), formatWords(f)]), "0", (value) => { state.format = Number(value); draw(); })),
    curvesLegend(audit),
    plots,
    el("h3", {}, "The final gain in its parts"),
    el("p", { class: "lead" }, "Injection is what the same attack brings to models that never knew; repair climbs back to their level from below; only recovery is knowledge that was left."),
    place,
  );
  draw();
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
    el("span", {}, sample("role-retrained", svg("rect", { class: "carried", width: 26, height: 12 })), " never knew, all seeds: what the attack carries in"),
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
  const { name: title, mark, along, points } = audit.attacks[attack];
  const place = el("div", { class: "plot" });
  drawnToWidth(place, (width) => place.replaceChildren(curves(lines, points, audit.formats[format].bits, title, width)));
  return el("figure", { class: mark ? "ceiling" : null }, el("figcaption", {}, el("strong", {}, name(title)), along ? el("small", {}, ` ${along}`) : null, mark ? el("span", { class: "mark-note" }, "never evidence: ", name(mark)) : null), place);
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

const PARTS = ["injection", "repair", "recovery"];

function gainsTable(audit, format) {
  const rows = audit.gains
    .filter(([, , f]) => f === format)
    .map(([subject, attack, , gain, injection, repair, found, saturation, saturated, why]) => ({
      subject: audit.subjects[subject], attack, saturated, why,
      gain: numbers(gain), injection: numbers(injection), repair: numbers(repair), recovery: numbers(found), saturation: numbers(saturation),
    }));
  const untold = audit.attacks.flatMap((attack, i) => whyNoGain(audit, i, format).map((why) => noGain(attack, why)));
  if (!rows.length) return el("div", {}, untold.length ? untold : noAttack(audit, format));
  const reach = rows.flatMap((r) => [ends(r)[0], ends(r)[1], r.gain.value]);
  const least = Math.min(0, ...reach);
  const most = Math.max(audit.formats[format].bits ? 0 : 1, ...reach);
  const x = (v) => 2 + (96 * (v - least)) / (most - least);
  const head = [
    el("th", { scope: "col" }, "model"),
    el("th", { scope: "col", class: "bar-head" }, audit.formats[format].bits ? "gain, bits an answer" : "gain, in leakage"),
    el("th", { scope: "col" }, "gain"),
    ...PARTS.map((part) => el("th", { scope: "col" }, el("span", { class: `swatch part-${part}` }), part)),
    el("th", { scope: "col" }, "saturation", el("small", {}, "lifts never knew")),
  ];
  const table = el(
    "table",
    { class: "grid-table gains" },
    el("thead", {}, el("tr", {}, head)),
    audit.attacks.map((attack, i) => {
      const own = rows.filter((r) => r.attack === i);
      return own.length ? el("tbody", { class: attack.mark ? "ceiling" : null }, groupRow(attack), own.map((r) => gainRow(r, x))) : null;
    }),
  );
  return el("div", {}, table, untold);
}

// Why an attack that was asked in this format has no gain in it, as the audit says.
function whyNoGain(audit, attack, format) {
  if (audit.gains.some(([, a, f]) => a === attack && f === format)) return [];
  const own = audit.curves.filter(([, a, f]) => a === attack && f === format);
  return [...new Set(own.map(([, , , , , why]) => why))].filter((why) => why);
}

function noGain(attack, why) {
  return el("p", { class: "remark" }, el("b", {}, name(attack.name)), ": its levels are drawn above, and no gain is told from them: ", name(why), ".");
}

function noAttack(audit, format) {
  const asked = audit.curves.some(([, , f]) => f === format);
  return el("p", { class: "none" }, asked ? "levels were measured in this format, and no gain is told from them" : "no attack was asked in this format");
}

function groupRow(attack) {
  const note = attack.mark ? el("span", { class: "mark-note" }, " never evidence: ", name(attack.mark)) : null;
  return el("tr", { class: "group" }, el("th", { scope: "rowgroup", colspan: 7 }, name(attack.name), note));
}

// How far the bar goes below and above 0.
function ends(row) {
  const values = PARTS.map((part) => row[part].value);
  return [values.reduce((sum, v) => sum + Math.min(0, v), 0), values.reduce((sum, v) => sum + Math.max(0, v), 0)];
}

function gainRow(row, x) {
  const cells = ["gain", ...PARTS].map((part) => el("td", {}, el("b", {}, number(row[part].value)), el("small", {}, ` ${interval(row[part])}`)));
  const note = row.saturated ? "saturated" : row.why || null;
  return el(
    "tr",
    { class: row.subject.css },
    el("th", { scope: "row" }, el("span", { class: "dot" }), name(shortened(row.subject.name, 40))),
    el("td", { class: "bar-cell" }, bar(row, x)),
    cells,
    el("td", {}, el("b", {}, number(row.saturation.value)), el("small", {}, ` ${interval(row.saturation)}`), note ? el("span", { class: "under" }, name(note)) : null),
  );
}

function bar(row, x) {
  const root = svg("svg", { class: "bar", viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" });
  root.append(svg("rect", { class: "track", x: 2, width: 96, y: 6.6, height: 0.8 }));
  let [below, above] = [0, 0];
  for (const part of PARTS) {
    const { value } = row[part];
    const from = value < 0 ? below + value : above;
    root.append(svg("rect", { class: `part-${part}`, x: x(from), width: Math.abs(x(value) - x(0)), y: 2, height: 10 }));
    if (value < 0) below += value;
    else above += value;
  }
  root.append(svg("rect", { class: "zero", x: x(0) - 0.15, width: 0.3, y: 0, height: 14 }));
  root.append(svg("rect", { class: "whole", x: x(row.gain.value) - 0.4, width: 0.8, y: 0, height: 14 }));
  return root;
}
