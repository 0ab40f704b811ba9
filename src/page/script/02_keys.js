// Every control has a key and a tooltip; `?` lists them. A key with Shift goes the other way.
function turned(values, value, by) {
  return values[(values.indexOf(value) + by + values.length) % values.length];
}
const partNumbers = () => data.index.parts.map((_, p) => p);
const cycled = (key, values) => (by) => choose({ [key]: turned(values(), state[key], by) });
const switched = (key, isThere = () => true) => () => isThere() && choose({ [key]: state[key] ? 0 : 1 });
const hasSome = (test) => !part().pooled && [part().queries, part().keys].some(test);
const CAN = {
  norm: () => part().norms, words: () => hasSome(({ words }) => words.length > 0), special: () => hasSome(({ special }) => special.some(Boolean)),
  first: () => !part().pooled, against: () => partNumbers().some(comparable), part: () => data.index.parts.length > 1,
};
// By name: the key, what it says of itself in both languages, and what it does, with 1, or -1 with Shift.
const KEYS = {
  viewmodel: ["1", ["all heads as thumbnails", "所有头的缩略图"], () => choose({ view: "model" })],
  viewmap: ["2", ["one head, cell by cell", "一个头，逐格显示"], () => choose({ view: "map" })],
  viewtext: ["3", ["the text itself: what a token looks at", "文本本身：一个词看向什么"], () => choose({ view: "text" })],
  viewlines: ["4", ["lines between two columns of tokens", "两列词之间的连线"], () => choose({ view: "lines" })],
  viewcell: ["5", ["how a weight came about", "一个权重如何算出"], () => choose({ view: "cell" })],
  l: ["l", ["the next layer; Shift: the one before", "下一层；Shift：上一层"], (by) => choose({ l: (state.l + by + part().layers) % part().layers })],
  h: ["h", ["the next head; Shift: the one before", "下一个头；Shift：上一个"], (by) => choose({ h: (state.h + by + part().heads) % part().heads })],
  of: ["s", ["one head, or a summary of several", "单个头，或多个头的汇总"], cycled("of", () => sourcesOf(part()))],
  telling: ["g", ["go to the head that tells most", "转到最有代表性的头"], () => { choose({ of: "head", b: -1 }); chooseHead(tellingHead(part())); }],
  set: ["a", ["add this head to the chosen ones, whose mean Show offers", "将此头加入所选，可在“显示”中看它们的平均"], () => choose({ set: toggled(state.set, currentHead()) })],
  p: ["p", ["the next model, text or state", "下一个模型、文本或状态"], (by) => CAN.part() && choose({ p: turned(partNumbers(), state.p, by) })],
  b: ["b", ["subtract another part: what differs", "减去另一部分：看差异"], (by) => choose({ b: turned([-1, ...partNumbers().filter(comparable)], state.b, by) })],
  dir: ["d", ["what the chosen token looks at, or who looks at it", "所选的词看向什么，或谁在看它"], cycled("dir", () => CHOICES.dir)],
  find: ["/", ["underline tokens that contain this text", "给包含此文字的词加下划线"], () => { showPanel(true); $("find").focus(); }],
  sort: ["r", ["the order of the thumbnails", "缩略图的排序"], cycled("sort", () => CHOICES.sort)],
  scale: ["c", ["how weights become colors: the square root shows small ones, the logarithm the smallest", "权重如何变成颜色：平方根显示小权重，对数显示极小权重"],
    cycled("scale", () => CHOICES.scale)],
  min: ["t", ["leave out smaller weights; Shift: show more", "略去更小的权重；Shift：显示更多"],
    (by) => choose({ min: Math.min(0.5, Math.max(0, Math.round(100 * state.min + by) / 100)) })],
  norm: ["v", ["multiply each weight by the length of what its key adds", "每个权重乘以其键所加向量的长度"], switched("norm", CAN.norm)],
  words: ["w", ["put the pieces of a word together", "把一个词的各部分合在一起"], switched("words", CAN.words)],
  special: ["x", ["leave out tokens such as [CLS]", "略去 [CLS] 等符号"], switched("special", CAN.special)],
  first: ["f", ["leave out the first key, on which many heads rest", "略去许多头停留的首个键"], switched("first", CAN.first)],
  csv: ["e", ["save the weights as a table", "将权重存为表格"], () => save("csv")],
  png: ["i", ["save a picture of pixels", "存为像素图"], () => save("png")],
  svg: ["u", ["save a drawing", "存为矢量图"], () => save("svg")],
  options: ["o", ["open or close all other controls", "打开或关闭其他控件"], () => showPanel(!ui.panel)],
  theme: ["m", ["light or dark", "明亮或黑暗"], () => choose({ theme: isDark() ? "light" : "dark" })],
  lang: ["y", ["English or Chinese", "英文或中文"], () => choose({ lang: language() === "zh" ? "en" : "zh" })],
  tour: ["q", ["six steps through this page", "六步认识本页"], () => showTour(0)],
  keyList: ["?", ["this list of shortcuts", "快捷键列表"], () => showKeys()],
};
const GROUPS = [["views", ["viewmodel", "viewmap", "viewtext", "viewlines", "viewcell"]], ["looking", ["l", "h", "of", "telling", "set", "p", "b"]], ["reading", ["dir", "find", "sort"]],
  ["colors", ["scale", "min"]], ["weights", ["norm", "words", "special", "first"]], ["saving", ["csv", "png", "svg"]], ["thePage", ["options", "theme", "lang", "tour", "keyList"]]];
const ON_CANVAS = [
  ["← → ↑ ↓", ["choose a head, a cell or a token", "选择头、格或词"]],
  ["Enter", ["open the head; in the map: the arithmetic", "打开此头；在矩阵中：显示计算"]],
  ["Space", ["add the head to the chosen ones", "将此头加入所选"]],
  ["+ − 0", ["zoom the map; 0 shows all", "缩放矩阵；0 显示全部"]],
  ["Esc", ["close what is open", "关闭已打开的面板"]],
];
const inLanguage = (texts) => texts[language() === "zh" ? 1 : 0];

// Gives a control its tooltip and its key.
function tipped(element, name) {
  const [key, texts] = KEYS[name];
  element.title = inLanguage(texts) + " (" + key + ")";
  element.setAttribute("aria-keyshortcuts", key);
  return element;
}

function showKeys() {
  const dialog = $("keys"), row = (key, texts) => make("tr", {}, make("td", {}, make("kbd", { textContent: key })), make("td", { textContent: inLanguage(texts) }));
  const table = (title, rows) => make("table", {}, make("caption", { textContent: say(title) }), make("tbody", {}, ...rows));
  const groups = GROUPS.map(([title, names]) => table(title, names.map((name) => row(KEYS[name][0], KEYS[name][1]))));
  dialog.setAttribute("aria-label", say("keyList"));
  const close = make("button", { type: "button", textContent: say("close"), onclick: () => dialog.close() });
  groups.push(table("inMap", ON_CANVAS.map(([key, texts]) => row(key, texts))));
  dialog.replaceChildren(make("div", { className: "titled" }, make("h2", { textContent: say("keyList") }), close), make("div", { className: "columns" }, ...groups));
  if (!dialog.open) dialog.showModal();
}

function listenKeys() {
  $("views").addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    choose({ view: turned(VIEWS, state.view, by) });
    $("views").children[VIEWS.indexOf(state.view)].focus();
  });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || $("keys").open) return;
    if (event.key === "Escape") return ui.tour ? showTour(-1) : showPanel(false);
    if (/^(search|text|textarea)$/.test(event.target.type) || event.target.tagName === "SELECT") return;
    const exact = Object.values(KEYS).find(([key]) => key === event.key), other = Object.values(KEYS).find(([key]) => key === event.key.toLowerCase());
    if (!exact && !other) return;
    event.preventDefault();
    (exact || other)[2](exact ? 1 : -1);
  });
}
