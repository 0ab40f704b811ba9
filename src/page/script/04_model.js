// All heads as thumbnails.
const CELL = { size: 40, gap: 6, label: 44, top: 22, caption: 0 };
const grid = { order: [], columns: 1, image: null, key: "" };

// What the reader orders by: a number of a head, or a difference of two parts.
function measured(head) {
  if (state.sort === "similar") return similarity(currentHead(), head);
  const m = MEASURES.indexOf(state.sort), value = part().statistics[head][m];
  if (state.b < 0 || value === null) return value;
  const other = data.index.parts[state.b].statistics[head][m];
  return other === null ? null : value - other;
}
function orderedHeads() {
  const { layers, heads } = part(), all = Array.from({ length: layers * heads }, (_, i) => i);
  if (state.sort === "place") return all;
  const values = all.map((head) => measured(head) ?? -Infinity);
  return all.sort((a, b) => values[b] - values[a]);
}

function similarity(a, b) {
  const codes = part().thumbnails, size = part().thumbnail[0] * part().thumbnail[1];
  let dot = 0, aa = 0, bb = 0;
  for (let i = 0; i < size; ++i) {
    const x = WEIGHTS[codes[a * size + i]], y = WEIGHTS[codes[b * size + i]];
    dot += x * y, aa += x * x, bb += y * y;
  }
  return dot / Math.sqrt(aa * bb || 1);
}

function layOutModel() {
  const { layers, heads } = part(), byPlace = state.sort === "place";
  const room = $("grid").parentElement.clientWidth - CELL.label - 20;
  CELL.caption = byPlace ? 0 : 15;
  CELL.size = byPlace ? Math.max(28, Math.min(64, Math.floor(room / heads) - CELL.gap)) : 72;
  const step = CELL.size + CELL.gap;
  grid.columns = byPlace ? heads : Math.max(1, Math.floor(room / step));
  const rows = byPlace ? layers : Math.ceil((layers * heads) / grid.columns);
  grid.width = CELL.label + grid.columns * step, grid.height = CELL.top + rows * (step + CELL.caption);
}
function cornerOf(place) {
  const step = CELL.size + CELL.gap;
  return [CELL.label + (place % grid.columns) * step, CELL.top + Math.floor(place / grid.columns) * (step + CELL.caption)];
}
function prepared(canvas, ratio) {
  canvas.width = grid.width * ratio, canvas.height = grid.height * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.imageSmoothingEnabled = false;
  return context;
}

// The layers and heads around thumbnails in their places. Query heads that share a key head are bracketed.
function drawPlaces(context) {
  const { layers, heads, kvHeads } = part(), step = CELL.size + CELL.gap;
  for (let l = 0; l < layers; ++l) context.fillText("L" + l, 6, CELL.top + l * step + CELL.size / 2 + 4);
  for (let h = 0; h < heads; ++h) context.fillText("H" + h, CELL.label + h * step + 8, 12);
  if (kvHeads === heads) return;
  context.strokeStyle = context.fillStyle;
  for (let g = 0, count = heads / kvHeads; g < kvHeads; ++g) {
    context.beginPath();
    context.moveTo(CELL.label + g * count * step, CELL.top - 5);
    context.lineTo(CELL.label + (g + 1) * count * step - CELL.gap, CELL.top - 5);
    context.stroke();
  }
}

// All thumbnails and their labels, drawn once for an order and a scale.
function imageOfModel(ratio) {
  const { thumbnail, thumbnails } = part(), [rows, columns] = thumbnail, size = rows * columns;
  const other = state.b >= 0 ? data.index.parts[state.b].thumbnails : null;
  grid.order = orderedHeads();
  const canvas = document.createElement("canvas"), context = prepared(canvas, ratio);
  context.font = "11px system-ui, sans-serif";
  context.strokeStyle = inkOf("--edge");
  context.fillStyle = inkOf("--ink");
  const small = document.createElement("canvas"), pixels = context.createImageData(columns, rows), brush = small.getContext("2d"), weights = new Float32Array(size);
  small.width = columns, small.height = rows;
  grid.order.forEach((head, place) => {
    const [x, y] = cornerOf(place);
    for (let i = 0; i < size; ++i) weights[i] = WEIGHTS[thumbnails[head * size + i]] - (other ? WEIGHTS[other[head * size + i]] : 0);
    paint(pixels.data, weights);
    brush.putImageData(pixels, 0, 0);
    context.drawImage(small, x, y, CELL.size, CELL.size);
    context.strokeRect(x - 1, y - 1, CELL.size + 2, CELL.size + 2);
    if (state.sort === "place") return;
    const value = measured(head);
    context.fillText(nameOf(head) + " " + (value === null ? "–" : value.toFixed(2)), x, y + CELL.size + 11, CELL.size + CELL.gap);
  });
  if (state.sort === "place") drawPlaces(context);
  return canvas;
}

function outline(context, head, colour, width) {
  const [x, y] = cornerOf(grid.order.indexOf(head));
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.strokeRect(x - 2, y - 2, CELL.size + 4, CELL.size + 4);
}
function drawModel() {
  const canvas = $("grid"), ratio = devicePixelRatio || 1;
  layOutModel();
  const key = [state.p, state.b, state.sort, state.sort === "similar" ? currentHead() : "", state.scale, state.min, grid.width, ratio, isDark()].join();
  if (grid.key !== key) grid.image = imageOfModel(ratio), grid.key = key;
  const context = prepared(canvas, ratio);
  canvas.style.width = grid.width + "px", canvas.style.height = grid.height + "px";
  context.drawImage(grid.image, 0, 0, grid.width, grid.height);
  for (const head of state.set) outline(context, head, inkOf("--ink"), 2);
  outline(context, currentHead(), inkOf("--accent"), 3);
  canvas.setAttribute("aria-label", say("model") + ": " + nameOf(currentHead()) + ". " + say("gridKeys"));
}

function headAt(event) {
  const box = $("grid").getBoundingClientRect(), step = CELL.size + CELL.gap;
  const column = Math.floor((event.clientX - box.left - CELL.label) / step), row = Math.floor((event.clientY - box.top - CELL.top) / (step + CELL.caption));
  return column < 0 || column >= grid.columns || row < 0 ? undefined : grid.order[row * grid.columns + column];
}
const toggled = (list, item) => (list.includes(item) ? list.filter((other) => other !== item) : [...list, item]);

function describeHead(head) {
  const values = part().statistics[head];
  return nameOf(head) + ": " + MEASURES.map((m, i) => say(m === "first" ? "firstKey" : m) + " " + (values[i] === null ? "–" : values[i].toFixed(3))).join(", ");
}

function listenModel() {
  const canvas = $("grid");
  canvas.addEventListener("click", (event) => {
    const head = headAt(event);
    if (head === undefined) return;
    const several = event.ctrlKey || event.metaKey || event.shiftKey;
    choose({ l: layerOf(head), h: headInLayer(head), ...(several ? { set: toggled(state.set, head) } : {}) });
  });
  canvas.addEventListener("dblclick", (event) => headAt(event) !== undefined && choose({ view: "map", of: "head" }));
  canvas.addEventListener("mousemove", (event) => {
    const head = headAt(event);
    if (head !== undefined) $("status").textContent = describeHead(head);
  });
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns };
    if (event.key === "Enter") return choose({ view: "map", of: "head" });
    if (event.key === " ") choose({ set: toggled(state.set, currentHead()) });
    if (event.key in moves || event.key === " ") event.preventDefault();
    if (!(event.key in moves)) return;
    const place = grid.order.indexOf(currentHead()) + moves[event.key];
    if (place < 0 || place >= grid.order.length) return;
    chooseHead(grid.order[place]);
    $("status").textContent = describeHead(currentHead());
  });
}
