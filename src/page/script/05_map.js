// One matrix, cell by cell. Positions count tokens, or words where these are merged, from the top left corner.
const map = { sx: 0, sy: 0, x: 0, y: 0, image: null, key: "", size: "" };
const MARGIN = { left: 110, top: 84 };

function imageOf(weights, n, m) {
  const canvas = document.createElement("canvas"), context = canvas.getContext("2d");
  canvas.width = m, canvas.height = n;
  const image = context.createImageData(m, n);
  paint(image.data, weights);
  context.putImageData(image, 0, 0);
  return canvas;
}
function imageOfMap(matrix) {
  const key = [shownKey, state.scale, state.min].join();
  if (map.key !== key) map.image = imageOf(matrix.weights, matrix.n, matrix.m), map.key = key;
  return map.image;
}

// Equal scales for queries that attend to themselves.
function fitMap(matrix) {
  const box = $("map").getBoundingClientRect();
  map.sx = Math.max(1e-3, (box.width - MARGIN.left - 8) / matrix.columns.length), map.sy = Math.max(1e-3, (box.height - MARGIN.top - 8) / matrix.rows.length);
  if (part().isSquare) map.sx = map.sy = Math.min(map.sx, map.sy);
  map.x = map.y = 0;
  map.size = matrix.rows.length + "," + matrix.columns.length;
}

// Exact regions of the head, of a sequence that is too long for all of it.
const tilesOf = (own, head) => own.tiles.map((tile, index) => ({ index, head: tile[0], i: tile[1], j: tile[2], n: tile[3], m: tile[4] })).filter((tile) => tile.head === head);
function tileWeights(tile) {
  const id = "tile-" + state.p + "-" + tile.index;
  return remembered(id, () => matrixOf(id, tile.n, tile.m, false));
}
const tileImages = () => Promise.all(tilesOf(part(), currentHead()).map(async (tile) => ({ tile, image: imageOf(await tileWeights(tile), tile.n, tile.m) })));

function drawLabels(context, box, matrix) {
  context.fillStyle = inkOf("--ink");
  const font = (scale) => { context.font = Math.min(13, Math.max(9, scale - 2)) + "px system-ui, sans-serif"; };
  // At every row if they fit, or else at some.
  const stepY = Math.max(1, Math.ceil(11 / map.sy)), stepX = Math.max(1, Math.ceil(11 / map.sx));
  font(map.sy);
  context.textAlign = "right";
  for (let i = Math.ceil(map.y / stepY) * stepY; i < Math.min(matrix.rows.length, map.y + (box.height - MARGIN.top) / map.sy); i += stepY)
    if (i >= 0) context.fillText(clipped(matrix.rowLabels[i]), MARGIN.left - 6, MARGIN.top + (i - map.y + 0.5) * map.sy + 4, MARGIN.left - 10);
  font(map.sx);
  context.textAlign = "left";
  for (let j = Math.ceil(map.x / stepX) * stepX; j < Math.min(matrix.columns.length, map.x + (box.width - MARGIN.left) / map.sx); j += stepX) {
    if (j < 0) continue;
    context.save();
    context.translate(MARGIN.left + (j - map.x + 0.5) * map.sx + 3, MARGIN.top - 6);
    context.rotate(-Math.PI / 3);
    context.fillText(clipped(matrix.columnLabels[j]), 0, 0, MARGIN.top);
    context.restore();
  }
}

async function drawMap() {
  const canvas = $("map"), box = canvas.getBoundingClientRect(), ratio = devicePixelRatio || 1, matrix = await shownMatrix();
  const tiles = matrix && matrix.isPooled ? await tileImages() : [];
  canvas.width = box.width * ratio, canvas.height = box.height * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = inkOf("--ink");
  context.font = "14px system-ui, sans-serif";
  canvas.setAttribute("aria-label", say("map") + ": " + sourceName() + ". " + say("mapKeys"));
  if (!matrix) return context.fillText(reasonOfNothing(), 16, 40, box.width - 32);
  const rows = matrix.rows.length, columns = matrix.columns.length;
  if (map.sx === 0 || map.size !== rows + "," + columns) fitMap(matrix);
  const { sx, sy } = map, left = (j) => MARGIN.left + (j - map.x) * sx, top = (i) => MARGIN.top + (i - map.y) * sy;
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, MARGIN.top, box.width, box.height);
  context.clip();
  context.imageSmoothingEnabled = Math.min(sx * columns / matrix.m, sy * rows / matrix.n) < 1;
  context.drawImage(imageOfMap(matrix), left(0), top(0), columns * sx, rows * sy);
  context.strokeStyle = inkOf("--accent");
  context.imageSmoothingEnabled = false;
  for (const { tile, image } of tiles) {
    context.drawImage(image, left(tile.j), top(tile.i), tile.m * sx, tile.n * sy);
    context.strokeRect(left(tile.j), top(tile.i), tile.m * sx, tile.n * sy);
  }
  const q = rowOfToken(matrix, chosenQuery()), k = columnOfToken(matrix, chosenKey());
  context.lineWidth = 2;
  if (q >= 0) context.strokeRect(MARGIN.left - 2, top(q), columns * sx + 4, sy);
  if (k >= 0) context.strokeRect(left(k), MARGIN.top - 2, sx, rows * sy + 4);
  context.restore();
  drawLabels(context, box, matrix);
}

// The query and the key that are chosen, whichever way the reader looks.
const chosenQuery = () => (state.dir === "from" ? state.q[0] ?? -1 : state.k);
const chosenKey = () => (state.dir === "from" ? state.k : state.q[0] ?? -1);
const choiceOf = (query, key) => (state.dir === "from" ? { q: [query], k: key } : { q: [key], k: query });
const reasonOfNothing = () => say(state.of === "head" ? "noWeights" : "noMap");

function cellAt(event, matrix) {
  const box = $("map").getBoundingClientRect();
  const j = Math.floor((event.clientX - box.left - MARGIN.left) / map.sx + map.x), i = Math.floor((event.clientY - box.top - MARGIN.top) / map.sy + map.y);
  return i >= 0 && j >= 0 && i < matrix.rows.length && j < matrix.columns.length ? [i, j] : null;
}
async function describeCell(matrix, i, j) {
  const name = visible(matrix.rowLabels[i]) + " (" + i + ") → " + visible(matrix.columnLabels[j]) + " (" + j + "): ";
  const exact = (weight) => percent(weight) + " (" + weight.toPrecision(3) + ")";
  if (!matrix.isPooled) return name + exact(matrix.weights[i * matrix.m + j]);
  const tile = tilesOf(part(), currentHead()).find((t) => i >= t.i && i < t.i + t.n && j >= t.j && j < t.j + t.m);
  if (tile) return name + exact((await tileWeights(tile))[(i - tile.i) * tile.m + j - tile.j]);
  const row = Math.floor(i * matrix.n / matrix.rows.length), column = Math.floor(j * matrix.m / matrix.columns.length);
  return name + "≤ " + exact(matrix.weights[row * matrix.m + column]);
}
function zoomMap(factor, atX, atY) {
  const x = map.x + atX / map.sx, y = map.y + atY / map.sy, within = (scale) => Math.min(80, Math.max(1e-3, scale * factor));
  map.sx = within(map.sx), map.sy = within(map.sy);
  map.x = x - atX / map.sx, map.y = y - atY / map.sy;
  redraw();
}

function listenMap() {
  const canvas = $("map");
  let drag = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoomMap(event.deltaY < 0 ? 1.2 : 1 / 1.2, event.clientX - box.left - MARGIN.left, event.clientY - box.top - MARGIN.top);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, y: event.clientY, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", async (event) => {
    if (drag && (drag.moved || Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > 4)) {
      map.x -= (event.clientX - drag.x) / map.sx, map.y -= (event.clientY - drag.y) / map.sy;
      drag = { x: event.clientX, y: event.clientY, moved: true };
      return redraw();
    }
    const matrix = await shownMatrix(), cell = matrix && cellAt(event, matrix);
    if (cell) $("status").textContent = await describeCell(matrix, ...cell);
  });
  canvas.addEventListener("pointerup", async (event) => {
    const wasDrag = drag && drag.moved, matrix = await shownMatrix();
    drag = null;
    const cell = !wasDrag && matrix && cellAt(event, matrix);
    if (cell) choose(choiceOf(matrix.rows[cell[0]][0], matrix.columns[cell[1]][0]));
  });
  canvas.addEventListener("dblclick", () => chosenKey() >= 0 && choose({ view: "cell" }));
  canvas.addEventListener("keydown", async (event) => {
    const matrix = await shownMatrix(), moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!matrix) return;
    if (event.key === "+" || event.key === "=") zoomMap(1.4, 0, 0);
    if (event.key === "-") zoomMap(1 / 1.4, 0, 0);
    if (event.key === "0") fitMap(matrix), redraw();
    if (event.key === "Enter") choose({ view: "cell" });
    if (!(event.key in moves)) return;
    const [di, dj] = moves[event.key], clamp = (x, most) => Math.min(Math.max(x, 0), most - 1);
    const i = clamp(Math.max(rowOfToken(matrix, chosenQuery()), 0) + di, matrix.rows.length), j = clamp(Math.max(columnOfToken(matrix, chosenKey()), 0) + dj, matrix.columns.length);
    choose(choiceOf(matrix.rows[i][0], matrix.columns[j][0]));
    $("status").textContent = await describeCell(matrix, i, j);
  });
  canvas.addEventListener("keydown", (event) => event.key.startsWith("Arrow") && event.preventDefault());
}
