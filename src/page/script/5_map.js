// One matrix, cell by cell.
const map = { scale: 0, x: 0, y: 0, image: null, key: "", size: 0 };
const MARGIN = { left: 110, top: 84 };

function imageOf(matrix) {
  const { n, weights } = matrix, key = [shownKey, state.scale, state.min].join();
  if (map.key === key) return map.image;
  const canvas = document.createElement("canvas"), context = canvas.getContext("2d");
  canvas.width = canvas.height = n;
  const image = context.createImageData(n, n);
  paint(image.data, weights);
  context.putImageData(image, 0, 0);
  map.key = key;
  return (map.image = canvas);
}

function fitMap(n) {
  const box = $("map").getBoundingClientRect();
  map.scale = Math.max(1e-3, Math.min((box.width - MARGIN.left - 8) / n, (box.height - MARGIN.top - 8) / n));
  map.x = map.y = 0;
  map.size = n;
}

async function drawMap() {
  const canvas = $("map"), box = canvas.getBoundingClientRect(), ratio = devicePixelRatio || 1, matrix = await shownMatrix();
  canvas.width = box.width * ratio, canvas.height = box.height * ratio;
  const context = canvas.getContext("2d"), ink = inkOf("--ink"), accent = inkOf("--accent");
  context.scale(ratio, ratio);
  context.fillStyle = ink;
  context.font = "14px system-ui, sans-serif";
  if (!matrix) return context.fillText(say("noWeights"), 16, 40);
  if (map.scale === 0 || map.size !== matrix.n) fitMap(matrix.n);
  const { scale } = map;
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, MARGIN.top, box.width, box.height);
  context.clip();
  context.imageSmoothingEnabled = scale < 1;
  context.drawImage(imageOf(matrix), MARGIN.left - map.x * scale, MARGIN.top - map.y * scale, matrix.n * scale, matrix.n * scale);
  const q = rowOfToken(matrix, state.q[0]), k = rowOfToken(matrix, state.k);
  context.strokeStyle = accent;
  context.lineWidth = 2;
  if (q >= 0) context.strokeRect(MARGIN.left - 2, MARGIN.top + (q - map.y) * scale, matrix.n * scale + 4, scale);
  if (k >= 0) context.strokeRect(MARGIN.left + (k - map.x) * scale, MARGIN.top - 2, scale, matrix.n * scale + 4);
  context.restore();
  context.fillStyle = ink;
  context.font = Math.min(13, Math.max(9, scale - 2)) + "px system-ui, sans-serif";
  // Labels, at every row if they fit, or else at some.
  const step = Math.max(1, Math.ceil(11 / scale)), end = (extent, from) => Math.min(matrix.n, Math.ceil(from + extent / scale));
  for (let i = Math.ceil(map.y / step) * step; i < end(box.height - MARGIN.top, map.y); i += step) {
    context.textAlign = "right";
    context.fillText(clipped(matrix.labels[i]), MARGIN.left - 6, MARGIN.top + (i - map.y + 0.5) * scale + 4, MARGIN.left - 10);
  }
  for (let j = Math.ceil(map.x / step) * step; j < end(box.width - MARGIN.left, map.x); j += step) {
    context.save();
    context.translate(MARGIN.left + (j - map.x + 0.5) * scale + 3, MARGIN.top - 6);
    context.rotate(-Math.PI / 3);
    context.textAlign = "left";
    context.fillText(clipped(matrix.labels[j]), 0, 0, MARGIN.top);
    context.restore();
  }
  canvas.setAttribute("aria-label", say("map") + ": " + sourceName() + ". " + say("mapKeys"));
}

const clipped = (text) => { const shown = visible(text); return shown.length > 14 ? shown.slice(0, 13) + "…" : shown; };
const rowOfToken = (matrix, token) => (token === undefined || token < 0 ? -1 : matrix.groups.findIndex((group) => group.includes(token)));
const sourceName = () => (state.of === "head" ? nameOf(currentHead()) : say(state.of) + (state.of === "allMean" ? "" : " " + state.l));

function cellAt(event, matrix) {
  const box = $("map").getBoundingClientRect();
  const j = Math.floor((event.clientX - box.left - MARGIN.left) / map.scale + map.x), i = Math.floor((event.clientY - box.top - MARGIN.top) / map.scale + map.y);
  return i >= 0 && j >= 0 && i < matrix.n && j < matrix.n ? [i, j] : null;
}
function describeCell(matrix, i, j) {
  const weight = matrix.weights[i * matrix.n + j];
  return visible(matrix.labels[i]) + " (" + i + ") → " + visible(matrix.labels[j]) + " (" + j + "): " + percent(weight) + " (" + weight.toPrecision(3) + ")";
}
function zoomMap(factor, atX, atY) {
  const x = map.x + atX / map.scale, y = map.y + atY / map.scale;
  map.scale = Math.min(80, Math.max(0.02, map.scale * factor));
  map.x = x - atX / map.scale, map.y = y - atY / map.scale;
  drawMap();
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
      map.x -= (event.clientX - drag.x) / map.scale, map.y -= (event.clientY - drag.y) / map.scale;
      drag = { x: event.clientX, y: event.clientY, moved: true };
      return drawMap();
    }
    const matrix = await shownMatrix(), cell = matrix && cellAt(event, matrix);
    if (cell) $("status").textContent = describeCell(matrix, ...cell);
  });
  canvas.addEventListener("pointerup", async (event) => {
    const wasDrag = drag && drag.moved, matrix = await shownMatrix();
    drag = null;
    const cell = !wasDrag && matrix && cellAt(event, matrix);
    if (cell) choose({ q: [matrix.groups[cell[0]][0]], k: matrix.groups[cell[1]][0] });
  });
  canvas.addEventListener("keydown", async (event) => {
    const matrix = await shownMatrix(), moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!matrix) return;
    if (event.key === "+" || event.key === "=") zoomMap(1.4, 0, 0);
    if (event.key === "-") zoomMap(1 / 1.4, 0, 0);
    if (event.key === "0") fitMap(matrix.n), drawMap();
    if (!(event.key in moves)) return;
    const [di, dj] = moves[event.key], clamp = (x) => Math.min(Math.max(x, 0), matrix.n - 1);
    const i = clamp(Math.max(rowOfToken(matrix, state.q[0]), 0) + di), j = clamp(Math.max(rowOfToken(matrix, state.k), 0) + dj);
    choose({ q: [matrix.groups[i][0]], k: matrix.groups[j][0] });
    $("status").textContent = describeCell(matrix, i, j);
  });
}
