// What each mask and bias does to the weights of a few heads, drawn while the reader changes it.

instruments.masks = (ui) => {
  const { attention, inspect, alibiSlopes, Tensor, TorchGenerator } = ui.saccade;
  const DIM = 16;

  ui.title(
    { en: "Draw masks and biases", zh: "画出掩码与偏置" },
    { en: "Each square is a head: rows look, columns are looked at, and more weight is darker (brighter on a dark page). The line of code below does the same in Python.",
      zh: "每个方块是一个头：行是发起查询的词，列是被看的词，权重越大颜色越深（深色页面上越亮）。下面的代码在 Python 中做同样的事。" });

  const scores = ui.choice({ en: "Queries and keys", zh: "查询与键" }, [
    ["random", { en: "random", zh: "随机" }], ["alike", { en: "all alike", zh: "全部相同" }]], "random");
  const tokens = ui.slider({ en: "Tokens", zh: "词数" }, { min: 4, max: 96, value: 48 });
  const heads = ui.slider({ en: "Heads", zh: "头数" }, { min: 1, max: 8, value: 4 });
  const causal = ui.toggle({ en: "causal", zh: "因果掩码" }, true);
  const alibi = ui.toggle({ en: "ALiBi", zh: "ALiBi" }, false);
  const open = (value) => (value < 0 ? ui.say({ en: "open", zh: "不限" }) : String(value));
  const left = ui.slider({ en: "Window to the left", zh: "向左的窗口" }, { min: -1, max: 24, value: -1, format: open });
  const right = ui.slider({ en: "Window to the right", zh: "向右的窗口" }, { min: -1, max: 24, value: -1, format: open });
  const documents = ui.slider({ en: "Packed documents", zh: "拼接的文档数" }, { min: 1, max: 4, value: 1 });
  const sink = ui.slider({ en: "Sink", zh: "sink" }, {
    min: -5, max: 5, value: -5, format: (value) => (value === -5 ? ui.say({ en: "none", zh: "无" }) : String(value)) });
  const softcap = ui.slider({ en: "Softcap", zh: "软上限" }, {
    min: 0, max: 5, step: 0.5, value: 0, format: (value) => (value === 0 ? ui.say({ en: "none", zh: "无" }) : String(value)) });
  const start = ui.button({ en: "Start again", zh: "重新开始" }, () => {
    scores.value = "random", tokens.value = 48, heads.value = 4, causal.value = true, alibi.value = false;
    left.value = -1, right.value = -1, documents.value = 1, sink.value = -5, softcap.value = 0;
  });
  ui.controls(scores, tokens, heads);
  ui.controls(causal, left, right, documents);
  ui.controls(alibi, sink, softcap, start);

  const maps = element("div", { class: "live-side" });
  const code = element("code", {});
  ui.root.append(maps, element("pre", { class: "live-code" }, code), ui.detail);
  const table = new Matrix(ui, { title: { en: "Of each head", zh: "每个头" }, rows: [], columns: [], count: 3 });
  ui.side(table);
  const COLUMNS = [{ en: "slope", zh: "斜率" }, { en: "mean distance", zh: "平均距离" }, { en: "mean entropy", zh: "平均熵" },
    { en: "row sum, least", zh: "最小的行和" }, { en: "share of cells seen", zh: "可见格子的比例" }];

  /// q and k [tokens, heads, DIM]: zeros, or what PyTorch draws.
  function vectors() {
    const shape = [tokens.value, heads.value, DIM];
    if (scores.value === "alike") return [0, 1].map(() => new Tensor(new Float32Array(shape[0] * shape[1] * DIM), shape));
    const generator = new TorchGenerator(123), drawn = [0, 1].map(() => generator.randn(shape));
    generator.dispose();
    return drawn;
  }

  /// The first token of each document, and where the last one ends.
  const edges = () => Array.from({ length: documents.value + 1 }, (_, i) => Math.round((i * tokens.value) / documents.value));
  const documentStart = (token) => edges().findLast((edge) => edge <= token);
  const documentEnd = (token) => edges().find((edge) => edge > token);

  function optionsNow() {
    const bounds = new Tensor(Int32Array.from(edges()), [documents.value + 1]);
    return {
      causal: causal.value ? "top_left" : "none", windowLeft: left.value, windowRight: right.value, softcap: softcap.value,
      ...(alibi.value ? { alibiSlopes: alibiSlopes(heads.value) } : {}),
      ...(sink.value > -5 ? { sinks: new Tensor(new Float32Array(heads.value).fill(sink.value), [heads.value]) } : {}),
      cuSeqlensQ: bounds, cuSeqlensK: bounds,
    };
  }

  /// All weights [heads, tokens, tokens]. Those of a packed document begin with its own first key.
  function weightsOf(q, k, options) {
    const packed = attention(q, k, k, { ...options, weights: true }).weights.toArray();
    return packed.map((rows) => rows.map((row, i) => {
      const first = documentStart(i), whole = Array(tokens.value).fill(0);
      for (let key = first; key < documentEnd(i); ++key) whole[key] = row[key - first];
      return whole;
    }));
  }

  /// The same call in Python, and the shapes that it takes.
  function codeNow() {
    const isPacked = documents.value > 1, given = ["q", "k", "v"];
    if (isPacked) given.push(`[${edges().join(", ")}]`);
    if (causal.value) given.push('causal="top_left"');
    if (left.value >= 0 || right.value >= 0) given.push(`window=(${left.value}, ${right.value})`);
    if (alibi.value) given.push(`alibi_slopes=saccade.alibi_slopes(${heads.value})`);
    if (sink.value > -5) given.push(`sinks=np.full(${heads.value}, ${sink.value.toFixed(1)})`);
    if (softcap.value > 0) given.push(`softcap=${softcap.value.toFixed(1)}`);
    const sizes = isPacked ? `[${tokens.value}, ${heads.value}, ${DIM}] = [tokens, heads, dim]` : `[${heads.value}, ${tokens.value}, ${DIM}] = [heads, tokens, dim]`;
    return `# q, k, v: ${sizes}\nsaccade.attention${isPacked ? "_varlen" : ""}(${given.join(", ")})`;
  }

  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const mean = (values) => sum(values) / values.length;
  let weights = [], canvases = [], chosen = { head: -1, row: 0, key: 0 };
  const name = (head) => ui.say({ en: `Head ${head}`, zh: `头 ${head}` });

  /// One square for each head, which the reader can point at or walk through with the arrow keys.
  function build() {
    const last = () => tokens.value - 1, clamp = (value) => Math.min(Math.max(value, 0), last());
    canvases = Array.from({ length: heads.value }, (_, head) => {
      const canvas = element("canvas", { class: "live-canvas", tabindex: 0, role: "img" });
      const choose = (row, key) => {
        chosen = { head, row: clamp(row), key: clamp(key) };
        ui.told = { explained: () => (mark(), explain(chosen)) };
        ui.detail.textContent = ui.told.explained();
      };
      canvas.addEventListener("pointermove", (event) => {
        const box = canvas.getBoundingClientRect(), at = (share) => Math.floor(share * tokens.value);
        choose(at((event.clientY - box.top) / box.height), at((event.clientX - box.left) / box.width));
      });
      canvas.addEventListener("focus", () => choose(...(chosen.head === head ? [chosen.row, chosen.key] : [0, 0])));
      canvas.addEventListener("keydown", (event) => {
        const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
        if (!step) return;
        event.preventDefault();
        choose(chosen.row + step[0], chosen.key + step[1]);
      });
      return canvas;
    });
    maps.replaceChildren(...canvases.map((canvas, head) =>
      element("figure", {}, element("div", { class: "live-frame" }, canvas), element("figcaption", {}, name(head)))));
    table.build(canvases.map((_, head) => name(head)), COLUMNS.map((column) => ui.say(column)));
  }

  /// Outlines the chosen cell; where there are fewer heads or tokens now, none.
  const outline = element("span", { class: "live-cell" });
  function mark() {
    const { head, row, key } = chosen;
    if (weights[head]?.[row] === undefined || key >= tokens.value) return outline.remove();
    canvases[head].parentNode.append(outline);
    const part = (count) => `${(100 * count) / tokens.value}%`;
    Object.assign(outline.style, { top: part(row), left: part(key), width: part(1), height: part(1) });
  }

  function explain({ head, row, key }) {
    const weight = weights[head]?.[row]?.[key];
    if (weight === undefined) return "";  // there are fewer heads or tokens now
    return ui.say({ en: `${name(head)}: token ${row} gives token ${key} the weight ${digits(weight)}`,
      zh: `${name(head)}：第 ${row} 个词给第 ${key} 个词的权重是 ${digits(weight)}` });
  }

  /// The three colors between which weights are shaded, as the page's scheme has them: [r, g, b] each.
  function palette() {
    const style = getComputedStyle(ui.root);
    return ["--live-pale", "--live-middle", "--live-deep"].map((color) => {
      const code = style.getPropertyValue(color).trim().slice(1);
      return [0, 2, 4].map((i) => parseInt(code.slice(i, i + 2), 16));
    });
  }

  function paint(canvas, rows, isVisible) {
    const count = rows.length, largest = Math.max(...rows.flat(), 1e-30);
    const [pale, middle, deep] = palette();
    canvas.width = count, canvas.height = count;
    const image = new ImageData(count, count);
    rows.forEach((row, i) => row.forEach((weight, j) => {
      const share = Math.sqrt(weight / largest), [from, to, part] = share <= 0.5 ? [pale, middle, 2 * share] : [middle, deep, 2 * share - 1];
      const color = from.map((value, c) => value + part * (to[c] - value));
      image.data.set(isVisible(i, j) ? [...color, 255] : [150, 150, 150, 60], 4 * (i * count + j));
    }));
    canvas.getContext("2d").putImageData(image, 0, 0);
  }

  /// Whether the options let a token see another one; only for the picture and the count: the weights come from saccade.
  function sees(i, j) {
    return (!causal.value || j <= i) && (left.value < 0 || j >= i - left.value) && (right.value < 0 || j <= i + right.value) &&
      documentStart(i) === documentStart(j);
  }

  ui.exercise({ en: "Let each token see only itself and the three before it.", zh: "让每个词只看到自己和前三个词。" },
    () => causal.value && left.value === 3 && documents.value === 1);
  ui.exercise({ en: "With at least 32 tokens and without a window, make a head look less than two tokens back on average.", zh: "有 32 个以上的词时，不用窗口，让一个头的平均回看距离小于 2 个词。" },
    () => left.value < 0 && right.value < 0 && causal.value && documents.value === 1 && tokens.value >= 32 && table.values.some((row, head) => row[1] / mean(weights[head].map(sum)) < 2));
  ui.exercise({ en: "Make the weights of every row sum to less than 1.", zh: "使每一行的权重之和都小于 1。" },
    () => weights.every((rows) => rows.every((row) => sum(row) < 1 - 1e-6)));
  ui.exercise({ en: "Keep three packed texts apart.", zh: "把三篇拼接的文本彼此隔开。" }, () => documents.value === 3);

  ui.draw = () => {
    if (canvases.length !== heads.value) build();
    const [q, k] = vectors(), options = optionsNow();
    weights = weightsOf(q, k, options);
    const { entropy, distance: distances } = inspect(q, k, { entropy: true, distance: true }, options);
    const visible = weights[0].map((row, i) => row.map((_, j) => sees(i, j)));
    const share = visible.flat().filter((is) => is).length / tokens.value ** 2;
    const slopes = alibi.value ? alibiSlopes(heads.value).toArray() : Array(heads.value).fill(0);
    table.show(weights.map((rows, head) => {
      return [slopes[head], mean(distances.toArray()[head]), mean(entropy.toArray()[head]), Math.min(...rows.map(sum)), share];
    }));
    weights.forEach((rows, head) => {
      paint(canvases[head], rows, (i, j) => visible[i][j]);
      canvases[head].setAttribute("aria-label", ui.say({ en: `${name(head)}: weights of ${tokens.value} tokens; arrow keys read them`,
        zh: `${name(head)}：${tokens.value} 个词的权重；方向键可逐个读出` }));
    });
    code.textContent = codeNow();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => ui.update());
  ui.finish();
};
