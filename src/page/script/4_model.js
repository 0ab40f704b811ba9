// All heads as thumbnails.
const CELL = { size: 40, gap: 6, label: 44, top: 22, caption: 0 };

function orderedHeads() {
  const { layers, heads, statistics } = data.index, all = Array.from({ length: layers * heads }, (_, i) => i);
  if (state.sort === "place") return all;
  if (state.sort === "similar") {
    const likeness = all.map((head) => similarity(currentHead(), head));
    return all.sort((a, b) => likeness[b] - likeness[a]);
  }
  const m = MEASURES.indexOf(state.sort), value = (head) => statistics[head][m] ?? -1;
  return all.sort((a, b) => value(b) - value(a));
}

function similarity(a, b) {
  const size = data.index.thumbnail ** 2;
  let dot = 0, aa = 0, bb = 0;
  for (let i = 0; i < size; ++i) {
    const x = WEIGHTS[data.thumbnails[a * size + i]], y = WEIGHTS[data.thumbnails[b * size + i]];
    dot += x * y, aa += x * x, bb += y * y;
  }
  return dot / Math.sqrt(aa * bb || 1);
}

const grid = { order: [], columns: 1, image: null, key: "" };

function layOutModel() {
  const { layers, heads } = data.index, byPlace = state.sort === "place";
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

// All thumbnails and their labels, drawn once for an order and a scale.
function imageOfModel(ratio) {
  const { layers, heads, kvHeads, thumbnail, statistics } = data.index, byPlace = state.sort === "place", size = thumbnail * thumbnail;
  grid.order = orderedHeads();
  const canvas = document.createElement("canvas"), context = prepared(canvas, ratio), ink = inkOf("--ink");
  context.font = "11px system-ui, sans-serif";
  context.strokeStyle = inkOf("--edge");
  context.fillStyle = ink;
  const small = document.createElement("canvas"), pixels = context.createImageData(thumbnail, thumbnail), brush = small.getContext("2d"), weights = new Float32Array(size);
  small.width = small.height = thumbnail;
  grid.order.forEach((head, place) => {
    const [x, y] = cornerOf(place);
    for (let i = 0; i < size; ++i) weights[i] = WEIGHTS[data.thumbnails[head * size + i]];
    paint(pixels.data, weights);
    brush.putImageData(pixels, 0, 0);
    context.drawImage(small, x, y, CELL.size, CELL.size);
    context.strokeRect(x - 1, y - 1, CELL.size + 2, CELL.size + 2);
    if (byPlace) return;
    const value = state.sort === "similar" ? similarity(currentHead(), head) : statistics[head][MEASURES.indexOf(state.sort)];
    context.fillText(nameOf(head) + " " + (value === null ? "–" : value.toFixed(2)), x, y + CELL.size + 11, CELL.size + CELL.gap);
  });
  if (byPlace) {
    const step = CELL.size + CELL.gap;
    for (let l = 0; l < layers; ++l) context.fillText("L" + l, 6, CELL.top + l * step + CELL.size / 2 + 4);
    for (let h = 0; h < heads; ++h) context.fillText("H" + h, CELL.label + h * step + 8, 12);
    // Query heads that share a key head are bracketed.
    context.strokeStyle = ink;
    if (kvHeads < heads)
      for (let g = 0, count = heads / kvHeads; g < kvHeads; ++g) {
        context.beginPath();
        context.moveTo(CELL.label + g * count * step, CELL.top - 5);
        context.lineTo(CELL.label + (g + 1) * count * step - CELL.gap, CELL.top - 5);
        context.stroke();
      }
  }
  return canvas;
}

function drawModel() {
  const canvas = $("grid"), ratio = devicePixelRatio || 1;
  layOutModel();
  const key = [state.sort, state.sort === "similar" ? currentHead() : "", state.scale, state.min, grid.width, ratio, isDark()].join();
  if (grid.key !== key) grid.image = imageOfModel(ratio), grid.key = key;
  const context = prepared(canvas, ratio);
  canvas.style.width = grid.width + "px", canvas.style.height = grid.height + "px";
  context.drawImage(grid.image, 0, 0, grid.width, grid.height);
  const [x, y] = cornerOf(grid.order.indexOf(currentHead()));
  context.strokeStyle = inkOf("--accent");
  context.lineWidth = 3;
  context.strokeRect(x - 2, y - 2, CELL.size + 4, CELL.size + 4);
  canvas.setAttribute("aria-label", say("model") + ": " + nameOf(currentHead()) + ". " + say("gridKeys"));
}

function placeAt(event) {
  const box = $("grid").getBoundingClientRect(), step = CELL.size + CELL.gap;
  const column = Math.floor((event.clientX - box.left - CELL.label) / step), row = Math.floor((event.clientY - box.top - CELL.top) / (step + CELL.caption));
  return column < 0 || column >= grid.columns || row < 0 ? -1 : row * grid.columns + column;
}

function describeHead(head) {
  const values = data.index.statistics[head];
  return nameOf(head) + ": " + MEASURES.map((m, i) => say(m === "first" ? "firstKey" : m) + " " + (values[i] === null ? "–" : values[i].toFixed(3))).join(", ");
}

function listenModel() {
  const canvas = $("grid");
  canvas.addEventListener("click", (event) => {
    const head = grid.order[placeAt(event)];
    if (head !== undefined) chooseHead(head);
  });
  canvas.addEventListener("dblclick", (event) => grid.order[placeAt(event)] !== undefined && choose({ view: "map", of: "head" }));
  canvas.addEventListener("mousemove", (event) => {
    const head = grid.order[placeAt(event)];
    if (head !== undefined) $("status").textContent = describeHead(head);
  });
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns };
    if (event.key === "Enter") choose({ view: "map", of: "head" });
    if (!(event.key in moves)) return;
    event.preventDefault();
    const place = grid.order.indexOf(currentHead()) + moves[event.key];
    if (place >= 0 && place < grid.order.length) chooseHead(grid.order[place]);
  });
}
