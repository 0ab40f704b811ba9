// Six steps through the page: on the first visit, and whenever the reader asks.
const STEPS = [
  { at: "lead", view: "model", texts: ["The page opens on the head with the clearest pattern, and says in one sentence what this head does. The number is a mean over the tokens that it applies to: for induction, those that occurred exactly once before.", "本页打开时显示模式最清楚的头，并用一句话说明它做什么。数字是相关词的平均；归纳只计此前恰好出现过一次的词。"] },
  { at: "sheet", view: "model", texts: ["Every square is a head: a row for each token that looks, a column for each that is looked at. Darker is more, on a dark page brighter. Click a square to see it beside; double-click opens it.", "每个方格是一个头：每行是一个在看的词，每列是一个被看的词。颜色越深权重越大（黑暗模式下越亮）。单击在旁边显示，双击打开。"] },
  { at: "detail", view: "model", texts: ["The same head in numbers. The last column names the head that has most of each: the induction head, the one that looks at the previous token, and so on. Click its name.", "同一个头的数字。最后一列是各项最大的头：归纳头、看前一个词的头等。单击其名称即可。"] },
  { at: "map", view: "map", texts: ["The map shows each weight. Point at a cell to read it, click to keep it, and open Arithmetic to see how it came about.", "矩阵显示每个权重。指向一格即可读出，单击选定，再打开“计算”看它如何得出。"] },
  { at: "text-queries", view: "text", choosesToken: true, texts: ["In the text a token is chosen: the shades show what it looks at, and the list gives the largest weights. Point at another one. Options turns the direction around.", "文本中选定了一个词：底色显示它看向什么，列表给出最大的权重。可指向另一个词。“选项”可反转方向。"] },
  { at: "options", view: "text", texts: ["Everything else is here: order, colors, threshold, files. Press ? for all shortcuts. Where such heads come from is told in the last chapter of saccade's tutorial, chapter 5 in docs/tutorial.", "其余都在这里：排序、颜色、阈值、保存。按 ? 列出所有快捷键。这些头从何而来，见 saccade 教程的最后一章：docs/tutorial 第 5 章。"] },
];
ui.tour = false;
const VISITED = "saccade-tour";

async function showTour(step) {
  const card = $("tour"), button = (text, to) => make("button", { type: "button", textContent: say(text), onclick: () => showTour(to) });
  for (const element of document.querySelectorAll(".toured")) element.classList.remove("toured");
  ui.tour = step >= 0 && step < STEPS.length, card.hidden = !ui.tour;
  if (!ui.tour) return remember();
  const { at, view, texts, choosesToken } = STEPS[step];
  if (choosesToken && state.q.length === 0) choose({ q: [chosenSequence().tokens.length - 1] });
  if (state.view !== view) choose({ view });
  await redraw();
  card.setAttribute("aria-label", say("tour"));
  card.replaceChildren(make("p", { textContent: inLanguage(texts) }), make("div", {}, make("span", { textContent: step + 1 + " / " + STEPS.length }),
    ...(step > 0 ? [button("back", step - 1)] : []), button(step + 1 < STEPS.length ? "next" : "done", step + 1), ...(step + 1 < STEPS.length ? [button("close", -1)] : [])));
  card.tabIndex = -1;
  $(at).classList.add("toured");
  $(at).scrollIntoView({ block: isNarrow() ? "start" : "nearest" });
  card.focus();
  place(card, $(at).getBoundingClientRect());
}
// Below what it speaks of, or above, or beside it, or else in its lower corner.
function place(card, box) {
  const { width, height } = card.getBoundingClientRect(), gap = 12, within = (x, most) => Math.max(gap, Math.min(x, most - gap));
  const below = box.bottom + gap, above = box.top - gap - height, beside = box.left - gap - width, fits = below + height < innerHeight || above > 0;
  card.style.left = within(fits || beside < gap ? box.left : beside, innerWidth - width) + "px";
  card.style.top = within(below + height < innerHeight ? below : fits ? above : box.bottom - height - gap, innerHeight - height) + "px";
}
function remember() {
  try {
    localStorage.setItem(VISITED, "yes");
  } catch {
    // A page within another one may have no memory.
  }
}
function showTourOnce() {
  try {
    if (self === top && !localStorage.getItem(VISITED)) showTour(0);
  } catch {
    // Without a memory every visit would be the first.
  }
}
