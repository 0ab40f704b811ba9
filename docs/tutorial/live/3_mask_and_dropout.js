// Chapter 3: three ways to hide the future, and dropout as PyTorch draws it.

instruments[3] = (ui) => {
  const { attention, matmul, softmax, Tensor, TorchGenerator } = ui.saccade;
  const six = PUBLISHED.six_tokens, printed = six.self_attention_linear, tokens = six.tokens, count = tokens.length;

  // The linear layers of seed 789, as in the text.
  const generator = new TorchGenerator(789), x = Tensor.of(six.inputs, "f64");
  const [q, k, v] = [0, 1, 2].map(() => matmul(x, Tensor.of(transposed(rowsOf(generator.linear(3, 2, false).weight)), "f64")));
  const scores = rowsOf(matmul(q, Tensor.of(transposed(rowsOf(k)), "f64")));

  ui.title(
    { en: "Hide the future, three ways", zh: "用三种办法遮住未来" },
    { en: "Choose what a word may see. Whichever way hides the rest, the weights are the same, except where a word sees nothing at all.",
      zh: "选择一个词可以看到什么。不论用哪种办法遮住其余部分，权重都相同，除非一个词什么都看不到。" });

  const causal = ui.toggle({ en: "causal", zh: "因果掩码" }, true);
  const left = ui.slider({ en: "Window to the left", zh: "向左的窗口" }, {
    min: 0, max: count, value: count, format: (value) => (value === count ? ui.say({ en: "open", zh: "不限" }) : String(value)) });
  const padding = ui.slider({ en: "Words that are padding", zh: "填充的词数" }, { min: 0, max: count - 1, value: 0 });
  const way = ui.choice({ en: "Way", zh: "办法" }, [
    ["zero", { en: "zero, divide again", zh: "置零再除" }], ["infinity", { en: "−∞ before softmax", zh: "softmax 前设 −∞" }],
    ["option", { en: "say so", zh: "直接说明" }]], "infinity");
  ui.controls(causal, left, padding, way);

  const input = new Matrix(ui, {
    title: { en: "Scores", zh: "得分" }, rows: tokens, columns: tokens, explain: (i, j) => explain(i, j) });
  const weights = new Matrix(ui, {
    title: { en: "Weights", zh: "权重" }, rows: tokens, columns: tokens, shaded: true, explain: (i, j) => explain(i, j) });
  ui.side(input, weights);
  const same = element("p", { class: "live-note" });
  ui.root.append(ui.detail, same);

  const p = ui.slider({ en: "Dropout p", zh: "dropout 概率 p" }, { min: 0, max: 0.9, step: 0.1, value: 0.5, format: (value) => value.toFixed(1) });
  const seed = ui.whole({ en: "torch.manual_seed", zh: "torch.manual_seed" }, 123);
  const next = ui.button({ en: "Draw again", zh: "再抽一次" }, () => { seed.value += 1; });
  const reset = ui.button({ en: "As printed", zh: "恢复印出的数" }, () => {
    causal.value = true, left.value = count, padding.value = 0, way.value = "infinity", p.value = 0.5, seed.value = 123;
  });
  const ones = new Matrix(ui, { title: { en: "Dropout of ones", zh: "全 1 矩阵的 dropout" }, rows: tokens, columns: tokens, count: 1 });
  const dropped = new Matrix(ui, { title: { en: "Dropout of the weights", zh: "权重的 dropout" }, rows: tokens, columns: tokens, shaded: true });
  ui.root.append(element("h3", {}, "Dropout"));
  ui.controls(p, seed, next, reset);
  ui.side(ones, dropped);

  const sees = (i, j) => (!causal.value || j <= i) && (left.value === count || j >= i - left.value) && j < count - padding.value;
  const isHidden = (i, j) => !sees(i, j);
  const grid = (make) => tokens.map((_, i) => tokens.map((_, j) => make(i, j)));

  /// The weights by one of the three ways.
  function weightsBy(which) {
    const scaled = (i, j) => scores[i][j] / Math.sqrt(2);
    if (which === "infinity") return rowsOf(softmax(Tensor.of(grid((i, j) => (sees(i, j) ? scaled(i, j) : -Infinity)), "f64")));
    if (which === "zero") {
      const all = rowsOf(softmax(Tensor.of(grid(scaled), "f64")));
      return rowsOf(softmax(Tensor.of(grid((i, j) => (sees(i, j) ? all[i][j] : 0)), "f64"), "sum"));
    }
    const options = { causal: causal.value ? "top_left" : "none", windowLeft: left.value === count ? -1 : left.value, weights: true };
    // An option of each batch entry, so the sentence is a batch of one.
    const batch = (tensor) => tensor.reshape([1, 1, ...tensor.shape]);
    const kvLengths = new Tensor(Int32Array.of(count - padding.value));
    return rowsOf(attention(batch(q), batch(k), batch(v), { ...options, kvLengths }).weights.reshape([count, count]));
  }

  function explain(i, j) {
    const name = `${tokens[i]} → ${tokens[j]}: `;
    if (sees(i, j)) return `${name}${digits(scores[i][j])} / √2 = ${digits(scores[i][j] / Math.sqrt(2))} → ${digits(weights.values[i][j])}`;
    const reasons = [
      [causal.value && j > i, { en: "it comes later", zh: "它在后面" }],
      [left.value !== count && j < i - left.value, { en: "it lies outside the window", zh: "它在窗口之外" }],
      [j >= count - padding.value, { en: "it is padding", zh: "它是填充" }]];
    const because = reasons.filter(([is]) => is).map(([, texts]) => ui.say(texts)).join(ui.say({ en: ", ", zh: "，" }));
    return name + ui.say({ en: `hidden, because ${because}`, zh: `看不到，因为${because}` });
  }

  const isPlain = () => causal.value && left.value === count && padding.value === 0;
  ui.exercise({ en: "Let each word see only itself and the word before it.", zh: "让每个词只看到自己和前一个词。" },
    () => causal.value && left.value === 1 && padding.value === 0);
  ui.exercise({ en: "Hide so much that a word sees nothing. What does each way make of it?", zh: "遮住足够多，使一个词什么都看不到。三种办法各得到什么？" },
    () => tokens.some((_, i) => tokens.every((_, j) => isHidden(i, j))));
  ui.exercise({ en: "Find a seed whose dropout erases the whole row of step.", zh: "找一个种子，使 step 的整行都被抹掉。" },
    () => dropped.values[count - 1].every((weight) => weight === 0) && tokens.some((_, j) => sees(count - 1, j)));
  ui.exercise({ en: "At p = 0.8, by what are the kept weights multiplied?", zh: "p = 0.8 时，保留下来的权重乘以多少？" }, () => p.value === 0.8);

  ui.draw = () => {
    const found = Object.fromEntries(["zero", "infinity", "option"].map((each) => [each, weightsBy(each)]));
    const shown = found[way.value];
    input.show(grid((i, j) => (sees(i, j) || way.value === "zero" ? scores[i][j] : -Infinity)),
      isPlain() ? printed.causal_scores_unscaled_lower : null, undefined, isHidden);
    weights.show(shown, isPlain() ? printed.causal_weights : causal.value || padding.value || left.value !== count ? null : printed.weights, undefined, isHidden);
    const apart = Math.max(distance(found.zero, found.infinity), distance(found.option, found.infinity));
    same.textContent = Number.isNaN(apart)
      ? ui.say({ en: "A word sees nothing: by the first way its row is 0/0, NaN; saccade gives zeros.", zh: "有一个词什么都看不到：第一种办法得到 0/0，即 NaN；saccade 给出 0。" })
      : ui.say({ en: `The three ways differ by at most ${apart.toExponential(1)}.`, zh: `三种办法之差最大为 ${apart.toExponential(1)}。` });
    const mask = new TorchGenerator(seed.value), keep = rowsOf(mask.dropoutMask([count, count], p.value));
    mask.dispose();
    const isPrinted = seed.value === 123 && p.value === 0.5;
    ones.show(grid((i, j) => (keep[i][j] ? 1 / (1 - p.value) : 0)), isPrinted ? six.dropout_ones_6x6_p_half_seed_123 : null);
    dropped.show(grid((i, j) => (keep[i][j] ? shown[i][j] / (1 - p.value) : 0)),
      isPrinted && isPlain() ? printed.dropout_half_of_causal_weights_seed_123 : null, undefined, isHidden);
  };
  ui.finish();
};
