// Heat maps of layers by heads, one for each model on one scale. The chosen cell decides which matrix is shown.

class Explorer {
  constructor(data, onSelect) {
    this.data = data;
    this.onSelect = onSelect;
    this.columns = data.columns;
    this.groups = groupsOf(data);
    this.quantities = data.quantities.filter(({ key: name }) => this.columns[name]?.some((value) => value !== null));
    this.group = this.groups[0];
    this.quantity = this.quantities[0];
    const leading = this.columns[data.leading]; // the largest of it is chosen first
    const all = this.groups.flatMap((group) => group.rows);
    const largest = (rows) => rows.reduce((best, row) => ((leading[row] ?? 0) > (leading[best] ?? 0) ? row : best), rows[0]);
    this.selected = largest(data.worst ? all : this.group.rows);
    this.group = this.groups.find((group) => group.rows.includes(this.selected));
    this.drawControls();
    this.draw();
  }

  // If a quantity as applied is not known, the quantity as stored replaces it.
  isStored(row) {
    const { key: name, stored } = this.quantity;
    return stored !== undefined && (this.columns[name][row] ?? null) === null;
  }

  value(row) {
    return this.columns[this.isStored(row) ? this.quantity.stored : this.quantity.key][row];
  }

  drawControls() {
    const options = this.quantities.map((one) => element("option", { value: one.key }, one.name));
    const chooser = element("select", { id: "quantity", onchange: () => {
      this.quantity = this.quantities.find((one) => one.key === chooser.value);
      this.draw();
    } }, options);
    const kinds = element("div", { class: "choice", role: "group", "aria-label": "Kind of matrix" },
      this.groups.map((group) => element("button", { type: "button", "data-kind": group.name, onclick: () => this.choose(group) }, group.name)));
    show(byId("controls"), element("label", {}, "Quantity", chooser), element("label", {}, "Kind of matrix", kinds));
  }

  choose(group) {
    if (group === this.group) return;
    const { layer, head, model } = this.place(this.selected);
    this.group = group;
    const same = group.rows.filter((row) => this.place(row).model === model && this.place(row).layer === layer);
    this.select(same.find((row) => this.place(row).head === head) ?? same[0] ?? group.rows[0]);
  }

  place(row) {
    return { model: this.columns.model[row], layer: this.columns.layer[row], head: this.columns.head[row], kind: this.columns.kind[row] };
  }

  select(row, focus = false) {
    const group = this.groups.find((one) => one.rows.includes(row));
    const redraw = group !== this.group || !this.cells?.has(row) || this.drawnGroup !== group;
    this.cells?.get(this.selected)?.setAttribute("aria-selected", "false");
    this.cells?.get(this.selected)?.setAttribute("tabindex", "-1");
    this.group = group;
    this.selected = row;
    if (redraw) { this.draw(); return; }
    const cell = this.cells.get(row);
    cell.setAttribute("aria-selected", "true");
    cell.setAttribute("tabindex", "0");
    if (focus) cell.focus();
    this.onSelect(row);
  }

  draw() {
    const colors = colorScale(this.quantity, this.group.rows.map((row) => this.value(row)));
    this.cells = new Map();
    this.drawnGroup = this.group;
    const maps = this.data.models.map((_, model) => this.map(model, colors));
    show(byId("maps"), maps);
    show(byId("legend"), legendOf(this.quantity, colors));
    const some = (test) => this.group.rows.some(test);
    byId("map-caption").textContent = this.quantity.says
      + (this.data.models.length > 1 ? " All models share one colour scale." : "")
      + (some((row) => (this.value(row) ?? null) === null) ? " Hatched cells have no value." : "")
      + (some((row) => this.isStored(row)) ? " Some values are those of the stored matrix, because attnlaw does not know the norm layer before it." : "");
    byId("controls").querySelectorAll("[data-kind]").forEach((button) =>
      button.setAttribute("aria-pressed", String(button.dataset.kind === this.group.name)));
    this.onSelect(this.selected);
  }

  map(model, colors) {
    const rows = this.group.rows.filter((row) => this.columns.model[row] === model);
    if (!rows.length) return null;
    const layers = [...new Set(rows.map((row) => this.columns.layer[row]))];
    const across = [...new Set(rows.map((row) => this.group.column(row)))];
    const at = new Map(rows.map((row) => [`${this.columns.layer[row]}/${this.group.column(row)}`, row]));
    const order = layers.map((layer) => across.map((column) => at.get(`${layer}/${column}`)));
    const stacked = new Set(rows.map((row) => this.columns.stack[row])).size > 1;
    const wide = this.data.models.length === 1 || across.length > 14;
    byId("maps").style.setProperty("--map-width", wide ? "100%" : `${Math.max(12, 1.6 * across.length)}rem`);
    const roomy = across.length <= (this.quantity.category ? 4 : wide ? 12 : 6);
    const grid = element("div", {
      class: "grid", role: "grid", "aria-label": `${this.quantity.name} of ${this.group.name}, ${this.data.models[model].name}`,
      style: { "--columns": across.length, "--label": stacked ? "4.2rem" : "2.2rem", "--cell": `${Math.max(12, Math.min(64, 460 / layers.length))}px` },
      onkeydown: (event) => this.move(event, order),
    });
    const numbers = across.map((column, i) => element("span", {}, across.length <= 16 || i % 4 === 0 ? String(column) : ""));
    const title = { heads: "head", experts: "expert" }[this.group.across] ?? "matrix";
    grid.append(element("div", { class: "axis-title", "aria-hidden": "true" }, title));
    grid.append(element("div", { class: "grid-row", "aria-hidden": "true" }, element("span", {}), numbers));
    layers.forEach((layer, i) => grid.append(element("div", { class: "grid-row", role: "row" },
      element("span", { role: "rowheader" }, layer === null ? "–" : `${stacked ? `${this.columns.stack[rows.find((row) => this.columns.layer[row] === layer)] ?? ""} ` : ""}${layer}`),
      order[i].map((row) => this.cell(row, colors, roomy)))));
    const name = this.data.models.length > 1 ? element("h3", { title: this.data.models[model].name }, key(seriesColor(model)), this.data.models[model].short) : null;
    const side = element("div", { class: "side-title", "aria-hidden": "true" }, "layer");
    return element("div", { class: "map" }, name, element("div", { class: "map-body" }, side, grid));
  }

  cell(row, colors, roomy) {
    if (row === undefined) return element("div", { class: "cell", role: "gridcell", "data-empty": "" });
    const value = this.value(row);
    const missing = value === null || value === undefined;
    const [fillColor, ink] = missing ? [null, null] : colors.color(value);
    const text = this.quantity.key === "share" ? percent(value) : format(value, 3);
    const shown = this.isStored(row) && !missing ? `${text} (as stored)` : text;
    const cell = element("div", {
      class: "cell", role: "gridcell", tabindex: row === this.selected ? "0" : "-1", "data-row": row,
      "data-empty": missing ? "" : null, "aria-selected": String(row === this.selected),
      "aria-label": `${this.data.title(row)}: ${this.quantity.name} ${shown}`, title: `${this.data.title(row)}: ${shown}`,
      style: missing ? {} : { background: fillColor, color: ink }, onclick: () => this.select(row, true),
    }, roomy && !missing ? text : "");
    this.cells.set(row, cell);
    return cell;
  }

  // Arrow keys, Home and End move within one map.
  move(event, order) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -Infinity], End: [0, Infinity] };
    const step = steps[event.key];
    const row = Number(event.target.dataset.row);
    const line = order.findIndex((cells) => cells.includes(row));
    if (!step || line < 0) return;
    event.preventDefault();
    const clamp = (value, last) => Math.max(0, Math.min(last, value));
    const cells = order[clamp(line + step[0], order.length - 1)];
    const next = cells[clamp(order[line].indexOf(row) + step[1], cells.length - 1)];
    if (next !== undefined) this.select(next, true);
  }
}

// Each kind with heads or experts has a map. Feed-forward matrices share a map, and so do all other matrices.
function groupsOf(data) {
  const { kind, head } = data.columns;
  const expert = data.columns.expert ?? head.map(() => null);
  const every = kind.map((_, row) => row);
  const numbered = (numbers, ending) => [...new Set(kind.filter((_, row) => numbers[row] !== null))].map((name) => ({
    name: nameOf(name) + ending, across: ending ? "experts" : "heads",
    rows: every.filter((row) => kind[row] === name && numbers[row] !== null), column: (row) => numbers[row],
  }));
  const groups = [...numbered(head, ""), ...numbered(expert, ", experts")];
  const plain = every.filter((row) => head[row] === null && expert[row] === null);
  const isMap = (row) => data.groups[kind[row]] === "ffn";
  for (const [name, rows] of [["FFN", plain.filter(isMap)], ["other", plain.filter((row) => !isMap(row))]]) {
    if (rows.length) groups.push({ name, across: "matrices", rows, column: (row) => nameOf(kind[row]) });
  }
  return groups;
}

// Colours of numbers: viridis (readable with every kind of colour vision).

const VIRIDIS = [[68, 1, 84], [72, 35, 116], [64, 67, 135], [52, 94, 141], [41, 120, 142], [32, 144, 140], [34, 167, 132], [68, 190, 112], [121, 209, 81], [189, 222, 38], [253, 231, 36]];

function viridis(t) {
  const place = Math.min(0.9999, Math.max(0, t)) * (VIRIDIS.length - 1);
  const i = Math.floor(place), part = place - i;
  return VIRIDIS[i].map((low, channel) => Math.round(low + part * (VIRIDIS[i + 1][channel] - low)));
}

const rgb = (channels) => `rgb(${channels.join(" ")})`;
// Black or white, whichever has the larger contrast: at least 4.58 on any colour.
const linear = (channel) => (channel <= 10 ? channel / 3294 : ((channel / 255 + 0.055) / 1.055) ** 2.4);
const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
const inkOn = (channels) => (luminance(channels) > 0.179 ? "#000000" : "#ffffff");

// One colour scale for all shown values: {color(value) -> [fill, ink], low, high} or the categories.
function colorScale(quantity, values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (quantity.category) {
    const names = Object.keys(page.laws).filter((name) => known.includes(name));
    return { names, color: (value) => [page.laws[value], value === "neither" ? "light-dark(#fff, #101010)" : "#101010"] };
  }
  const positive = known.filter((value) => !quantity.log || value > 0);
  let [low, high] = quantity.domain ?? positive.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
  if (quantity.zero) low = 0;
  const map = quantity.log ? Math.log : (value) => value;
  const at = (value) => (high > low ? (map(value) - map(low)) / (map(high) - map(low)) : 0.5);
  const color = (value) => {
    const channels = viridis(quantity.log && value <= 0 ? 0 : at(value));
    return [rgb(channels), inkOn(channels)];
  };
  return { low, high, color };
}

function legendOf(quantity, scale) {
  if (scale.names) return scale.names.map((name) => element("span", {}, key(scale.color(name)[0]), name));
  if (scale.low > scale.high) return [element("span", {}, "no values")];
  const stops = Array.from({ length: 11 }, (_, i) => rgb(viridis(i / 10))).join(",");
  return [
    element("span", {}, format(scale.low, 3)),
    element("span", { class: "gradient", style: { background: `linear-gradient(90deg,${stops})` } }),
    element("span", {}, format(scale.high, 3)),
    element("span", {}, quantity.name + (quantity.log ? " (logarithmic scale)" : "")),
  ];
}
