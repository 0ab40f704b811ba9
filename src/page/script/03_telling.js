// Which head tells most, and what a head does, in one sentence. A kind of head is known by one statistic: its value
// counts from `least` on, times `worth`. Copying what followed earlier is worth most, since few heads do it; resting on
// the first key is worth least, since most heads of a decoder do. Only a causal model learns to copy in this way.
const KINDS = [
  { measure: "induction", sentence: "isInduction", least: 0.3, worth: 2, needsCausal: true },
  { measure: "previous", sentence: "isPrevious", least: 0.45, worth: 1 },
  { measure: "self", sentence: "isSelf", least: 0.45, worth: 1 },
  { measure: "first", sentence: "isFirst", least: 0.5, worth: 0.5 },
];
const statisticOf = (own, head, measure) => own.statistics[head][MEASURES.indexOf(measure)];

// The kind of a head and what it is worth; null if it is of none.
function kindOf(own, head) {
  let best = null;
  for (const kind of KINDS) {
    const value = statisticOf(own, head, kind.measure);
    if (value === null || value < kind.least || (kind.needsCausal && !own.causal)) continue;
    if (!best || value * kind.worth > best.score) best = { ...kind, value, score: value * kind.worth };
  }
  return best;
}
// The mean entropy of rows that are even.
function mostEntropy(own) {
  const n = own.queries.tokens.length, m = own.keys.tokens.length;
  if (!own.causal) return Math.log(m);
  let sum = 0;
  for (let i = 1; i <= n; ++i) sum += Math.log(i);
  return sum / n;
}
// The share of the largest entropy, from one key to all alike.
const spreadOf = (own, head) => Math.min(1, (statisticOf(own, head, "entropy") ?? Infinity) / Math.max(mostEntropy(own), 1e-9));

// The head to open on: of the clearest kind, or else one that picks few keys other than the first.
function tellingHead(own) {
  const all = Array.from({ length: own.layers * own.heads }, (_, i) => i), kept = all.filter((head) => own.keptHeads.has(head));
  const scoreOf = (head) => kindOf(own, head)?.score ?? 0.4 * (1 - spreadOf(own, head)) * (1 - (statisticOf(own, head, "first") ?? 0));
  return largestOf((kept.length > 0 ? kept : all).map(scoreOf), 1).map((at) => (kept.length > 0 ? kept : all)[at])[0] ?? 0;
}
// Of a training run its last state: the first one is untrained.
function openingChoice() {
  const { parts, sequence } = data.index, p = sequence ? parts.length - 1 : 0, head = tellingHead(parts[p]);
  return { p, l: Math.floor(head / parts[p].heads), h: head % parts[p].heads };
}

// What a head does, after its name.
function sentenceOf(own, head) {
  const kind = kindOf(own, head), entropy = statisticOf(own, head, "entropy"), distance = statisticOf(own, head, "distance");
  if (kind) return say(kind.sentence, { value: kind.value.toFixed(2) });
  if (entropy === null) return say("isUnknown");
  const values = { value: entropy.toFixed(2), most: mostEntropy(own).toFixed(2), distance: distance === null ? "" : distance.toFixed(1) };
  if (spreadOf(own, head) > 0.8) return say("isEven", values);
  if (distance === null) return say("isPicking", values);
  return say(distance < Math.max(2, own.queries.tokens.length / 8) ? "isNear" : "isFar", values);
}
const trimmed = (label) => label.trim() || visible(label);
// Where two parts differ most.
function sentenceOfDifference(matrix) {
  const [at] = largestOf(matrix.weights, 1);
  if (at === undefined) return say("isEqual");
  const i = Math.floor(at / matrix.m), j = at % matrix.m, weight = matrix.weights[at];
  return say(weight > 0 ? "moreInFirst" : "moreInSecond", { query: trimmed(matrix.rowLabels[i]), key: trimmed(matrix.columnLabels[j]), value: twoDigits(100 * Math.abs(weight)) });
}
function drawSentence(matrix) {
  const isPlain = state.of === "head" && state.b < 0, name = state.of === "head" ? nameOf(currentHead()) : sourceName();
  const rest = state.b >= 0 ? (matrix ? sentenceOfDifference(matrix) : "") : isPlain ? sentenceOf(part(), currentHead()) : "";
  $("sentence").textContent = name + rest;
}

// The heads in which two parts differ most: the mean difference of their thumbnails' cells.
function differingHeads(count) {
  const own = part(), other = data.index.parts[state.b], size = own.thumbnail[0] * own.thumbnail[1];
  const differences = Array.from({ length: own.layers * own.heads }, (_, head) => {
    let sum = 0;
    for (let i = head * size; i < (head + 1) * size; ++i) sum += Math.abs(WEIGHTS[own.thumbnails[i]] - WEIGHTS[other.thumbnails[i]]);
    return sum / size;
  });
  return largestOf(differences, count).map((head) => ({ head, difference: differences[head] }));
}
function largestOf(numbers, count) {
  const found = [];
  numbers.forEach((value, i) => {
    const size = Math.abs(value);
    if (size === 0 || (found.length === count && size <= Math.abs(numbers[found[count - 1]]))) return;
    const at = found.findIndex((other) => Math.abs(numbers[other]) < size);
    found.splice(at < 0 ? found.length : at, 0, i);
    found.length = Math.min(found.length, count);
  });
  return found;
}
