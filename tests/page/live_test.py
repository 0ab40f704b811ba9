#!/usr/bin/env python3
"""Usage: live_test.py SACCADE CHROMIUM [AXE]

Works with a page that carries its model, as `saccade look --live` writes it: types a text, switches heads off, paints, lets the
model go on, and compares what the page says with what the command SACCADE computes. AXE is the file axe.min.js of axe-core."""

import base64
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from browser import Browser
from checks import check, failures

SACCADE, AXE = sys.argv[1], pathlib.Path(sys.argv[3]).read_text(encoding="utf-8") if len(sys.argv) > 3 else None
FOLDER = pathlib.Path(tempfile.mkdtemp())
PICTURES = pathlib.Path("build/live-pictures")
TEXT = "5 17 99 3 42 66 8 5 17 99 3 42 66 8 5 17 99 3"
RULE = 2e-3  # of a loss: the page's weights are f16


def command(*arguments):
    return subprocess.run([SACCADE, *arguments], check=True, capture_output=True, text=True, cwd=FOLDER).stdout


def expected(text, *changes):
    """What the command says of a text, before and after."""
    return json.loads(command("look", "--model", "run", "--text", text, "--json", "--ablate", *changes))


class LivePage:
    def __init__(self, browser, name="live.html", fragment=""):
        self.browser, self.file = browser, FOLDER / name
        browser.open(self.file.as_uri() + fragment)
        browser.wait("document.documentElement.dataset.live === 'yes'")
        browser.evaluate("showTour(-1)")

    def do(self, script):
        self.browser.evaluate(script)
        self.browser.evaluate("redraw()")

    def type(self, text):
        self.browser.evaluate("(() => { const field = $('live-text'); field.focus(); field.select(); })()")
        self.browser.call("Input.insertText", text=text)
        self.browser.evaluate("redraw()")

    def choose(self, name, head=None):
        """Chooses what is done to a head from the list, as a reader does."""
        if head is not None:
            self.do(f"chooseHead({head})")
        self.do(
            f"(() => {{ const list = $('live-edit'); list.value = '{name}'; list.dispatchEvent(new Event('change')); }})()"
        )

    def click(self, selector):
        x, y = self.browser.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{ block: 'center' }});"
            " const box = e.getBoundingClientRect(); return [box.left + box.width / 2, box.top + box.height / 2]; })()"
        )
        self.browser.click(x, y)
        self.browser.evaluate("redraw()")

    def numbers(self):
        """Losses before and now, of all tokens and of repeated ones; and the likeliest next tokens, as the page shows them."""
        return self.browser.evaluate(
            "({ before: [live.before.loss, live.before.again], now: [live.now.loss, live.now.again],"
            " next: largestOf(Array.from(live.now.next), 3).map((token) => [token, live.now.next[token]]),"
            " shown: [...document.querySelectorAll('#live-results td.number')].map((cell) => cell.textContent) })"
        )

    def equals(self, native, what):
        found = self.numbers()
        for side, name in (("before", "before"), ("now", "after")):
            loss, again = native[name]["loss"], native[name]["repeated_loss"]
            check(
                abs(found[side][0] - loss) <= RULE * max(1, loss),
                f"{what}: loss {side} {found[side][0]:.4f}, native {loss:.4f}",
            )
            check(
                abs(found[side][1] - again) <= RULE * max(1, again),
                f"{what}: repeated loss {side} {found[side][1]:.4f}, native {again:.4f}",
            )
        best = native["after"]["next"][0]
        token, share = found["next"][0]
        close = abs(share - best["probability"]) <= RULE
        check(
            close and (token == int(best["token"]) or best["probability"] < 0.05),
            f"{what}: next {token} {share:.3f}, native {best['token']}{best['probability']:.3f}",
        )
        check(f"{found['now'][0]:.4f}" in found["shown"], f"{what}: the loss is in the table")

    def problem(self):
        return self.browser.evaluate("$('live-problem').textContent")


def test_numbers(browser):
    page = LivePage(browser)
    page.equals({"before": expected(TEXT, "L0H0")["before"], "after": expected(TEXT, "L0H0")["before"]}, "as it is")
    page.choose("zero", head=1)
    page.equals(expected(TEXT, "L0H1"), "L0H1 off")
    chips = browser.evaluate("[...document.querySelectorAll('.chip')].map((chip) => chip.textContent)")
    check(chips == ["L0H1: off ×"], f"what was changed is named: {chips}")
    page.choose("zero", head=2)
    page.equals(expected(TEXT, "L0H1,L1H0"), "L0H1 and L1H0 off")
    page.click(".chip")
    page.equals(expected(TEXT, "L1H0"), "L0H1 as it is again")
    page.choose("mean", head=2)
    page.equals(expected(TEXT, "L1H0", "--mean"), "the mean of L1H0")
    page.choose("asItIs", head=2)
    other = "1 2 3 4 5 6 1 2 3 4"
    page.type(other)
    native = expected(other, "L0H1")
    page.equals({"before": native["before"], "after": native["before"]}, "another text")
    page.choose("zero", head=1)
    page.equals(native, "another text without L0H1")
    check(browser.evaluate("part().queries.tokens.join(' ')") == other, "the views show the other text")


def test_patterns(browser):
    page = LivePage(browser)
    for name, measure in (("patternPrevious", "previous"), ("patternSelf", "self"), ("patternFirst", "first")):
        page.choose(name, head=3)
        value = browser.evaluate(f"statisticOf(part(), 3, '{measure}')")
        check(abs(value - 1) < 1e-6, f"{name}: the head's statistic is {value}")
    sentence = browser.evaluate("$('sentence').textContent")
    check("rests on the first key" in sentence, f"and its sentence follows: {sentence}")
    page.choose("patternEven", head=3)
    check(abs(browser.evaluate("part().exact[3][5 * 18 + 2]") - 1 / 6) < 1e-6, "even weights are even")
    page.choose("asItIs", head=3)
    page.choose("zero", head=1)
    without = browser.evaluate("live.now.loss")
    page.choose("patternHand", head=3)
    check(browser.evaluate("live.now.loss") == without, "a head on which nothing is painted is as it was, beside other changes")
    page.choose("asItIs", head=1)
    page.choose("asItIs", head=3)
    before = browser.evaluate("live.now.loss")

    page.click("#live-paint")
    check(
        browser.evaluate("state.view") == "map"
        and browser.evaluate("$('live-paint').getAttribute('aria-pressed')") == "true",
        "painting opens the map",
    )
    spot = "(() => {{ const box = $('map').getBoundingClientRect(); return [box.left + map.frame.left + ({j} + 0.5) * map.sx, box.top + map.frame.top + ({i} + 0.5) * map.sy]; }})()"
    browser.evaluate("$('map').scrollIntoView({ block: 'center' })")
    begin, end = browser.evaluate(spot.format(i=17, j=2)), browser.evaluate(spot.format(i=17, j=3))
    browser.call(
        "Input.dispatchMouseEvent", type="mousePressed", x=begin[0], y=begin[1], button="left", buttons=1, clickCount=1
    )
    browser.evaluate("redraw()")
    check(browser.evaluate("part().exact[3][17 * 18 + 2]") == 1, "a painted cell has the row's whole weight")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=end[0], y=end[1], button="left", buttons=1)
    browser.evaluate("redraw()")
    browser.call("Input.dispatchMouseEvent", type="mouseReleased", x=end[0], y=end[1], button="left", clickCount=1)
    row = browser.evaluate("Array.from(part().exact[3].slice(17 * 18, 18 * 18))")
    check(row[2] == 0.5 and row[3] == 0.5 and sum(row) == 1, f"two painted cells share it: {row}")
    untouched = browser.evaluate(
        "Math.max(...Array.from(part().exact[3].slice(0, 17 * 18), (w, i) => Math.abs(w - live.before.weights[1].data[18 * 18 + i])))"
    )
    check(untouched == 0, "other rows keep the model's weights")
    check(browser.evaluate("live.now.loss") != before, "and the model says something else")
    check(
        browser.evaluate("document.querySelector('.chip').textContent") == "L1H1: painted by hand ×",
        "painting is named",
    )
    page.type("5 17 99 3 42 66 8 5 17 99 3")
    sums = browser.evaluate("Array.from({ length: 11 }, (_, i) => Array.from(part().exact[3].slice(11 * i, 11 * i + 11)).reduce((a, b) => a + b))")
    check(page.problem() == "" and max(abs(each - 1) for each in sums) < 1e-5, "a shorter text leaves out what was painted beyond it")
    page.type(TEXT)
    page.do("choose({ q: [10], k: 4 }), $('map').focus()")
    browser.press(" ", code="Space")
    browser.evaluate("redraw()")
    check(browser.evaluate("part().exact[3][10 * 18 + 4]") == 1, "the space bar paints the chosen cell")


def test_text(browser):
    page = LivePage(browser)
    page.type("1 2 3")
    for key in " 4 5w":  # which are shortcuts elsewhere in the page
        browser.press(key, code="Space" if key == " " else None)
    browser.evaluate("redraw()")
    typed = browser.evaluate("[$('live-text').value, state.view]")
    check(typed == ["1 2 3 4 5w", "model"], f"keys in the field are letters, not shortcuts: {typed}")
    page.type("1 2 3 4 5 6 7 8 9 1 2 3")
    page.click("#live-next")
    check(
        browser.evaluate("$('live-text').value") == "1 2 3 4 5 6 7 8 9 1 2 3 4", "the model goes on as it went before"
    )
    page.click("#live-next")
    check(browser.evaluate("$('live-text').value").endswith(" 4 5"), "token by token")
    page.type("1 2 x")
    check(page.problem() == "This model's tokens are numbers from 0 to 127, not x.", f"no token: {page.problem()}")
    check(browser.evaluate("part().queries.tokens.length") == 14, "the page still shows the last text")
    page.type("1 2 128")
    check("not 128" in page.problem(), "no token of the vocabulary")
    page.type("")
    check(page.problem() == "The text has no token.", "an empty text")
    page.type(" ".join(["1"] * 200))
    check("this model reads" in page.problem(), f"a long text: {page.problem()}")
    page.type("7")
    check(page.problem() == "" and browser.evaluate("live.now.loss") == 0, "a single token has no loss")
    page.click("#live-first")
    check(browser.evaluate("$('live-text').value") == TEXT, "the first text comes back")
    page.choose("zero", head=1)
    page.do(f"choose({{ b: live.part - 1, view: 'map' }}), chooseHead(3)")
    check(
        " − step" in browser.evaluate("sourceName()") and browser.evaluate("shown.isSigned"),
        "the edited model is compared with a state of the file",
    )


    page.do("choose({ b: -1, view: 'cell' })")
    said = browser.evaluate("$('cell').textContent")
    check("--details" not in said and "the weights only" in said, f"the arithmetic says that there is none: {said}")
    check(
        browser.evaluate("$('controls').textContent").startswith("Training step your text"),
        "the reader's text is a stop of the slider of training steps",
    )
    page.do("choose({ p: 1 })")
    check(browser.evaluate("$('controls').querySelector('output').textContent") == "400", "which names the others")


def test_panel(browser):
    """The panel says what its tables show, in the page's language, and keeps the keyboard's place."""
    page = LivePage(browser)
    page.type("1 2 x")
    page.choose("zero", head=1)
    native = expected(TEXT, "L0H1")
    page.equals(native, "a head is switched off for the last text while another one cannot be read")
    check("not x" in page.problem(), "and the panel still says so")
    browser.evaluate("$('live-edit').focus()")
    page.do("choose({ lang: 'zh' })")
    told = browser.evaluate("[$('live-problem'), ...document.querySelectorAll('.chip, #live label:has(select) span')].map((each) => each.textContent)")
    check(told == ["该模型的词是 0 到 127 的整数，x 不是。", "L0H1：", "L0H1：关闭 ×"], f"all of it in Chinese: {told}")
    note = browser.evaluate("$('live-note').textContent")
    sentences = r"在本页算出，用时 [\d.]+ 毫秒。模型参数以 f16 保存，与原值之差不超过各矩阵最大值的 [\d.]+ %。"
    check(re.fullmatch(sentences, note), f"with its full stops: {note}")
    check(browser.evaluate("sourceName()").startswith("你的文本"), "and the part's name")
    check(browser.evaluate("document.activeElement.id") == "live-edit", "the keyboard stays in the list")
    page.do("choose({ lang: 'en' })")
    check("not x" in page.problem() and browser.evaluate("sourceName()").startswith("your text"), "and in English again")
    page.type("1，2，3、4")
    check(page.problem() == "" and browser.evaluate("live.sequence.tokens") == [1, 2, 3, 4], "commas may be Chinese ones")
    page.choose("mean", head=2)
    page.choose("zero", head=3)
    browser.evaluate("document.querySelectorAll('.chip')[1].focus()")
    browser.press("Enter")
    browser.evaluate("redraw()")
    check(browser.evaluate("document.activeElement.textContent") == "L1H1: off ×", "after a chip the next one has the focus")
    page.do("choose({ view: 'text' })")
    check(browser.evaluate("document.activeElement.textContent") == "L1H1: off ×", "and keeps it when the view changes")
    for _ in range(2):
        browser.evaluate("document.querySelector('.chip').focus()")
        browser.press("Enter")
        browser.evaluate("redraw()")
    check(browser.evaluate("document.activeElement.id") == "live-edit", "after the last chip the list has it")
    page.choose("zero", head=1)
    page.do("live.model.look = () => { throw new Error('out of memory'); }")
    page.choose("zero", head=2)
    chips = browser.evaluate("[...document.querySelectorAll('.chip')].map((chip) => chip.textContent)")
    listed = browser.evaluate("$('live-edit').value")
    check(
        page.problem() == "out of memory" and chips == ["L0H1: off ×"] and listed == "asItIs",
        f"what could not be computed is not named: {page.problem()}, {chips}, {listed}",
    )


def test_address(browser):
    def opened(fragment):
        browser.open("about:blank")
        LivePage(browser, fragment=fragment)
        browser.evaluate("redraw()")
        return browser.evaluate("[state.p - live.part, state.view, state.l, state.h, state.q]")

    check(opened("#view=map&p=5&l=1&h=1&q=3") == [0, "map", 1, 1, [3]], "an address leads to the reader's text")
    browser.evaluate("delete document.documentElement.dataset.live")
    browser.call("Page.reload")
    browser.wait("document.documentElement?.dataset.live === 'yes'")
    check(
        browser.evaluate("[state.p - live.part, state.view, state.l, state.h, state.q]") == [0, "map", 1, 1, [3]],
        "and so does loading the page again",
    )
    check(opened("#view=map&p=2&l=1")[:3] == [-3, "map", 1], "another one to a state of the file")
    check(opened("#view=lines&l=1")[:2] == [0, "lines"], "one without a part to the reader's text")
    browser.evaluate("choose({ p: 4 })")
    check(opened(browser.evaluate("location.hash"))[0] == -1, "and one of the last state to it")


def test_touch(browser):
    """Fingers scroll the page, except over a map in which there is something to move or to paint."""
    page = LivePage(browser)
    page.do("choose({ view: 'map' })")
    touch = "getComputedStyle($('map')).touchAction"
    check(browser.evaluate(touch) == "auto", "over a map that is seen whole")
    page.click("#live-paint")
    check(browser.evaluate(touch) == "none", "not while painting")
    page.click("#live-paint")
    check(browser.evaluate(touch) == "auto", "after painting")
    page.do("zoomMap(2, 0, 0)")
    check(browser.evaluate(touch) == "none", "not when it is zoomed")


def test_letters(browser):
    """A model of bytes goes on letter by letter, and names whole letters."""
    page = LivePage(browser, "letters.html")
    names = browser.evaluate("part().queries.tokens.join('')")
    check(names == "你··好··，··世··", f"bytes are named by their letters: {names}")
    page.click("#live-next")
    check(browser.evaluate("$('live-text').value") == "你好，世界", "the model goes on by a letter of three bytes")
    check(browser.evaluate("live.sequence.tokens.length") == 15, "which are three tokens")
    rows = browser.evaluate("[...document.querySelectorAll('#live-results table')[0].tBodies[0].rows].map((row) => row.cells[0].textContent)")
    check(rows[0] == "byte E3 of a letter" and not any("\ufffd" in row for row in rows), f"a byte is named as one: {rows}")
    page.click("#live-next")
    check(browser.evaluate("$('live-text').value") == "你好，世界。", "and so on")
    page.type("你" * 10 + "12")
    page.click("#live-next")
    check("this model reads 32" in page.problem(), f"a letter that has no room: {page.problem()}")
    LivePage(browser, "cut.html")
    text = browser.evaluate("$('live-text').value")
    check(text == "你" * 10, f"a text that the model's length cut within a letter is without it: {text}")


def test_page(browser):
    page = LivePage(browser)
    check(page.browser.requests() == [page.file.as_uri()], f"nothing is fetched: {browser.requests()}")
    size = page.file.stat().st_size
    check(size < 1_100_000, f"the file has {size} bytes")
    times = browser.evaluate(
        "(() => { const times = []; for (let i = 0; i < 30; ++i) { $('live-text').value = live.text = '5 17 99 3 42 66 8 5 17 99 3 42 66 8 5 17 99 ' + i;"
        " const begin = performance.now(); rerun(); times.push(performance.now() - begin); } return times.sort((a, b) => a - b); })()"
    )
    check(
        times[0] <= 100,
        f"an edit: both passes and what is shown of them take {times[0]:.1f} ms (best), {times[15]:.1f} (median)",
    )
    for view in ("model", "map", "text", "lines", "cell"):
        page.do(f"choose({{ view: '{view}' }})")
    problems = [
        each for each in browser.events if each.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled")
    ]
    check(not problems, f"no errors in the console: {problems}")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for language in ("en", "zh"):
        for scheme in ("light", "dark"):
            for width in (390, 1024, 1600):
                browser.call(
                    "Emulation.setDeviceMetricsOverride",
                    width=width,
                    height=900,
                    deviceScaleFactor=1,
                    mobile=width < 500,
                )
                browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                page = LivePage(browser, fragment=f"#lang={language}&p=5")
                page.choose("zero", head=1)
                wide, tall = browser.evaluate(
                    "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
                )
                check(wide <= width, f"{language}, {scheme}, {width} pixels: {wide} wide")
                clip = {"x": 0, "y": 0, "width": width, "height": tall, "scale": 1}
                shot = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)[
                    "data"
                ]
                (PICTURES / f"{language}_{scheme}_{width}.png").write_bytes(base64.b64decode(shot))
                if AXE and width == 1024:
                    browser.evaluate(AXE + "; 0")
                    found = browser.evaluate(
                        "axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] }).then((result) =>"
                        " result.violations.map((each) => [each.impact, each.id, each.nodes[0].html.slice(0, 160)]))"
                    )
                    check(
                        not [each for each in found if each[0] in ("serious", "critical")],
                        f"{language}, {scheme}: axe-core finds no serious fault {found or ''}",
                    )


def main():
    command("train", "--task", "induction", "--heatmaps-at", "0,400,800,1200,2000", "-o", "run")
    command("look", "--model", "run", "--text", TEXT, "--live", "-o", "live.html")
    (FOLDER / "letters.txt").write_text("你好，世界。" * 400, encoding="utf-8")
    sizes = ("--layers", "1", "--d-model", "32", "--context", "32", "--batch", "16", "--steps", "150")
    command("train", "--text", "letters.txt", *sizes, "-o", "letters")
    command("look", "--model", "letters", "--text", "你好，世", "--live", "-o", "letters.html")
    command("look", "--model", "letters", "--text", "你" * 11, "--live", "-o", "cut.html")
    browser = Browser(sys.argv[2])
    try:
        for test in (test_numbers, test_patterns, test_text, test_panel, test_address, test_touch, test_letters, test_page):
            print(test.__name__)
            test(browser)
    finally:
        browser.close()
    if failures:
        sys.exit(f"{len(failures)} checks failed:\n  " + "\n  ".join(failures))


if __name__ == "__main__":
    main()
