// Chapter 4: heads as modules side by side, heads of one projection, and two sentences.

instruments[4] = (ui) => {
  const { CausalAttention, MultiHeadAttention, TorchGenerator, Tensor, heatmapSvg } = ui.saccade;
  const six = PUBLISHED.six_tokens, sun = PUBLISHED.hello_shiny_sun, tokens = six.tokens;
  const x = Tensor.of(six.inputs);

  ui.title(
    { en: "Add heads", zh: "增加头数" },
    { en: "The same words through a wrapper of separate heads, and through one projection that is cut into heads. Seed 123 with two heads gives the published numbers.",
      zh: "同样的词，一边经过几个独立的头，一边经过一次投影再切成几个头。种子 123、两个头时得出书中的数。" });

  const heads = ui.slider({ en: "Heads", zh: "头数" }, { min: 1, max: 6, value: 2 });
  const width = ui.list({ en: "Width of the split module", zh: "切分模块的宽度" }, [2, 4, 6, 12].map((each) => [each, String(each)]), 2);
  const seed = ui.whole({ en: "torch.manual_seed", zh: "torch.manual_seed" }, 123);
  const reset = ui.button({ en: "As printed", zh: "恢复印出的数" }, () => { heads.value = 2, width.value = 2, seed.value = 123; });
  ui.controls(heads, width, seed, reset);

  const narrow = matchMedia("(max-width: 480px)").matches;
  const outOfWrapper = new Matrix(ui, { title: { en: "Output", zh: "输出" }, rows: tokens, columns: ["1", "2", "3", "4"], count: narrow ? 3 : 4, tolerance: 5e-5 });
  const outOfSplit = new Matrix(ui, { title: { en: "Output", zh: "输出" }, rows: tokens, columns: ["1", "2"] });
  const wrapperPicture = element("div", { class: "live-picture" }), splitPicture = element("div", { class: "live-picture" });
  const refusal = element("p", { class: "live-problem", role: "alert" });
  ui.side(
    ui.block({ en: "Wrapper: each head has its own matrices", zh: "包装：每个头有自己的矩阵" }, outOfWrapper, wrapperPicture),
    ui.block({ en: "Split: one projection, cut into heads", zh: "切分：一次投影，切成几个头" }, refusal, outOfSplit, splitPicture));

  const first = ui.line({ en: "The words that look", zh: "发起查询的句子" }, tokens.join(" "));
  const second = ui.line({ en: "The words that are looked at", zh: "被看的句子" }, sun.tokens.join(" "));
  const cross = element("div", { class: "live-picture" });
  const note = element("p", { class: "live-lead" }, ui.say({
    en: "Words of the chapter have the vectors of the chapter; any other word gets three random numbers, always the same.",
    zh: "本章的词用本章的向量；其他任何词得到三个随机数，同一个词总是同样的数。" }));
  ui.root.append(element("h3", {}, ui.say({ en: "Cross-attention: write two sentences", zh: "交叉注意力：写两个句子" })));
  ui.controls(first, second);
  ui.root.append(note, cross);

  /// A picture of weights, and what it says as text.
  function show(place, weights, queries, keys, name, low = 0) {
    const svg = heatmapSvg(weights, { queryTokens: queries, keyTokens: keys, showValues: false, low });
    const picture = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", name);
    place.replaceChildren(picture);
  }

  function drawWrapper() {
    const generator = new TorchGenerator(seed.value), outputs = [], shares = [];
    for (let head = 0; head < heads.value; ++head) {
      const module = new CausalAttention({ dIn: 3, dOut: 2, contextLength: 6 });
      module.loadStateDict(Object.fromEntries(["W_query", "W_key", "W_value"].map((name) =>
        [`${name}.weight`, generator.linear(3, 2, false).weight])));
      const { output, weights } = module.forward(x, { weights: "per_head" });
      outputs.push(rowsOf(output)), shares.push(...weights.data);
      module.dispose();
    }
    generator.dispose();
    outOfWrapper.build(tokens, Array.from({ length: 2 * heads.value }, (_, i) => String(i + 1)));
    const isPrinted = seed.value === 123 && heads.value === 2;
    outOfWrapper.show(tokens.map((_, i) => outputs.flatMap((rows) => rows[i])), isPrinted ? six.multi_head_wrapper.out_each_batch : null);
    const all = new Tensor(Float32Array.from(shares), [heads.value, 6, 6]);
    show(wrapperPicture, all, tokens, tokens, ui.say({ en: `Weights of ${heads.value} separate heads`, zh: `${heads.value} 个独立头的权重` }));
    return all;
  }

  function drawSplit() {
    refusal.textContent = "", outOfSplit.values = [];
    try {
      const module = new MultiHeadAttention({ dIn: 3, dOut: Number(width.value), numHeads: heads.value, causal: true, seed: seed.value });
      const { output, weights } = module.forward(x, { weights: "per_head" });
      module.dispose();
      outOfSplit.build(tokens, Array.from({ length: Number(width.value) }, (_, i) => String(i + 1)));
      const isPrinted = seed.value === 123 && heads.value === 2 && width.value === "2";
      outOfSplit.show(rowsOf(output), isPrinted ? six.multi_head_attention.out_each_batch : null);
      show(splitPicture, weights, tokens, tokens, ui.say({ en: `Weights of ${heads.value} heads of one projection`, zh: `一次投影的 ${heads.value} 个头的权重` }));
    } catch (error) {
      refusal.textContent = error.message;
      outOfSplit.build([], []);
      splitPicture.replaceChildren();
    }
  }

  const known = new Map([...tokens.map((token, i) => [token, six.inputs[i]]), ...sun.tokens.map((token, i) => [token, sun.inputs[i]])]);
  function vectorOf(word) {
    if (known.has(word)) return known.get(word);
    const code = [...word].reduce((sum, letter) => (31 * sum + letter.codePointAt(0)) % 4294967296, 7);
    const generator = new TorchGenerator(code), vector = generator.rand([3]).toArray();
    generator.dispose();
    return vector;
  }
  /// The words of a sentence in any script.
  const wordsOf = (text) => [...new Intl.Segmenter(undefined, { granularity: "word" }).segment(text)]
    .map(({ segment }) => segment.trim()).filter((word) => word !== "").slice(0, 24);

  function drawCross() {
    const queries = wordsOf(first.value), keys = wordsOf(second.value);
    if (queries.length === 0 || keys.length === 0) return cross.replaceChildren();
    const module = new MultiHeadAttention({ dIn: 3, dOut: 4, numHeads: 2, seed: 123 });
    const { weights } = module.forward(Tensor.of(queries.map(vectorOf)), { key: Tensor.of(keys.map(vectorOf)), weights: "per_head" });
    module.dispose();
    seen = weights;
    show(cross, weights, queries, keys, ui.say({
      en: `Weights of two heads: ${queries.length} words look at ${keys.length}`, zh: `两个头的权重：${queries.length} 个词看 ${keys.length} 个词` }),
    0.8 * Math.min(...weights.data));
  }
  let seen = null;

  ui.exercise({ en: "Find a number of heads over which a width of 6 cannot be split. What does saccade say?", zh: "找一个头数，宽度 6 不能平分给它。saccade 怎么说？" },
    () => width.value === "6" && refusal.textContent !== "");
  ui.exercise({ en: "Give the split module six heads of width 2.", zh: "给切分模块六个宽度为 2 的头。" }, () => heads.value === 6 && width.value === "12");
  ui.exercise({ en: "Write the second sentence in another script.", zh: "用另一种文字写第二个句子。" },
    () => [...second.value].some((letter) => /\p{L}/u.test(letter) && !/\p{Script=Latin}/u.test(letter)));
  ui.exercise({ en: "Let every word look at a single one. How large must its weight be?", zh: "让所有词只看一个词。它的权重必是多少？" },
    () => wordsOf(second.value).length === 1 && seen.data.every((weight) => weight === 1));

  ui.draw = () => {
    drawWrapper();
    drawSplit();
    drawCross();
  };
  ui.finish();
};
