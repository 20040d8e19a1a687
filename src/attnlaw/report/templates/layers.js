// Amplification by layer, and how the layers' share of the proxy divides among kinds of matrix.

const PARTS = [["share_qk", "QK", 0], ["share_vo", "VO", 1], ["share_cross", "cross attention", 3], ["share_ffn", "FFN", 2]];

function drawLayers(data) {
  const { layers } = data;
  const known = layers.log10_alpha?.some((value) => value !== null);
  if (!known) { byId("layers").remove(); return; }
  const models = data.models.map((_, model) => layers.model.flatMap((own, row) => (own === model ? [row] : [])));
  drawAmplification(data, models);
  drawShares(data, models);
}

function drawAmplification(data, models) {
  const { layers } = data;
  const lines = models.map((rows, model) => ({
    type: "line", readable: true, name: data.models[model].short, color: seriesColor(model),
    data: rows.flatMap((row) => (layers.log10_alpha[row] === null ? [] : [[layers.layer[row], layers.log10_alpha[row]]])),
  })).filter((layer) => layer.data.length);
  const points = lines.map((line) => ({ ...line, type: "points", readable: false, size: 2.8 }));
  const every = lines.flatMap((line) => line.data);
  const drawn = element("div");
  show(byId("amplification"), element("h3", {}, "Amplification"), lines.length > 1 ? keys(lines) : null, drawn,
    element("figcaption", {}, "α of a layer bounds how much the layers above it stretch an error made there. It is 1 (log10 = 0) at the last layer; a step down marks a layer with large norms, a step up one whose norms contract."));
  plot(drawn, { label: "log10 of the amplification by layer", height: 240, layers: [...lines, ...points],
    x: { title: "layer", domain: domainOf(every.map(([x]) => x)), values: wholeTicks(every.map(([x]) => x)) },
    y: { title: "log10 α", domain: domainOf(every.map(([, y]) => y), { zero: true }) } });
}

function drawShares(data, models) {
  const { layers } = data;
  const parts = PARTS.filter(([name]) => layers[name].some((value) => value !== null));
  const panels = models.flatMap((rows, model) => {
    const own = rows.filter((row) => parts.some(([name]) => layers[name][row] !== null));
    if (!own.length) return [];
    const base = new Map(own.map((row) => [row, 0]));
    const bars = parts.map(([name, label, color]) => ({ type: "bars", name: label, color: seriesColor(color), data: own.flatMap((row) => {
      const share = layers[name][row];
      if (share === null) return [];
      base.set(row, base.get(row) + share);
      return [[layers.layer[row] - 0.42, layers.layer[row] + 0.42, base.get(row) - share, base.get(row)]];
    }) }));
    const at = own.map((row) => layers.layer[row]);
    const drawn = element("div");
    const title = data.several ? element("p", { class: "panel-title" }, key(seriesColor(model)), data.models[model].short) : null;
    return [{ nodes: [title, drawn], start: () => plot(drawn, { label: `Share of each kind of matrix in the proxy, ${data.models[model].name}`,
      height: data.several ? 150 : 240, layers: bars, x: { title: "layer", domain: [Math.min(...at) - 0.6, Math.max(...at) + 0.6], values: wholeTicks(at) },
      y: { title: "share", domain: [0, 1], values: [0, 0.5, 1] } }) }];
  });
  const legend = keys(parts.map(([, label, color]) => ({ type: "bars", name: label, color: seriesColor(color) })));
  show(byId("shares"), element("h3", {}, "What each layer's share is made of"), legend, panels.flatMap((panel) => panel.nodes),
    element("figcaption", {}, "What one layer adds to the proxy, divided among its matrices. Tall colours are the kind of matrix that adds most there."));
  panels.forEach((panel) => panel.start());
}

function wholeTicks(values) {
  const low = Math.min(...values), high = Math.max(...values);
  const step = Math.max(1, Math.ceil((high - low) / 12));
  return Array.from({ length: Math.floor((high - low) / step) + 1 }, (_, i) => low + i * step);
}
