// The models in cards, their proxies on one logarithmic strip, and what the proxies mean.

function drawSummary(data) {
  show(byId("models"), data.models.map((model, i) => modelCard(model, i, data.models.length)));
  if (data.models.some((model) => model.proxies)) drawProxies(data);
  else byId("proxies").remove();
}

function modelCard(model, index, count) {
  const facts = `${model.family} · ${model.layers} layers · hidden size ${format(model.hidden_size)} · ${format(model.heads)} heads · ${model.matrices} matrices`;
  const numbers = model.headline.map(([name, value]) => element("div", {},
    element("dt", {}, name), element("dd", {}, "10", element("sup", {}, value === null ? "?" : value.toFixed(2)))));
  return element("article", {},
    element("h3", {}, count > 1 ? key(seriesColor(index)) : null, model.short),
    model.short === model.name ? null : element("p", { class: "path" }, model.name),
    element("p", { class: "facts" }, facts),
    element("dl", { class: "headline" }, numbers),
    model.remarks.map((text) => element("p", { class: "note" }, text)),
    model.warnings.map((text) => element("p", { class: "note warning" }, text)));
}

function drawProxies(data) {
  const models = data.models.filter((model) => model.proxies);
  const names = models[0].proxies.map(([name]) => name);
  const all = models.flatMap((model) => model.proxies.map(([, value]) => value));
  const [low, high] = domainOf(all);
  const strip = (row) => shape("svg", { "aria-hidden": "true" },
    shape("line", { class: "grid-line", x1: "0%", x2: "100%", y1: "50%", y2: "50%", style: { stroke: "var(--line)" } }),
    models.map((model) => shape("circle", {
      cx: `${((100 * (model.proxies[row][1] - low)) / (high - low)).toFixed(2)}%`, cy: "50%", r: 5.5,
      style: { fill: seriesColor(data.models.indexOf(model)), "fill-opacity": 0.9 },
    })));
  // Layers that are applied several times (ALBERT) count once in the first column, every time in the second.
  const columns = models.flatMap((model) => [{ model, values: model.proxies, ending: "" },
    ...(model.per_application ? [{ model, values: model.per_application, ending: "per application" }] : [])]);
  const head = element("tr", {}, element("th", { scope: "col" }, "log10 of"), element("th", { class: "strip" }, ""),
    columns.map(({ model, ending }) => element("th", { scope: "col" }, models.length > 1 ? key(seriesColor(data.models.indexOf(model))) : null,
      [models.length > 1 ? model.short : "log10", ending].filter(Boolean).join(", "))));
  const rows = names.map((name, i) => element("tr", { class: i === 0 ? "lead-row" : null },
    element("th", { scope: "row" }, name), element("td", { class: "strip" }, strip(i)),
    columns.map(({ values }) => element("td", {}, proxyText(...values[i])))));
  show(byId("proxies"),
    element("p", { class: "meaning" }, data.meaning),
    shapesDiffer(models),
    element("div", { class: "wide" }, element("table", {}, element("thead", {}, head), element("tbody", {}, rows))),
    element("figcaption", {}, "Further left is smaller, and each unit is a factor of ten. Compare the models along a row, and the "
      + "first row, which adapts to each spectrum, with the norm-based rows at the bottom."));
}

// Ranks are counted, and their number is a matter of the architecture.
function shapesDiffer(models) {
  const facts = { family: "family", layers: "layers", hidden_size: "hidden size", heads: "heads" };
  const differ = Object.keys(facts).filter((name) => models.some((model) => model[name] !== models[0][name])).map((name) => facts[name]);
  return differ.length ? element("p", { class: "note", id: "shapes" }, `These models differ in ${differ.join(", ")}: how many matrices there are and which ranks they can have `
    + "differs by architecture, and proxies count both. A gap between such models is not due to training alone.") : null;
}

// An approximate proxy has an error, and no digits beyond it.
function proxyText(name, value, error) {
  if (value === null) return "–";
  if (error === null) return value.toFixed(4);
  const digits = Math.min(8, Math.max(0, -Math.floor(Math.log10(error))));
  return `${value.toFixed(digits)} ± ${error.toFixed(digits)}`;
}
