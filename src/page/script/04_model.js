// All heads as thumbnails.
const CELL = { size: 40, gap: 4, label: 30, top: 22, caption: 0 };
const grid = { order: [], columns: 1, rows: 1, width: 0, height: 0, key: "", isWhole: false, painted: {} };

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

// In their places the thumbnails are rows of layers, in as many blocks beside each other as fill the window best; in
// another order they run from left to right. All are seen at once if they can be large enough; on a phone the page
// scrolls instead.
const SMALLEST = { place: 24, sorted: 64 }, LARGEST = 400, SCROLLBAR = 16;
function layOutModel() {
  const { layers, heads } = part(), byPlace = state.sort === "place", sheet = $("sheet"), count = layers * heads;
  const key = [state.p, state.b, state.sort, state.sort === "similar" ? currentHead() : ""].join();
  if (grid.key !== key) grid.order = orderedHeads(), grid.key = key;
  CELL.caption = byPlace ? 0 : 16, CELL.top = byPlace ? 22 : 4;
  const width = sheet.clientWidth - 4, height = isNarrow() ? Infinity : sheet.clientHeight - 4;
  let best = { size: 0 };
  for (let blocks = 1; blocks <= (byPlace ? layers : count); ++blocks) {
    const columns = byPlace ? blocks * heads : blocks, rows = byPlace ? Math.ceil(layers / blocks) : Math.ceil(count / columns);
    const room = byPlace ? width - blocks * CELL.label : width, size = Math.floor(Math.min(room / columns - CELL.gap, (height - CELL.top) / rows - CELL.gap - CELL.caption, LARGEST));
    if (size > best.size) best = { size, blocks, columns, rows };
  }
  const least = byPlace ? SMALLEST.place : SMALLEST.sorted;
  if (best.size < least || (isNarrow() && !byPlace)) {
    const columns = byPlace ? heads : Math.max(1, Math.floor((width - SCROLLBAR) / (least + CELL.gap)));
    best = { size: least, blocks: byPlace ? 1 : columns, columns, rows: byPlace ? layers : Math.ceil(count / columns) };
  }
  CELL.size = best.size;
  grid.columns = byPlace ? heads : best.columns, grid.rows = best.rows;
  const step = CELL.size + CELL.gap, blocks = byPlace ? Math.ceil(layers / best.rows) : 1;
  grid.width = blocks * (leftOf() + grid.columns * step), grid.height = CELL.top + best.rows * (step + CELL.caption);
}
const isNarrow = () => innerWidth <= 760;  // as in the style
const isTouch = () => matchMedia("(hover: none) and (pointer: coarse)").matches;
const leftOf = () => (state.sort === "place" ? CELL.label : 2);
function cornerOf(place) {
  const step = CELL.size + CELL.gap, row = Math.floor(place / grid.columns), block = Math.floor(row / grid.rows);
  return [block * (leftOf() + grid.columns * step) + leftOf() + (place % grid.columns) * step, CELL.top + (row % grid.rows) * (step + CELL.caption)];
}
// The layers and heads around thumbnails in their places. Query heads that share a key head are bracketed.
function drawPlaces(context) {
  const { layers, heads, kvHeads } = part(), step = CELL.size + CELL.gap, every = step < 22 ? 2 : 1;
  context.fillStyle = inkOf("--quiet");
  context.font = fontOf(11);
  for (let l = 0; l < layers; ++l) {
    const [x, y] = cornerOf(l * heads);
    context.textAlign = "right";
    context.fillText("L" + l, x - 6, y + CELL.size / 2 + 4);
    if (l % grid.rows > 0) continue;
    context.textAlign = "center";
    for (let h = 0; h < heads; h += every) context.fillText("H" + h, x + h * step + CELL.size / 2, 11);
    if (kvHeads === heads) continue;
    context.strokeStyle = inkOf("--line");
    for (let g = 0, count = heads / kvHeads; g < kvHeads; ++g) {
      context.beginPath();
      context.moveTo(x + g * count * step, CELL.top - 5);
      context.lineTo(x + (g + 1) * count * step - CELL.gap, CELL.top - 5);
      context.stroke();
    }
  }
  context.textAlign = "left";
}

// A canvas with the thumbnails of these heads, each in the place of its head: painted when it is first seen, and
// again for other colors.
function paintedThumbnails(seen) {
  const { layers, heads, thumbnail, thumbnails } = part(), [rows, columns] = thumbnail, size = rows * columns;
  const key = [state.p, state.b, state.scale, state.min, isDark()].join();
  if (grid.painted.key !== key) {
    const canvas = make("canvas", { width: heads * columns, height: layers * rows });
    grid.painted = { key, canvas, heads: new Set(), context: canvas.getContext("2d"), pixels: new ImageData(columns, rows) };
  }
  const other = state.b >= 0 ? data.index.parts[state.b].thumbnails : null, { painted } = grid, weights = new Float32Array(size), isHidden = hiddenBlocks(part(), rows, columns);
  for (const head of seen) {
    if (painted.heads.has(head)) continue;
    for (let i = 0; i < size; ++i) weights[i] = WEIGHTS[thumbnails[head * size + i]] - (other ? WEIGHTS[other[head * size + i]] : 0);
    paint(painted.pixels.data, weights, columns, Boolean(other), isHidden);
    painted.context.putImageData(painted.pixels, headInLayer(head) * columns, layerOf(head) * rows);
    painted.heads.add(head);
  }
  return painted.canvas;
}
// The thumbnails of a part of the sheet, and their labels.
function drawThumbnails(context, left, right, top, bottom) {
  const [rows, columns] = part().thumbnail, places = grid.order.map((head, place) => [head, ...cornerOf(place)]);
  const seen = places.filter(([, x, y]) => y < bottom && y + CELL.size + CELL.caption >= top && x < right && x + CELL.size >= left);
  const painted = paintedThumbnails(seen.map(([head]) => head));
  context.font = fontOf(11);
  for (const [head, x, y] of seen) {
    context.fillStyle = inkOf("--nothing");
    context.fillRect(x, y, CELL.size, CELL.size);
    context.drawImage(painted, headInLayer(head) * columns, layerOf(head) * rows, columns, rows, x, y, CELL.size, CELL.size);
    if (state.sort === "place") continue;
    const value = measured(head);
    context.fillStyle = inkOf("--ink");
    context.fillText(nameOf(head) + " " + (value === null ? "–" : value.toFixed(2)), x, y + CELL.size + 12, CELL.size + CELL.gap);
  }
  if (state.sort === "place") drawPlaces(context);
}

function outline(context, head, color, width) {
  const [x, y] = cornerOf(grid.order.indexOf(head));
  context.strokeStyle = color;
  context.lineWidth = width;
  context.strokeRect(x - 2, y - 2, CELL.size + 4, CELL.size + 4);
}

// A part of the sheet, from its corner (left, top) on, as large as the canvas.
function drawSheet(canvas, width, height, left, top) {
  const ratio = devicePixelRatio || 1, context = canvas.getContext("2d");
  canvas.width = width * ratio, canvas.height = height * ratio;
  canvas.style.width = width + "px", canvas.style.height = height + "px";
  context.setTransform(ratio, 0, 0, ratio, -left * ratio, -top * ratio);
  context.imageSmoothingEnabled = false;
  drawThumbnails(context, left, left + width, top, top + height);
  for (const head of state.set) outline(context, head, inkOf("--ink"), 2);
  outline(context, currentHead(), inkOf("--paper"), 6);
  outline(context, currentHead(), inkOf("--accent"), 3);
  return canvas;
}
// Of a large model only what is seen: the canvas stays in the window while the sheet moves beneath it.
function drawModel() {
  layOutModel();
  const canvas = $("grid"), sheet = $("sheet"), whole = canvas.parentElement;
  whole.style.width = grid.width + "px", whole.style.height = grid.height + "px";
  if (grid.isWhole) drawSheet(canvas, grid.width, grid.height, 0, 0);
  else drawSheet(canvas, Math.min(grid.width, sheet.clientWidth), Math.min(grid.height, sheet.clientHeight), sheet.scrollLeft, sheet.scrollTop);
  canvas.setAttribute("aria-label", say("model") + ": " + nameOf(currentHead()) + sentenceOf(part(), currentHead()) + ". " + say("gridKeys"));
}
const wholeModel = () => drawSheet(document.createElement("canvas"), grid.width, grid.height, 0, 0);

// Moves the sheet so that the chosen head is seen.
function showChosenHead() {
  const sheet = $("sheet"), [x, y] = cornerOf(grid.order.indexOf(currentHead())), edge = CELL.size + CELL.caption + CELL.gap;
  const fit = (at, from, room, begin) => (at - begin < from ? at - begin : at + edge > from + room ? at + edge - room : from);
  sheet.scrollLeft = fit(x, sheet.scrollLeft, sheet.clientWidth, leftOf());
  sheet.scrollTop = fit(y, sheet.scrollTop, sheet.clientHeight, CELL.top);
}

function headAt(event) {
  const box = $("grid").parentElement.getBoundingClientRect(), step = CELL.size + CELL.gap, wide = leftOf() + grid.columns * step;
  const x = event.clientX - box.left, block = Math.floor(x / wide), column = Math.floor((x - block * wide - leftOf()) / step);
  const row = Math.floor((event.clientY - box.top - CELL.top) / (step + CELL.caption));
  return column < 0 || column >= grid.columns || row < 0 || row >= grid.rows ? undefined : grid.order[(block * grid.rows + row) * grid.columns + column];
}
const toggled = (list, item) => (list.includes(item) ? list.filter((other) => other !== item) : [...list, item]);

function describeHead(head) {
  const values = part().statistics[head];
  return nameOf(head) + ": " + MEASURES.map((m, i) => nameOfMeasure(m) + " " + (values[i] === null ? "–" : values[i].toFixed(2))).join(", ");
}

function listenModel() {
  const canvas = $("grid");
  $("sheet").addEventListener("scroll", () => state.view === "model" && drawModel());
  for (const [event, isWhole] of [["beforeprint", true], ["afterprint", false]])
    addEventListener(event, () => { grid.isWhole = isWhole; if (state.view === "model") drawModel(); });
  canvas.addEventListener("click", (event) => {
    const head = headAt(event);
    if (head === undefined) return;
    const several = event.ctrlKey || event.metaKey || event.shiftKey;
    if (isTouch() && head === currentHead()) return choose({ view: "map", of: "head" });
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
    showChosenHead();
    $("status").textContent = describeHead(currentHead());
  });
}
