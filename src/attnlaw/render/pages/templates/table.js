// All rows: sort by a column, filter by words and conditions, and download the rows that match as CSV.

const PAGE = 25;

class Table {
  constructor(data, onChoose) {
    this.data = data;
    this.onChoose = onChoose;
    this.shown = data.shown.filter(([name]) => data.columns[name]?.some((value) => value !== null) && (name !== "model" || data.several || !data.models));
    this.aligned = Object.fromEntries(this.shown.map(([name]) => [name, aligner(data.columns, name)]));
    this.order = data.worst ? { name: data.leading, down: true } : null;
    this.page = 0;
    this.selected = null;
    const names = Object.keys(data.columns);
    const holds = (name, test) => data.columns[name].some(test) || (name === "model" && data.models);
    this.texts = new Set(names.filter((name) => holds(name, (value) => typeof value === "string")));
    const searched = names.filter((name) => holds(name, (value) => typeof value === "string" || Array.isArray(value)));
    this.words = Object.values(data.columns)[0].map((_, row) => searched.map((name) => {
      const value = this.value(row, name) ?? "";
      return Array.isArray(value) ? value.join(" ") : `${value} ${this.called(name, value)}`;
    }).join(" ").toLowerCase());
    byId("filter").addEventListener("input", () => { this.page = 0; this.draw(); });
    byId("download").addEventListener("click", () => this.download());
    this.draw();
  }

  value(row, name) {
    const value = this.data.columns[name][row];
    return name === "model" && this.data.models ? this.data.models[value].name : value;
  }

  rows() {
    const tests = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean).map((word) => this.test(word));
    const rows = this.words.map((_, row) => row).filter((row) => tests.every((test) => test(row)));
    if (!this.order) return rows;
    const { name, down } = this.order;
    const sign = down ? -1 : 1;
    return rows.sort((a, b) => {
      const [left, right] = [this.value(a, name), this.value(b, name)];
      if (left === null || right === null) return (left === null) - (right === null);
      return sign * (typeof left === "string" ? left.localeCompare(right) : (left > right) - (left < right));
    });
  }

  test(word) {
    const [, name, sign, text] = word.match(/^(\w+)(<=|>=|=|<|>)(.+)$/) ?? [];
    const column = this.data.columns[name];
    if (!column) return (row) => this.words[row].includes(word);
    const compare = { "=": (a, b) => a === b, "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b }[sign];
    const number = /^[+-]?(inf|infinity|∞)$/.test(text) ? (text[0] === "-" ? -Infinity : Infinity) : Number(text);
    return (row) => {
      const value = this.value(row, name);
      if (value === null || value === undefined) return false;
      return typeof value === "number" ? compare(value, number) : compare(String(value).toLowerCase(), text);
    };
  }

  draw() {
    const rows = this.rows();
    const pages = Math.max(1, Math.ceil(rows.length / PAGE));
    this.page = Math.min(this.page, pages - 1);
    const from = this.page * PAGE;
    const head = element("tr", {}, this.shown.map(([name, label]) => {
      const active = this.order?.name === name;
      return element("th", { scope: "col", class: this.texts.has(name) ? "text" : null, "aria-sort": active ? (this.order.down ? "descending" : "ascending") : null },
        element("button", { type: "button", "data-sort": name, title: this.data.meanings?.[name], onclick: () => this.sort(name) }, label + (active ? (this.order.down ? " ↓" : " ↑") : "")));
    }));
    const body = rows.slice(from, from + PAGE).map((row) => element("tr", {
      "data-row": row, tabindex: this.onChoose ? "0" : null, "aria-selected": String(row === this.selected),
      onclick: () => this.onChoose?.(row), onkeydown: (event) => { if (event.key === "Enter") this.onChoose?.(row); },
    }, this.shown.map(([name]) => this.cell(row, name))));
    show(byId("table"), element("table", {}, element("thead", {}, head), element("tbody", {}, body)));
    const turn = (step) => () => { this.page += step; this.draw(); };
    show(byId("pager"),
      element("button", { type: "button", disabled: this.page === 0 ? "" : null, onclick: turn(-1) }, "← Previous"),
      element("button", { type: "button", disabled: this.page === pages - 1 ? "" : null, onclick: turn(1) }, "Next →"),
      element("span", { id: "count", role: "status" }, rows.length ? `${from + 1}–${Math.min(from + PAGE, rows.length)} of ${rows.length} rows` : "No rows match this filter"));
  }

  cell(row, name) {
    const value = this.value(row, name);
    if (name === "model" && this.data.models) return element("td", { class: "text name", title: value }, key(seriesColor(this.data.columns.model[row])), this.data.models[this.data.columns.model[row]].short);
    const text = this.data.names?.[name] ? this.called(name, value) : cellText(this.data.columns, name, row, this.aligned[name]) + this.error(row, name);
    if (name === "error") return element("td", { class: "text name", title: value }, text);
    return element("td", { class: this.texts.has(name) ? "text" : null }, text);
  }

  // Variants by their labels, as "QK".
  called(name, value) {
    return this.data.names?.[name]?.[value] ?? format(value);
  }

  error(row, name) {
    const error = this.data.columns[this.data.errors?.[name]]?.[row] ?? null;
    return error === null ? "" : ` ± ${format(error, 2)}`;
  }

  sort(name) {
    this.order = { name, down: this.order?.name === name ? !this.order.down : !["layer", "head"].includes(name) && !this.texts.has(name) };
    this.page = 0;
    this.draw();
    byId("table").querySelector(`[data-sort="${name}"]`).focus();
  }

  mark(row) {
    this.selected = row;
    byId("table").querySelectorAll("tbody tr").forEach((line) => line.setAttribute("aria-selected", String(Number(line.dataset.row) === row)));
  }

  csv() {
    const names = Object.keys(this.data.columns);
    const quoted = (value) => {
      if (Math.abs(value) === Infinity) return value > 0 ? "inf" : "-inf"; // readers of tables take it for a number
      const text = value === null || value === undefined ? "" : Array.isArray(value) ? value.join(" ") : String(value);
      // A spreadsheet must not take a name for a formula.
      const safe = typeof value !== "number" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
      return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    };
    const lines = this.rows().map((row) => names.map((name) => quoted(this.value(row, name))).join(","));
    return `${[names.join(","), ...lines].join("\r\n")}\r\n`;
  }

  download() {
    const address = URL.createObjectURL(new Blob([this.csv()], { type: "text/csv" }));
    const link = element("a", { href: address, download: "attnlaw-rows.csv" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }
}
