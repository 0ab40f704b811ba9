// Chapter 5: online softmax block by block, blocks that a mask lets the engine skip, and the gradient of one score.

instruments[5] = (ui) => {
  const { attention, attentionBackward, Tensor, TorchGenerator } = ui.saccade;
  const six = PUBLISHED.six_tokens, tokens = six.tokens, x = Tensor.of(six.inputs, "f64");

  ui.title(
    { en: "Step through the engine", zh: "一步一步看引擎" },
    { en: "Keys come in block by block, and five numbers are all that is kept of a row. Draw a mask, and see which blocks need not be computed. Point at a score, and see its gradient.",
      zh: "键一块一块地进来，每一行只需记住五个数。画一个掩码，看哪些块不必计算。指向一个得分，看它的梯度。" });

  // Online softmax.
  const query = ui.list({ en: "The word that looks", zh: "发起查询的词" }, tokens.map((token, i) => [i, token]), 1);
  const block = ui.choice({ en: "Keys in a block", zh: "每块的键数" }, [1, 2, 3].map((each) => [each, { en: String(each), zh: String(each) }]), 1);
  const steps = ui.slider({ en: "Blocks read", zh: "已读的块数" }, { min: 0, max: 6, value: 6 });
  const back = ui.button({ en: "Back", zh: "后退" }, () => { steps.value -= 1; });
  const forth = ui.button({ en: "Next block", zh: "下一块" }, () => { steps.value += 1; });
  const state = new Matrix(ui, {
    title: { en: "What is kept", zh: "记住的数" }, rows: tokens,
    columns: ["m", "l", "o₁", "o₂", "o₃", "o₁/l", "o₂/l", "o₃/l"], explain: (i) => explainStep(i) });
  const memory = element("p", { class: "live-note" });
  ui.root.append(element("h3", {}, ui.say({ en: "Online softmax", zh: "在线 softmax" })));
  ui.controls(query, block, steps, back, forth);
  ui.side(state);
  ui.root.append(memory);

  // Block skipping.
  const size = 16;
  const visible = Array.from({ length: size }, (_, i) => Array.from({ length: size }, (_, j) => j <= i));
  const edge = ui.choice({ en: "Rows and keys of a block", zh: "块的行数和键数" }, [2, 4, 8].map((each) => [each, { en: String(each), zh: String(each) }]), 4);
  const preset = (texts, sees) => ui.button(texts, () => visible.forEach((row, i) => row.forEach((_, j) => { row[j] = sees(i, j); })));
  const board = new Board(ui, visible);
  const skipped = element("p", { class: "live-note" });
  ui.root.append(element("h3", {}, ui.say({ en: "Which blocks are computed?", zh: "哪些块要计算？" })));
  ui.controls(edge, preset({ en: "Causal", zh: "因果" }, (i, j) => j <= i), preset({ en: "Window of 4", zh: "窗口 4" }, (i, j) => j <= i && j > i - 4),
    preset({ en: "Two documents", zh: "两篇文档" }, (i, j) => (i < 6) === (j < 6)), preset({ en: "Nothing", zh: "全遮住" }, () => false));
  ui.side(board);
  ui.root.append(skipped);

  // The backward pass of one cell.
  const outcome = attention(x, x, x, { lse: true, weights: true });
  const dlogits = attentionBackward(x, x, x, { o: outcome.o, lse: outcome.lse, dout: outcome.o },
    { mask: Tensor.zeros([6, 6], "f64"), dmask: true });
  const weights = rowsOf(outcome.weights), o = rowsOf(outcome.o), ds = rowsOf(dlogits.dmask.reshape([6, 6]));
  const gradients = new Matrix(ui, {
    title: { en: "Gradient of each score, × 1000", zh: "每个得分的梯度，× 1000" }, rows: tokens, columns: tokens, count: 3,
    explain: (i, j) => (chosen = [i, j], explainGradient(i, j)) });
  const queries = new Matrix(ui, { title: { en: "Gradient of the queries", zh: "查询的梯度" }, rows: tokens, columns: ["1", "2", "3"] });
  let chosen = null;
  ui.root.append(element("h3", {}, ui.say({ en: "Backward: half the sum of the squared outputs is the loss", zh: "反向：损失为输出平方和的一半" })));
  ui.side(gradients, queries);
  ui.root.append(ui.detail);

  function explainGradient(i, j) {
    const dot = (a, b) => a.reduce((sum, value, d) => sum + value * b[d], 0);
    const dp = dot(o[i], six.inputs[j]), mean = dot(o[i], o[i]);
    return `${tokens[i]} → ${tokens[j]}: p (do · v − do · o) = ${digits(weights[i][j])} × (${digits(dp)} − ${digits(mean)}) = ${digits(ds[i][j], 5)}; ` +
      ui.say({ en: `it pulls the query by ${digits(ds[i][j], 5)} × k / √3.`, zh: `它以 ${digits(ds[i][j], 5)} × k / √3 拉动查询。` });
  }

  /// m, l and o after the first `keys` keys.
  function stateAfter(keys) {
    const row = Number(query.value), q = Tensor.of([six.inputs[row]], "f64"), k = Tensor.of(six.inputs.slice(0, keys), "f64");
    const { o: mean, lse, scores } = attention(q, k, k, { scale: 1, lse: true, scores: true });
    const m = Math.max(...scores.data), l = Math.exp(lse.data[0] - m);
    return { m, l, o: Array.from(mean.data, (value) => value * l), mean: Array.from(mean.data) };
  }
  const keysAfter = (step) => Math.min(step * Number(block.value), tokens.length);

  function explainStep(i) {
    const before = keysAfter(i), after = stateAfter(keysAfter(i + 1));
    if (before === 0) return ui.say({ en: "The first block: nothing to correct.", zh: "第一块：没有什么要修正。" });
    const factor = Math.exp(stateAfter(before).m - after.m);
    return ui.say({ en: `Before this block joins, l and o are multiplied by exp(m − m′) = ${digits(factor)}.`,
      zh: `这一块加入之前，l 和 o 乘以 exp(m − m′) = ${digits(factor)}。` });
  }

  function drawOnline() {
    const blocks = Math.ceil(tokens.length / Number(block.value));
    steps.input.max = blocks;
    if (steps.value > blocks) steps.value = blocks;
    const read = Array.from({ length: steps.value }, (_, i) => tokens.slice(keysAfter(i), keysAfter(i + 1)).join(" "));
    state.build(read, state.columns);
    const rows = read.map((_, i) => {
      const { m, l, o: sums, mean } = stateAfter(keysAfter(i + 1));
      return [m, l, ...sums, ...mean];
    });
    // Chapter 1 has printed the last row, and the last step of it reaches that.
    const contexts = six.simple.contexts[Number(query.value)];
    const last = (i) => i === rows.length - 1 && keysAfter(i + 1) === tokens.length;
    state.show(rows, rows.map((_, i) => (last(i) ? [undefined, undefined, undefined, undefined, undefined, ...contexts] : [])), last);
    memory.textContent = ui.say({
      en: `Kept: 5 numbers (m, l and three of o), however many keys there are; ${Number(block.value)} at a time are read. For 131,072 words the weights of one row would be 131,072 numbers.`,
      zh: `记住的数：5 个（m、l 和 o 的三个数），不论有多少个键；每次读 ${Number(block.value)} 个。131,072 个词时，一行权重就有 131,072 个数。` });
  }

  const generator = new TorchGenerator(0);
  const [q, k, v] = [0, 1, 2].map(() => generator.randn([1, 1, size, 4]));

  function drawBlocks() {
    const length = Number(edge.value), blocks = size / length;
    const needed = Array.from({ length: blocks }, (_, a) => Array.from({ length: blocks }, (_, b) =>
      visible.slice(a * length, (a + 1) * length).some((row) => row.slice(b * length, (b + 1) * length).some(Boolean))));
    board.show(length, needed);
    const count = needed.flat().filter(Boolean).length;
    const mask = Tensor.of(visible);
    const all = attention(q, k, v, { mask }).o;
    const some = attention(q, k, v, { mask, blockMask: Tensor.of(needed), blockMaskQ: length, blockMaskK: length }).o;
    const apart = Math.max(...all.data.map((value, i) => Math.abs(value - some.data[i])));
    share = 1 - count / needed.flat().length;
    skipped.textContent = ui.say({
      en: `${count} of ${blocks * blocks} blocks are computed, ${digits(100 * share, 0)} % are skipped. With and without skipping, attention differs by ${apart}.`,
      zh: `${blocks * blocks} 块中计算 ${count} 块，跳过 ${digits(100 * share, 0)} %。跳过与不跳过，注意力的结果相差 ${apart}。` });
  }
  let share = 0;

  ui.exercise({ en: "Step to the last block at which the largest score m of journey changes.", zh: "走到 journey 的最大得分 m 最后一次改变的那一块。" },
    () => query.value === "1" && block.value === "1" && steps.value === 2);
  ui.exercise({ en: "Draw a mask with which every row sees itself and at least three quarters of the blocks are skipped.", zh: "画一个掩码：每一行都看到自己，而至少四分之三的块被跳过。" },
    () => share >= 0.75 && visible.every((row, i) => row[i]));
  ui.exercise({ en: "Spoil it: one visible cell in every block.", zh: "反过来：让每一块里都有一个可见的格子。" },
    () => share === 0 && visible.flat().filter(Boolean).length <= (size / Number(edge.value)) ** 2);
  ui.exercise({ en: "Find the score with the largest gradient.", zh: "找到梯度最大的得分。" },
    () => chosen !== null && ds[chosen[0]][chosen[1]] === Math.max(...ds.flat()));

  ui.draw = () => {
    drawOnline();
    drawBlocks();
    gradients.show(ds.map((row) => row.map((value) => 1000 * value)));
    queries.show(rowsOf(dlogits.dq));
  };
  gradients.table.addEventListener("focusin", () => ui.update());
  ui.finish();
};

/// A mask that the reader draws: by dragging over its cells, or with the arrow keys and the space bar.
class Board {
  constructor(ui, visible) {
    Object.assign(this, { ui, visible });
    const count = visible.length;
    this.cells = visible.map((row, i) => row.map((_, j) => element("td", { tabindex: i + j === 0 ? 0 : -1, role: "gridcell" })));
    this.table = element("table", { class: "live-board", role: "grid", "aria-label": ui.say({
      en: `The mask: ${count} queries by ${count} keys. Arrow keys move, the space bar changes a cell.`,
      zh: `掩码：${count} 个查询乘 ${count} 个键。方向键移动，空格键改变格子。` }) },
    element("tbody", {}, ...this.cells.map((row) => element("tr", { role: "row" }, ...row))));
    this.node = element("div", { class: "live-scroll" }, this.table);
    this.listen();
  }

  placeOf(target) {
    const cell = target?.closest?.("td"), i = this.cells.findIndex((row) => row.includes(cell));
    return i < 0 ? null : [i, this.cells[i].indexOf(cell)];
  }

  set([i, j], value) {
    if (this.visible[i][j] === value) return;
    this.visible[i][j] = value;
    this.ui.update();
  }

  focus([i, j]) {
    for (const row of this.cells) for (const cell of row) cell.tabIndex = -1;
    this.cells[i][j].tabIndex = 0;
    this.cells[i][j].focus();
  }

  listen() {
    let drawing = null;  // what the cells under the pointer become
    this.table.addEventListener("pointerdown", (event) => {
      const place = this.placeOf(event.target);
      if (!place) return;
      event.preventDefault();
      if (event.target.hasPointerCapture?.(event.pointerId)) event.target.releasePointerCapture(event.pointerId);
      drawing = !this.visible[place[0]][place[1]];
      this.focus(place);
      this.set(place, drawing);
    });
    this.table.addEventListener("pointermove", (event) => {
      if (drawing === null) return;
      const place = this.placeOf(document.elementFromPoint(event.clientX, event.clientY));
      if (place) this.set(place, drawing);
    });
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { drawing = null; });
    this.table.addEventListener("keydown", (event) => {
      const place = this.placeOf(event.target);
      if (!place) return;
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      const [i, j] = [place[0] + (step?.[0] ?? 0), place[1] + (step?.[1] ?? 0)];
      if (event.key === " ") this.set(place, !this.visible[place[0]][place[1]]);
      else if (step && this.cells[i]?.[j]) this.focus([i, j]);
      else return;
      event.preventDefault();
    });
  }

  /// `needed`: for each block of `length` rows and keys, whether it is computed.
  show(length, needed) {
    const word = [this.ui.say({ en: "hidden", zh: "遮住" }), this.ui.say({ en: "visible", zh: "可见" })];
    this.cells.forEach((row, i) => row.forEach((cell, j) => {
      const isVisible = this.visible[i][j], isNeeded = needed[Math.floor(i / length)][Math.floor(j / length)];
      cell.className = `${isVisible ? "live-visible" : ""} ${isNeeded ? "live-needed" : "live-skipped"}`;
      cell.classList.toggle("live-row-edge", i % length === 0);
      cell.classList.toggle("live-column-edge", j % length === 0);
      cell.setAttribute("aria-label", `${i}, ${j}: ${word[Number(isVisible)]}`);
    }));
  }
}
