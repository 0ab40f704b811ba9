// What the reader has chosen. It is in the address, so that a link reopens it, and every view follows it.
const VIEWS = ["model", "map", "text", "lines"];
const MEASURES = ["previous", "first", "self", "induction", "entropy", "distance"];
const DEFAULTS = {
  view: "model", l: 0, h: 0, q: [], k: -1, of: "head", dir: "from", scale: "log", min: 0,
  sort: "place", words: 0, special: 0, first: 0, find: "", lang: "", theme: "",
};
const state = { ...DEFAULTS };
const listeners = [];

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const key of Object.keys(DEFAULTS)) {
    if (!given.has(key)) continue;
    const text = given.get(key), usual = DEFAULTS[key];
    if (Array.isArray(usual)) state[key] = text.split(".").filter((t) => /^\d+$/.test(t)).map(Number);
    else if (typeof usual === "number") state[key] = Number.isFinite(Number(text)) ? Number(text) : usual;
    else state[key] = text;
  }
  const { layers, heads, tokens } = data.index;
  state.l = Math.min(Math.max(0, Math.trunc(state.l)), layers - 1);
  state.h = Math.min(Math.max(0, Math.trunc(state.h)), heads - 1);
  state.q = state.q.filter((q) => q < tokens.length);
  if (state.k >= tokens.length) state.k = -1;
  if (!VIEWS.includes(state.view)) state.view = "model";
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

const currentHead = () => state.l * data.index.heads + state.h;
function choose(changes) {
  Object.assign(state, changes);
  writeAddress();
  for (const listener of listeners) listener(changes);
}
function chooseHead(head) {
  choose({ l: layerOf(head), h: headInLayer(head) });
}

// Texts in both languages.
const TEXTS = {
  model: ["Model", "模型"], map: ["Map", "矩阵"], text: ["Text", "文本"], lines: ["Lines", "连线"],
  head: ["one head", "单个头"], layerMean: ["mean of the layer", "本层平均"], layerMax: ["largest of the layer", "本层最大"],
  allMean: ["mean of all kept heads", "全部保留头的平均"], of: ["Show", "显示"],
  from: ["looks at", "看向"], to: ["is looked at by", "被看"], dir: ["Direction", "方向"],
  log: ["logarithmic", "对数"], linear: ["linear", "线性"], scale: ["Colours", "颜色"], min: ["Threshold", "阈值"],
  words: ["merge words", "合并词"], special: ["hide special tokens", "隐藏特殊符号"], first: ["hide the first key", "隐藏首个键"],
  find: ["Find", "查找"], sort: ["Order", "排序"], place: ["layer and head", "层与头"], previous: ["previous token", "前一个词"],
  self: ["itself", "自身"], induction: ["induction", "归纳"], entropy: ["entropy", "熵"], distance: ["distance", "距离"],
  similar: ["like the chosen head", "与所选头相似"], firstKey: ["first key", "首个键"], theme: ["Light / dark", "明 / 暗"],
  csv: ["CSV", "CSV"], png: ["PNG", "PNG"], svg: ["SVG", "SVG"], head1: ["Head", "头"],
  topKeys: ["Largest weights of", "权重最大的键："], topQueries: ["Who looks most at", "最关注它的词："],
  pick: ["Choose a token", "请选择一个词"], noWeights: ["This file has only the thumbnail of this head: --max-size keeps more.", "此文件只含该头的缩略图：用 --max-size 可保留更多。"],
  renormalised: ["Hidden keys are left out, and each row's other weights add up to 1.", "隐藏的键已去除，每行其余权重重新归一。"],
  rounded: ["Weights are rounded to 2.2 %; those below 0.000015 are drawn as 0.", "权重精度为 2.2 %；小于 0.000015 的按 0 显示。"],
  keptHeads: ["heads are stored cell by cell", "个头逐格保存"], ofHeads: ["of", "/"], merged: ["A word's weight is the sum over its pieces as keys, and their mean as queries.", "合并词：作为键求和，作为查询取平均。"],
  gridKeys: ["Arrow keys choose a head, Enter opens it.", "方向键选择头，回车打开。"], mapKeys: ["Arrow keys move, + and - zoom, 0 shows all.", "方向键移动，+ 和 - 缩放，0 显示全部。"],
  tooMany: ["Lines are for texts of up to 120 tokens; choose tokens in the text first.", "连线适用于 120 个词以内；请先在文本中选择词。"],
};
const language = () => state.lang || ((navigator.language || "en").startsWith("zh") ? "zh" : "en");
const say = (key) => (TEXTS[key] ? TEXTS[key][language() === "zh" ? 1 : 0] : key);
