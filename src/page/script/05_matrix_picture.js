// A matrix as a picture: its cells, the labels of queries on the left and of keys below, and the names of both axes,
// as in the heat maps. A look says where: {sx, sy} pixels of a cell, {x, y} the position in the corner, and the frame.

function imageOf(matrix, weights, n, m, isHidden) {
  const canvas = make("canvas", { width: m, height: n }), context = canvas.getContext("2d"), image = context.createImageData(m, n);
  paint(image.data, weights, m, matrix.isSigned, isHidden);
  context.putImageData(image, 0, 0);
  return canvas;
}
const pictures = { key: "", image: null };
function imageOfMatrix(matrix) {
  const key = [shownKey, state.scale, state.min, isDark()].join();
  if (pictures.key !== key) pictures.image = imageOf(matrix, matrix.weights, matrix.n, matrix.m, matrix.isHidden), pictures.key = key;
  return pictures.image;
}

// The room that labels need, up to `most` pixels; of long sequences a sample of them is measured.
function frameOf(context, box, matrix, size, most) {
  context.font = fontOf(size);
  const widest = (labels) => labels.reduce((wide, label, i) => (i < 2000 ? Math.max(wide, context.measureText(clipped(label)).width) : wide), 0);
  const left = Math.ceil(Math.min(most, Math.max(28, widest(matrix.rowLabels))) + 12), below = Math.ceil(Math.min(most, Math.max(16, widest(matrix.columnLabels))) + 34);
  return { left, top: 26, right: box.width - 6, bottom: Math.max(60, box.height - below), size };
}
const MOST_CELL = 120;
// The whole matrix, with equal scales for queries that attend to themselves.
function fitted(matrix, frame, isSquare) {
  let sx = Math.max(1e-3, (frame.right - frame.left) / matrix.columns.length), sy = Math.max(1e-3, (frame.bottom - frame.top) / matrix.rows.length);
  if (isSquare) sx = sy = Math.min(sx, sy);
  return { sx: Math.min(sx, MOST_CELL), sy: Math.min(sy, MOST_CELL), x: 0, y: 0, frame };
}

// Where the labels and names of the axes stand: at the picture's end, if it ends before the frame does.
function edgesOf(matrix, { sx, sy, x, y, frame }) {
  return { right: Math.min(frame.right, frame.left + (matrix.columns.length - x) * sx), bottom: Math.min(frame.bottom, frame.top + (matrix.rows.length - y) * sy) };
}
function drawLabels(context, matrix, look) {
  const { sx, sy, x, y, frame } = look, { right, bottom } = edgesOf(matrix, look), font = (scale) => fontOf(Math.min(frame.size, Math.max(9, scale - 1)));
  context.fillStyle = inkOf("--ink");
  // At every row if they fit, or else at some.
  const stepY = Math.max(1, Math.ceil(11 / sy)), stepX = Math.max(1, Math.ceil(11 / sx));
  context.font = font(sy);
  context.textAlign = "right";
  for (let i = Math.ceil(Math.max(0, y) / stepY) * stepY; i < Math.min(matrix.rows.length, y + (bottom - frame.top) / sy); i += stepY)
    context.fillText(clipped(matrix.rowLabels[i]), frame.left - 7, frame.top + (i - y + 0.5) * sy + 4, frame.left - 9);
  context.font = font(sx);
  const labels = [];
  for (let j = Math.ceil(Math.max(0, x) / stepX) * stepX; j < Math.min(matrix.columns.length, x + (right - frame.left) / sx); j += stepX)
    labels.push([clipped(matrix.columnLabels[j]), frame.left + (j - x + 0.5) * sx]);
  const widest = labels.reduce((wide, [text]) => Math.max(wide, context.measureText(text).width), 0), room = sx * stepX;
  const turn = widest <= room - 6 ? 0 : room >= 18 ? -Math.PI / 4 : -Math.PI / 2;
  context.textAlign = turn === 0 ? "center" : "right";
  for (const [text, at] of labels) {
    context.save();
    context.translate(at, bottom + (turn === 0 ? 15 : 8));
    context.rotate(turn);
    context.fillText(text, 0, turn === 0 ? 0 : 4);
    context.restore();
  }
  return turn === 0 ? 20 : turn === -Math.PI / 4 ? 14 + 0.71 * (widest + 8) : 12 + widest;
}
function drawAxisNames(context, matrix, look, labelHeight) {
  const { frame } = look, { right, bottom } = edgesOf(matrix, look), query = say("queryAxis") + " ↓", key = say("keyAxis") + " →";
  context.fillStyle = inkOf("--quiet");
  context.font = fontOf(12);
  const fits = context.measureText(query).width <= frame.left - 8;
  context.textAlign = fits ? "right" : "left";
  context.fillText(query, fits ? frame.left - 7 : 2, frame.top - 10);
  const wide = context.measureText(key).width;
  context.textAlign = "left";
  context.fillText(key, Math.max(2, Math.min(frame.left + (right - frame.left - wide) / 2, frame.right - wide)), bottom + labelHeight + 12);
}
// A dot in each cell that the mask hides, if cells are large enough.
function drawDots(context, matrix, { sx, sy, x, y, frame }) {
  if (!matrix.isHidden || matrix.isPooled || Math.min(sx, sy) < 11) return;
  context.fillStyle = inkOf("--dot");
  context.beginPath();
  const last = (at, from, to, scale, count) => Math.min(count, Math.ceil(at + (to - from) / scale));
  for (let i = Math.max(0, Math.floor(y)); i < last(y, frame.top, frame.bottom, sy, matrix.rows.length); ++i)
    for (let j = Math.max(0, Math.floor(x)); j < last(x, frame.left, frame.right, sx, matrix.columns.length); ++j) {
      if (!matrix.isHidden(i, j)) continue;
      const cx = frame.left + (j - x + 0.5) * sx, cy = frame.top + (i - y + 0.5) * sy;
      context.moveTo(cx + 1.4, cy);
      context.arc(cx, cy, 1.4, 0, 2 * Math.PI);
    }
  context.fill();
}

// Draws all of it. tiles: exact regions with their images; q, k: the chosen row and column, or -1.
function drawMatrix(context, matrix, look, { tiles = [], q = -1, k = -1 } = {}) {
  const { sx, sy, x, y, frame } = look, rows = matrix.rows.length, columns = matrix.columns.length;
  const left = (j) => frame.left + (j - x) * sx, top = (i) => frame.top + (i - y) * sy;
  context.save();
  context.beginPath();
  context.rect(frame.left - 2, frame.top - 2, frame.right - frame.left + 4, frame.bottom - frame.top + 4);
  context.clip();
  context.fillStyle = inkOf("--nothing");
  context.fillRect(left(0), top(0), columns * sx, rows * sy);
  context.imageSmoothingEnabled = Math.min((sx * columns) / matrix.m, (sy * rows) / matrix.n) < 1;
  context.drawImage(imageOfMatrix(matrix), left(0), top(0), columns * sx, rows * sy);
  context.imageSmoothingEnabled = false;
  context.strokeStyle = inkOf("--accent");
  for (const { tile, image } of tiles) {
    context.drawImage(image, left(tile.j), top(tile.i), tile.m * sx, tile.n * sy);
    context.strokeRect(left(tile.j), top(tile.i), tile.m * sx, tile.n * sy);
  }
  drawDots(context, matrix, look);
  for (const [color, width] of [["--paper", 4], ["--accent", 2]]) {
    context.strokeStyle = inkOf(color), context.lineWidth = width;
    if (q >= 0) context.strokeRect(left(0), top(q), columns * sx, Math.max(sy, 2));
    if (k >= 0) context.strokeRect(left(k), top(0), Math.max(sx, 2), rows * sy);
  }
  context.restore();
  drawAxisNames(context, matrix, look, drawLabels(context, matrix, look));
}
// A context of a canvas that is this large on the page, in its pixels.
function sized(canvas, width, height) {
  const ratio = devicePixelRatio || 1, context = canvas.getContext("2d");
  canvas.width = width * ratio, canvas.height = height * ratio;
  context.scale(ratio, ratio);
  return context;
}
// Text in lines of a width.
function writeLines(context, text, x, y, width) {
  const lines = [];
  for (const word of text.split(" ")) {
    const line = lines.length > 0 ? lines[lines.length - 1] + " " + word : word;
    if (lines.length > 0 && context.measureText(line).width <= width) lines[lines.length - 1] = line;
    else lines.push(word);
  }
  lines.forEach((line, i) => context.fillText(line, x, y + 20 * i));
}
