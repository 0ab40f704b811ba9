// The sequences themselves: what the chosen tokens look at, or who looks at them, in the text, in the picture or along
// the sound. Of queries that attend to themselves there is one sequence, of others there are two.
let hovered = -1;
function hoverToken(token) {
  if (token === hovered) return;
  hovered = token;
  redraw();
}
const MOST_SPANS = 1000, SHOWN_SPANS = 400;  // of a longer text than that a stretch around the choice
const SIDES = ["queries", "keys"];

// The side whose tokens are chosen; the weights are drawn on the other, or on the only one.
const chosenSide = () => (part().isSquare ? "queries" : state.dir === "from" ? "queries" : "keys");
const paintedSide = () => (part().isSquare ? "queries" : state.dir === "from" ? "keys" : "queries");
const groupsOfSide = (matrix, side) => (matrix ? (side === "queries" ? matrix.rows : matrix.columns) : groupsOf(part()[side]));
const chosenTokens = () => (hovered >= 0 ? [hovered] : state.q);

async function drawText() {
  const matrix = await shownMatrix(), { places, reach } = matrix ? await reachOf(matrix, chosenTokens()) : { places: [], reach: null };
  // As a direct share of the largest: weights to many tokens are all small.
  const most = reach && state.scale === "linear" ? reach.reduce((most, weight) => Math.max(most, Math.abs(weight)), 1e-9) : 1;
  const shares = reach && places.length > 0 ? reach.map((weight) => shareOf(weight / most)) : null;
  for (const side of SIDES) {
    const box = $("text-" + side);
    box.hidden = side === "keys" && part().isSquare;
    if (box.hidden) continue;
    const sequence = part()[side], groups = groupsOfSide(matrix, side);
    const look = { side, sequence, groups, places: side === chosenSide() ? places : [], shares: side === paintedSide() ? shares : null, isSigned: state.b >= 0 };
    box.setAttribute("aria-label", say(part().isSquare ? "text" : side) + ": " + sourceName());
    box.dataset.title = part().isSquare ? "" : say(side === "queries" ? "queryAxis" : "keyAxis");
    (sequence.image ? paintImage : sequence.seconds > 0 ? paintSound : paintTokens)(box, look);
  }
  drawDetail(matrix);
}

// ---- Text: a span for each group ----

function paintTokens(box, look) {
  const { sequence, groups, places, shares } = look, wanted = state.find.toLowerCase();
  const count = groups.length <= MOST_SPANS ? groups.length : SHOWN_SPANS;
  const begin = Math.min(Math.max(0, (places[places.length - 1] ?? 0) - SHOWN_SPANS / 2), groups.length - count);
  const key = [state.p, begin, groups.length, state.words, state.special].join();
  if (box.dataset.key !== key) box.dataset.key = key, box.replaceChildren(...spansOf(look, begin, begin + count));
  const spans = box.querySelectorAll("span");
  for (let at = 0; at < spans.length; ++at) {
    const span = spans[at], share = shares ? shares[begin + at] : 0, isPainted = Math.abs(share) > 0.02, color = isPainted ? colorOf(share, look.isSigned) : null;
    span.style.background = color ? cssOf(color) : "";
    span.style.color = color ? inkOn(color) : "";
    span.classList.toggle("chosen", places.includes(begin + at));
    span.classList.toggle("found", wanted !== "" && span.textContent.toLowerCase().includes(wanted));
  }
}
function spansOf({ sequence, groups, side }, begin, end) {
  const shown = groups.slice(begin, end).flatMap((group) => {
    const span = document.createElement("span"), text = textOfGroup(sequence, group);
    span.textContent = text === "" ? "∅" : text.replace(/\n/g, "↵\n");
    span.dataset.token = group[0], span.dataset.side = side;
    if (sequence.special[group[0]]) span.className = "special";
    const gap = sequence.gaps.length > 0 ? sequence.gaps[group[0]] : "";
    return gap === "" ? [span] : [gap, span];
  });
  return [begin > 0 ? "… " : "", ...shown, end < groups.length ? " …" : ""];
}

// ---- A picture: shades over its patches ----

function canvasOf(box, key, width, height) {
  if (box.dataset.key !== key) box.dataset.key = key, box.replaceChildren(document.createElement("canvas"));
  const canvas = box.firstChild, ratio = devicePixelRatio || 1, context = canvas.getContext("2d");
  canvas.width = width * ratio, canvas.height = height * ratio;
  canvas.style.width = width + "px", canvas.style.height = height + "px";
  context.scale(ratio, ratio);
  return context;
}
async function pictureOf(sequence) {
  if (!sequence.picture) {
    sequence.picture = new Image();
    sequence.picture.src = sequence.image.source;
    await sequence.picture.decode();
  }
  return sequence.picture;
}
// Over a darkened picture more weight is brighter.
const DARKENED = [60, 60, 60];  // about a picture's mean
const overPicture = (share) => ({ color: share < 0 ? [255, 190, 120] : [190, 228, 255], opacity: Math.min(0.9, Math.abs(share)) });
const cssOver = ({ color, opacity }) => "rgb(" + color.join(" ") + " / " + opacity + ")";
const seenOver = ({ color, opacity }) => cssOf(color.map((c, d) => Math.round(c * opacity + DARKENED[d] * (1 - opacity))));
async function paintImage(box, { sequence, places, shares, side }) {
  const picture = await pictureOf(sequence), { rows, columns, first } = sequence.image, width = Math.min(448, box.clientWidth - 32), height = (width * rows) / columns;
  const context = canvasOf(box, "image" + state.p, width, height);
  context.drawImage(picture, 0, 0, width, height);
  const corner = (patch) => [((patch % columns) * width) / columns, (Math.floor(patch / columns) * height) / rows];
  for (let patch = 0; patch < rows * columns; ++patch) {
    const [x, y] = corner(patch), share = shares ? shares[patch + first] : 0;
    if (shares) context.fillStyle = "rgb(0 0 0 / 55%)", context.fillRect(x, y, width / columns + 0.5, height / rows + 0.5);
    if (Math.abs(share) > 0.02) {
      context.fillStyle = cssOver(overPicture(share));
      context.fillRect(x, y, width / columns + 0.5, height / rows + 0.5);
    }
  }
  for (const [color, wide] of [["#fff", 5], [inkOf("--accent"), 3]]) {
    context.strokeStyle = color, context.lineWidth = wide;
    for (const place of places) if (place >= first) context.strokeRect(...corner(place - first), width / columns, height / rows);
  }
  box.tokenAt = (x, y) => first + Math.floor((y / height) * rows) * columns + Math.floor((x / width) * columns);
  box.dataset.side = side;
}

// ---- Sound: weights along the time ----

function paintSound(box, { sequence, places, shares, side }) {
  const n = sequence.tokens.length, width = Math.max(240, box.clientWidth - 32), height = 110, base = height - 20;
  const context = canvasOf(box, "sound" + state.p, width, height);
  context.fillStyle = inkOf("--soft");
  context.fillRect(0, 0, width, base);
  for (let i = 0; shares && i < n; ++i) {
    const size = Math.abs(shares[i]) * base;
    context.fillStyle = inkOf(shares[i] < 0 ? "--less" : "--mark");
    context.fillRect((i * width) / n, base - size, Math.max(1, width / n), size);
  }
  context.fillStyle = inkOf("--ink");
  context.font = fontOf(11);
  const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60].find((s) => (s * width) / (n * sequence.seconds) > 40) || 300;
  for (let t = 0; t < n * sequence.seconds; t += step) context.fillText(+t.toFixed(1) + " s", (t * width) / (n * sequence.seconds), height - 4);
  context.strokeStyle = inkOf("--accent");
  context.lineWidth = 2;
  for (const place of places) context.strokeRect((place * width) / n, 0, Math.max(2, width / n), base);
  box.tokenAt = (x) => Math.min(n - 1, Math.floor((x / width) * n));
  box.dataset.side = side;
}

// The token under the pointer, and its side.
function tokenAt(event) {
  if (event.target.dataset.token) return { token: Number(event.target.dataset.token), side: event.target.dataset.side };
  if (event.target.tagName !== "CANVAS") return null;
  const box = event.target.parentElement, place = event.target.getBoundingClientRect(), token = box.tokenAt(event.clientX - place.left, event.clientY - place.top);
  return token >= 0 && token < part()[box.dataset.side].tokens.length ? { token, side: box.dataset.side } : null;
}
const directionOf = (side) => (part().isSquare ? state.dir : side === "queries" ? "from" : "to");

function listenText() {
  for (const side of SIDES) {
    const box = $("text-" + side);
    box.addEventListener("mousemove", (event) => {
      const found = tokenAt(event), token = found && found.side === chosenSide() ? found.token : -1;
      hoverToken(token);
    });
    box.addEventListener("mouseleave", () => hoverToken(-1));
    box.addEventListener("click", (event) => {
      const found = tokenAt(event);
      if (!found) return;
      const dir = directionOf(found.side), before = dir === state.dir ? state.q : [], several = event.ctrlKey || event.metaKey || event.shiftKey;
      const isOnly = before.length === 1 && before[0] === found.token;
      choose({ dir, k: -1, q: several ? toggled(before, found.token) : isOnly ? [] : [found.token] });
    });
    box.addEventListener("keydown", async (event) => {
      const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -10, ArrowDown: 10, Home: -1e9, End: 1e9 };
      if (!(event.key in moves)) return;
      event.preventDefault();
      const dir = directionOf(side), before = dir === state.dir ? state.q : [];
      const groups = groupsOfSide(await shownMatrix(), side), at = placeOf(groups, before[before.length - 1]);
      const next = Math.min(Math.max(at + moves[event.key], 0), groups.length - 1);
      choose({ dir, k: -1, q: event.shiftKey ? [...before, groups[next][0]] : [groups[next][0]] });
    });
  }
}
