// Modules, the small GPT and files of tensors in Node.js.
import assert from "node:assert/strict";
import { test } from "node:test";

import * as saccade from "../../build/web/package/saccade.js";

const { Tensor, AdamW, CausalAttention, Embedding, FeedForward, GPTModel, LayerNorm, Linear, MultiHeadAttention,
  SelfAttention } = saccade;
const six = [[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64], [0.22, 0.58, 0.33], [0.77, 0.25, 0.1],
  [0.05, 0.8, 0.55]];
const rounded = (rows) => rows.map((row) => row.map((x) => Number(x.toFixed(4))));

test("modules give the published numbers", () => {
  const plain = new SelfAttention({ dIn: 3, dOut: 2, plain: true, seed: 123 });
  assert.deepEqual(rounded(plain.forward(six).output.toArray())[1], [0.3061, 0.821]);
  const linear = new SelfAttention({ dIn: 3, dOut: 2, seed: 789 });
  assert.deepEqual(rounded(linear.forward(six).output.toArray())[0], [-0.0739, 0.0713]);
  const heads = new MultiHeadAttention({ dIn: 3, dOut: 2, numHeads: 2, contextLength: 6, causal: true, seed: 123 });
  const { output, weights, q } = heads.forward([six, six], { weights: "per_head", steps: true });
  assert.deepEqual(rounded(output.toArray()[1])[0], [0.319, 0.4858]);
  assert.deepEqual([weights.shape, q.shape], [[2, 2, 6, 6], [2, 6, 2]]);
  assert.throws(() => heads.forward([...six, six[0]]), /\[MultiHeadAttention\].*7/);
  assert.throws(() => new CausalAttention({ dIn: 3, dOut: 2, colour: 1 }), /\[CausalAttention\] there is no option/);
});

test("cross-attention, gradients and state", () => {
  const module = new MultiHeadAttention({ dIn: 4, dOut: 6, numHeads: 3, keyWidth: 3, valueWidth: 3, seed: 1 });
  const x = Tensor.of([[1, 2, 3, 4], [0, -1, 0, 1]]);
  const { output } = module.forward(x, { key: six, causal: false });
  assert.deepEqual(output.shape, [2, 6]);
  const { query, key } = module.backward(Tensor.zeros([2, 6]));
  assert.deepEqual([query.shape, key.shape], [[2, 4], [6, 3]]);
  assert.throws(() => module.backward(output), /\[MultiHeadAttention\]/);
  const state = module.stateDict();
  assert.deepEqual(state["out_proj.weight"].shape, [6, 6]);
  const other = new MultiHeadAttention({ dIn: 4, dOut: 6, numHeads: 3, keyWidth: 3, valueWidth: 3 });
  other.loadStateDict(saccade.parseSafetensors(saccade.toSafetensors(state)));
  assert.deepEqual(other.forward(x, { key: six }).output, output);
  assert.throws(() => other.loadStateDict({ "W_query.weight": x }), /missing/);
  other.dispose();
  assert.throws(() => other.stateDict(), /\[MultiHeadAttention\] it was disposed of/);
});

test("layers learn", () => {
  const table = new Embedding({ numEmbeddings: 5, dim: 4, seed: 2 }), norm = new LayerNorm({ dim: 4 });
  const ff = new FeedForward({ dim: 4, hidden: 8, seed: 3 }), out = new Linear({ dIn: 4, dOut: 5, seed: 4 });
  const layers = [table, norm, ff, out], optimizers = layers.map((layer) => new AdamW(layer, { lr: 0.05 }));
  const tokens = [0, 1, 2, 3, 4], targets = [1, 2, 3, 4, 0], losses = [];
  for (let step = 0; step < 40; ++step) {
    const { loss, dlogits } = saccade.crossEntropy(layers.reduce((x, layer) => layer.forward(x), tokens), targets);
    for (const layer of layers) layer.zeroGrad();
    layers.reduceRight((dout, layer) => layer.backward(dout), dlogits);
    for (const optimizer of optimizers) optimizer.step();
    losses.push(loss);
  }
  assert.ok(losses[0] > 1 && losses.at(-1) < 0.1, losses.join(" "));
  assert.deepEqual(out.gradients().weight.shape, [5, 4]);
});

test("a GPT learns, is saved and generates", () => {
  const options = { vocabSize: 16, contextLength: 16, dModel: 16, numLayers: 2, numHeads: 2, seed: 5 };
  const model = new GPTModel(options), optimizer = new AdamW(model, { lr: 0.01 });
  const tokens = [Array.from({ length: 15 }, (_, i) => (7 * i) % 16)], targets = [tokens[0].map((t) => (t + 7) % 16)];
  const losses = [];
  for (let step = 0; step < 60; ++step) {
    const { loss, dlogits } = saccade.crossEntropy(model.forward(tokens), targets);
    model.zeroGrad(), model.backward(dlogits), optimizer.step();
    losses.push(loss);
  }
  assert.ok(losses.at(-1) < losses[0] / 4, `${losses[0]} ${losses.at(-1)}`);
  const saved = GPTModel.fromStateDict(model.stateDict(), 2);
  assert.deepEqual(saved.generate(tokens[0].slice(0, 6), 9, { temperature: 0 }), tokens[0]);
  const weights = saved.attentionWeights(tokens);
  assert.deepEqual([weights.length, weights[0].shape], [2, [1, 2, 15, 15]]);
  assert.throws(() => saved.forward([[99]]), /99/);
  const { inputs, repeated } = saccade.inductionBatch({ vocabSize: 64, seqlen: 20, batchSize: 2 });
  assert.deepEqual([inputs.shape, inputs.dtype, repeated.dtype], [[2, 20], "i64", "bool"]);
});

test("damaged files are refused", () => {
  const file = saccade.toSafetensors({ a: Tensor.of([[1, 2]]), b: Tensor.of([1n]) });
  assert.deepEqual(saccade.parseSafetensors(file).b.data, new BigInt64Array([1n]));
  assert.deepEqual(saccade.parseSafetensors(file.buffer).a.toArray(), [[1, 2]]);
  for (const length of [0, 7, 20, file.length - 1])
    assert.throws(() => saccade.parseSafetensors(file.slice(0, length)), /no safetensors file/);
});

test("heads of a GPT are switched off, or given other weights", () => {
  const options = { vocabSize: 11, contextLength: 8, dModel: 12, numLayers: 2, numHeads: 3, seed: 5 };
  const model = new GPTModel(options), tokens = [[1, 2, 3, 4, 1, 2]];
  model.eval();
  const plain = model.look(tokens, { weights: true });
  assert.deepEqual(plain.logits, model.forward(tokens));
  assert.deepEqual(plain.weights.map(({ shape }) => shape), [[3, 6, 6], [3, 6, 6]]);
  const far = (a, b) => Math.max(...a.data.map((x, i) => Math.abs(x - b.data[i])));
  assert.ok(far(plain.weights[1], model.attentionWeights(tokens)[1]) < 1e-6);

  // Off: as if the output projection had zeros for the head.
  const without = model.look(tokens, { edits: [{ layer: 0, head: 1, by: "zero" }] }).logits;
  const state = model.stateDict(), out = state["trf_blocks.0.att.out_proj.weight"];
  for (let row = 0; row < 12; ++row) out.data.fill(0, 12 * row + 4, 12 * row + 8);
  const zeroed = new GPTModel({ vocabSize: 11, contextLength: 8, dModel: 12, numLayers: 2, numHeads: 3 });
  zeroed.loadStateDict(state);
  zeroed.eval();
  assert.ok(far(without, zeroed.forward(tokens)) < 1e-5 && far(without, plain.logits) > 1e-3);

  // Its own weights change nothing; others are what is reported.
  const own = Tensor.of(plain.weights[0].toArray()[1]);
  assert.ok(far(model.look(tokens, { edits: [{ layer: 0, head: 1, by: own }] }).logits, plain.logits) < 1e-5);
  const first = Tensor.of(own.toArray().map((row) => row.map((_, j) => Number(j === 0))));
  const painted = model.look(tokens, { edits: [{ layer: 0, head: 1, by: first }], weights: true });
  assert.deepEqual(painted.weights[0].toArray()[1], first.toArray());
  assert.ok(far(painted.logits, plain.logits) > 1e-3);
  const mean = model.look(tokens, { edits: [{ layer: 1, head: 2, by: "mean" }] }).logits;
  assert.ok(far(mean, plain.logits) > 1e-3);
  assert.throws(() => model.look(tokens, { edits: [{ layer: 0, head: 3, by: "zero" }] }), /\[edit_heads\] head must be below 3/);
  assert.throws(() => model.look(tokens, { edits: [{ layer: 0, head: 0, by: [[1]] }] }), /\[edit_heads\] weights must have shape \[6, 6\]/);
  assert.throws(() => model.look(tokens, { edits: [{ layer: 2, head: 0, by: "zero" }] }), /\[edits\] layer must be below 2, but it is 2/);
  const refused = (edit, message) => assert.throws(() => model.look(tokens, { edits: [edit] }), { message });
  for (const by of ["zeros", "toString", undefined, null, 0])
    refused({ layer: 0, head: 0, by }, `[edits] by must be "zero", "mean" or the weights of a head, [tokens, tokens], but it is ${by}`);
  refused({ head: 0, by: "zero" }, "[edits] layer must be a whole number, but it is undefined");
  refused({ layer: 0, head: 0.5, by: "zero" }, "[edits] head must be a whole number, but it is 0.5");
  assert.throws(() => model.look([[1, 2], [3, 4]]), /one sequence/);
});
