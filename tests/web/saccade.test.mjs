// saccade.js in Node.js, as script/web builds it: node --test tests/web
import assert from "node:assert/strict";
import { test } from "node:test";

import * as saccade from "../../build/web/package/saccade.js";

const { Tensor, attention, attentionBackward, decode, inspect, heatmapSvg } = saccade;

// "Your journey starts with one step": the published example.
const six = [[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64], [0.22, 0.58, 0.33], [0.77, 0.25, 0.1],
  [0.05, 0.8, 0.55]];
const rounded = (tensor, row, digits = 4) => tensor.toArray()[row].map((x) => Number(x.toFixed(digits)));

/// Numbers from -1 to 1, the same in every run.
function drawn(shape, seed) {
  let state = seed >>> 0;
  const next = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 31 - 1;
  return new Tensor(Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, next), shape);
}

function largestDifference(a, b) {
  assert.deepEqual(a.shape, b.shape);
  return a.data.reduce((most, x, i) => Math.max(most, Math.abs(x - b.data[i])), 0);
}

test("six tokens have the published weights and context", () => {
  const { o, weights } = attention(six, six, six, { scale: 1, weights: true });
  assert.deepEqual(rounded(weights, 1), [0.1385, 0.2379, 0.2333, 0.124, 0.1082, 0.1581]);
  assert.deepEqual(rounded(o, 1), [0.4419, 0.6515, 0.5683]);
  assert.equal(saccade.activeIsa(), "wasm128");
  assert.match(saccade.version(), /^\d+\.\d+\.\d+/);
});

test("kernels agree with the reference, and options with each other", () => {
  const q = drawn([2, 4, 33, 24], 1), k = drawn([2, 2, 50, 24], 2), v = drawn([2, 2, 50, 40], 3);
  const options = { causal: "bottom_right", windowLeft: 20, softcap: 5, alibiSlopes: saccade.alibiSlopes(4), lse: true,
    weights: true, scores: true, scoreStage: "biased" };
  const kernels = attention(q, k, v, options), reference = attention(q, k, v, { ...options, backend: "reference" });
  assert.deepEqual(kernels.o.shape, [2, 4, 33, 40]);
  assert.deepEqual(kernels.lse.shape, [2, 4, 33]);
  assert.deepEqual(kernels.weights.shape, [2, 4, 33, 50]);
  for (const name of ["o", "lse", "weights"])
    assert.ok(largestDifference(kernels[name], reference[name]) < 1e-5, name);
  assert.equal(kernels.scores.at(0, 0, 0, 49), -Infinity);
  const last = new Tensor(q.data.slice(0, 24 * 4 * 2), [2, 4, 1, 24]);
  assert.ok(largestDifference(decode(last, k, v).o, attention(last, k, v).o) < 1e-6);
});

test("other layouts and element types", () => {
  const q = drawn([7, 3, 8], 4), k = drawn([9, 3, 8], 5), v = drawn([9, 3, 8], 6);
  const { o, lse, weights } = attention(q, k, v, { layout: "bshd", lse: true, weights: true });
  assert.deepEqual([o.shape, lse.shape, weights.shape], [[7, 3, 8], [3, 7], [3, 7, 9]]);
  const doubles = [q, k, v].map((x) => new Tensor(Float64Array.from(x.data), x.shape));
  const exact = attention(...doubles, { layout: "bshd", lse: true });
  assert.equal(exact.lse.dtype, "f64");
  assert.ok(largestDifference(o, exact.o) < 1e-6);
  const ends = new Int32Array([0, 3, 7]), keyEnds = new Int32Array([0, 4, 9]);
  const packed = attention(q, k, v, { cuSeqlensQ: ends, cuSeqlensK: keyEnds, lse: true, weights: true });
  assert.deepEqual([packed.lse.shape, packed.weights.shape], [[3, 7], [3, 7, 5]]);
});

test("gradients are those of finite differences", () => {
  const q = drawn([5, 4], 7), k = drawn([6, 4], 8), v = drawn([6, 3], 9), dout = drawn([5, 3], 10);
  const mask = drawn([5, 6], 11);
  const options = { mask, causal: "bottom_right" };
  const { o, lse } = attention(q, k, v, { ...options, lse: true });
  const gradients = attentionBackward(q, k, v, { o, lse, dout }, { ...options, dmask: true });
  const loss = () =>
    attention(...[q, k, v].map((x) => new Tensor(Float64Array.from(x.data), x.shape)),
      { mask: new Tensor(Float64Array.from(mask.data), mask.shape), causal: "bottom_right" })
      .o.data.reduce((sum, x, i) => sum + x * dout.data[i], 0);
  for (const [name, tensor] of Object.entries({ dq: q, dk: k, dv: v, dmask: mask })) {
    const old = tensor.data[3], step = 1e-2;
    tensor.data[3] = old + step;
    const above = loss(), high = tensor.data[3];
    tensor.data[3] = old - step;
    const slope = (above - loss()) / (high - tensor.data[3]);
    tensor.data[3] = old;
    assert.ok(Math.abs(slope - gradients[name].data[3]) < 1e-4, `${name}: ${slope}, ${gradients[name].data[3]}`);
  }
});

test("inspection follows from the weights", () => {
  const q = drawn([2, 12, 8], 12), k = drawn([2, 15, 8], 13);
  const { weights } = attention(q, k, k, { weights: true });
  const found = inspect(q, k, { rows: [3], topK: 2, entropy: true, received: true, poolRows: 4, poolKeys: 5 });
  assert.deepEqual(found.rows.shape, [2, 1, 15]);
  assert.ok(Math.abs(found.rows.at(1, 0, 7) - weights.at(1, 3, 7)) < 1e-6);
  const row = weights.toArray()[1][3];
  assert.equal(Number(found.topKeys.at(1, 3, 0)), row.indexOf(Math.max(...row)));
  assert.ok(Math.abs(found.entropy.at(1, 3) - row.reduce((sum, w) => sum - w * Math.log(w), 0)) < 1e-5);
  assert.deepEqual([found.received.shape, found.pooled.shape], [[2, 15], [2, 4, 5]]);
  assert.equal(found.distance, undefined);
});

test("heat maps are SVG", () => {
  const { weights } = attention(six, six, six, { scale: 1, weights: true });
  const words = "Your journey starts with one <step>".split(" ");
  const svg = heatmapSvg(weights, { queryTokens: words, title: "six & tokens", decimals: 2, low: 0 });
  assert.match(svg, /^<svg[^]*journey[^]*&lt;step&gt;[^]*0\.24[^]*<\/svg>\s*$/);
  assert.match(saccade.attentionLinesSvg(weights, { queryTokens: words }), /^<svg/);
});

test("errors are the library's sentences", () => {
  const x = Tensor.zeros([2, 3]);
  assert.throws(() => attention(x, Tensor.zeros([2, 4]), x), /head_dim 4/);
  assert.throws(() => attention(x, x, x, { causal: "yes" }), /causal must be one of none, top_left, bottom_right/);
  assert.throws(() => attention(x, x, x, { colour: 1 }), /no option 'colour'/);
  assert.throws(() => attention(x, x, x, { backend: "gpu" }), /expected one of cpu, reference/);
  assert.throws(() => attentionBackward(x, x, x, { o: x, dout: x }), /lse must be given/);
  assert.throws(() => heatmapSvg(x, { colour: 1 }), /\[heatmapSvg\] there is no option 'colour'/);
  assert.throws(() => heatmapSvg(x, { queryTokens: ["a"] }), /1/);
  assert.throws(() => new Tensor(new Float32Array(5), [2, 3]), /has 6 numbers, but data has 5/);
  assert.throws(() => attention(x, x), /must be given, but it is undefined/);
  assert.throws(() => Tensor.of([[1, 2], [3]]), /different lengths/);
});

test("too large a problem is an error, and the next call works", () => {
  const x = Tensor.zeros([40000, 1]);
  assert.throws(() => attention(x, x, x, { weights: true }), /out of memory: WebAssembly has 4 GiB/);
  assert.equal(attention(six, six, six).o.size, 18);
});

test("memory beyond 2 GiB is used", () => {
  const keys = 2 ** 18 - 64;  // its k takes 2 GiB: malloc rounds up to a power of two
  const v = Tensor.zeros([keys, 500]);
  v.data.fill(2);
  const { o } = attention(Tensor.zeros([1, 1536]), Tensor.zeros([keys, 1536]), v);
  assert.ok(Math.abs(o.data[499] - 2) < 1e-5);
});

test("memory is freed", () => {
  const x = drawn([1, 256, 64], 20);
  const grown = () => attention(x, x, x, { weights: true }).o.size;
  for (let i = 0; i < 300; ++i) grown();
  assert.equal(Number.isFinite(grown()), true);
});
