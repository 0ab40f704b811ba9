// A page that carries its model: the reader changes the text and the heads, and everything is computed anew by saccade.js.
// What is computed is one more part of the page, behind those of the file.
const live = { model: null, about: null, library: null, part: -1, text: "", wrong: "", sequence: null, edits: new Map(), computed: null, failure: "", before: null, now: null, painting: false, runs: 0 };

async function loadModel() {
  live.about = data.index.model;
  live.library = await globalThis.saccadeLibrary;
  const files = {};
  for (const [i, name] of live.about.files.entries()) files[name] = await unpack("model-" + i);
  live.isEncoder = "config.json" in files;
  if (live.about.asked) await askForWeights(live.about.asked, (bytes) => makeModel({ ...files, "model.safetensors": bytes }));
  else makeModel(files);
}
function makeModel(files) {
  const { GPTModel, Model, parseSafetensors, toSafetensors } = live.library, { "model.safetensors": weights } = files;
  const tensors = () => (live.about.weights.dtype === "int8" ? dequantized(parseSafetensors(weights)) : parseSafetensors(weights));
  if (!live.isEncoder) live.model = GPTModel.fromStateDict(tensors(), live.about.heads);
  else live.model = new Model(live.about.weights.dtype === "int8" ? { ...files, "model.safetensors": toSafetensors(tensors()) } : files);
}
// Tensors of int8 times the scales of their rows, as f32.
function dequantized(tensors) {
  const found = {}, { Tensor } = live.library, isScale = (name) => name.endsWith(".scale") && tensors[name.slice(0, -6)]?.dtype === "i8";
  for (const [name, tensor] of Object.entries(tensors)) {
    if (isScale(name)) continue;
    found[name] = tensor;
    if (tensor.dtype !== "i8") continue;
    const numbers = new Float32Array(tensor.data.length), width = tensor.shape[tensor.shape.length - 1], scales = tensors[name + ".scale"].data;
    for (let i = 0; i < numbers.length; ++i) numbers[i] = tensor.data[i] * scales[Math.floor(i / width)];
    found[name] = new Tensor(numbers, tensor.shape);
  }
  return found;
}
function crc32Of(bytes) {
  const table = Int32Array.from({ length: 256 }, (_, n) => { for (let k = 0; k < 8; ++k) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1; return n; });
  let crc = -1;
  for (let i = 0; i < bytes.length; ++i) crc = table[(crc ^ bytes[i]) & 255] ^ (crc >>> 8);
  return ~crc >>> 0;
}
// Waits until the reader has chosen the file with the weights, which never leaves the page, and `use` has taken it.
function askForWeights({ size, crc32 }, use) {
  return new Promise((resolve) => {
    const problem = make("p", { id: "live-wrong", role: "alert" }), told = make("span", { className: "say" });
    let wrong = () => "";
    const show = () => { told.textContent = say("askFile", { megabytes: (size / 1e6).toFixed(1) }) + " ", problem.textContent = wrong(); };
    const take = async (file) => {
      if (file.size !== size) throw new Error(say("otherFile", { name: file.name, size: file.size, wanted: size }));
      const bytes = new Uint8Array(await file.arrayBuffer());
      if (crc32Of(bytes) !== crc32) throw new Error(say("otherModel"));
      resolve(use(bytes));
    };
    const input = make("input", { id: "live-file", type: "file", accept: ".safetensors", onchange: () => {
      const [file] = input.files;
      if (!file) return;
      wrong = () => say("reading"), show();
      // The field is emptied, so that the same file can be chosen again.
      take(file).catch((error) => { wrong = () => say("unusable", { reason: error.message }), input.value = "", show(); });
    } });
    listeners.push(show), show();
    $("live").replaceChildren(make("div", { className: "hand" }, make("label", {}, told, input), problem));
  });
}

// One pass: the weights of each head, [layers][heads n n], and what the model says: the next tokens of a decoder, the
// embedding of an encoder, which is the mean of its states.
function runModel(tokens, edits) {
  const n = tokens.length;
  if (live.isEncoder) {
    const { states, weights } = live.model.hiddenStates(tokens, { edits, weights: true }), embedding = new Float64Array(states.shape[1]);
    states.data.forEach((state, i) => { embedding[i % embedding.length] += state / n; });
    return { weights, embedding };
  }
  const { logits, weights } = live.model.look([tokens], { edits, weights: true }), size = logits.shape[2];
  const row = logits.data.subarray((n - 1) * size), largest = row.reduce((a, b) => Math.max(a, b)), powers = Float64Array.from(row, (x) => Math.exp(x - largest)), sum = powers.reduce((a, b) => a + b);
  return { weights, next: powers.map((power) => power / sum), ...lossesOf(tokens, logits, size) };
}
function cosine(a, b) {
  const dot = (x, y) => x.reduce((sum, value, d) => sum + value * y[d], 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}
// The mean loss of all tokens, and of those whose pair with the token before them has occurred.
function lossesOf(tokens, logits, size) {
  const n = tokens.length, { crossEntropy, Tensor } = live.library, seen = new Set();
  if (n < 2) return { loss: 0, again: null };
  const isAgain = tokens.slice(1).map((token, i) => { const pair = tokens[i] + "," + token, is = seen.has(pair); seen.add(pair); return is; });
  const rows = new Tensor(logits.data.slice(0, (n - 1) * size), [n - 1, size]), meanOver = (targets) => crossEntropy(rows, targets).loss;
  return { loss: meanOver(tokens.slice(1)), again: isAgain.some(Boolean) ? meanOver(tokens.slice(1).map((token, i) => (isAgain[i] ? token : -100))) : null };
}

// The statistics of a head that the file has of others, in the order of MEASURES.
function statisticsOfHead(weights, tokens) {
  const n = tokens.length, places = new Map(), mean = (values) => (values.length > 0 ? values.reduce((a, b) => a + b, 0) / values.length : null);
  const found = { previous: [], first: [], self: [], induction: [], entropy: [], distance: [] };
  tokens.forEach((token, i) => {
    const row = weights.subarray(i * n, (i + 1) * n), earlier = places.get(token) || [];
    found.self.push(row[i]);
    if (i > 0) found.previous.push(row[i - 1]), found.first.push(row[0]);
    if (earlier.length === 1) found.induction.push(row[earlier[0] + 1]);
    places.set(token, [...earlier, i]);
    let entropy = 0, distance = 0;
    row.forEach((weight, j) => { if (weight > 0) entropy -= weight * Math.log(weight), distance += weight * Math.abs(i - j); });
    found.entropy.push(entropy), found.distance.push(distance);
  });
  return MEASURES.map((measure) => mean(found[measure]));
}
const codeOf = (weight) => (weight >= 2 ** -16 ? Math.min(255, Math.max(1, Math.round(255 + 16 * Math.log2(weight)))) : 0);
function thumbnailOf(weights, n, side) {
  const cells = new Float32Array(side * side);
  for (let i = 0; i < n; ++i)
    for (let j = 0; j < n; ++j) {
      const at = Math.floor((i * side) / n) * side + Math.floor((j * side) / n);
      cells[at] = Math.max(cells[at], weights[i * n + j]);
    }
  return Uint8Array.from(cells, codeOf);
}

// What was computed as a part of the page, of the same form as those of the file.
function partOf({ tokens, ...sequence }, layers) {
  const n = tokens.length, side = Math.min(n, 32), heads = layers[0].shape[0], count = layers.length * heads;
  const exact = layers.flatMap(({ data: all }) => Array.from({ length: heads }, (_, h) => all.subarray(h * n * n, (h + 1) * n * n)));
  const queries = { tokens: sequence.names, labels: sequence.names, gaps: sequence.gaps, words: sequence.words, special: sequence.special, seconds: 0 }, thumbnails = new Uint8Array(count * side * side);
  exact.forEach((weights, head) => thumbnails.set(thumbnailOf(weights, n, side), head * side * side));
  return { get name() { return say("livePart"); }, number: live.part, run: ++live.runs, queries, keys: queries, isSquare: true, layers: layers.length, heads, kvHeads: heads, causal: !live.isEncoder, thumbnail: [side, side], norms: false,
    statistics: exact.map((weights) => statisticsOfHead(weights, tokens)), kept: exact.map((_, head) => head), keptHeads: new Set(exact.keys()), details: {}, maps: [], tiles: [], pooled: null, thumbnails, exact };
}

// The weights that a reader put into a head, as rows that add up to 1. The rows of `painted` are sets of keys; others are as
// the model has them.
function paintedWeights({ pattern, painted }, weightsOfModel, n) {
  const weights = new Float32Array(n * n), keysOf = { previous: (i) => [Math.max(i - 1, 0)], self: (i) => [i], first: () => [0], even: (i) => Array.from({ length: live.isEncoder ? n : i + 1 }, (_, j) => j) }[pattern];
  for (let i = 0; i < n; ++i) {
    const own = painted && painted[i] ? [...painted[i]].filter((j) => j < n) : [];  // the text may have become shorter
    const keys = own.length > 0 ? own : keysOf ? keysOf(i) : null;
    if (keys) for (const j of keys) weights[i * n + j] = 1 / keys.length;
    else weights.set(weightsOfModel.subarray(i * n, (i + 1) * n), i * n);
  }
  return new live.library.Tensor(weights, [n, n]);
}
// Painted heads come last, in the order of layers: the rows that are not painted are those of a pass with the changes so far.
function editsOf(tokens) {
  const n = tokens.length, { heads } = data.index.parts[0], found = [], isPainted = ([, { name }]) => name === "patternHand";
  const add = (head, by) => found.push({ layer: Math.floor(head / heads), head: head % heads, by });
  for (const [head, edit] of [...live.edits].filter((each) => !isPainted(each))) add(head, edit.by === "pattern" ? paintedWeights(edit, null, n) : edit.by);
  for (const [head, edit] of [...live.edits].filter(isPainted).sort(([a], [b]) => a - b)) {
    if (Object.keys(edit.painted).length === 0 && edit.pattern === "hand") continue;
    const h = head % heads, layer = runModel(tokens, found).weights[Math.floor(head / heads)].data;
    add(head, paintedWeights(edit, layer.subarray(h * n * n, (h + 1) * n * n), n));
  }
  return found;
}

// Reads the reader's text, and says whether that is possible: `wrong` says why it is not, and the last text stays.
function readText() {
  try {
    const sequence = sequenceOf(live.text), count = sequence.tokens.length;
    if (count === 0) throw new Error(say("noTokens"));
    if (count > live.about.longest) throw new Error(say("tooLong", { count, most: live.about.longest }));
    live.sequence = sequence, live.wrong = "";
  } catch (error) {
    live.wrong = error.message;
  }
  return live.wrong === "";
}
// Runs the model on the text, without and with what the reader did to its heads, and shows the result.
function compute() {
  const begin = performance.now(), { sequence, edits } = live, { tokens } = sequence;
  const before = runModel(tokens, []), now = edits.size > 0 ? runModel(tokens, editsOf(tokens)) : before;
  Object.assign(live, { before, now, computed: { sequence, edits: new Map(edits) } });
  if (live.part < 0) live.part = data.index.parts.length, controls.key = "";
  data.index.parts[live.part] = partOf(sequence, live.now.weights);
  live.first = live.first || live.before;
  live.milliseconds = performance.now() - begin;
  // What was remembered of an earlier text is no longer so.
  for (const key of [...data.cache.keys()]) if (key.startsWith("rollout," + live.part + ",")) data.cache.delete(key);
  grid.key = "", grid.painted = {}, map.size = "";
}
