// One matrix: its numbers, its spectrum with the null and the fitted law over it, its curve C(p).

const FACTS = [
  ["spectral_norm", "spectral norm"], ["frobenius_norm", "Frobenius norm"], ["stable_rank", "stable rank"], ["effective_rank", "effective rank"],
  ["p", "p*"], ["share", "share of the bound"], ["law", "fitted law"], ["outliers", "outliers"],
  ["random_p_value", "p-value, random"], ["alpha", "tail exponent α"], ["alpha_p_value", "p-value, power law"],
];

class Detail {
  constructor(data) {
    this.data = data;
    this.view = "density";
    this.row = null;
  }

  show(row) {
    this.row = row;
    const { data } = this;
    const { columns } = data;
    const models = data.models.length > 1 ? [key(seriesColor(columns.model[row]))] : [];
    const views = element("div", { class: "choice", role: "group", "aria-label": "View of the spectrum" },
      [["density", "Density"], ["rank", "By rank"]].map(([view, name]) => element("button", {
        type: "button", "aria-pressed": String(view === this.view), onclick: () => { this.view = view; this.show(row); },
      }, name)));
    const numbers = FACTS.filter(([name]) => columns[name] && columns[name][row] !== null).map(([name, label]) => element("div", {},
      element("dt", {}, label), element("dd", {}, name === "share" ? percent(columns[name][row]) : format(columns[name][row]))));
    const spectrum = element("figure", { id: "spectrum", style: { margin: 0 } });
    const curve = element("figure", { id: "curve", style: { margin: "1rem 0 0" } });
    show(byId("detail"),
      element("div", { class: "head-line" }, element("h3", { id: "detail-title" }, models, data.title(row)), views),
      element("p", { class: "facts", style: { margin: "0" } }, [`${columns.rows[row]} × ${columns.cols[row]}`, data.several ? ` · ${data.models[columns.model[row]].name}` : ""].join("")),
      spectrum, element("dl", { class: "numbers" }, numbers), curve, tensorsOf(columns.tensors[row]));
    this.drawSpectrum(spectrum, row);
    this.drawCurve(curve, row);
  }

  // The same matrix of the other models, for comparison.
  others(row) {
    const { columns } = this.data;
    const same = (other) => ["layer", "head", "kind", "stack"].every((name) => columns[name][other] === columns[name][row]);
    return columns.model.flatMap((model, other) => (model !== columns.model[row] && same(other) && this.data.spectrum(other) ? [other] : []));
  }

  drawSpectrum(place, row) {
    const values = this.data.spectrum(row);
    if (!values) {
      show(place, element("p", { class: "note" }, "Too large for all of its singular values: norms and ranks were approximated."));
      return;
    }
    const living = values.filter((value) => value > 1e-12 * values[0]);
    const spec = !living.length ? null : this.view === "density" ? this.density(row, living) : this.ranks(row, living);
    if (!spec) { show(place, element("p", { class: "note" }, "All singular values are zero.")); return; }
    const named = spec.layers.filter((layer) => layer.name);
    const drawn = element("div");
    show(place, keys(named), drawn, element("figcaption", {}, spec.caption));
    plot(drawn, spec);
  }

  density(row, values) {
    const { columns } = this.data;
    const others = this.others(row).map((other) => ({ row: other, values: this.data.spectrum(other) }));
    const curve = this.data.fits?.null(row), law = this.data.fits?.law(row);
    const edge = columns.null_edge?.[row] ?? null;
    const top = Math.max(values[0], edge ?? 0, ...others.map((one) => one.values[0]), curve ? curve.at(-1)[0] : 0);
    const count = Math.round(Math.max(14, Math.min(60, 4.5 * Math.cbrt(values.length))));
    const bars = histogram(values, top * 1.02, count);
    const layers = [{ type: "bars", name: "singular values", color: "var(--bars)", data: bars }];
    for (const other of others) {
      const model = columns.model[other.row];
      layers.push({ type: "line", name: this.data.models[model].short, color: seriesColor(model), width: 1.6, data: outline(histogram(other.values, top * 1.02, count)) });
    }
    const heights = [...bars.map((bar) => bar[3]), ...(curve ?? []).map((point) => point[1])].sort((a, b) => a - b);
    const most = 1.08 * Math.max(bars.reduce((best, bar) => Math.max(best, bar[3]), 0), Math.min(heights.at(-1), 2 * bars.reduce((best, bar) => Math.max(best, bar[3]), 0)));
    const cut = (points) => points.map(([x, y]) => [x, y > most ? null : y]);
    if (curve) layers.push({ type: "line", name: "null: random entries", color: "var(--ink)", dash: "5 4", width: 1.8, data: cut(curve) });
    if (law) layers.push({ type: "line", name: `fitted: ${columns.law[row]}`, color: "var(--c1)", width: 2.4, data: cut(law) });
    if (edge !== null) layers.push({ type: "rule", name: "edge of the null", color: "var(--ink)", dash: "1.5 3", at: edge });
    const beyond = edge === null ? [] : [...values].filter((value) => value > edge);
    if (beyond.length) layers.push({ type: "rug", color: "var(--c1)", length: 14, data: beyond });
    return {
      label: `Density of the ${values.length} singular values`, height: 250, layers,
      x: { title: "singular value σ", domain: [0, top * 1.02] }, y: { title: "density", domain: [0, most] },
      caption: curve
        ? `Bars that leave the dashed null were learned. ${beyond.length ? `The ${beyond.length} orange tick${beyond.length > 1 ? "s" : ""} beyond its edge ${beyond.length > 1 ? "are outliers" : "is an outlier"}.` : "No value lies beyond its edge."}`
        : `All ${values.length} non-zero singular values. A few far to the right of the rest carry the matrix.`,
    };
  }

  ranks(row, values) {
    const { columns } = this.data;
    const line = (list) => Array.from(list, (value, i) => [i + 1, value]).filter(([, value]) => value > 1e-9 * list[0]);
    const others = this.others(row).map((other) => ({ type: "line", readable: true, width: 1.6, data: line(this.data.spectrum(other)),
      name: this.data.models[columns.model[other]].short, color: seriesColor(columns.model[other]) }));
    const own = { type: "line", readable: true, name: others.length ? this.data.models[columns.model[row]].short : "singular values",
      width: 2.4, color: seriesColor(columns.model[row]), data: line(values) };
    const layers = [own, ...others];
    return {
      label: "Singular values by rank", height: 250, layers,
      x: { title: "rank", domain: [1, Math.max(2, ...layers.map((layer) => layer.data.length))] },
      y: { title: "singular value σ", log: true, domain: domainOf(layers.flatMap((layer) => layer.data.map(([, value]) => value)), { log: true }) },
      caption: "Largest first, on a logarithmic axis. A straight fall is a geometric decay; a cliff at the left means few strong directions.",
    };
  }

  drawCurve(place, row) {
    const curve = this.data.curve(row);
    if (!curve) { place.remove(); return; }
    const { columns } = this.data;
    const data = Array.from(curve, (value, i) => [(2 * i) / (curve.length - 1), value]);
    const line = { type: "line", readable: true, name: "log10 C(p)", color: "var(--c0)", width: 2.2, data };
    const chosen = columns.p[row] === null ? [] : [{ type: "points", name: "", color: "var(--c1)", size: 5, data: [[columns.p[row], columns.log10_contribution[row]]] }];
    const drawn = element("div");
    show(place, drawn, element("figcaption", {}, `What the matrix costs in the bound when measured with Schatten index p. The dot is p* = ${format(columns.p[row])}, where it costs least.`));
    plot(drawn, { label: "Contribution to the bound against p", height: 170, layers: [line, ...chosen],
      x: { title: "Schatten index p", short: "p =", domain: [0, 2], values: [0, 0.5, 1, 1.5, 2] }, y: { title: "log10 C(p)", domain: domainOf(curve) } });
  }
}

const tensorsOf = (names) => (names?.length ? element("p", { class: "note", id: "tensors" }, "from ", element("code", {}, names.join(" · "))) : null);

// [left, right, 0, height] with unit area.
function histogram(values, top, count) {
  const width = top / count;
  const counts = new Array(count).fill(0);
  for (const value of values) counts[Math.min(count - 1, Math.floor(value / width))] += 1;
  return counts.map((number, i) => [i * width, (i + 1) * width, 0, number / (values.length * width)]);
}

const outline = (bars) => bars.flatMap(([left, right, , height]) => [[left, height], [right, height]]);
