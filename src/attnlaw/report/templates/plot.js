// A small chart: bars, lines, points and rules over two axes, redrawn to the width of its place.

const MARGIN = { left: 52, right: 12, top: 10, bottom: 38 };

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
function domainOf(values, { log = false, zero = false } = {}) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value === null || !Number.isFinite(value) || (log && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return log ? [0.1, 1] : [0, 1];
  if (log) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.04, high * (high / low) ** 0.04];
  const room = high === low ? Math.abs(high) * 0.1 || 0.5 : 0.06 * (high - low);
  return [zero ? Math.min(0, low) : low - room, high + room];
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
  const x = scale(spec.x, MARGIN.left, width - MARGIN.right);
  const y = scale(spec.y, height - MARGIN.bottom, MARGIN.top);
  const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spec.label });
  svg.append(axes(spec, width, height, x, y));
  for (const layer of spec.layers) {
    const drawn = LAYERS[layer.type](layer, x, y, height);
    svg.append(layer.clip ? clipped(drawn, width, height) : drawn);
  }
  if (spec.layers.some((layer) => layer.readable)) attachReader(svg, spec, x, y, height, place);
  return svg;
}

// What lies outside of the axes is not shown.
function clipped(drawn, width, height) {
  const area = [MARGIN.left, MARGIN.top, width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom];
  return shape("svg", { x: area[0], y: area[1], width: area[2], height: area[3], viewBox: area.join(" "), style: { overflow: "hidden" } }, drawn);
}

function axes(spec, width, height, x, y) {
  const group = shape("g");
  const bottom = height - MARGIN.bottom;
  const across = spec.x.values ?? (spec.x.log ? decades(...spec.x.domain) : ticks(...spec.x.domain, width / 90));
  const up = spec.y.values ?? (spec.y.log ? decades(...spec.y.domain) : ticks(...spec.y.domain, height / 45));
  for (const value of up) {
    group.append(shape("line", { class: "grid-line", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
    group.append(shape("text", { x: MARGIN.left - 7, y: y(value) + 3.5, "text-anchor": "end" }, format(value)));
  }
  for (const value of across) {
    group.append(shape("line", { class: "axis", x1: x(value), x2: x(value), y1: bottom, y2: bottom + 4 }));
    group.append(shape("text", { x: x(value), y: bottom + 16, "text-anchor": "middle" }, format(value)));
  }
  group.append(shape("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: bottom, y2: bottom }));
  group.append(shape("text", { class: "title", x: (MARGIN.left + width - MARGIN.right) / 2, y: height - 5, "text-anchor": "middle" }, spec.x.title));
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

// A crosshair that tells the values of all readable layers at the point nearest to the pointer.
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
