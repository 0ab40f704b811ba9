// The steps of walk-throughs, and the random numbers of PyTorch and NumPy, in Node.js.
import assert from "node:assert/strict";
import { test } from "node:test";

import { matmul, NumpyRandomState, softmax, Tensor, TorchGenerator } from "../../build/web/package/saccade.js";

const rounded = (tensor) => Array.from(tensor.data, (x) => Number(Number(x).toFixed(4)));

test("three ways to make weights of scores", () => {
  const large = Tensor.of([1000, 1001], "f64");
  assert.deepEqual(rounded(softmax(large)), [0.2689, 0.7311]);
  assert.deepEqual(rounded(softmax(large, "naive")), [NaN, NaN]);
  assert.deepEqual(rounded(softmax(Tensor.of([[1, 3], [2, -1]], "f64"), "sum")), [0.25, 0.75, 2, -1]);
  assert.throws(() => softmax(large, "hard"), /\[softmax\] kind must be one of softmax, naive, sum, got 'hard'/);
});

test("products of matrices", () => {
  assert.deepEqual(matmul([[1, 2], [3, 4]], [[5, 6], [7, 8]]).toArray(), [[19, 22], [43, 50]]);
  assert.throws(() => matmul([[1, 2, 3]], [[1, 2, 3]]), /matmul/);
});

test("the generators draw what PyTorch and NumPy draw", () => {
  const torch = new TorchGenerator(123);
  assert.deepEqual(rounded(torch.rand([3, 2])), [0.2961, 0.5166, 0.2517, 0.6886, 0.074, 0.8665]);
  const other = new TorchGenerator(123);
  const ones = rounded(other.dropoutMask([6, 6], 0.5));
  assert.deepEqual(ones.slice(0, 12), [1, 1, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1]);
  assert.throws(() => other.dropoutMask([2], 2), /dropout_mask/);
  other.dispose();
  assert.throws(() => other.rand([1]), /\[TorchGenerator\] it was disposed of/);
  const { weight, bias } = new TorchGenerator(0).linear(4, 3);
  assert.deepEqual([weight.shape, bias.shape, Math.max(...weight.data) <= 0.5], [[3, 4], [3], true]);
  assert.equal(new TorchGenerator(0).linear(4, 3, false).bias, undefined);
  for (const seed of [1.5, -1, 2n ** 64n, NaN, "1", undefined])
    assert.throws(() => new TorchGenerator(seed), { message: `[TorchGenerator] seed must be a whole number from 0 to 2^64 - 1, but it is ${seed}` });
  for (const seed of [1.5, -1, 2 ** 32])
    assert.throws(() => new NumpyRandomState(seed), { message: `[NumpyRandomState] seed must be a whole number from 0 to 2^32 - 1, but it is ${seed}` });
  assert.deepEqual(rounded(new TorchGenerator(123n).rand([1])), [0.2961]);
  assert.equal(new NumpyRandomState(2 ** 32 - 1).randomSample([2]).shape[0], 2);
  const numpy = new NumpyRandomState(42);
  assert.deepEqual(numpy.randint(0, 3, [3, 3]).toArray().map((row) => row.map(Number)), [[2, 0, 2], [2, 0, 0], [2, 1, 2]]);
  assert.deepEqual(rounded(new NumpyRandomState(1).standardNormal([2])), [1.6243, -0.6118]);
  assert.deepEqual(rounded(new NumpyRandomState(1).randomSample([2])), [0.417, 0.7203]);
});
