// Chapter 2: matrices that make queries, keys and values.

instruments[2] = (ui) => {
  const { matmul, softmax, attention, inspect, Tensor, TorchGenerator, NumpyRandomState } = ui.saccade;
  const six = PUBLISHED.six_tokens, numpy = PUBLISHED.general_attention_numpy;
  const names = ["W_query", "W_key", "W_value"];

  // Where the matrices come from, and what its author printed.
  const examples = {
    rand: {
      tokens: six.tokens, inputs: six.inputs, width: 2, seed: 123,
      printed: { weights: six.tokens.map((_, i) => (i === 1 ? six.self_attention_parameters.weights_query_1 : [])),
        queries: six.tokens.map((_, i) => (i === 1 ? six.self_attention_parameters.query_1 : [])),
        out: six.self_attention_parameters.out },
      draw: (seed) => drawn(new TorchGenerator(seed), (generator) => generator.rand([3, 2]).toArray()),
    },
    linear: {
      tokens: six.tokens, inputs: six.inputs, width: 2, seed: 789,
      printed: { weights: six.self_attention_linear.weights, out: six.self_attention_linear.out },
      draw: (seed) => drawn(new TorchGenerator(seed), (generator) => transposed(generator.linear(3, 2, false).weight.toArray())),
    },
    numpy: {
      tokens: ["1", "2", "3", "4"], inputs: numpy.words, width: 3, seed: 42,
      printed: { out: numpy.attention },
      draw: (seed) => drawn(new NumpyRandomState(seed), (generator) => generator.randint(0, 3, [3, 3]).toArray().map((row) => row.map(Number))),
    },
  };
  function drawn(generator, draw) {
    const matrices = names.map(() => draw(generator));
    generator.dispose();
    return matrices;
  }

  ui.title(
    { en: "Turn the matrices", zh: "转动三个矩阵" },
    { en: "Draw the three matrices from a seed, as PyTorch and NumPy do, or set their entries yourself. The published seeds give the published numbers.",
      zh: "像 PyTorch 和 NumPy 那样由种子生成三个矩阵，或者自己设定每个元素。书中的种子得出书中的数。" });

  const source = ui.choice({ en: "Matrices of", zh: "矩阵来自" }, [
    ["rand", { en: "torch.rand", zh: "torch.rand" }], ["linear", { en: "nn.Linear", zh: "nn.Linear" }],
    ["numpy", { en: "np.random.randint", zh: "np.random.randint" }]], "rand");
  const seed = ui.whole({ en: "Seed", zh: "种子" }, 123);
  const scale = ui.toggle({ en: "divide scores by √d", zh: "得分除以 √d" }, true);
  const query = ui.list({ en: "The word that looks", zh: "发起查询的词" }, six.tokens.map((token, i) => [i, token]), 1);
  const reset = ui.button({ en: "As printed", zh: "恢复印出的数" }, () => {
    seed.value = examples[source.value].seed, scale.value = true, current = "";
  });
  ui.controls(source, seed, scale, query, reset);

  const rows = ["1", "2", "3"];
  let matrices = examples.rand.draw(123), current = "rand 123";
  const fields = names.map((name, i) => new Numbers(ui, {
    title: { en: name, zh: name }, rows, columns: ["1", "2"], values: matrices[i], step: 0.1, range: [-2, 2] }));
  ui.side(...fields);

  const table = (title, more = {}) => new Matrix(ui, { title, rows: six.tokens, columns: ["1", "2"], ...more });
  const queries = table({ en: "Queries", zh: "查询" }), keys = table({ en: "Keys", zh: "键" }), values = table({ en: "Values", zh: "值" });
  ui.side(queries, keys, values);
  const weights = new Matrix(ui, {
    title: { en: "Weights", zh: "权重" }, rows: six.tokens, columns: six.tokens, shaded: true, explain: (i, j) => explain(i, j) });
  const entropy = new Matrix(ui, { title: { en: "Entropy", zh: "熵" }, rows: six.tokens, columns: [ui.say({ en: "nats", zh: "奈特" })], count: 3 });
  const out = table({ en: "Output", zh: "输出" });
  ui.side(weights, entropy, out);
  ui.root.append(ui.detail);

  function explain(i, j) {
    const example = examples[source.value], q = queries.values[i], k = keys.values[j];
    const score = q.reduce((sum, value, d) => sum + value * k[d], 0), divisor = scale.value ? Math.sqrt(example.width) : 1;
    return `q(${example.tokens[i]}) · k(${example.tokens[j]}) = ` + q.map((value, d) => `${digits(value, 3)} × ${digits(k[d], 3)}`).join(" + ") +
      ` = ${digits(score)}` + (scale.value ? `; / √${example.width} = ${digits(score / divisor)}` : "") +
      ui.say({ en: `; softmax of the row: ${digits(weights.values[i][j])}`, zh: `；整行取 softmax：${digits(weights.values[i][j])}` });
  }

  // Why the scale is there: random vectors of any width.
  const width = ui.slider({ en: "Width d of a key", zh: "键的宽度 d" }, { min: 1, max: 128, value: 64 });
  const sizes = new Matrix(ui, {
    title: { en: "100 random queries, 8 random keys", zh: "100 个随机查询，8 个随机键" }, count: 2,
    rows: [ui.say({ en: "q · k", zh: "q · k" }), ui.say({ en: "q · k / √d", zh: "q · k / √d" })],
    columns: [ui.say({ en: "typical score", zh: "得分的典型大小" }), ui.say({ en: "largest weight", zh: "最大权重" }), ui.say({ en: "entropy", zh: "熵" })] });
  const eight = Array.from({ length: 8 }, (_, j) => String(j)), some = eight.slice(0, 4);
  const plain = new Matrix(ui, { title: { en: "Weights of q · k", zh: "q · k 的权重" }, rows: some, columns: eight, shaded: true, count: 2 });
  const divided = new Matrix(ui, { title: { en: "of q · k / √d", zh: "q · k / √d 的权重" }, rows: some, columns: eight, shaded: true, count: 2 });
  ui.root.append(element("h3", {}, ui.say({ en: "Why divide by √d?", zh: "为什么除以 √d？" })));
  ui.controls(width);
  ui.side(sizes, plain, divided);

  ui.exercise({ en: "Make journey give more than half of its weight to one.", zh: "让 journey 把一半以上的权重给 one。" },
    () => source.value !== "numpy" && weights.values[1][4] > 0.5);
  ui.exercise({ en: "Make everyone look at everyone equally, whatever the keys are.", zh: "不论键是什么，让每个词平均地看所有词。" },
    () => matrices[0].flat().every((entry) => entry === 0));
  ui.exercise({ en: "Switch the division off and watch the entropies fall.", zh: "关掉除以 √d，看熵变小。" }, () => !scale.value);
  ui.exercise({ en: "Find a width at which undivided random scores give more than 0.9 to one key.", zh: "找到一个宽度，使不除以 √d 的随机得分把 0.9 以上给一个键。" },
    () => sizes.values[0][1] > 0.9);

  /// New matrices, where the reader chose another source or seed.
  function redraw() {
    const wanted = `${source.value} ${seed.value}`;
    if (wanted === current) return;
    const example = examples[source.value];
    if (current && source.value !== current.split(" ")[0]) seed.value = example.seed;
    current = `${source.value} ${seed.value}`;
    matrices = example.draw(seed.value);
    const columns = Array.from({ length: example.width }, (_, d) => String(d + 1));
    fields.forEach((field, i) => {
      field.values = matrices[i];
      field.build(rows, columns);
    });
    for (const each of [queries, keys, values, out]) each.build(example.tokens, columns);
    weights.build(example.tokens, example.tokens);
    entropy.build(example.tokens, entropy.columns);
  }

  function drawScale() {
    const generator = new NumpyRandomState(1), d = width.value;
    const q = generator.standardNormal([100, d]), k = generator.standardNormal([8, d]);
    generator.dispose();
    const scores = rowsOf(matmul(q, Tensor.of(transposed(rowsOf(k)), "f64")));
    const rowsFor = [1, 1 / Math.sqrt(d)].map((factor) => {
      const found = inspect(q, k, { entropy: true, maxWeight: true }, { scale: factor });
      const mean = (tensor) => tensor.data.reduce((a, b) => a + b, 0) / tensor.size;
      const typical = Math.sqrt(scores.flat().reduce((sum, score) => sum + (factor * score) ** 2, 0) / 800);
      return [typical, mean(found.maxWeight), mean(found.entropy)];
    });
    sizes.show(rowsFor);
    const first = (factor) => rowsOf(softmax(Tensor.of(scores.slice(0, 4).map((row) => row.map((score) => factor * score)), "f64")));
    plain.show(first(1)), divided.show(first(1 / Math.sqrt(d)));
  }

  ui.draw = () => {
    redraw();
    const example = examples[source.value];
    const x = Tensor.of(example.inputs, "f64");
    const [q, k, v] = matrices.map((matrix) => matmul(x, Tensor.of(matrix, "f64")));
    const factor = scale.value ? 1 / Math.sqrt(example.width) : 1;
    const { o, weights: shares } = attention(q, k, v, { scale: factor, weights: true });
    const found = inspect(q, k, { entropy: true }, { scale: factor });
    const isAsked = (i) => source.value !== "numpy" && i === Number(query.value);
    queries.show(rowsOf(q), example.printed.queries, isAsked), keys.show(rowsOf(k)), values.show(rowsOf(v));
    weights.show(rowsOf(shares), example.printed.weights, isAsked);
    entropy.show(Array.from(found.entropy.data, (value) => [value]), null, isAsked);
    out.show(rowsOf(o), example.printed.out, isAsked);
    for (const field of fields) field.show();
    drawScale();
  };
  ui.finish();
};
