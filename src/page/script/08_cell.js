// The arithmetic of one cell: from a query and a key to a weight, and to its share of what the head adds.
async function drawCell() {
  const box = $("cell"), own = part(), head = currentHead();
  const details = await detailsOfHead(state.p, head);
  if (!details) {
    const heads = Object.keys(own.details).map(Number);
    return box.replaceChildren(make("p", { className: "hint", textContent: say(own.exact ? "noDetailsLive" : "noDetails") }),
      make("fieldset", {}, ...heads.map((other) => make("button", { type: "button", textContent: nameOf(other), onclick: () => chooseHead(other) }))));
  }
  const weights = await headWeights(state.p, head), [query, key] = cellToExplain(own, weights);
  const name = nameOf(head) + ": " + visible(own.queries.labels[query]) + " (" + query + ") → " + visible(own.keys.labels[key]) + " (" + key + ")";
  const steps = arithmeticOf(details, query, key), rows = [[say("product"), steps.product], [say("scaled") + " " + details.scale.toPrecision(5), steps.scaled]];
  if (details.softcap > 0) rows.push([say("capped") + " " + details.softcap, steps.capped]);
  if (details.bias) rows.push([say("biased"), steps.score]);
  const isHidden = own.causal ? key > query : weights && weights[query * own.keys.tokens.length + key] === 0 && steps.weight > 2e-4;
  if (isHidden) rows.push([say("masked"), -Infinity]);
  rows.push([say("denominator"), details.lse[query]], [say("weight"), isHidden ? 0 : steps.weight]);
  if (weights) rows.push([say("inMapRounded"), rounded(weights[query * own.keys.tokens.length + key])]);
  if (own.normCodes && weights) rows.push([say("share"), rounded(shareOfOutput(weights, head, query, key))]);
  const row = ([label, value]) => make("tr", {}, make("th", { scope: "row", textContent: label }), cellOf(typeof value === "string" ? value : exactly(value), "number"));
  const table = tableOf(headerOf([say("step")], [say("value"), "number"]), rows.map(row));
  box.replaceChildren(make("h2", { textContent: name }), table, make("h2", { textContent: say("product") + ", " + say("byDimension") }), barsOf(details, query, key, box.clientWidth - 8));
}
// The chosen cell; where a query or a key is missing, the last query, and its largest weight after the first key.
function cellToExplain(own, weights) {
  const m = own.keys.tokens.length, query = chosenQuery() >= 0 ? chosenQuery() : own.queries.tokens.length - 1;
  if (chosenKey() >= 0 || !weights) return [query, Math.max(chosenKey(), 0)];
  return [query, (largestOf(weights.subarray(query * m + 1, (query + 1) * m), 1)[0] ?? -1) + 1];
}
const exactly = (value) => (Number.isFinite(value) ? value.toFixed(6) : value < 0 ? "−∞" : String(value));
const rounded = (value) => (value === 0 ? "0" : value.toPrecision(2));

function arithmeticOf({ q, k, lse, bias, dim, scale, softcap }, query, key) {
  let product = 0;
  for (let d = 0; d < dim; ++d) product += q[query * dim + d] * k[key * dim + d];
  const scaled = scale * product, capped = softcap > 0 ? softcap * Math.tanh(scaled / softcap) : scaled;
  const score = capped + (bias ? bias[query * (k.length / dim) + key] : 0);
  return { product, scaled, capped, score, weight: Math.exp(score - lse[query]) };
}

function shareOfOutput(weights, head, query, key) {
  const m = part().keys.tokens.length, norms = weightsOf(part().normCodes.subarray(head * m, (head + 1) * m));
  let sum = 0;
  for (let j = 0; j < m; ++j) sum += weights[query * m + j] * norms[j];
  return sum > 0 ? (weights[query * m + key] * norms[key]) / sum : 0;
}

// What each dimension adds to the product.
function barsOf({ q, k, dim }, query, key, room) {
  const products = Array.from({ length: dim }, (_, d) => q[query * dim + d] * k[key * dim + d]), most = Math.max(1e-9, ...products.map(Math.abs));
  const margin = 48, width = Math.max(4, Math.min(16, Math.floor((room - margin) / dim))), height = 150, middle = height / 2, end = margin + dim * width;
  const svg = svgDrawing(end + 4, height + 36, 12, say("product") + ", " + say("byDimension"));
  svg.append(svgElement("line", { x1: margin, x2: end, y1: middle, y2: middle, stroke: inkOf("--edge") }));
  products.forEach((product, d) => {
    const size = (Math.abs(product) / most) * (middle - 4);
    const bar = svgElement("rect", { x: margin + d * width, y: product < 0 ? middle : middle - size, width: Math.max(1, width - 1), height: size, fill: inkOf(product < 0 ? "--less" : "--mark") });
    bar.append(svgElement("title", {}, d + ": " + exactly(q[query * dim + d]) + " · " + exactly(k[key * dim + d]) + " = " + exactly(product)));
    svg.append(bar);
    if (d % 8 === 0) svg.append(svgElement("text", { x: margin + (d + 0.5) * width, y: height + 14, "text-anchor": "middle", class: "quiet" }, String(d)));
  });
  for (const [value, y] of [["+" + most.toPrecision(2), 12], ["0", middle + 4], ["−" + most.toPrecision(2), height]])
    svg.append(svgElement("text", { x: margin - 8, y, "text-anchor": "end", class: "quiet" }, value));
  svg.append(svgElement("text", { x: margin + (dim * width) / 2, y: height + 32, "text-anchor": "middle", class: "quiet" }, say("dimension")));
  return svg;
}
