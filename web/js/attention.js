// Attention, its gradients and its inspection.

/// Where the axes of q are: of [batch, heads, seqlen, dim] those that there are, and the element type of statistics.
class Axes {
  constructor(q, k, options) {
    this.isPacked = options.cuSeqlensQ !== undefined;
    this.swapsHeads = this.isPacked || options.layout === "bshd";
    this.dtype = q.dtype === "f64" ? "f64" : "f32";
    this.q = q;
    this.k = k;
    this.options = options;
  }

  /// The shape of one number for each row: [batch, heads, seqlen].
  rows() {
    const outer = this.q.shape.slice(0, -1);
    if (this.swapsHeads && outer.length >= 2) outer.push(...outer.splice(-2).reverse());
    return outer;
  }

  /// The number of keys that a row of weights has.
  keys() {
    const { cuSeqlensK, blockTable } = this.options;
    if (cuSeqlensK !== undefined) {
      const begins = Array.from(Tensor.from(cuSeqlensK).data, Number);
      return Math.max(0, ...begins.slice(1).map((end, i) => end - begins[i]));
    }
    const shape = this.k.shape;
    const length = shape.at(this.swapsHeads && shape.length > 2 ? -3 : -2) ?? 0;
    return blockTable === undefined ? length : (Tensor.from(blockTable).shape.at(-1) ?? 0) * length;
  }

  weights() {
    return [...this.rows(), this.keys()];
  }
}

/// Kernels are for f32 and narrower types; the reference computes doubles.
function withBackend(options, ...tensors) {
  return tensors.some((tensor) => tensor.dtype === "f64") ? { ...options, backend: "reference" } : options;
}

/// Splits what a call returns from what it computes with: names whose value is true are results.
function split(options, results) {
  const wanted = results.filter((name) => options[name] === true);
  const given = Object.fromEntries(Object.entries(options).filter(([name]) => !results.includes(name)));
  return { wanted, given };
}

/// o, and what options ask for: lse, weights, scores.
function attention(q, k, v, options = {}) {
  return forward(library.saccade_attention, q, k, v, options);
}

/// The same for few rows over many keys.
function decode(q, k, v, options = {}) {
  return forward(library.saccade_decode, q, k, v, options);
}

function forward(compute, ...given) {
  const options = given.pop();
  const [q, k, v] = given.map(Tensor.from);
  const { wanted, given: values } = split(options, ["lse", "weights", "scores"]);
  return Call.run((call) => {
    const axes = new Axes(q, k, options);
    const o = call.output([...q.shape.slice(0, -1), v.shape.at(-1) ?? 0], q.dtype);
    const outputs = Object.fromEntries(
      wanted.map((name) => [name, call.output(name === "lse" ? axes.rows() : axes.weights(), axes.dtype)]));
    return Options.use(call, "attention", withBackend(values, q, k, v), (set) => {
      for (const name of wanted) set.setOutput(name, outputs[name]);
      check(compute(call.input(q), call.input(k), call.input(v), o.pointer, set.pointer));
      return Object.fromEntries(
        Object.entries({ o, ...outputs }).map(([name, output]) => [name, output.result()]));
    });
  });
}

/// The gradients of q, k and v, and those of the options that `options` names with true: dmask, dsinks,
/// dalibiSlopes.
function attentionBackward(q, k, v, outcome, options = {}) {
  const [queries, keys, values] = [q, k, v].map(Tensor.from);
  const { wanted, given } = split(options, ["dmask", "dsinks", "dalibiSlopes"]);
  return Call.run((call) => {
    const outputs = { dq: queries, dk: keys, dv: values };
    for (const name of wanted) {
      const option = name === "dalibiSlopes" ? "alibiSlopes" : name.slice(1);
      if (options[option] === undefined)
        throw new Error(`[attentionBackward] ${name} is wanted, but ${option} was not given`);
      outputs[name] = Tensor.from(options[option]);
    }
    for (const [name, like] of Object.entries(outputs)) outputs[name] = call.output(like.shape, like.dtype);
    return Options.use(call, "attention", withBackend({ ...given, dlse: outcome.dlse }, queries, keys, values), (set) => {
      for (const name of wanted) set.setOutput(name, outputs[name]);
      const inputs = [queries, keys, values, outcome.o, outcome.lse, outcome.dout].map((x) => call.input(x));
      check(library.saccade_attention_backward(
        ...inputs, outputs.dq.pointer, outputs.dk.pointer, outputs.dv.pointer, set.pointer));
      return Object.fromEntries(Object.entries(outputs).map(([name, output]) => [name, output.result()]));
    });
  });
}

const INSPECTION = ["rows", "topKeys", "topWeights", "entropy", "maxWeight", "received", "distance", "meanDistance",
  "pooled"];

/// Statistics of the weights, without the matrix.
function inspect(q, k, wanted, options = {}) {
  const [queries, keys] = [q, k].map(Tensor.from);
  const asked = { ...wanted };
  if (Array.isArray(asked.rows)) asked.rows = new Tensor(BigInt64Array.from(asked.rows, BigInt));
  return Call.run((call) =>
    Options.use(call, "inspect", asked, (what) =>
      Options.use(call, "attention", withBackend(options, queries, keys), (set) => {
        const found = call.pointer();
        check(library.saccade_inspect(call.input(queries), call.input(keys), what.pointer, set.pointer, found.at));
        try {
          return inspected(call, found.value());
        } finally {
          library.saccade_inspection_destroy(found.value());
        }
      })));
}

function inspected(call, inspection) {
  const results = {};
  const view = call.allocate(20);
  for (const name of INSPECTION) {
    check(library.saccade_inspection_get(inspection, call.text(snakeCase(name)), view));
    const tensor = tensorAt(view);
    if (tensor.shape.length > 0) results[name] = tensor;
  }
  return results;
}

/// The standard slopes of ALiBi.
function alibiSlopes(heads) {
  return Call.run((call) => {
    const slopes = call.output([heads], "f32");
    const data = new DataView(library.memory.buffer).getUint32(slopes.pointer, true);
    check(library.saccade_alibi_slopes(BigInt(heads), data));
    return slopes.result();
  });
}

function version() {
  return textAt(library.saccade_version());
}

/// The instruction set that calls use.
function activeIsa() {
  return textAt(library.saccade_active_isa());
}
