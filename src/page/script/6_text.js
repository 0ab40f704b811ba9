// The text itself: what the chosen tokens look at, or who looks at them.
let hovered = -1;

// The weights of each group for the chosen rows, or for the columns of `dir` "to": their mean.
function rowOf(matrix, rows) {
  const { n, weights } = matrix, sum = new Float32Array(n);
  for (const row of rows)
    for (let j = 0; j < n; ++j) sum[j] += (state.dir === "from" ? weights[row * n + j] : weights[j * n + row]) / rows.length;
  return sum;
}
function chosenRows(matrix) {
  const tokens = hovered >= 0 ? [hovered] : state.q;
  return [...new Set(tokens.map((q) => rowOfToken(matrix, q)).filter((row) => row >= 0))];
}

async function drawText() {
  const box = $("text"), matrix = await shownMatrix();
  const groups = matrix ? matrix.groups : groupsOfTokens();
  if (box.dataset.groups !== String(groups.length) || box.children.length !== groups.length) {
    box.dataset.groups = groups.length;
    box.replaceChildren(...groups.flatMap((group) => {
      const span = document.createElement("span"), text = textOfGroup(group);
      span.textContent = text === "" ? "∅" : text.replace(/\n/g, "↵\n");
      span.dataset.token = group[0];
      if (data.index.special[group[0]]) span.className = "special";
      const gap = data.index.gaps.length > 0 ? data.index.gaps[group[0]] : "";
      return gap === "" ? [span] : [gap, span];
    }));
  }
  paintText(matrix);
}

function paintText(matrix) {
  const spans = $("text").children, rows = matrix ? chosenRows(matrix) : [];
  const row = rows.length > 0 ? rowOf(matrix, rows) : null, wanted = state.find.toLowerCase();
  // As a direct share of the largest: weights to many tokens are all small.
  const most = row && state.scale === "linear" ? Math.max(...row, 1e-9) : 1;
  for (let i = 0; i < spans.length; ++i) {
    const span = spans[i], share = row ? shareOf(row[i] / most) : 0, [r, g, b] = colourOf(share);
    span.style.background = share > 0.02 ? "rgb(" + r + " " + g + " " + b + ")" : "";
    span.style.color = share > 0.02 ? (share > 0.5 ? "#fff" : "#1b1f24") : "";
    span.classList.toggle("chosen", rows.includes(i));
    span.classList.toggle("found", wanted !== "" && span.textContent.toLowerCase().includes(wanted));
  }
  $("text").setAttribute("aria-label", say("text") + ": " + sourceName());
  drawDetail(matrix);
}

function listenText() {
  const box = $("text");
  box.addEventListener("mouseover", async (event) => {
    if (!event.target.dataset.token) return;
    hovered = Number(event.target.dataset.token);
    paintText(await shownMatrix());
  });
  box.addEventListener("mouseleave", async () => { hovered = -1; paintText(await shownMatrix()); });
  box.addEventListener("click", (event) => {
    if (!event.target.dataset.token) return;
    const token = Number(event.target.dataset.token), several = event.ctrlKey || event.metaKey || event.shiftKey;
    const isChosen = state.q.includes(token);
    choose({ q: several ? (isChosen ? state.q.filter((q) => q !== token) : [...state.q, token]) : isChosen && state.q.length === 1 ? [] : [token] });
  });
  box.addEventListener("keydown", async (event) => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -10, ArrowDown: 10, Home: -1e9, End: 1e9 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const groups = groupsOfTokens(), at = groups.findIndex((group) => group.includes(state.q[state.q.length - 1] ?? -1));
    const next = Math.min(Math.max(at + moves[event.key], 0), groups.length - 1);
    choose({ q: event.shiftKey ? [...state.q, groups[next][0]] : [groups[next][0]] });
  });
}
