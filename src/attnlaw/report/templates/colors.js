// Quantities that can be mapped, and their colours: viridis (readable with every kind of colour vision).

const VIRIDIS = [[68, 1, 84], [72, 35, 116], [64, 67, 135], [52, 94, 141], [41, 120, 142], [32, 144, 140], [34, 167, 132], [68, 190, 112], [121, 209, 81], [189, 222, 38], [253, 231, 36]];
const LAWS = { random: "var(--c7)", learned: "var(--c2)", "heavy-tailed": "var(--c1)", "power-law tail": "var(--c5)", neither: "var(--c0)" };
const QUANTITIES = [
  { key: "spectral_norm", name: "spectral norm", log: true,
    see: "The largest singular value. Bright cells stretch some direction most; a bright row is a layer whose heads all do." },
  { key: "stable_rank", name: "stable rank", log: true,
    see: "Frobenius norm squared over spectral norm squared. Near 1, one direction carries the matrix; dark cells are nearly rank one." },
  { key: "effective_rank", name: "effective rank", log: true,
    see: "The exponential of the spectrum's entropy: how many directions are in use. Dark cells use few of the dimensions they have." },
  { key: "p", name: "p* (chosen Schatten index)", domain: [0, 2],
    see: "The index at which the matrix adds least to the proxy. 0 counts ranks, 2 uses the Frobenius norm; values in between mean a spectrum that decays." },
  { key: "share", name: "share of the proxy", log: true,
    see: "What the matrix adds to the spectrum-adaptive proxy. Bright cells are the ones that keep the proxy large." },
  { key: "law", name: "fitted law", category: true,
    see: "random: not to be told apart from Gaussian entries of this shape. learned: the law of trained attention. heavy-tailed: the whole spectrum has more tail than the null. power-law tail: only its largest values follow a law. neither: none of these fits." },
  { key: "outliers", name: "outliers beyond the null", zero: true,
    see: "Singular values beyond the edge of the random null. Each is a direction that random entries do not explain." },
  { key: "random_p_value", name: "p-value of the random null", log: true,
    see: "How often a random matrix of this shape looks at least as different. Dark: unlike random entries; bright: as good as random." },
  { key: "alpha", name: "tail exponent α",
    see: "Exponent of a power law fitted to the largest eigenvalues. Small α is a heavy tail; read it together with its p-value." },
];

function viridis(t) {
  const place = Math.min(0.9999, Math.max(0, t)) * (VIRIDIS.length - 1);
  const i = Math.floor(place), part = place - i;
  return VIRIDIS[i].map((low, channel) => Math.round(low + part * (VIRIDIS[i + 1][channel] - low)));
}

const rgb = (channels) => `rgb(${channels.join(" ")})`;
const inkOn = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#101010" : "#ffffff");

// One colour scale for all shown values: {color(value) -> [fill, ink], low, high} or the categories.
function colorScale(quantity, values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (quantity.category) {
    const names = Object.keys(LAWS).filter((name) => known.includes(name));
    return { names, color: (value) => [LAWS[value], value === "neither" ? "light-dark(#fff, #101010)" : "#101010"] };
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
    element("span", {}, quantity.name + (quantity.log ? ", logarithmic" : "")),
  ];
}
