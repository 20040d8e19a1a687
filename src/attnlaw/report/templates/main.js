// Read the data once, then wire the parts: a choice on the map or in the table shows one matrix.

function readData() {
  const data = JSON.parse(byId("data").textContent);
  // JSON has no infinity: the rows that have it are named.
  for (const [name, rows] of Object.entries(data.infinite ?? {})) for (const row of rows) data.columns[name][row] = Infinity;
  if (!data.models) return data;
  const spectra = ragged(data.spectra), curves = ragged(data.curves);
  data.several = data.models.length > 1;
  data.spectrum = spectra;
  data.curve = curves;
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

// Densities over singular values: the null's, kept once per shape and stretched, and the fitted law's.
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

// Drawing moved the sections: go to the one that the address names, if its hash is the name of one.
function land() {
  let name;
  try { name = decodeURIComponent(location.hash.slice(1)); } catch { return; }
  byId(name)?.scrollIntoView({ behavior: "instant" });
}

byId("theme").addEventListener("click", toggleTheme);
const page = readData();
if (page.models) {
  drawSummary(page);
  drawLayers(page);
  const detail = new Detail(page);
  let explorer = null;
  const table = new Table(page, (row) => { explorer.select(row); });
  explorer = new Explorer(page, (row) => { detail.show(row); table.mark(row); });
} else if (page.columns) {
  new Table(page, null);
}
land();
document.documentElement.dataset.ready = "";
