// What the reader has chosen. It is in the address, so that a link reopens it, and every view follows it.
const VIEWS = ["model", "map", "text", "lines", "cell"];
const MEASURES = ["previous", "first", "self", "induction", "entropy", "distance"];
const CHOICES = { view: VIEWS, dir: ["from", "to"], scale: ["log", "linear"], sort: ["place", ...MEASURES, "similar"], lang: ["", "en", "zh"], theme: ["", "light", "dark"] };
const DEFAULTS = {
  view: "model", p: 0, b: -1, l: 0, h: 0, q: [], k: -1, of: "head", set: [], norm: 0, dir: "from", scale: "log", min: 0,
  sort: "place", words: 0, special: 0, first: 0, find: "", lang: "", theme: "",
};
const state = { ...DEFAULTS };
const listeners = [];
const part = () => data.index.parts[state.p];
// The sequence whose tokens are chosen, and the one that the weights of these go to.
const chosenSequence = () => (state.dir === "from" ? part().queries : part().keys);
const otherSequence = () => (state.dir === "from" ? part().keys : part().queries);

function readAddress() {
  Object.assign(state, DEFAULTS, { lang: state.lang, theme: state.theme });
  const given = new URLSearchParams(location.hash.slice(1));
  for (const key of Object.keys(DEFAULTS)) {
    if (!given.has(key)) continue;
    const text = given.get(key), usual = DEFAULTS[key];
    if (Array.isArray(usual)) state[key] = text.split(".").filter((t) => /^\d+$/.test(t)).map(Number);
    else if (typeof usual === "number") state[key] = Number.isFinite(Number(text)) ? Number(text) : usual;
    else state[key] = text;
  }
  fitState();
}

// Choices that the part does not have become ones that it has.
function fitState() {
  const last = data.index.parts.length - 1, within = (x, most) => Math.min(Math.max(0, Math.trunc(x)), most);
  state.p = within(state.p, last);
  const { layers, heads, maps } = part();
  state.l = within(state.l, layers - 1), state.h = within(state.h, heads - 1);
  state.q = state.q.filter((q) => q < chosenSequence().tokens.length);
  state.set = state.set.filter((head) => head < layers * heads);
  if (state.k >= otherSequence().tokens.length) state.k = -1;
  for (const [key, values] of Object.entries(CHOICES)) if (!values.includes(state[key])) state[key] = DEFAULTS[key];
  if (!sourcesOf(part()).includes(state.of) || (state.of.startsWith("map") && Number(state.of.slice(3)) >= maps.length)) state.of = "head";
  if (!comparable(state.b)) state.b = -1;
}

// Parts of the same size can be compared cell by cell.
function comparable(b) {
  const other = data.index.parts[b], own = part();
  return other && b !== state.p && !own.pooled && !other.pooled && other.layers === own.layers && other.heads === own.heads &&
    other.queries.tokens.length === own.queries.tokens.length && other.keys.tokens.length === own.keys.tokens.length;
}

function writeAddress() {
  const parts = new URLSearchParams();
  for (const [key, usual] of Object.entries(DEFAULTS)) {
    const value = Array.isArray(usual) ? state[key].join(".") : String(state[key]);
    if (value !== (Array.isArray(usual) ? "" : String(usual))) parts.set(key, value);
  }
  try {
    history.replaceState(null, "", "#" + parts);
  } catch {
    // A page within another one's srcdoc has no address of its own.
  }
}

const currentHead = () => state.l * part().heads + state.h;
function choose(changes) {
  Object.assign(state, changes);
  fitState();
  writeAddress();
  for (const listener of listeners) listener(changes);
}
function chooseHead(head) {
  choose({ l: layerOf(head), h: headInLayer(head) });
}

// Texts in both languages.
const TEXTS = {
  model: ["Model", "模型"], map: ["Map", "矩阵"], text: ["Text", "文本"], lines: ["Lines", "连线"], cell: ["Arithmetic", "计算"],
  part: ["Part", "部分"], against: ["Against", "对比"], none: ["nothing", "无"],
  head: ["one head", "单个头"], layerMean: ["mean of the layer", "本层平均"], layerMax: ["largest of the layer", "本层最大"],
  allMean: ["mean of all kept heads", "全部保留头的平均"], chosen: ["mean of the chosen heads", "所选头的平均"], rollout: ["rollout up to the layer", "逐层累积 (rollout)"],
  of: ["Show", "显示"], norm: ["weigh by values", "按值的长度加权"], set: ["choose this head", "选入此头"],
  from: ["looks at", "看向"], to: ["is looked at by", "被看"], dir: ["Direction", "方向"],
  log: ["logarithmic", "对数"], linear: ["linear", "线性"], scale: ["Colours", "颜色"], min: ["Threshold", "阈值"],
  words: ["merge words", "合并词"], special: ["hide special tokens", "隐藏特殊符号"], first: ["hide the first key", "隐藏首个键"],
  find: ["Find", "查找"], sort: ["Order", "排序"], place: ["layer and head", "层与头"], previous: ["previous token", "前一个词"],
  self: ["itself", "自身"], induction: ["induction", "归纳"], entropy: ["entropy", "熵"], distance: ["distance", "距离"],
  similar: ["like the chosen head", "与所选头相似"], firstKey: ["first key", "首个键"], theme: ["Light / dark", "明 / 暗"],
  csv: ["CSV", "CSV"], png: ["PNG", "PNG"], svg: ["SVG", "SVG"], head1: ["Head", "头"], layer: ["Layer", "层"], queries: ["Queries", "查询"], keys: ["Keys", "键"],
  topKeys: ["Largest weights of", "权重最大的键："], topQueries: ["Who looks most at", "最关注它的词："],
  pick: ["Choose a token", "请选择一个词"], noWeights: ["This file has only the thumbnail of this head: --max-size keeps more, and --details L0H0 this one.", "此文件只含该头的缩略图：用 --max-size 可保留更多，或用 --details L0H0 指定。"],
  noMap: ["This cannot be computed here: it needs one sequence of up to 768 tokens, and kept heads in each layer.", "此处无法计算：需要一个不超过 768 个词的序列，且每层都有保留的头。"],
  renormalised: ["Hidden keys are left out, and each row's other weights add up to 1.", "隐藏的键已去除，每行其余权重重新归一。"],
  rounded: ["Weights are rounded to 2.2 %; those below 0.000015 are drawn as 0.", "权重精度为 2.2 %；小于 0.000015 的按 0 显示。"],
  keptHeads: ["heads are stored cell by cell", "个头逐格保存"], ofHeads: ["of", "/"], merged: ["A word's weight is the sum over its pieces as keys, and their mean as queries.", "合并词：作为键求和，作为查询取平均。"],
  normed: ["Each weight is multiplied by the length of what its key adds, |v W_O|, and each row adds up to 1.", "每个权重乘以该键所加向量的长度 |v W_O|，每行归一。"],
  pooledNote: ["The sequence is long: a cell of the map is the largest weight of a block, and the text shows the largest weights of each token. --tile keeps a region exactly.", "序列很长：矩阵的一格是一个块中的最大权重，文本显示每个词的最大权重。用 --tile 可精确保存一个区域。"],
  signed: ["Orange: the first has more. Blue: the second.", "橙色：前者更大；蓝色：后者更大。"],
  gridKeys: ["Arrow keys choose a head, Enter opens it, Space adds it to the chosen ones.", "方向键选择头，回车打开，空格选入。"], mapKeys: ["Arrow keys move, + and - zoom, 0 shows all, Enter shows the arithmetic.", "方向键移动，+ 和 - 缩放，0 显示全部，回车显示计算。"],
  tooMany: ["Lines are for texts of up to 120 tokens; choose tokens in the text first.", "连线适用于 120 个词以内；请先在文本中选择词。"],
  pickCell: ["Choose a cell in the map: a query and a key.", "请在矩阵中选择一格：一个查询和一个键。"],
  noDetails: ["This file has no queries and keys of this head: --details L0H0 keeps them. Heads that have them:", "此文件没有该头的查询与键：用 --details L0H0 保存。已保存的头："],
  product: ["query · key", "查询 · 键"], byDimension: ["by dimension", "逐维"], scaled: ["times the scale", "乘以缩放"], capped: ["softcap", "软上限"], biased: ["plus the bias", "加偏置"],
  masked: ["hidden by the mask", "被掩码隐藏"], denominator: ["logarithm of the row's sum of exponentials", "该行指数和的对数"], weight: ["weight = exp(score - logarithm)", "权重 = exp(分数 - 对数)"],
  share: ["share of what the head adds", "占该头输出的份额"], score: ["score", "分数"], sink: ["weight of the sink", "汇的权重"],
};
const language = () => state.lang || ((navigator.language || "en").startsWith("zh") ? "zh" : "en");
const say = (key) => (TEXTS[key] ? TEXTS[key][language() === "zh" ? 1 : 0] : key);
