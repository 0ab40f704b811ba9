"""Opens the gallery's pages, in the folder argv[1], in the browser argv[2], as docs/gallery links to them, and checks
what docs/gallery says of them. Pictures go to the folder argv[3]. argv[4] is the file axe.min.js of axe-core, which
looks for faults that keep readers out."""

import base64
import json
import sys
from pathlib import Path

import numpy as np
import saccade

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests/page"), str(ROOT / "docs/site")]
import gallery  # noqa: E402
from browser import Browser  # noqa: E402
from checks import check, failures  # noqa: E402

FOLDER, PICTURES = Path(sys.argv[1]).resolve(), Path(sys.argv[3])
AXE = Path(sys.argv[4]).read_text(encoding="utf-8")
# The rows of the shown head: [queries, keys].
WEIGHTS = "(async () => { const m = await shownMatrix(); return [m.n, m.m, Array.from(m.weights)]; })()"


class Gallery:
    def __init__(self, browser):
        self.browser = browser

    def open(self, address):
        self.browser.open(f"file://{FOLDER}/{address}")
        if self.value("!!document.querySelector('.live')"):
            self.browser.wait("document.querySelector('.live').dataset.ready", 60)
        else:
            self.browser.wait("typeof data === 'object' && data.index && document.querySelector('main').innerText", 60)
            self.browser.wait("!data.index.model || document.documentElement.dataset.live === 'yes'", 60)
            self.value("showTour(-1)")
        self.browser.evaluate("new Promise((done) => setTimeout(done, 300))")

    def close(self, address):
        faults = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        problems = [each for each in self.browser.events if each.get("method") in faults]
        check(not problems, f"{address}: no errors in the console: {problems}")
        requests = {each.partition("#")[0] for each in self.browser.requests()}
        check(requests == {f"file://{FOLDER}/{gallery.name_of(address)}"}, f"{address}: nothing is fetched")

    def value(self, expression):
        return self.browser.evaluate(expression)

    def accessible(self, address):
        self.value(AXE + "; 0")
        faults = self.value(
            "axe.run().then(({ violations }) => violations"
            ".filter(({ impact }) => ['serious', 'critical'].includes(impact))"
            ".map(({ id, nodes }) => id + ': ' + nodes[0].html.slice(0, 100)))"
        )
        check(not faults, f"{address}: axe-core finds no serious fault: {faults}")

    def weights(self):
        rows, keys, values = self.value(WEIGHTS)
        return np.array(values).reshape(rows, keys)

    def show(self, **state):
        self.value(f"choose({json.dumps(state)})")
        self.value("new Promise((done) => setTimeout(done, 200))")

    def picture(self, name):
        shot = self.browser.call("Page.captureScreenshot", format="png")["data"]
        (PICTURES / f"{name}.png").write_bytes(base64.b64decode(shot))


def induction_head(page):
    induction = "part().statistics.map((each) => each[3])"
    check(
        page.value(f"{induction}[2]") > 0.9, "the last layer's first head is an induction head at the end of training"
    )
    steps = page.value("data.index.parts.length - 1")
    page.show(p=0)
    check(steps == 5 and page.value(f"{induction}[2]") < 0.2, "and was none at its beginning")
    page.show(p=steps)
    before = page.value("Math.max(...live.before.next)")
    page.show(l=1, h=0)
    page.value(
        "(() => { const list = $('live-edit'); list.value = 'zero'; list.dispatchEvent(new Event('change')); })()"
    )
    page.value("redraw()")
    best, after = page.value("[live.before.next.indexOf(Math.max(...live.before.next)), Array.from(live.now.next)]")
    check(
        best == 42 and before > 0.8 and after[best] < 0.5 * before,
        f"without it 42 falls from {before:.2f} to {after[best]:.2f}",
    )


def minilm(page):
    check(page.value("[part().layers, part().heads]") == [6, 12], "72 heads")
    page.value("(() => { const field = $('live-text'); field.focus(); field.select(); })()")
    page.browser.call("Input.insertText", text="Attention moves.")
    page.value("redraw()")
    check(
        page.value("part().queries.labels.slice(1, -1).join(' ')").lower() == "attention moves .",
        "follows another sentence",
    )
    moves = page.value(
        "(() => { const found = [];"
        " for (let layer = 0; layer < 6; ++layer) for (let head = 0; head < 12; ++head) {"
        " const { embedding } = runModel(live.sequence.tokens, [{ layer, head, by: 'zero' }]);"
        " found.push(1 - cosine(live.before.embedding, embedding)); } return found; })()"
    )
    check(np.median(moves) < 0.02, f"most heads hardly move the embedding: the median by {np.median(moves):.4f}")


def smollm2(page):
    tokens = page.value("part().queries.tokens")
    rows = page.weights()
    capitals = [tokens.index(city) for city in (" Paris", " Berlin", " Rome")]
    check(rows[-1, capitals].sum() > 0.6, f"L17H5 looks at what followed: {rows[-1, capitals].round(2)}")
    best = 1 + int(rows[-1, 1:].argmax())
    check(tokens[best] == " Berlin" and rows[-1, best] > 0.25, f"L17H5 looks at Berlin: {rows[-1, best]:.2f}")
    check(any(" Berlin" in each and "relevance" in each for each in page.value("part().maps")), "the answer is Berlin")


def two_models(page):
    differences = page.value("part().statistics.length")
    check(
        differences == 72 and np.abs(page.weights()).max() > 0.1,
        f"L5H4 differs by up to {np.abs(page.weights()).max():.2f}",
    )
    largest = []
    for layer in range(6):
        differences = []
        for head in range(12):
            page.value(f"choose({{ l: {layer}, h: {head} }})")
            differences.append(np.abs(page.weights()).mean())
        largest.append(np.mean(differences))
    check(
        largest[0] < 0.003 and (np.diff(largest) > 0).all(),
        f"the mean difference grows from layer to layer: {np.round(largest, 4)}",
    )
    page.show(l=0, h=2)
    check(np.abs(page.weights()).max() < 0.02, f"a head of the first layer by {np.abs(page.weights()).max():.4f}")


def speech(page):
    tokens, seconds = page.value("[part().queries.tokens, part().keys.seconds]")
    rows = page.weights()
    said = [i for i, token in enumerate(tokens) if token.strip().isalpha()]
    when = seconds * rows[said].argmax(axis=1)
    words = [tokens[i].strip() for i in said]
    check(words[:5] == ["And", "so", "my", "fellow", "Americans"], f"Whisper writes down what was said: {words}")
    check(
        (np.diff(when) > 0).all() and when[0] < 1 and when[-1] > 9.5,
        f"each word later than the one before: {when.round(1).tolist()}",
    )


def reaction(page):
    rows = page.weights()
    page.show(p=1, l=0, h=0)
    known = page.weights()
    atoms = np.flatnonzero(known.sum(axis=1))
    arrow = page.value("part().queries.tokens.indexOf('>>')")
    right = [known[atom, 1 + rows[atom, 1:arrow].argmax()] > 0 for atom in atoms]
    check(len(atoms) == 10 and all(right), f"the head finds the origin of {sum(right)} of {len(atoms)} atoms")


def convolution(page):
    for head in range(9):
        page.show(h=head)
        rows = page.weights().reshape(12, 12, 12, 12)
        down, right = head // 3 - 1, head % 3 - 1
        wanted = [(i + down, j + right) for i in range(1, 11) for j in range(1, 11)]
        found = [np.unravel_index(rows[i, j].argmax(), (12, 12)) for i in range(1, 11) for j in range(1, 11)]
        check(
            [tuple(map(int, each)) for each in found] == wanted, f"head {head} looks at the neighbor ({down}, {right})"
        )
    check(rows[11, 11].argmax() == 143, "and at the edge at the nearest patch")


def untrained_vit(page):
    (row,) = page.weights()[20:21, 1:].reshape(1, 12, 12)
    y, x = (np.mgrid[0:12, 0:12] + 0.5) / 6 - 1
    iris = np.hypot(x, y) < 0.45
    check(
        row[iris].mean() > 4 * row[~iris].mean(),
        f"{row[iris].mean() / row[~iris].mean():.1f} times as much on the iris",
    )


def masks(page):
    def slide(number, value):
        page.value(
            f"(() => {{ const s = document.querySelectorAll('.live input[type=range]')[{number}]; s.value = {value};"
            " s.dispatchEvent(new Event('input')); })()"
        )

    def table():
        cells = page.value(
            "[...document.querySelectorAll('.live-matrix tbody tr')].map((row) =>"
            " [...row.querySelectorAll('td')].map((cell) => cell.textContent))"
        )
        return np.array(cells, dtype=float)

    def native(edges=(0, 48), q=None, k=None, **options):
        """Distance, entropy and the least row sum of each head, by attention under a mask of the documents."""
        count = edges[-1]
        document = np.searchsorted(edges, np.arange(count), side="right")
        mask = document[:, None] == document
        if q is None:
            q = k = np.zeros((4, count, 16), np.float32)
        _, weights = saccade.attention(q, k, k, mask=mask, return_weights=True, **options)
        places, sums = np.arange(count), weights.sum(axis=-1)
        distance = (weights * np.abs(places[:, None] - places)).sum(axis=-1)
        entropy = -(weights * np.log(np.maximum(weights, 1e-30))).sum(axis=-1)
        return np.stack([distance.mean(axis=-1), entropy.mean(axis=-1), sums.min(axis=-1)], axis=1)

    def equal(what, **options):
        apart = np.abs(table()[:, 1:4] - native(**options)).max()
        check(apart <= 5.1e-4, f"{what}: distance, entropy and row sums are the native library's ({apart:.1e})")

    def solved():
        return page.value(
            "[...document.querySelectorAll('.live-exercises li')].map((each) => each.classList.contains('live-solved'))"
        )

    def printed():
        return page.value("document.querySelector('.live-code').textContent").splitlines()[-1]

    def drawn(count):
        """The random queries and keys, [heads, tokens, dim] each."""
        script = "(async () => { const g = new (await saccadeLibrary).TorchGenerator(123);"
        script += f" return [0, 1].map(() => Array.from(g.randn([{count}, 4, 16]).data)); }})()"
        return [np.array(each, np.float32).reshape(count, 4, 16).transpose(1, 0, 2) for each in page.value(script)]

    q, k = drawn(48)
    slide(6, 0.5)
    equal("softcap", q=q, k=k, causal="top_left", softcap=0.5)
    slide(2, 5)
    slide(5, 2)
    equal("dense", q=q, k=k, causal="top_left", softcap=0.5, window=(5, -1), sinks=np.full(4, 2.0))
    _, weights = eval(
        printed()[:-1] + ", return_weights=True)",
        {"saccade": saccade, "np": np, "q": q, "k": k, "v": k},
    )
    check(abs(weights.sum(-1).min() - table()[:, 3].min()) < 5.1e-4, f"the call that it prints: {printed()}")
    page.value(
        "[...document.querySelectorAll('.live button')].find((each) => each.textContent === 'Start again').click()"
    )
    slide(0, 50)
    slide(4, 3)
    equal("uneven documents", edges=(0, 17, 33, 50), **dict(zip("qk", drawn(50))), causal="top_left")
    page.value(
        "[...document.querySelectorAll('.live button')].find((each) => each.textContent === 'Start again').click()"
    )
    page.value("document.querySelector('.live input[value=alike]').click()")

    options = dict(causal="top_left")
    equal("causal", **options)
    slide(2, 3)
    equal("window", window=(3, -1), **options)
    check(solved()[0] and not solved()[1], "the first exercise is solved")
    page.value("document.querySelector('.live-canvas').focus()")
    page.browser.press("ArrowDown")
    told = "document.querySelector('.live-detail').textContent"
    check("token 1 gives token 0 the weight 0.5000" in page.value(told), "arrow keys read the weights")
    slide(2, 0)
    check("the weight 0.0000" in page.value(told), "and what was read follows a change")
    slide(2, -1)
    page.value("document.querySelectorAll('.live input[type=checkbox]')[1].click()")
    options["alibi_slopes"] = saccade.alibi_slopes(4)
    equal("ALiBi", **options)
    slide(1, 8)
    check(solved()[1], "the second exercise is solved with eight heads")
    slide(1, 4)
    slide(4, 3)
    options["edges"] = (0, 16, 32, 48)
    equal("documents", **options)
    slide(5, 1)
    options["sinks"] = np.ones(4, np.float32)
    equal("sink", **options)
    page.picture("masks")  # with more to see than at first
    check(solved() == [True] * 4, "all exercises are solved")
    code = printed()
    q = np.zeros((48, 4, 16), np.float32)
    o = eval(code, {"saccade": saccade, "np": np, "q": q, "k": q, "v": q + 1})
    check(abs(o.min() - table()[:, 3].min()) < 5.1e-4, f"the call that it prints runs and gives the same: {code}")


def walk_throughs(page):
    summaries = page.value("[...document.querySelectorAll('.live-summary')].map((each) => each.textContent)")
    check(summaries == ["36 of 36 as printed"] * 2 + ["18 of 18 as printed"], f"the author's numbers: {summaries}")


PAGES = {
    "induction-head": induction_head,
    "minilm": minilm,
    "smollm2": smollm2,
    "two-models": two_models,
    "speech": speech,
    "reaction": reaction,
    "convolution": convolution,
    "untrained-vit": untrained_vit,
    "masks": masks,
    "walk-throughs": walk_throughs,
}


def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    browser = Browser(sys.argv[2])
    page, count = Gallery(browser), 0
    try:
        for title, addresses, text in gallery.sections():
            print(title)
            check(
                f"](pictures/{picture_of(text)}.png)" in text and sentences_of(text) == 2, "a picture and two sentences"
            )
            for address in addresses:
                page.open(address)
                if address == addresses[0]:
                    page.picture(picture_of(text))
                    PAGES[picture_of(text)](page)
                page.accessible(address)
                page.close(address)
                count += 1
    finally:
        browser.close()
    print(f"{count} pages, {len(failures)} wrong")
    sys.exit(bool(failures))


def picture_of(text):
    return text.partition("](pictures/")[2].partition(".png")[0]


def sentences_of(text):
    """Of the paragraph below the picture."""
    paragraph = text.partition(".png)\n\n")[2].partition("\n\n")[0].strip().replace("et al.", "et al")
    return sum(paragraph.replace("\n", " ").count(end + " ") for end in ".?!") + 1


if __name__ == "__main__":
    main()
