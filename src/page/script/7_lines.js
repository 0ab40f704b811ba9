// Lines between two columns of the text, as in Vaswani et al. 2017: thicker for larger weights.
const SVG = "http://www.w3.org/2000/svg";
function svgElement(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

async function drawLines() {
  const box = $("lines"), matrix = await shownMatrix();
  if (!matrix) return void (box.textContent = say("noWeights"));
  if (matrix.n > 120) return void (box.textContent = say("tooMany"));
  const step = 20, width = 560, left = 190, right = width - 190, { n, weights } = matrix, rows = chosenRows(matrix);
  const svg = svgElement("svg", { xmlns: SVG, width, height: (n + 1) * step, role: "img", "aria-label": say("lines") + ": " + sourceName() });
  const y = (i) => (i + 0.8) * step;
  for (let i = 0; i < n; ++i)
    for (let j = 0; j < n; ++j) {
      const weight = weights[i * n + j], isShown = rows.length === 0 || rows.includes(state.dir === "from" ? i : j);
      if (!isShown || weight < Math.max(state.min, 0.01)) continue;
      svg.append(svgElement("line", { x1: left, y1: y(i), x2: right, y2: y(j), stroke: "#b3430f", "stroke-width": 0.5 + 3 * weight, "stroke-opacity": Math.min(1, 0.15 + weight) }));
    }
  for (let i = 0; i < n; ++i) {
    const isChosen = rows.includes(i), font = isChosen ? "bold" : "normal";
    for (const [x, anchor] of [[left - 8, "end"], [right + 8, "start"]]) {
      const label = svgElement("text", { x, y: y(i) + 4, "text-anchor": anchor, "font-weight": font, cursor: "pointer" }, clipped(matrix.labels[i]));
      label.addEventListener("click", () => choose({ q: isChosen ? [] : [matrix.groups[i][0]] }));
      svg.append(label);
    }
  }
  box.replaceChildren(svg);
}
