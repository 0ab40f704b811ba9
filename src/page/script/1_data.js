"use strict";
// The data of the page: an index, thumbnails of all heads, and the weights of those that were kept, unpacked when needed.
const $ = (id) => document.getElementById(id);

async function unpack(id) {
  const element = $(id);
  if (!element) throw new Error("the part " + id + " of this file is missing");
  const packed = Uint8Array.from(atob(element.textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Weights by code: 0 is below 2^-16, c is 2^((c - 255) / 16).
const WEIGHTS = Float32Array.from({ length: 256 }, (_, c) => (c === 0 ? 0 : 2 ** ((c - 255) / 16)));

const data = { index: null, thumbnails: null, kept: new Set(), heads: new Map() };

async function loadIndex() {
  data.index = JSON.parse(new TextDecoder().decode(await unpack("index")));
  data.kept = new Set(data.index.kept);
  data.thumbnails = await unpack("thumbnails");
  const side = data.index.thumbnail, count = data.index.layers * data.index.heads;
  if (data.thumbnails.length !== side * side * count) throw new Error("the thumbnails of this file are damaged");
}

// The weights of a head, [tokens][tokens]; null if the file has its thumbnail only.
async function headWeights(head) {
  if (!data.kept.has(head)) return null;
  if (data.heads.has(head)) return data.heads.get(head);
  const codes = await unpack("head-" + head), n = data.index.tokens.length, causal = data.index.causal;
  if (codes.length !== (causal ? (n * (n + 1)) / 2 : n * n)) throw new Error("the weights of this head are damaged");
  const weights = new Float32Array(n * n);
  for (let i = 0, from = 0; i < n; ++i)
    for (let j = 0; j < (causal ? i + 1 : n); ++j) weights[i * n + j] = WEIGHTS[codes[from++]];
  if (data.heads.size >= 12) data.heads.delete(data.heads.keys().next().value);
  data.heads.set(head, weights);
  return weights;
}

const layerOf = (head) => Math.floor(head / data.index.heads);
const headInLayer = (head) => head % data.index.heads;
const nameOf = (head) => "L" + layerOf(head) + "H" + headInLayer(head);
const SPACES = { "\n": "↵", "\t": "⇥", " ": "·" };
const visible = (text) => text.replace(/[\n\t]|^ +$/g, (c) => SPACES[c] || "·".repeat(c.length)) || "∅";
