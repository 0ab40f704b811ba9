// Chapter 1: six words of three numbers, and attention by hand.

instruments[1] = (ui) => {
  const { matmul, softmax, Tensor } = ui.saccade;
  const published = PUBLISHED.six_tokens, tokens = published.tokens;
  const vectors = published.inputs.map((row) => [...row]);
  const dimensions = ["1", "2", "3"];

  ui.title(
    { en: "Change a number", zh: "改一个数试试" },
    { en: "Edit any number, or drag a word. Scores, weights and context vectors follow; saccade computes them in this page. Point at a cell to see what it is made of.",
      zh: "改动任意一个数，或者拖动一个词：得分、权重和上下文向量随之改变，全部由 saccade 在本页内算出。指向一个格子，看它由什么算成。" });

  const query = ui.list({ en: "The word that looks", zh: "发起查询的词" }, tokens.map((token, i) => [i, token]), 1);
  const kind = ui.choice({ en: "Weights", zh: "权重" }, [
    ["softmax", { en: "softmax, stable", zh: "稳定的 softmax" }],
    ["naive", { en: "softmax, naive", zh: "朴素的 softmax" }],
    ["sum", { en: "divided by the sum", zh: "除以总和" }]], "softmax");
  const length = ui.slider({ en: "All vectors times", zh: "所有向量乘以" }, { min: 1, max: 40, value: 1 });
  const axes = ui.choice({ en: "The plane shows", zh: "平面显示" }, [
    ["0 1", { en: "1 and 2", zh: "第 1、2 维" }], ["0 2", { en: "1 and 3", zh: "第 1、3 维" }],
    ["1 2", { en: "2 and 3", zh: "第 2、3 维" }]], "0 1");
  const reset = ui.button({ en: "As printed", zh: "恢复印出的数" }, () => {
    published.inputs.forEach((row, i) => row.forEach((value, j) => { vectors[i][j] = value; }));
    query.value = 1, kind.value = "softmax", length.value = 1;
  });
  ui.controls(query, kind, length, reset);

  const numbers = new Numbers(ui, {
    title: { en: "The words' vectors", zh: "词向量" }, rows: tokens, columns: dimensions, values: vectors });
  const plane = new Plane(ui, {
    names: tokens, values: vectors, axes: () => axes.value.split(" ").map(Number), changed: () => {} });
  ui.side(numbers, ui.block({ en: "Drag a word", zh: "拖动一个词" }, axes, plane));

  const times = (a, b) => `${digits(a, 2)} × ${digits(b, 2)}`;
  const scores = new Matrix(ui, {
    title: { en: "Scores", zh: "得分" }, rows: tokens, columns: tokens,
    explain: (i, j) => {
      const x = scaledVectors();
      return ui.say({
        en: `The score of ${tokens[i]} for ${tokens[j]} is the dot product of their vectors: `,
        zh: `${tokens[i]} 对 ${tokens[j]} 的得分，是两个向量的点积：` }) +
        x[i].map((value, d) => times(value, x[j][d])).join(" + ") + ` = ${digits(scores.values[i][j])}`;
    } });
  const weights = new Matrix(ui, {
    title: { en: "Weights", zh: "权重" }, rows: tokens, columns: tokens, shaded: true,
    explain: (i, j) => explainWeight(i, j) });
  const contexts = new Matrix(ui, {
    title: { en: "Context vectors", zh: "上下文向量" }, rows: tokens, columns: dimensions,
    explain: (i, d) => {
      const x = scaledVectors();
      return ui.say({ en: `Number ${d + 1} of the mixture for ${tokens[i]}: `, zh: `${tokens[i]} 的混合向量的第 ${d + 1} 个数：` }) +
        tokens.map((_, j) => `${digits(weights.values[i][j], 3)} × ${digits(x[j][d], 2)}`).join(" + ") +
        ` = ${digits(contexts.values[i][d])}`;
    } });
  ui.side(scores, weights, contexts);
  ui.root.append(ui.detail);

  const scaledVectors = () => vectors.map((row) => row.map((value) => value * length.value));

  function explainWeight(i, j) {
    const row = scores.values[i], name = `${tokens[i]} → ${tokens[j]}: `;
    if (kind.value === "sum") {
      const sum = row.reduce((a, b) => a + b, 0);
      return `${name}${digits(row[j])} / ${digits(sum)} = ${digits(weights.values[i][j])}`;
    }
    const largest = kind.value === "naive" ? 0 : Math.max(...row);
    const power = (score) => Math.exp(score - largest);
    const less = largest === 0 ? "" : ` − ${digits(largest)}`;
    const sum = row.reduce((total, score) => total + power(score), 0);
    return `${name}exp(${digits(row[j])}${less}) = ${digits(power(row[j]))}; ` +
      `${digits(power(row[j]))} / ${digits(sum)} = ${digits(weights.values[i][j])}`;
  }

  ui.exercise({ en: "Make journey look at step more than at itself.", zh: "让 journey 看 step 多于看自己。" },
    () => kind.value !== "sum" && weights.values[1][5] > weights.values[1][1]);
  let wasNaN = false;
  ui.exercise({ en: "Make naive softmax overflow: lengthen the vectors until a weight is NaN. Then switch to the stable one.",
    zh: "让朴素的 softmax 溢出：加长向量，直到有权重变成 NaN，然后换成稳定的 softmax。" },
    () => {
      const overflows = scores.values.flat().some((score) => Math.exp(score) === Infinity);
      wasNaN ||= kind.value === "naive" && weights.values.flat().some(Number.isNaN);
      return wasNaN && overflows && kind.value === "softmax";
    });
  ui.exercise({ en: "Divide by the sum, and make a “share” negative.", zh: "改用“除以总和”，并造出一个负的“份额”。" },
    () => kind.value === "sum" && weights.values.flat().some((weight) => weight < 0));
  ui.exercise({ en: "Give one a vector that makes it look at all six words equally.", zh: "给 one 一个向量，让它平均地看六个词。" },
    () => kind.value !== "sum" && weights.values[4].every((weight) => Math.abs(weight - 1 / 6) < 1e-9));

  ui.draw = () => {
    const x = Tensor.of(scaledVectors(), "f64");
    const transposed = Tensor.of(dimensions.map((_, d) => scaledVectors().map((row) => row[d])), "f64");
    const all = matmul(x, transposed), shares = softmax(all, kind.value);
    const isAsked = (i) => i === Number(query.value);
    const simple = published.simple, isSum = kind.value === "sum";
    scores.show(rowsOf(all), simple.scores, isAsked);
    // The author divides one row by its sum, and takes softmax of all.
    const printed = isSum ? tokens.map((_, i) => (i === 1 ? simple.weights_query_1_sum_normalised : [])) : simple.weights;
    weights.show(rowsOf(shares), printed, isAsked);
    contexts.show(rowsOf(matmul(shares, x)), isSum ? null : simple.contexts, isAsked);
    numbers.show();
    plane.show(Number(query.value));
  };
  ui.finish();
};
