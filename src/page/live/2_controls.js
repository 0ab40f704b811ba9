// The reader's hand: a text, what is done to the chosen head, and what the model expects before and after.
Object.assign(TEXTS, {
  livePart: ["your text", "你的文本"], liveText: ["Text", "文本"], liveTitle: ["Run the model in this page", "在本页运行模型"], nextToken: ["Next token", "续写下一个词"], asWritten: ["First text", "最初的文本"], allAsTheyAre: ["All heads as they are", "恢复所有头"],
  liveHead: ["{head} is", "{head}："], asItIs: ["as it is", "原样"], zero: ["off", "关闭"], mean: ["its mean over the text", "在文本上的平均值"], patternPrevious: ["the previous token", "看前一个词"], patternSelf: ["the token itself", "看自身"], patternFirst: ["the first token", "看首个词"], patternEven: ["all tokens alike", "均匀看所有词"], patternHand: ["painted by hand", "手绘"],
  paint: ["Paint in the map", "在矩阵中绘制"], undo: ["as it is again", "恢复原样"],
  headAndEdit: ["{head}: {edit}", "{head}：{edit}"], partOfLetter: ["byte {byte} of a letter", "某字的字节 {byte}"],
  noDetailsLive: ["Of your text the page has the weights only, not the queries and keys that this view needs.", "对于你的文本，本页只有权重，没有此视图所需的查询与键。"],
  embedding: ["The text's embedding: cosine", "文本嵌入的余弦相似度"], withAllHeads: ["with all heads as they are", "与所有头原样时相比"], withFirstText: ["with the first text", "与最初的文本相比"], expects: ["What comes next", "接下来是什么"], before: ["before", "之前"], now: ["now", "现在"], loss: ["Loss, nats a token", "损失（每词 nats）"], allTokens: ["all tokens", "所有词"], again: ["those that follow as before", "重复出现的词"], took: ["Computed in this page, in {ms} ms. ", "在本页算出，用时 {ms} 毫秒。"],
  notAToken: ["This model's tokens are numbers from 0 to {most}, not {word}.", "该模型的词是 0 到 {most} 的整数，{word} 不是。"], noTokens: ["The text has no token.", "文本中没有词。"], tooLong: ["The text has {count} tokens; this model reads {most}.", "文本有 {count} 个词；该模型最多读 {most} 个。"],
  askFile: ["To run the model on your own text, choose its file model.safetensors ({megabytes} MB). It stays on this computer.", "要在你自己的文本上运行模型，请选择它的文件 model.safetensors（{megabytes} MB）。文件不会离开这台电脑。"], unusable: ["This file cannot be used: {reason}", "无法使用该文件：{reason}"], otherFile: ["{name} has {size} bytes, but the model's file has {wanted}.", "{name} 有 {size} 字节，而模型文件有 {wanted} 字节。"], otherModel: ["its content is not that of this page's model.", "其内容与本页的模型不符。"], reading: ["Reading the model…", "正在读取模型……"], weightsChosen: ["Weights of the file that you chose.", "使用你所选文件中的参数。"],
  weightsAre: ["Weights as {dtype}, within {error} of the largest in their matrix.", "模型参数以 {dtype} 保存，与原值之差不超过各矩阵最大值的 {error}。"],
});
const PATTERNS = ["previous", "self", "first", "even"];
const EDITS = ["asItIs", "zero", "mean", ...PATTERNS.map((name) => "pattern" + name[0].toUpperCase() + name.slice(1)), "patternHand"];
function editOf(name) {
  if (name === "asItIs") return null;
  if (!name.startsWith("pattern")) return { by: name };
  const pattern = name.slice(7).toLowerCase();
  return { by: "pattern", name, pattern, painted: {} };
}
const nameOfEdit = (edit) => (edit ? edit.name ?? edit.by : "asItIs");

// Changes a head and computes; null: as it is.
function edit(head, change) {
  if (change) live.edits.set(head, change);
  else live.edits.delete(head);
  recompute();
}
function rerun() {
  if (readText()) recompute();
  else showLive();
}
// What fails leaves everything as it is: the panel names what its tables show.
function recompute() {
  live.failure = "";
  try {
    compute();
    choose({ p: live.part });
  } catch (error) {
    live.failure = error.message, live.sequence = live.computed.sequence, live.edits = new Map(live.computed.edits);
  }
  showLive();
}

function liveField(id, key, properties) {
  const field = make("textarea", { id, rows: 1, autocomplete: "off", spellcheck: false, ...properties });  // a text may have lines
  return make("label", { className: "wide" }, make("span", { className: "say", textContent: say(key) }), " ", field);
}
function liveButton(id, key, press) {
  return make("button", { id, type: "button", textContent: say(key), onclick: press });
}
function makeLive() {
  const text = liveField("live-text", "liveText", { value: live.text, oninput: () => { live.text = $("live-text").value; rerun(); } });
  const select = make("select", { id: "live-edit", onchange: () => { edit(currentHead(), editOf(select.value)); } }, ...EDITS.map((name) => make("option", { value: name, textContent: say(name) })));
  const head = make("label", {}, make("span", { id: "live-head" }), " ", select);
  const paint = liveButton("live-paint", "paint", () => setPainting(!live.painting));
  const row = (...children) => make("div", { className: "row" }, ...children);
  $("live").replaceChildren(
    make("div", { className: "hand" },
      row(text, ...(live.isEncoder ? [] : [liveButton("live-next", "nextToken", appendNext)]), liveButton("live-first", "asWritten", () => setText(live.about.text))),
      row(head, paint, make("span", { id: "live-chips", className: "row" })),
      make("p", { id: "live-problem", role: "alert" }),
      make("p", { id: "live-note", className: "hint" })),
    make("div", { id: "live-results", role: "status", ariaLive: "polite" }));
  $("live").setAttribute("aria-label", say("liveTitle"));
}
function setText(text) {
  live.text = text, $("live-text").value = text;
  rerun();
}
// The model goes on: by one token, or by the bytes of one letter.
function appendNext() {
  const isBytes = live.about.tokens === "bytes", added = [], fits = (token) => !isBytes || (token < 256 && isText([...added, token], true));
  let { next } = live.now;
  for (;;) {
    added.push(largestOf(Array.from(next, (share, token) => (fits(token) ? share : 0)), 1)[0]);
    const tokens = [...live.sequence.tokens, ...added];
    if (!isBytes || isText(added, false) || tokens.length > live.about.longest) return setText(textOfTokens(tokens));
    next = runModel(tokens, editsOf(tokens)).next;
  }
}
function setPainting(isOn) {
  live.painting = isOn;
  document.body.classList.toggle("painting", isOn);
  if (isOn) choose({ view: "map", of: "head", p: live.part, b: -1, special: 0, first: 0 });
  showLive();
}

// What the model expects before and after, and the heads that were changed.
function showLive() {
  const { id } = document.activeElement, list = () => $("live-chips").children;
  if (live.language !== language()) {
    live.language = language(), readText(), makeLive();
    if (id.startsWith("live-")) $(id).focus();
  }
  $("live-problem").textContent = live.wrong || live.failure;
  $("live-head").textContent = say("liveHead", { head: nameOf(currentHead()) });
  $("live-edit").value = nameOfEdit(live.edits.get(currentHead()));
  $("live-paint").setAttribute("aria-pressed", String(live.painting));
  const chips = [...live.edits].map(([head, change]) => make("button", { type: "button", className: "chip", textContent: say("headAndEdit", { head: nameOf(head), edit: say(nameOfEdit(change)) }) + " ×", title: say("undo"), ariaLabel: say("headAndEdit", { head: nameOf(head), edit: say("undo") }), onclick: () => edit(head, null) }));
  const reset = chips.length > 1 ? [make("button", { type: "button", className: "chip", textContent: say("allAsTheyAre"), onclick: () => { live.edits.clear(); rerun(); } })] : [];
  const focused = [...list()].indexOf(document.activeElement);
  $("live-chips").replaceChildren(...chips, ...reset);
  if (focused >= 0) (list()[Math.min(focused, list().length - 1)] || $("live-edit")).focus();
  if (!live.now) return;
  $("live-results").replaceChildren(...(live.isEncoder ? [embeddingTable()] : [expectationTable(), lossTable()]));
  $("live-note").textContent = say("took", { ms: live.milliseconds.toFixed(1) }) + (live.about.asked ? say("weightsChosen") : say("weightsAre", live.about.weights));
}
function expectationTable() {
  const { before, now } = live, order = [...new Set([...largestOf(Array.from(before.next), 3), ...largestOf(Array.from(now.next), 3)])];
  const rows = order.map((token) => make("tr", {}, make("th", { scope: "row", textContent: visible(nameOfNext(token)) }), cellOf(percent(before.next[token]), "number"), cellOf(percent(now.next[token]), "number"), make("td", {}, meterOf(now.next[token]))));
  return tableOf(headerOf([say("tokenColumn")], [say("before"), "number"], [say("now"), "number"], [""]), rows, say("expects"));
}
function embeddingTable() {
  const { before, now, first } = live, shown = (a, b) => cellOf(cosine(a.embedding, b.embedding).toFixed(4), "number");
  const rows = [["withAllHeads", before], ["withFirstText", first]].map(([name, a]) => make("tr", {}, make("th", { scope: "row", textContent: say(name) }), shown(a, before), shown(a, now)));
  return tableOf(headerOf([""], [say("before"), "number"], [say("now"), "number"]), rows, say("embedding"));
}
function meterOf(share) {
  const meter = make("span", { className: "meter" });
  meter.style.width = Math.round(60 * share) + "px";
  return meter;
}
function lossTable() {
  const { before, now } = live, line = (name, key) => make("tr", {}, make("th", { scope: "row", textContent: name }), cellOf(before[key].toFixed(4), "number"), cellOf(now[key].toFixed(4), "number"));
  return tableOf(headerOf([""], [say("before"), "number"], [say("now"), "number"]), [line(say("allTokens"), "loss"), ...(before.again === null ? [] : [line(say("again"), "again")])], say("loss"));
}
