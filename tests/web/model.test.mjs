// Models of folders in Node.js, against what transformers computed (tests/data/models).
import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

import { Model, parseSafetensors } from "../../build/web/package/saccade.js";

const folder = new URL("../data/models/", import.meta.url);
const filesOf = (name) =>
  Object.fromEntries(["config.json", "model.safetensors", "model.safetensors.index.json"]
    .concat(readdirSync(new URL(`${name}/`, folder)).filter((file) => /^model-.*safetensors$/.test(file)))
    .filter((file) => existsSync(new URL(`${name}/${file}`, folder)))
    .map((file) => [file, readFileSync(new URL(`${name}/${file}`, folder))]));

/// The largest difference, in parts of the largest number.
function relativeError(result, reference) {
  assert.deepEqual(result.shape, reference.shape);
  const largest = reference.data.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  return result.data.reduce((most, x, i) => Math.max(most, Math.abs(x - reference.data[i])), 0) / largest;
}

const names = readdirSync(folder).filter((name) => {
  const file = new URL(`${name}/expected.safetensors`, folder);
  return existsSync(file) && "tokens" in parseSafetensors(readFileSync(file)) && !/^t5|whisper/.test(name);
});

for (const name of names) {
  test(`${name} computes what transformers does`, () => {
    const expected = parseSafetensors(readFileSync(new URL(`${name}/expected.safetensors`, folder)));
    const model = new Model(filesOf(name));
    const { states } = model.hiddenStates(expected.tokens, expected);
    assert.ok(relativeError(states, expected["hidden.reference"]) < 1e-5);
    if (model.sizes.hasLogits)
      assert.ok(relativeError(model.logits(states), expected["logits.reference"]) < 1e-5);
    const first = Number(expected.lengths.data[0]);
    const { weights } = model.hiddenStates(expected.tokens.data.slice(0, first),
      { types: expected.types?.data.slice(0, first), weights: true });
    assert.equal(weights.length, model.sizes.numLayers);
    for (const [layer, found] of weights.entries())
      assert.ok(relativeError(found, expected[`attention.${layer}.reference`]) < 1e-5, `layer ${layer}`);
    model.dispose();
  });
}

test("a decoder generates by its cache what it computes without", () => {
  const model = new Model(filesOf("llama"));
  assert.equal(model.sizes.family, "llama");
  const text = model.generate([5, 6, 7], 8, { temperature: 0 });
  const best = (row) => row.indexOf(Math.max(...row));
  const logits = model.logits(model.hiddenStates(text).states).toArray();
  assert.deepEqual(text.slice(3), logits.slice(2, -1).map(best).slice(0, text.length - 3));
});

test("heads of a model are switched off, or given other weights", () => {
  for (const name of ["bert", "llama"]) {
    const model = new Model(filesOf(name)), tokens = [5, 6, 7, 8];
    const { states, weights } = model.hiddenStates(tokens, { weights: true });
    const edited = (by) => model.hiddenStates(tokens, { edits: [{ layer: 1, head: 1, by }] }).states;
    assert.ok(relativeError(edited("zero"), states) > 1e-4, name);
    assert.ok(relativeError(edited("mean"), states) > 1e-4, name);
    assert.ok(relativeError(edited(weights[1].toArray()[1]), states) < 1e-5, name);
    assert.ok(relativeError(edited("mean"), edited("zero")) > 1e-4, name);
    assert.throws(() => edited([[1]]), /\[edit_heads\] weights must have shape \[4, 4\]/);
    for (const by of ["zero", "mean", [[1, 0], [0, 1]]])
      assert.throws(() => model.hiddenStates(tokens, { lengths: [2, 2], edits: [{ layer: 1, head: 1, by }] }),
        /heads are edited over one text, but lengths has 2 sequences: call hiddenStates\(\) for each of them/);
    model.dispose();
  }
});

test("errors of folders are the library's sentences", () => {
  const files = filesOf("llama");
  assert.throws(() => new Model({}), /model\/config.json: was not given/);
  assert.throws(() => new Model({ "config.json": files["config.json"] }), /has neither model.safetensors nor/);
  const config = new TextEncoder().encode('{"model_type": "mamba"}');
  assert.throws(() => new Model({ ...files, "config.json": config }), /mamba/);
  assert.throws(() => new Model({ ...files, "model.safetensors": files["model.safetensors"].subarray(0, 100) }),
    /no safetensors file/);
  assert.throws(() => new Model(files).hiddenStates([1000]), /1000/);
});
