"use strict";
// The data of the page: an index, thumbnails of all heads, and what was kept of each head, unpacked when needed.
const $ = (id) => document.getElementById(id);

async function unpack(id) {
  const element = $(id);
  if (!element) throw new Error("the part " + id + " of this file is missing");
  const text = atob(element.textContent), packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
async function unpackExactly(id, length) {
  const bytes = await unpack(id);
  if (bytes.length !== length) throw new Error("the part " + id + " of this file is damaged");
  return bytes;
}

// Weights by code: 0 is below 2^-16, c is 2^((c - 255) / 16).
const WEIGHTS = Float32Array.from({ length: 256 }, (_, c) => (c === 0 ? 0 : 2 ** ((c - 255) / 16)));
const weightsOf = (codes) => Float32Array.from(codes, (c) => WEIGHTS[c]);

const data = { index: null, cache: new Map() };

async function loadIndex() {
  data.index = JSON.parse(new TextDecoder().decode(await unpack("index")));
  data.index.parts.forEach((part, p) => {
    part.number = p;
    part.isSquare = !part.keys;
    part.keys = part.keys || part.queries;
    part.keptHeads = new Set(part.kept);
    for (const sequence of [part.queries, part.keys]) sequence.labels = labelsOf(sequence);
  });
}

// What every view of a part needs at once.
async function loadPart(p) {
  const part = data.index.parts[p];
  if (part.thumbnails) return;
  const count = part.layers * part.heads;
  if (part.norms) part.normCodes = await unpackExactly("norms-" + p + "-0", count * part.keys.tokens.length);
  part.thumbnails = await unpackExactly("thumbnails-" + p + "-0", count * part.thumbnail[0] * part.thumbnail[1]);
}

// Something that is computed once; the last 24 things are remembered.
async function remembered(key, compute) {
  if (!data.cache.has(key)) {
    if (data.cache.size >= 24) data.cache.delete(data.cache.keys().next().value);
    data.cache.set(key, await compute());
  }
  return data.cache.get(key);
}

// A coded matrix as weights [n][m]; of a causal one the file has the rows up to the diagonal.
async function matrixOf(id, n, m, isCausal) {
  const codes = await unpackExactly(id, isCausal ? (n * (n + 1)) / 2 : n * m);
  if (!isCausal) return weightsOf(codes);
  const weights = new Float32Array(n * m);
  for (let i = 0, from = 0; i < n; ++i) for (let j = 0; j <= i; ++j) weights[i * m + j] = WEIGHTS[codes[from++]];
  return weights;
}

// The weights of a head, [queries][keys], or its pooled map; null if the file has its thumbnail only.
function headWeights(p, head) {
  const part = data.index.parts[p], pooled = part.pooled;
  if (!part.keptHeads.has(head)) return null;
  if (part.exact) return part.exact[head];  // computed in this page
  const n = pooled ? pooled.rows : part.queries.tokens.length, m = pooled ? pooled.columns : part.keys.tokens.length;
  return remembered("head-" + p + "-" + head, () => matrixOf("head-" + p + "-" + head, n, m, part.causal && !pooled));
}
function mapWeights(p, index) {
  const part = data.index.parts[p];
  return remembered("map-" + p + "-" + index, () => matrixOf("map-" + p + "-" + index, part.queries.tokens.length, part.keys.tokens.length, part.causal));
}

// The largest weights of each query of a pooled head: keys [n][top] and weights [n][top].
function topOfHead(p, head) {
  const part = data.index.parts[p], count = part.queries.tokens.length * part.pooled.top;
  return remembered("top-" + p + "-" + head, async () => {
    const bytes = await unpackExactly("top-" + p + "-" + head, 5 * count);
    return { keys: new Int32Array(bytes.buffer, 0, count), weights: weightsOf(bytes.subarray(4 * count)) };
  });
}

// What the arithmetic of a head needs: q [n][dim], k [m][dim], lse [n], bias [n][m] or null; null if it was not kept.
function detailsOfHead(p, head) {
  const part = data.index.parts[p], shape = part.details[head];
  if (!shape) return null;
  return remembered("detail-" + p + "-" + head, async () => {
    const n = part.queries.tokens.length, m = part.keys.tokens.length, bytes = await unpack("detail-" + p + "-" + head);
    const view = new DataView(bytes.buffer);
    let at = 0;
    const next = (count) => {
      const largest = view.getFloat32(at, true) / 32767, numbers = new Float32Array(count);
      for (let i = 0; i < count; ++i) numbers[i] = largest * view.getInt16(at + 4 + 2 * i, true);
      at += 4 + 2 * count;
      return numbers;
    };
    return { ...shape, q: next(n * shape.dim), k: next(m * shape.dim), lse: next(n), bias: shape.bias ? next(n * m) : null };
  });
}

const layerOf = (head) => Math.floor(head / part().heads);
const headInLayer = (head) => head % part().heads;
const nameOf = (head) => "L" + layerOf(head) + "H" + headInLayer(head);
const SPACES = { "\n": "↵", "\t": "⇥", " ": "·" };
const visible = (text) => text.replace(/[\n\t]|^ +$/g, (c) => SPACES[c] || "·".repeat(c.length)) || "∅";
const clipped = (text) => { const shown = visible(text); return shown.length > 14 ? shown.slice(0, 13) + "…" : shown; };
function labelsOf({ tokens, seconds, image }) {
  if (seconds > 0) return tokens.map((_, i) => (i * seconds).toFixed(2) + " s");
  if (!image) return tokens;
  return tokens.map((token, i) => {
    const patch = i - image.first;
    return patch < 0 || patch >= image.rows * image.columns ? token : Math.floor(patch / image.columns) + "," + (patch % image.columns);
  });
}
