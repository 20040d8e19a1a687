// Elements, numbers and data. Text enters the page through text nodes and attributes only.

const SVG = "http://www.w3.org/2000/svg";
const NAMES = {
  qk: "QK", vo: "VO", cross_qk: "cross QK", cross_vo: "cross VO",
  ffn_in: "FFN in", ffn_gate: "FFN gate", ffn_out: "FFN out",
};
const nameOf = (kind) => NAMES[kind] ?? kind;
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
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(Math.min(2, digits - 1)).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(Number(value.toPrecision(digits)));
}

const percent = (value) => (value === null || value === undefined ? "–" : `${format(100 * value, 3)} %`);

// A number of one row: shares in percent; the least p-value that the draws of a null can tell stands for it and less.
function cellText(columns, name, row) {
  const value = columns[name][row];
  if (name === "share") return percent(value);
  const least = name === "random_p_value" && value !== null && value * (columns.null_draws?.[row] + 1) < 1.5;
  return least ? `≤ ${format(value, 1)}` : format(value);
}

// Little-endian float32 values, packed as base64.
function unpack(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
  return new Float32Array(bytes.buffer);
}

// Arrays of different lengths that lie in one packed array; null where an array is missing.
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
