// The weights that the views show: of a head or a summary, with words merged and keys hidden as the reader wants.
function sourcesOf(own) {
  const summaries = own.pooled ? [] : ["layerMean", "layerMax", "chosen", "allMean", ...(own.isSquare ? ["rollout"] : [])];
  return ["head", ...summaries, ...own.maps.map((_, i) => "map" + i)];
}
const nameOfSource = (of) => (of.startsWith("map") ? part().maps[Number(of.slice(3))] : say(of));
function sourceName() {
  const own = part(), name = state.of === "head" ? nameOf(currentHead()) : nameOfSource(state.of);
  const layer = ["layerMean", "layerMax", "rollout"].includes(state.of) ? " " + state.l : "";
  const against = state.b >= 0 ? " − " + data.index.parts[state.b].name : "";
  return (own.name ? own.name + ": " : "") + name + layer + against;
}

// A head's weights, or these times the lengths of what each key adds, as shares of their row's sum.
async function weightsOfHead(p, head) {
  const weights = await headWeights(p, head), own = data.index.parts[p];
  if (!weights || !state.norm || !own.normCodes) return weights;
  const m = own.keys.tokens.length, norms = weightsOf(own.normCodes.subarray(head * m, (head + 1) * m));
  return normalised(weights.map((weight, i) => weight * norms[i % m]), m);
}
function normalised(weights, m) {
  for (let row = 0; row < weights.length; row += m) {
    let sum = 0;
    for (let j = 0; j < m; ++j) sum += weights[row + j];
    if (sum > 0) for (let j = 0; j < m; ++j) weights[row + j] /= sum;
  }
  return weights;
}

async function meanOf(p, heads, isMax) {
  const own = data.index.parts[p], kept = heads.filter((head) => own.keptHeads.has(head));
  if (kept.length === 0) return null;
  const sum = new Float32Array(own.queries.tokens.length * own.keys.tokens.length);
  for (const head of kept) {
    const weights = await weightsOfHead(p, head);
    if (isMax) for (let i = 0; i < sum.length; ++i) sum[i] = Math.max(sum[i], weights[i]);
    else for (let i = 0; i < sum.length; ++i) sum[i] += weights[i] / kept.length;
  }
  return sum;
}
const headsOfLayer = (own, layer) => Array.from({ length: own.heads }, (_, h) => layer * own.heads + h);

// Attention through the layers up to one: the product of (mean of the layer + identity) / 2 (arXiv:2005.00928).
function rollout(p, layer) {
  return remembered(["rollout", p, layer, state.norm].join(), async () => {
    const own = data.index.parts[p], n = own.queries.tokens.length;
    const mean = n <= 768 ? await meanOf(p, headsOfLayer(own, layer), false) : null;
    const before = mean && layer > 0 ? await rollout(p, layer - 1) : null;
    if (!mean || (layer > 0 && !before)) return null;
    const result = new Float32Array(n * n);
    for (let i = 0; i < n; ++i)
      for (let j = 0; j < n; ++j) {
        const weight = 0.5 * mean[i * n + j] + (i === j ? 0.5 : 0);
        if (weight === 0) continue;
        if (!before) result[i * n + j] = weight;
        else for (let k = 0; k < n; ++k) result[i * n + k] += weight * before[j * n + k];
      }
    return result;
  });
}

function sourceWeights(p) {
  const own = data.index.parts[p];
  if (state.of === "head") return weightsOfHead(p, currentHead());
  if (state.of.startsWith("map")) return mapWeights(p, Number(state.of.slice(3)));
  if (state.of === "rollout") return rollout(p, state.l);
  const heads = state.of === "chosen" ? state.set : state.of === "allMean" ? Array.from({ length: own.layers * own.heads }, (_, i) => i) : headsOfLayer(own, state.l);
  return meanOf(p, heads, state.of === "layerMax");
}

// Tokens, or words, as groups of tokens.
function groupsOf({ tokens, words, special }) {
  const groups = [];
  for (let i = 0; i < tokens.length; ++i) {
    const joins = state.words && words.length > 0 && i > 0 && words[i] >= 0 && words[i] === words[i - 1];
    if (joins) groups[groups.length - 1].push(i);
    else groups.push([i]);
  }
  return groups.filter((group) => !(state.special && special[group[0]]));
}
const textOfGroup = ({ labels, gaps }, group) => group.map((i, at) => (at > 0 && gaps.length > 0 ? gaps[i] : "") + labels[i]).join("");

// The weights of groups [n][m] from those of tokens.
function grouped(own, source, rows, columns) {
  const n = rows.length, m = columns.length, width = own.keys.tokens.length, weights = new Float32Array(n * m);
  for (let i = 0; i < n; ++i)
    for (const query of rows[i])
      for (let j = 0; j < m; ++j) for (const key of columns[j]) weights[i * m + j] += source[query * width + key] / rows[i].length;
  if (state.first) for (let i = 0; i < n; ++i) weights[i * m] = 0;
  return state.first || state.special ? normalised(weights, m) : weights;
}
// Which cells of a map a causal mask hides: those whose first key comes after their last query.
function hiddenBy(own, rowEnds, columnBegins) {
  return own.causal ? (i, j) => columnBegins[j] > rowEnds[i] : null;
}
// The same for a map of n x m blocks, such as a thumbnail.
function hiddenBlocks(own, n, m) {
  const rows = own.queries.tokens.length, columns = own.keys.tokens.length;
  return hiddenBy(own, Array.from({ length: n }, (_, i) => Math.ceil(((i + 1) * rows) / n) - 1), Array.from({ length: m }, (_, j) => Math.ceil((j * columns) / m)));
}
const hidesNothing = (groups, sequence) => groups.length === sequence.tokens.length;

// What the views show: {rows, columns} groups of tokens with their labels, and weights [n][m]; of a long sequence
// the weights are a map whose cells are blocks. null without weights.
let shown = null, shownKey = "";
const keyOfMatrix = () => [state.p, part().run, state.b, state.of, state.of === "allMean" ? "" : state.l, state.of === "head" ? state.h : "", state.of === "chosen" ? state.set : "", state.norm, state.words, state.special, state.first].join();
async function shownMatrix() {
  const key = keyOfMatrix();
  if (key === shownKey) return shown;
  const own = part(), source = await sourceWeights(state.p), other = state.b >= 0 ? await sourceWeights(state.b) : null;
  if (key !== keyOfMatrix()) return shownMatrix();  // the reader was faster
  shownKey = key;
  if (!source || (state.b >= 0 && !other)) return (shown = null);
  if (own.pooled) {
    const { rows: n, columns: m } = own.pooled, single = (sequence) => sequence.tokens.map((_, i) => [i]);
    own.rows = own.rows || single(own.queries), own.columns = own.columns || single(own.keys);
    return (shown = { rows: own.rows, columns: own.columns, rowLabels: own.queries.labels, columnLabels: own.keys.labels, n, m, weights: source, isPooled: true, isHidden: hiddenBlocks(own, n, m) });
  }
  const rows = groupsOf(own.queries), columns = own.isSquare ? rows : groupsOf(own.keys);
  const isPlain = hidesNothing(rows, own.queries) && hidesNothing(columns, own.keys) && !state.first;
  let weights = isPlain ? source : grouped(own, source, rows, columns);
  if (other) {
    const second = isPlain ? other : grouped(own, other, rows, columns);
    weights = weights.map((weight, i) => weight - second[i]);
  }
  const labels = (sequence, groups) => groups.map((group) => textOfGroup(sequence, group));
  const isHidden = hiddenBy(own, rows.map((group) => group[group.length - 1]), columns.map((group) => group[0]));
  return (shown = { rows, columns, rowLabels: labels(own.queries, rows), columnLabels: labels(own.keys, columns), n: rows.length, m: columns.length, weights, isSigned: Boolean(other), isHidden });
}
const placeOf = (groups, token) => (token === undefined || token < 0 ? -1 : groups[token] && groups[token][0] === token ? token : groups.findIndex((group) => group.includes(token)));
const rowOfToken = (matrix, token) => placeOf(matrix.rows, token);
const columnOfToken = (matrix, token) => placeOf(matrix.columns, token);

// The weights that chosen tokens have for the other side's groups, their mean: of rows, or with `dir` "to" of columns.
async function reachOf(matrix, tokens) {
  const isFrom = state.dir === "from", { n, m, weights } = matrix, sum = new Float32Array((isFrom ? matrix.columns : matrix.rows).length);
  const places = [...new Set(tokens.map((token) => placeOf(isFrom ? matrix.rows : matrix.columns, token)).filter((place) => place >= 0))];
  if (matrix.isPooled) {
    const { keys, weights: tops } = await topOfHead(state.p, currentHead()), top = part().pooled.top;
    if (isFrom) for (const place of places) for (let t = place * top; t < (place + 1) * top; ++t) if (keys[t] >= 0) sum[keys[t]] += tops[t] / places.length;
    if (!isFrom) for (let t = 0; t < keys.length; ++t) if (places.includes(keys[t])) sum[Math.floor(t / top)] += tops[t] / places.length;
    return { places, reach: sum };
  }
  for (const place of places)
    for (let i = 0; i < sum.length; ++i) sum[i] += (isFrom ? weights[place * m + i] : weights[i * m + place]) / places.length;
  return { places, reach: sum };
}
