// One matrix, cell by cell. Positions count tokens, or words where these are merged, from the top left corner.
const map = { sx: 0, sy: 0, x: 0, y: 0, frame: null, size: "" };

function fitMap(matrix) {
  const box = $("map").getBoundingClientRect();
  Object.assign(map, fitted(matrix, frameOf($("map").getContext("2d"), box, matrix, 13, Math.min(110, box.width / 4)), part().isSquare));
  map.size = matrix.rows.length + "," + matrix.columns.length;
  $("map").style.touchAction = "auto";  // fingers scroll the page, until there is something to move
}

// Exact regions of the head, of a sequence that is too long for all of it.
const tilesOf = (own, head) => own.tiles.map((tile, index) => ({ index, head: tile[0], i: tile[1], j: tile[2], n: tile[3], m: tile[4] })).filter((tile) => tile.head === head);
function tileWeights(tile) {
  const id = "tile-" + state.p + "-" + tile.index;
  return remembered(id, () => matrixOf(id, tile.n, tile.m, false));
}
const tileImages = () => Promise.all(tilesOf(part(), currentHead()).map(async (tile) => ({ tile, image: imageOf({}, await tileWeights(tile), tile.n, tile.m) })));

async function drawMap() {
  const canvas = $("map"), box = canvas.getBoundingClientRect(), matrix = await shownMatrix();
  const tiles = matrix && matrix.isPooled ? await tileImages() : [], context = sized(canvas, box.width, box.height);
  canvas.setAttribute("aria-label", say("map") + ": " + $("sentence").textContent + ". " + say("queryAxis") + ", " + say("keyAxis") + ". " + say("mapKeys"));
  context.fillStyle = inkOf("--ink");
  context.font = fontOf(14);
  if (!matrix) return writeLines(context, reasonOfNothing(), 4, 30, box.width - 8);
  if (map.sx === 0 || map.size !== matrix.rows.length + "," + matrix.columns.length) fitMap(matrix);
  drawMatrix(context, matrix, map, { tiles, q: rowOfToken(matrix, chosenQuery()), k: columnOfToken(matrix, chosenKey()) });
}

// The query and the key that are chosen, whichever way the reader looks.
const chosenQuery = () => (state.dir === "from" ? state.q[0] ?? -1 : state.k);
const chosenKey = () => (state.dir === "from" ? state.k : state.q[0] ?? -1);
const choiceOf = (query, key) => (state.dir === "from" ? { q: [query], k: key } : { q: [key], k: query });
const reasonOfNothing = () => say(state.of === "head" ? "noWeights" : "noMap");

function cellAt(event, matrix) {
  if (!map.frame) return null;
  const box = $("map").getBoundingClientRect();
  const j = Math.floor((event.clientX - box.left - map.frame.left) / map.sx + map.x), i = Math.floor((event.clientY - box.top - map.frame.top) / map.sy + map.y);
  return i >= 0 && j >= 0 && i < matrix.rows.length && j < matrix.columns.length ? [i, j] : null;
}
async function describeCell(matrix, i, j) {
  const name = visible(matrix.rowLabels[i]) + " (" + i + ") → " + visible(matrix.columnLabels[j]) + " (" + j + "): ";
  if (!matrix.isPooled && matrix.isHidden && matrix.isHidden(i, j)) return name + say("masked");
  if (!matrix.isPooled) return name + percent(matrix.weights[i * matrix.m + j]);
  const tile = tilesOf(part(), currentHead()).find((t) => i >= t.i && i < t.i + t.n && j >= t.j && j < t.j + t.m);
  if (tile) return name + percent((await tileWeights(tile))[(i - tile.i) * tile.m + j - tile.j]);
  const row = Math.floor(i * matrix.n / matrix.rows.length), column = Math.floor(j * matrix.m / matrix.columns.length);
  if (matrix.isHidden && matrix.isHidden(row, column)) return name + say("masked");
  return name + "≤ " + percent(matrix.weights[row * matrix.m + column]);
}
function zoomMap(factor, atX, atY) {
  const x = map.x + atX / map.sx, y = map.y + atY / map.sy, within = (scale) => Math.min(MOST_CELL, Math.max(1e-3, scale * factor));
  map.sx = within(map.sx), map.sy = within(map.sy);
  map.x = x - atX / map.sx, map.y = y - atY / map.sy;
  $("map").style.touchAction = "none";
  redraw();
}

function listenMap() {
  const canvas = $("map");
  let drag = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (!map.frame) return;
    const box = canvas.getBoundingClientRect();
    zoomMap(event.deltaY < 0 ? 1.2 : 1 / 1.2, event.clientX - box.left - map.frame.left, event.clientY - box.top - map.frame.top);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, y: event.clientY, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointercancel", () => { drag = null; });
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
    if (!cell) return;
    choose(choiceOf(matrix.rows[cell[0]][0], matrix.columns[cell[1]][0]));
    $("status").textContent = await describeCell(matrix, ...cell);
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
