// The weights that the views show: of a head or a summary, with words merged and keys hidden as the reader wants.
async function sourceWeights() {
  const { heads, layers } = data.index;
  if (state.of === "head") return headWeights(currentHead());
  const all = Array.from({ length: layers * heads }, (_, i) => i).filter(
    (i) => data.kept.has(i) && (state.of === "allMean" || layerOf(i) === state.l));
  if (all.length === 0) return null;
  const n = data.index.tokens.length, sum = new Float32Array(n * n);
  for (const head of all) {
    const weights = await headWeights(head);
    if (state.of === "layerMax") for (let i = 0; i < sum.length; ++i) sum[i] = Math.max(sum[i], weights[i]);
    else for (let i = 0; i < sum.length; ++i) sum[i] += weights[i] / all.length;
  }
  return sum;
}

// Tokens, or words, as groups of tokens.
function groupsOfTokens() {
  const { tokens, words } = data.index, groups = [];
  for (let i = 0; i < tokens.length; ++i) {
    const joins = state.words && words.length > 0 && i > 0 && words[i] >= 0 && words[i] === words[i - 1];
    if (joins) groups[groups.length - 1].push(i);
    else groups.push([i]);
  }
  return groups.filter((group) => !(state.special && data.index.special[group[0]]));
}

const textOfGroup = (group) => group.map((i, at) => (at > 0 && data.index.gaps.length > 0 ? data.index.gaps[i] : "") + data.index.tokens[i]).join("");

// {groups, labels, n, weights [n][n]}: rows are queries. null without weights.
let shown = null, shownKey = "";
async function shownMatrix() {
  const key = [state.of, state.l, state.of === "head" ? state.h : "", state.words, state.special, state.first].join();
  if (key === shownKey) return shown;
  const source = await sourceWeights();
  shownKey = key;
  if (!source) return (shown = null);
  const groups = groupsOfTokens(), n = groups.length, size = data.index.tokens.length;
  const weights = new Float32Array(n * n);
  for (let i = 0; i < n; ++i) {
    for (const query of groups[i])
      for (let j = 0; j < n; ++j) for (const k of groups[j]) weights[i * n + j] += source[query * size + k] / groups[i].length;
    if (state.first) weights[i * n] = 0;
    if (state.first || state.special) {
      let sum = 0;
      for (let j = 0; j < n; ++j) sum += weights[i * n + j];
      if (sum > 0) for (let j = 0; j < n; ++j) weights[i * n + j] /= sum;
    }
  }
  const labels = groups.map(textOfGroup);
  return (shown = { groups, labels, n, weights });
}

// Perceived lightness falls evenly, and no hue carries meaning alone.
const RAMP = [[255, 255, 255], [253, 231, 186], [246, 186, 110], [226, 126, 66], [178, 66, 51], [110, 28, 60], [42, 8, 48]];
function colourOf(share) {
  const at = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1), i = Math.min(Math.floor(at), RAMP.length - 2), t = at - i;
  return RAMP[i].map((c, d) => Math.round(c + (RAMP[i + 1][d] - c) * t));
}
// The same for many weights, from a table.
const SHADES = Uint8Array.from({ length: 3 * 1024 }, (_, i) => colourOf(Math.floor(i / 3) / 1023)[i % 3]);
function paint(pixels, weights) {
  for (let i = 0; i < weights.length; ++i) {
    const shade = 3 * Math.round(1023 * Math.min(1, shareOf(weights[i])));
    pixels[4 * i] = SHADES[shade], pixels[4 * i + 1] = SHADES[shade + 1], pixels[4 * i + 2] = SHADES[shade + 2], pixels[4 * i + 3] = 255;
  }
}
// A weight as a share of the scale.
function shareOf(weight) {
  if (weight <= 0 || weight < state.min) return 0;
  return state.scale === "linear" ? weight : Math.max(0, 1 + Math.log2(weight) / 12);
}
const percent = (weight) => (weight >= 0.1 ? (100 * weight).toFixed(1) : (100 * weight).toPrecision(2)) + " %";
const inkOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
