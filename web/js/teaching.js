// What walk-throughs of attention are made of: matrix products, three ways to make weights of scores, and the generators
// of PyTorch and NumPy.

/// The tensor that a function of the library gives.
function given(work) {
  return Call.run((call) => {
    check(work(call));
    const tensor = tensorAt(library.web_result(0));
    library.web_release_results();
    return tensor;
  });
}

/// The matrix product of a [m, k] and b [k, n], f64.
function matmul(a, b) {
  return given((call) => library.web_matmul(call.input(a), call.input(b)));
}

/// Scores as weights along the last dimension, f64: "softmax" subtracts the largest score first, "naive" does not and so
/// overflows, "sum" divides by the sum.
function softmax(x, kind = "softmax") {
  return given((call) => library.web_softmax(call.input(x), call.text(kind)));
}

const shapeOf = (call, shape) => call.input(new Tensor(BigInt64Array.from(shape, BigInt)));

/// The seed of a generator, as a BigInt.
function seedOf(name, seed, bits) {
  const isWhole = typeof seed === "bigint" || Number.isSafeInteger(seed);
  if (!isWhole || seed < 0 || seed >= 2n ** BigInt(bits))
    throw new Error(`[${name}] seed must be a whole number from 0 to 2^${bits} - 1, but it is ${seed}`);
  return BigInt(seed);
}

/// PyTorch's generator after torch.manual_seed(seed): the same calls in the same order draw the same numbers.
class TorchGenerator extends Handle {
  constructor(seed) {
    super((call, result) => library.web_torch_create(seedOf("TorchGenerator", seed, 64), result), library.web_torch_destroy);
  }

  draw(distribution, shape, a = 0, b = 0) {
    return this.run((call, generator) =>
      library.web_torch_draw(generator, call.text(distribution), shapeOf(call, shape), a, b)).drawn;
  }

  rand(shape) {
    return this.draw("rand", shape);
  }

  randn(shape) {
    return this.draw("randn", shape);
  }

  uniform(shape, low, high) {
    return this.draw("uniform", shape, low, high);
  }

  /// The parameters of a new torch.nn.Linear: weight [dOut, dIn], and bias [dOut] if it has one.
  linear(dIn, dOut, bias = true) {
    const bound = 1 / Math.sqrt(dIn);
    const weight = this.uniform([dOut, dIn], -bound, bound);
    return bias ? { weight, bias: this.uniform([dOut], -bound, bound) } : { weight };
  }

  /// Which elements dropout keeps.
  dropoutMask(shape, p) {
    return this.draw("dropout", shape, p);
  }
}

/// NumPy's generator after np.random.seed(seed).
class NumpyRandomState extends Handle {
  constructor(seed) {
    super((call, result) => library.web_numpy_create(Number(seedOf("NumpyRandomState", seed, 32)), result),
      library.web_numpy_destroy);
  }

  draw(distribution, shape, low = 0, high = 0) {
    return this.run((call, generator) =>
      library.web_numpy_draw(generator, call.text(distribution), shapeOf(call, shape), BigInt(low), BigInt(high))).drawn;
  }

  /// Whole numbers from low to high - 1, i64.
  randint(low, high, shape) {
    return this.draw("randint", shape, low, high);
  }

  randomSample(shape) {
    return this.draw("random_sample", shape);
  }

  standardNormal(shape) {
    return this.draw("standard_normal", shape);
  }
}
