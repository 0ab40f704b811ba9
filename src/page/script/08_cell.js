// The arithmetic of one cell: from a query and a key to a weight, and to its share of what the head adds.
async function drawCell() {
  const box = $("cell"), own = part(), head = currentHead(), query = chosenQuery(), key = chosenKey();
  const details = await detailsOfHead(state.p, head);
  if (!details) {
    const heads = Object.keys(own.details).map(Number);
    return box.replaceChildren(make("p", { className: "hint", textContent: say("noDetails") }),
      ...heads.map((other) => make("button", { type: "button", textContent: nameOf(other), onclick: () => chooseHead(other) })));
  }
  if (query < 0 || key < 0) return box.replaceChildren(make("p", { className: "hint", textContent: say("pickCell") }));
  const name = nameOf(head) + ": " + visible(own.queries.labels[query]) + " (" + query + ") → " + visible(own.keys.labels[key]) + " (" + key + ")";
  const steps = arithmeticOf(details, query, key), rows = [[say("product"), steps.product], [say("scaled") + " " + details.scale.toPrecision(5), steps.scaled]];
  if (details.softcap > 0) rows.push([say("capped") + " " + details.softcap, steps.capped]);
  if (details.bias) rows.push([say("biased"), steps.score]);
  const weights = await headWeights(state.p, head);
  const isHidden = own.causal ? key > query : weights && weights[query * own.keys.tokens.length + key] === 0 && steps.weight > 2e-4;
  if (isHidden) rows.push([say("masked"), -Infinity]);
  rows.push([say("denominator"), details.lse[query]], [say("weight"), isHidden ? 0 : steps.weight]);
  if (own.normCodes && weights) rows.push([say("share"), shareOfOutput(weights, head, query, key)]);
  const table = make("table", {}, make("tbody", {}, ...rows.map(([label, value]) => make("tr", {}, make("th", { scope: "row", textContent: label }), make("td", { className: "number", textContent: exactly(value) })))));
  box.replaceChildren(make("h2", { textContent: name }), table, make("h2", { textContent: say("product") + ", " + say("byDimension") }), barsOf(details, query, key));
}
const exactly = (value) => (Number.isFinite(value) ? +value.toPrecision(6) + "" : value < 0 ? "−∞" : String(value));

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
function barsOf({ q, k, dim }, query, key) {
  const products = Array.from({ length: dim }, (_, d) => q[query * dim + d] * k[key * dim + d]), most = Math.max(1e-9, ...products.map(Math.abs));
  const width = Math.max(4, Math.min(12, Math.floor(640 / dim))), height = 150, middle = height / 2;
  const svg = svgElement("svg", { xmlns: SVG, width: dim * width + 40, height: height + 18, role: "img", "aria-label": say("product") + ", " + say("byDimension") });
  products.forEach((product, d) => {
    const size = (Math.abs(product) / most) * (middle - 4);
    const bar = svgElement("rect", { x: 30 + d * width, y: product < 0 ? middle : middle - size, width: width - 1, height: size, fill: product < 0 ? "#2c66a6" : "#b3430f" });
    bar.append(svgElement("title", {}, d + ": " + exactly(q[query * dim + d]) + " · " + exactly(k[key * dim + d]) + " = " + exactly(product)));
    svg.append(bar);
    if (d % 8 === 0) svg.append(svgElement("text", { x: 30 + d * width, y: height + 14 }, String(d)));
  });
  svg.append(svgElement("text", { x: 0, y: 12 }, most.toPrecision(2)), svgElement("text", { x: 0, y: middle + 4 }, "0"));
  return svg;
}
