// Elements, numbers, data, and the start. Text enters the page through text nodes and attributes only.

const SVG = "http://www.w3.org/2000/svg";
const nameOf = (kind) => page.names.kind[kind] ?? kind;
const byId = (id) => document.getElementById(id);
const seriesColor = (index) => `var(--c${index % 9})`;

function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function shape(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.entries(value).forEach(([key, rule]) => node.style.setProperty(key, rule));
    else node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

function show(node, ...children) {
  node.replaceChildren(...children.flat().filter(Boolean));
  return node;
}

// Four significant digits, no trailing zeros; a missing number is a dash.
function format(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return String(value);
  if (value === 0) return "0";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(Math.min(2, digits - 1)).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(Number(value.toPrecision(digits)));
}

// Return a function that writes the numbers of a column with equally many decimals, as far as the digits reach.
function aligner(columns, name) {
  const [values, digits] = name === "share" ? [columns.share.map((value) => value && 100 * value), 3] : [columns[name], 4];
  const decimals = (text) => (text.includes("e") ? 0 : text.split(".")[1]?.length ?? 0);
  const most = values.reduce((most, value) => Math.max(most, typeof value === "number" ? decimals(format(value, digits)) : 0), 0);
  return (value) => {
    const text = format(value, digits);
    if (!value || !/^-?[\d.]+$/.test(text)) return text; // a zero is exact
    const reach = digits - 1 - Math.floor(Math.log10(Math.abs(Number(text))));
    return Number(text).toFixed(Math.min(most, Math.max(0, reach)));
  };
}

const percent = (value, text = format) => (value === null || value === undefined ? "–" : `${text(100 * value, 3)} %`);

// A number of one row. Shares are in percent. A p-value that is the smallest its random draws can give gets "≤".
function cellText(columns, name, row, aligned = format) {
  const value = columns[name][row];
  if (name === "share") return percent(value, aligned);
  const least = name === "random_p_value" && value !== null && value * (columns.null_draws?.[row] + 1) < 1.5;
  return least ? `≤ ${format(value, 1)}` : aligned(value);
}

// Little-endian float32 values, packed as base64.
function unpack(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
  return new Float32Array(bytes.buffer);
}

// Arrays of different lengths inside one packed array. A missing array is null.
function ragged(packed) {
  const values = unpack(packed.values);
  const starts = [];
  let end = 0;
  for (const length of packed.lengths) {
    starts.push(length === null ? null : end);
    end += length ?? 0;
  }
  return (row) => (starts[row] === null ? null : values.subarray(starts[row], starts[row] + packed.lengths[row]));
}

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}

// The data, read once.
function readData() {
  const data = JSON.parse(byId("data").textContent);
  // JSON has no infinity: the rows that have it are named.
  for (const [name, rows] of Object.entries(data.infinite ?? {})) for (const row of rows) data.columns[name][row] = Infinity;
  if (!data.models) return data;
  const spectra = ragged(data.spectra), curves = ragged(data.curves);
  data.several = data.models.length > 1;
  data.spectrum = spectra;
  data.curve = curves;
  data.noise = data.noise && ragged(data.noise);
  data.title = (row) => {
    const { layer, head, expert, kind, stack } = data.columns;
    const parts = [layer[row] === null ? null : `${stack[row] ? `${stack[row]} ` : ""}layer ${layer[row]}`, head[row] === null ? null : `head ${head[row]}`,
      (expert?.[row] ?? null) === null ? null : `expert ${expert[row]}`, nameOf(kind[row])];
    const text = parts.filter(Boolean).join(" · ");
    return text[0].toUpperCase() + text.slice(1);
  };
  if (data.fits) data.fits = fitsOf(data.fits, data.columns.law);
  return data;
}

// Densities of singular values: those of random matrices, kept once for each shape, and those of fitted laws.
function fitsOf(packed, decided) {
  const nulls = ragged(packed.nulls), laws = ragged(packed.laws);
  const points = (flat, stretch = 1) => {
    const count = flat.length / 2;
    return Array.from({ length: count }, (_, i) => [flat[i] * stretch, flat[count + i] / stretch]);
  };
  return {
    null: (row) => (packed.shape[row] === null || !(packed.scale[row] > 0) ? null : points(nulls(packed.shape[row]), packed.scale[row])),
    law: (row) => (laws(row) ? points(laws(row)) : null),
    drawn: (row) => `${decided[row] === "neither" ? "nearest law" : "fitted law"}: ${packed.drawn[row]}`,
  };
}

// Drawing moved the sections, so scroll to the section that the address names.
function land() {
  let name;
  try { name = decodeURIComponent(location.hash.slice(1)); } catch { return; }
  byId(name)?.scrollIntoView({ behavior: "instant" });
}

// Connect the parts: a choice on the map or in the table shows one matrix.
byId("theme").addEventListener("click", toggleTheme);
const page = readData();
if (page.models) {
  const detail = new Detail(page);
  let explorer = null;
  const table = new Table(page, (row) => { explorer.select(row); });
  explorer = new Explorer(page, (row) => { detail.show(row); table.mark(row); });
} else if (page.columns) {
  new Table(page, null);
}
land();
document.documentElement.dataset.ready = "";
