// What the reader has chosen. It is in the address, so that a link reopens it, and every view follows it.
const VIEWS = ["model", "map", "text", "lines", "cell"];
const MEASURES = ["previous", "first", "self", "induction", "entropy", "distance"];
const CHOICES = { view: VIEWS, dir: ["from", "to"], scale: ["sqrt", "log", "linear"], sort: ["place", ...MEASURES, "similar"], lang: ["", "en", "zh"], theme: ["", "light", "dark"] };
const DEFAULTS = {
  view: "model", p: 0, b: -1, l: 0, h: 0, q: [], k: -1, of: "head", set: [], norm: 0, dir: "from", scale: "sqrt", min: 0,
  sort: "place", words: 0, special: 0, first: 0, find: "", lang: "", theme: "",
};
const state = { ...DEFAULTS };
const ui = { panel: false, theme: "" };  // what is open, and the theme of a page around this one, which no link keeps
const listeners = [];
const shownTheme = () => state.theme || ui.theme;
const part = () => data.index.parts[state.p];
// The sequence whose tokens are chosen, and the one that the weights of these go to.
const chosenSequence = () => (state.dir === "from" ? part().queries : part().keys);
const otherSequence = () => (state.dir === "from" ? part().keys : part().queries);

function readAddress() {
  Object.assign(state, DEFAULTS, { lang: state.lang, theme: state.theme });
  const given = new URLSearchParams(location.hash.slice(1));
  for (const key of Object.keys(DEFAULTS)) {
    if (!given.has(key)) continue;
    const text = given.get(key), usual = DEFAULTS[key];
    if (Array.isArray(usual)) state[key] = text.split(".").filter((t) => /^\d+$/.test(t)).map(Number);
    else if (typeof usual === "number") state[key] = Number.isFinite(Number(text)) ? Number(text) : usual;
    else state[key] = text;
  }
  fitState();
}

// Choices that the part does not have become ones that it has.
function fitState() {
  const last = data.index.parts.length - 1, within = (x, most) => Math.min(Math.max(0, Math.trunc(x)), most);
  state.p = within(state.p, last);
  const { layers, heads, maps } = part();
  state.l = within(state.l, layers - 1), state.h = within(state.h, heads - 1);
  state.q = state.q.filter((q) => q < chosenSequence().tokens.length);
  state.set = state.set.filter((head) => head < layers * heads);
  if (state.k >= otherSequence().tokens.length) state.k = -1;
  for (const [key, values] of Object.entries(CHOICES)) if (!values.includes(state[key])) state[key] = DEFAULTS[key];
  if (!sourcesOf(part()).includes(state.of) || (state.of.startsWith("map") && Number(state.of.slice(3)) >= maps.length)) state.of = "head";
  if (!comparable(state.b)) state.b = -1;
}

// Parts of the same size can be compared cell by cell.
function comparable(b) {
  const other = data.index.parts[b], own = part();
  return other && b !== state.p && !own.pooled && !other.pooled && other.layers === own.layers && other.heads === own.heads &&
    other.queries.tokens.length === own.queries.tokens.length && other.keys.tokens.length === own.keys.tokens.length;
}

function writeAddress() {
  const parts = new URLSearchParams();
  for (const [key, usual] of Object.entries(DEFAULTS)) {
    const value = Array.isArray(usual) ? state[key].join(".") : String(state[key]);
    if (value !== (Array.isArray(usual) ? "" : String(usual))) parts.set(key, value);
  }
  try {
    history.replaceState(null, "", "#" + parts);
  } catch {
    // A page within another one's srcdoc has no address of its own.
  }
}

const currentHead = () => state.l * part().heads + state.h;
function choose(changes) {
  Object.assign(state, changes);
  fitState();
  writeAddress();
  for (const listener of listeners) listener(changes);
}
function chooseHead(head) {
  choose({ l: layerOf(head), h: headInLayer(head) });
}
