// One matrix: its numbers, its spectrum with that of random matrices and the fitted law, and its curve C(p).

class Detail {
  constructor(data) {
    this.data = data;
    this.view = data.view ?? "log";
    this.row = null;
  }

  show(row) {
    this.row = row;
    const { data } = this;
    const { columns } = data;
    const models = data.models.length > 1 ? [key(seriesColor(columns.model[row]))] : [];
    const views = element("div", { class: "choice", role: "group", "aria-label": "View of the spectrum" },
      [["log", "Density"], ["linear", "Linear"], ["rank", "By rank"]].map(([view, name]) => element("button", {
        type: "button", "aria-pressed": String(view === this.view), onclick: () => { this.view = view; this.show(row); },
      }, name)));
    const numbers = data.facts.filter(([name]) => columns[name] && columns[name][row] !== null).map(([name, label]) => element("div", {},
      element("dt", { title: data.meanings?.[name] }, label), element("dd", {}, cellText(columns, name, row))));
    const spectrum = element("figure", { id: "spectrum", style: { margin: 0 } });
    const curve = element("figure", { id: "curve", style: { margin: "1rem 0 0" } });
    show(byId("detail"),
      element("div", { class: "head-line" }, element("h3", { id: "detail-title" }, models, data.title(row)), views),
      element("p", { class: "facts", style: { margin: "0" } }, [`${columns.rows[row]} × ${columns.cols[row]}`, data.several ? ` · ${data.models[columns.model[row]].short}` : ""].join("")),
      spectrum, element("dl", { class: "numbers" }, numbers), curve, tensorsOf(columns.tensors?.[row]));
    this.drawSpectrum(spectrum, row);
    this.drawCurve(curve, row);
  }

  // The same matrix of the other models, for comparison.
  others(row) {
    const { columns } = this.data;
    const same = (other) => ["layer", "head", "expert", "kind", "stack"].every((name) => columns[name]?.[other] === columns[name]?.[row]);
    return columns.model.flatMap((model, other) => (model !== columns.model[row] && same(other) && this.data.spectrum(other) ? [other] : []));
  }

  drawSpectrum(place, row) {
    const values = this.data.spectrum(row);
    if (!values) {
      show(place, element("p", { class: "note" }, "This matrix is too large to compute all singular values. Its norms and ranks are approximate."));
      return;
    }
    const living = values.filter((value) => value > 1e-12 * values[0]);
    const spec = !living.length ? null : this.view === "rank" ? this.ranks(row, living) : this.density(row, living, this.view === "log");
    if (!spec) { show(place, element("p", { class: "note" }, "All singular values are zero.")); return; }
    const named = spec.layers.filter((layer) => layer.name);
    const drawn = element("div");
    show(place, keys(named), drawn, element("figcaption", {}, this.data.noise ? spec.caption : `${spec.caption} These are singular values of the stored matrix, without gains of norm layers.`));
    plot(drawn, spec);
  }

  // On a logarithmic axis the density is that of ln σ, which is σ times that of σ: areas stay shares of the values.
  density(row, values, log) {
    const { columns } = this.data;
    const { fits } = this.data;
    const others = this.others(row).map((other) => ({ model: columns.model[other], values: this.data.spectrum(other) }));
    const noise = fits?.null(row) ?? [], law = fits?.law(row) ?? [];
    const edge = columns.null_edge?.[row] ?? null;
    // A logarithmic axis has room for all models, a linear one for the chosen matrix.
    const every = log ? [values, ...others.map((one) => one.values)] : [values];
    const top = 1.04 * Math.max(edge ?? 0, ...every.map((one) => one[0]));
    const bottom = log ? 0.9 * Math.max(top * 1e-4, Math.min(...every.map(smallest), bodyOf(noise))) : 0;
    const bars = ownHistogram(values, bottom, top, log);
    const seen = others.filter((one) => one.values[0] > bottom);
    const outlines = seen.map((one) => outline(ownHistogram(one.values, bottom, top, log)));
    const tallest = Math.max(...bars.map((bar) => bar[3]));
    const peaks = [...(noise.length ? [peak(drawable(noise, log))] : []), ...outlines.map(peak)];
    const most = 1.08 * Math.max(tallest, Math.min(Math.max(0, ...peaks), 6 * tallest));
    const beyondAxes = [...peaks, peak(drawable(law, log))].some((height) => height > most) || outlines.some((line) => line.some(([x]) => x > top));
    const cut = (points) => drawable(points, log).filter(([x]) => x >= bottom && x <= top);
    const own = this.data.several ? this.data.models[columns.model[row]].short : "singular values";
    const layers = [{ type: "bars", name: own, color: `color-mix(in srgb, ${seriesColor(columns.model[row])} 38%, var(--card))`, data: bars }];
    seen.forEach((other, i) => layers.push({ type: "line", name: this.data.models[other.model].short, color: seriesColor(other.model), width: 1.4, clip: true, data: outlines[i] }));
    if (noise.length) layers.push({ type: "line", name: "random matrices of this shape", color: "var(--ink)", dash: "5 4", width: 1.8, clip: true, data: cut(noise) });
    if (law.length) layers.push({ type: "line", name: fits.drawn(row), color: "var(--c8)", width: 2.4, clip: true, data: cut(law) });
    if (edge !== null) layers.push({ type: "rule", name: "largest value of a random matrix", color: "var(--ink)", dash: "1.5 3", at: edge });
    const beyond = edge === null ? [] : [...values].filter((value) => value > edge);
    if (beyond.length) layers.push({ type: "rug", color: "var(--ink)", length: 12, data: beyond });
    return {
      label: `Density of the ${values.length} singular values`, height: 250, layers,
      x: { title: log ? "singular value (σ), logarithmic" : "singular value (σ)", domain: [bottom, top], log }, y: { title: log ? "density of ln σ" : "density", domain: [0, most] },
      caption: (noise.length
        ? `The dashed line is what random matrices of this shape give. Bars away from it are not random. ${strongSentence(beyond.length)}`
        : `All ${values.length} non-zero singular values. A few large values, far to the right, carry the matrix.`)
        + (beyondAxes ? " Some lines continue outside of the chart." : ""),
    };
  }

  ranks(row, values) {
    const { columns } = this.data;
    const line = (list) => Array.from(list, (value, i) => [i + 1, value]).filter(([, value]) => value > 1e-9 * list[0]);
    const others = this.others(row).map((other) => ({ type: "line", readable: true, width: 1.6, data: line(this.data.spectrum(other)),
      name: this.data.models[columns.model[other]].short, color: seriesColor(columns.model[other]) }));
    const own = { type: "line", readable: true, name: others.length ? this.data.models[columns.model[row]].short : "singular values",
      width: 2.4, color: seriesColor(columns.model[row]), data: line(values) };
    const noise = this.data.noise?.(row);
    const below = noise ? [{ type: "line", readable: true, name: "noise of the same size", width: 1.8, dash: "5 4", color: "var(--ink)", data: line(noise) }] : [];
    const layers = [own, ...others, ...below];
    return {
      label: "Singular values by rank", height: 250, layers,
      x: { title: "rank of the singular value", short: "rank", domain: [1, Math.max(2, ...layers.map((layer) => layer.data.length))] },
      y: { title: "singular value (σ)", log: true, domain: domainOf(layers.flatMap((layer) => layer.data.map(([, value]) => value)), { log: true }) },
      caption: noise ? "Singular values of the update, divided by the largest of the base. The dashed line is noise of the same size. Values above it, at the left, are directions that noise does not have."
        : "Singular values, largest first, on a logarithmic axis. A steep fall at the left means that a few directions carry the matrix; a flat line means that it uses all of them.",
    };
  }

  drawCurve(place, row) {
    const curve = this.data.curve(row);
    if (!curve) { place.remove(); return; }
    const { columns } = this.data;
    const data = Array.from(curve, (value, i) => [(2 * i) / (curve.length - 1), value]);
    const line = { type: "line", readable: true, name: "log₁₀ C(p)", color: "var(--c0)", width: 2.2, data };
    const chosen = columns.p[row] === null ? [] : [{ type: "points", name: "", color: "var(--c1)", size: 5, data: [[columns.p[row], columns.log10_contribution[row]]] }];
    const drawn = element("div");
    show(place, drawn, element("figcaption", {}, `What the matrix adds to the generalization proxy, by Schatten index p. The dot marks the smallest contribution, at p* = ${format(columns.p[row])}.`));
    plot(drawn, { label: "Contribution to the proxy against p", height: 170, layers: [line, ...chosen],
      x: { title: "Schatten index (p)", short: "p =", domain: [0, 2], values: [0, 0.5, 1, 1.5, 2] }, y: { title: "contribution (log₁₀ C)", domain: domainOf(curve) } });
  }
}

function strongSentence(count) {
  if (!count) return "No value is larger than that of a random matrix.";
  return count === 1 ? "One value, marked below, is larger than that of a random matrix." : `${count} values, marked below, are larger than those of a random matrix.`;
}

const tensorsOf = (names) => (names?.length ? element("p", { class: "note", id: "tensors" }, "Stored as ", element("code", {}, [...new Set(names)].join(" · "))) : null);

const smallest = (values) => values.reduce((low, value) => (value > 1e-12 * values[0] && value < low ? value : low), Infinity);

const peak = (points) => Math.max(0, ...points.map(([, y]) => y));

// Where a density has left zero: its first point above a fiftieth of its height.
function bodyOf(points) {
  const heights = drawable(points, true);
  const most = peak(heights);
  return heights.find(([, y]) => y > 0.02 * most)?.[0] ?? Infinity;
}

const drawable = (points, log) => (log ? points.filter(([x]) => x > 0).map(([x, y]) => [x, x * y]) : points);

// [left, right, 0, height] with unit area in σ, or in ln σ; values off the axis count, but are not drawn.
function histogram(values, bottom, top, count, log) {
  const [map, back] = log ? [Math.log, Math.exp] : [(value) => value, (value) => value];
  const low = map(bottom), width = (map(top) - low) / count;
  const counts = new Array(count).fill(0);
  for (const value of values) {
    const place = Math.floor((map(value) - low) / width);
    if (place >= 0) counts[Math.min(count - 1, place)] += 1;
  }
  return counts.map((number, i) => [back(low + i * width), back(low + (i + 1) * width), 0, number / (values.length * width)]);
}

// Bars over the values' own range, each at least a hundredth of the axis wide.
function ownHistogram(values, bottom, top, log) {
  const map = log ? Math.log : (value) => value;
  const low = Math.max(bottom, 0.98 * smallest(values)), high = 1.02 * values[0];
  const most = Math.ceil((100 * (map(high) - map(low))) / (map(top) - map(bottom)));
  return histogram(values, low, high, Math.min(most, Math.round(Math.max(7, Math.min(60, 1.5 * Math.sqrt(values.length))))), log);
}

// From zero and back to it.
const outline = (bars) => [[bars[0][0], 0], ...bars.flatMap(([left, right, , height]) => [[left, height], [right, height]]), [bars.at(-1)[1], 0]];

// A small chart: bars, lines, points and rules over two axes, redrawn to the width of its place.

const MARGIN = { right: 12, top: 10, bottom: 38 };
const DIGIT = 6.3; // width of a digit of an axis, in pixels

function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * [1, 2, 2.5, 5, 10].find((factor) => factor * unit >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) found.push(k * step);
  return found;
}

function decades(low, high) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const step = Math.ceil((last - first) / 6);
  const found = [];
  for (let k = first; k <= last; k += step) found.push(10 ** k);
  if (last - first <= 2) found.push(...found.flatMap((value) => [2 * value, 5 * value]));
  return found.filter((value) => value >= low * 0.999 && value <= high * 1.001).sort((a, b) => a - b);
}

function scale(axis, from, to) {
  const [low, high] = axis.log ? axis.domain.map(Math.log10) : axis.domain;
  const span = high - low || 1;
  return (value) => from + (((axis.log ? Math.log10(value) : value) - low) / span) * (to - from);
}

// The domain of values with some room at its ends.
function domainOf(values, { log = false } = {}) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value === null || !Number.isFinite(value) || (log && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return log ? [0.1, 1] : [0, 1];
  if (log) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.04, high * (high / low) ** 0.04];
  const room = high === low ? Math.abs(high) * 0.1 || 0.5 : 0.06 * (high - low);
  return [low - room, high + room];
}

// spec: {label, height, x: {title, domain, log, values}, y: {...}, layers: [{type, name, color, ...}]}
function plot(place, spec) {
  const draw = () => {
    const width = Math.max(220, place.clientWidth || 420);
    if (width !== place.drawnWidth) { place.drawnWidth = width; show(place, drawing(spec, width, place)); }
  };
  place.drawnWidth = 0;
  place.classList.add("plot");
  place.observer?.disconnect();
  place.observer = new ResizeObserver(draw);
  place.observer.observe(place);
  draw();
  return place;
}

function drawing(spec, width, place) {
  const height = spec.height ?? 220;
  const up = spec.y.values ?? (spec.y.log ? decades(...spec.y.domain) : ticks(...spec.y.domain, height / 45));
  // The title of the axis is left of its longest number.
  const left = Math.max(52, 28 + DIGIT * Math.max(0, ...up.map((value) => format(value).length)));
  const x = scale(spec.x, left, width - MARGIN.right);
  const y = scale(spec.y, height - MARGIN.bottom, MARGIN.top);
  const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spec.label });
  svg.append(axes(spec, { left, width, height, up }, x, y));
  for (const layer of spec.layers) {
    const drawn = LAYERS[layer.type](layer, x, y, height);
    svg.append(layer.clip ? clipped(drawn, left, width, height) : drawn);
  }
  if (spec.layers.some((layer) => layer.readable)) attachReader(svg, spec, x, y, height, place);
  return svg;
}

// Hide what is outside of the axes.
function clipped(drawn, left, width, height) {
  const area = [left, MARGIN.top, width - left - MARGIN.right, height - MARGIN.top - MARGIN.bottom];
  return shape("svg", { x: area[0], y: area[1], width: area[2], height: area[3], viewBox: area.join(" "), style: { overflow: "hidden" } }, drawn);
}

function axes(spec, { left, width, height, up }, x, y) {
  const group = shape("g");
  const bottom = height - MARGIN.bottom;
  const across = spec.x.values ?? (spec.x.log ? decades(...spec.x.domain) : ticks(...spec.x.domain, width / 90));
  for (const value of up) {
    group.append(shape("line", { class: "grid-line", x1: left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
    group.append(shape("text", { x: left - 7, y: y(value) + 3.5, "text-anchor": "end" }, format(value)));
  }
  for (const value of across) {
    group.append(shape("line", { class: "axis", x1: x(value), x2: x(value), y1: bottom, y2: bottom + 4 }));
    group.append(shape("text", { x: x(value), y: bottom + 16, "text-anchor": "middle" }, format(value)));
  }
  group.append(shape("line", { class: "axis", x1: left, x2: width - MARGIN.right, y1: bottom, y2: bottom }));
  group.append(shape("text", { class: "title", x: (left + width - MARGIN.right) / 2, y: height - 5, "text-anchor": "middle" }, spec.x.title));
  const middle = (MARGIN.top + bottom) / 2;
  group.append(shape("text", { class: "title", x: 11, y: middle, "text-anchor": "middle", transform: `rotate(-90 11 ${middle})` }, spec.y.title));
  return group;
}

const LAYERS = {
  bars: (layer, x, y) => shape("g", { style: { fill: layer.color } }, layer.data.map(([left, right, low, high]) => shape("rect", {
    x: x(left) + 0.5, width: Math.max(0.5, x(right) - x(left) - 1), y: y(high), height: Math.max(0, y(low) - y(high)),
  }))),
  line: (layer, x, y) => shape("path", {
    d: path(layer.data, x, y), fill: "none", "stroke-width": layer.width ?? 2, "stroke-dasharray": layer.dash,
    "stroke-linejoin": "round", style: { stroke: layer.color },
  }),
  points: (layer, x, y) => shape("g", { style: { fill: layer.color } },
    layer.data.map(([a, b]) => shape("circle", { cx: x(a), cy: y(b), r: layer.size ?? 3 }))),
  rule: (layer, x, y, height) => shape("g", {},
    shape("line", { x1: x(layer.at), x2: x(layer.at), y1: MARGIN.top, y2: height - MARGIN.bottom,
      "stroke-dasharray": layer.dash ?? "2 3", "stroke-width": 1.4, style: { stroke: layer.color } })),
  rug: (layer, x, y, height) => shape("g", { style: { stroke: layer.color }, "stroke-width": 1.6 },
    layer.data.map((value) => shape("line", { x1: x(value), x2: x(value), y1: height - MARGIN.bottom - layer.length, y2: height - MARGIN.bottom }))),
};

function path(points, x, y) {
  let pen = "M", text = "";
  for (const [a, b] of points) {
    if (b === null || !Number.isFinite(b)) { pen = "M"; continue; }
    text += `${pen}${x(a).toFixed(1)},${y(b).toFixed(1)}`;
    pen = "L";
  }
  return text;
}

// A crosshair that shows the values of all readable layers at the point nearest to the pointer.
function attachReader(svg, spec, x, y, height, place) {
  const readable = spec.layers.filter((layer) => layer.readable && layer.data.length);
  const line = shape("line", { class: "axis", y1: MARGIN.top, y2: height - MARGIN.bottom, visibility: "hidden" });
  const tip = element("div", { class: "tip", hidden: "" });
  svg.append(line);
  svg.addEventListener("pointermove", (event) => {
    const at = event.clientX - svg.getBoundingClientRect().left;
    const nearest = readable.map((layer) => layer.data.reduce((best, point) =>
      (Math.abs(x(point[0]) - at) < Math.abs(x(best[0]) - at) ? point : best)));
    const where = nearest.reduce((best, point) => (Math.abs(x(point[0]) - at) < Math.abs(x(best[0]) - at) ? point : best))[0];
    line.setAttribute("x1", x(where)); line.setAttribute("x2", x(where)); line.setAttribute("visibility", "visible");
    const lines = readable.flatMap((layer, i) => (nearest[i][0] === where
      ? [element("div", {}, key(layer.color), `${layer.name}: ${format(nearest[i][1])}`)] : []));
    show(tip, element("div", {}, `${spec.x.short ?? spec.x.title} ${format(where)}`), lines);
    tip.hidden = false;
    if (!tip.isConnected) place.append(tip);
    tip.style.left = `${Math.min(x(where) + 12, svg.clientWidth - tip.offsetWidth - 4)}px`;
    tip.style.top = `${MARGIN.top + 6}px`;
  });
  svg.addEventListener("pointerleave", () => { tip.hidden = true; line.setAttribute("visibility", "hidden"); });
}

const key = (color) => element("span", { class: "key", style: { background: color } });

// Names of the layers of a chart, each with the stroke it is drawn in.
function keys(layers) {
  return element("div", { class: "keys" }, layers.map((layer) => element("span", {},
    shape("svg", { width: 20, height: 10, "aria-hidden": "true" }, layer.type === "bars"
      ? shape("rect", { width: 20, height: 10, rx: 2, style: { fill: layer.color } })
      : shape("line", { x1: 0, x2: 20, y1: 5, y2: 5, "stroke-width": layer.width ?? 2, "stroke-dasharray": layer.dash, style: { stroke: layer.color } })),
    layer.name)));
}
