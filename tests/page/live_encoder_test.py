#!/usr/bin/env python3
"""Usage: live_encoder_test.py SACCADE CHROMIUM FOLDER

Works with a page that carries a real encoder, such as all-MiniLM-L6-v2 in FOLDER: its tokens are those of the package tokenizers, and
what it says without a head is what the command SACCADE says."""

import json
import pathlib
import subprocess
import sys
import tempfile

from browser import Browser
from checks import check, failures
from tokenizers import Tokenizer

SACCADE, CHROMIUM, MODEL = sys.argv[1:4]
TEXT = "The cat sat on the mat, because it was tired."
TEXTS = [
    "Attention is all you need.",
    "unbelievably antidisestablishmentarianism",
    "Çà et là: naïve café",
    "你好，世界 hello",
    "don't stop-it (now)!  e.g. 3.14",
    "ﬁne 𝔘nicode \u200bzero\u00adwidth",
    "ΑΒΓ ЖЗИ ß ẞ İ",
    "emoji 🙂 ok",
    "x" * 120,
    "tab\tnew\nline",
    "The [MASK] sat.[SEP]It was[PAD]tired [sep] [UNK]",
]
FOLDER = pathlib.Path(tempfile.mkdtemp())


def cosine_of(text, *changes):
    command = [SACCADE, "look", "--model", MODEL, "--text", text, "--json", "--ablate", *changes]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["cosine"]


def paint_words(browser):
    """A cell of merged words is painted for all pieces of both."""
    browser.evaluate("(setText('unbelievably antidisestablishmentarianism'), chooseHead(26), setPainting(true), choose({ words: 1 }), redraw())")
    groups = browser.evaluate("shownMatrix().then(({ rows }) => rows)")
    check([len(group) > 1 for group in groups] == [False, True, True, False], f"two words of several pieces: {groups}")
    spot = "(() => { const box = $('map').getBoundingClientRect(); return [box.left + map.frame.left + 2.5 * map.sx, box.top + map.frame.top + 1.5 * map.sy]; })()"
    browser.evaluate("$('map').scrollIntoView({ block: 'center' })")
    for paint in ("click", "space"):
        if paint == "click":
            browser.click(*browser.evaluate(spot))
        else:
            row, column = groups[2][0], groups[1][0]
            browser.evaluate(f"(choose({{ q: [{row}], k: {column} }}), $('map').focus())")
            browser.press(" ", code="Space")
        browser.evaluate("redraw()")
        rows, columns = (groups[1], groups[2]) if paint == "click" else (groups[2], groups[1])
        weights = browser.evaluate("Array.from(part().exact[26])")
        n = sum(map(len, groups))
        wanted = [1 / len(columns) if j in columns else 0 for j in range(n)]
        rows_equal = all(abs(weights[i * n + j] - wanted[j]) < 1e-6 for i in rows for j in range(n))
        check(rows_equal, f"a word is painted with all its pieces, by {paint}")
    check(browser.evaluate("shownMatrix().then(({ weights, m }) => weights[m + 2])") > 0.999, "and its cell has the whole weight")
    browser.evaluate("(setPainting(false), choose({ words: 0 }), redraw())")


def written(name, *options):
    """A page, and what the command says of it."""
    page = FOLDER / name
    command = [SACCADE, "look", "--model", MODEL, "--text", TEXT, "--live", *options, "-o", page]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr.strip()
    print(f"        {said}")
    return page, said


def start(browser, page):
    browser.open(page.as_uri())
    browser.wait("document.documentElement.dataset.live === 'yes'", 60)


def cosines(browser, rule, what):
    """Switches heads off on several texts, as the command does. Returns the milliseconds of each."""
    change = "(text, head, by) => { live.edits.clear(); if (by) live.edits.set(head, { by }); const begin = performance.now(); setText(text);"
    change += " return [cosine(live.before.embedding, live.now.embedding), performance.now() - begin, $('live-problem').textContent]; }"
    times, apart = [], []
    for text in (TEXT, TEXTS[0], TEXTS[3]):
        for head, name in ((5, "L0H5"), (26, "L2H2"), (71, "L5H11")):
            for by, more in (("zero", ()), ("mean", ("--mean",))):
                value, time, problem = browser.evaluate(f"({change})({json.dumps(text)}, {head}, '{by}')")
                apart.append(abs(value - cosine_of(text, name, *more)) if not problem else 1.0)
                times.append(time)
    check(max(apart) < rule, f"{what}: 18 cosines are within {max(apart):.1e} of the command's")
    return times


def end(browser, page):
    faults = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled")
    problems = [each for each in browser.events if each.get("method") in faults]
    check(not problems, f"no errors in the console: {problems}")
    check(browser.requests() == [page.as_uri()], "nothing is fetched")


def test_f16(browser):
    page, said = written("f16.html")
    check("the page carries the model and what runs it" in said, "the command says the size")
    start(browser, page)
    ours, first = browser.evaluate("[part().queries.tokens, data.index.parts[0].queries.tokens]")
    check(ours == first, f"the first text's tokens are those of the file: {ours}")
    tokenizer = Tokenizer.from_file(str(pathlib.Path(MODEL) / "tokenizer.json"))
    tokenizer.no_padding(), tokenizer.no_truncation()
    for text in TEXTS:
        tokens = browser.evaluate(f"sequenceOf({json.dumps(text)}).tokens")
        check(tokens == tokenizer.encode(text).ids, f"tokens of {text[:40]!r}")
    paint_words(browser)
    times = sorted(cosines(browser, 1e-4, "f16"))
    middle = times[len(times) // 2]
    check(middle < 1000, f"a new text to all heads, twice: {times[0]:.0f} ms (best), {middle:.0f} (median)")
    end(browser, page)
    return page.stat().st_size


def test_int8(browser, size_of_f16):
    page, _ = written("int8.html", "--live-weights", "int8")
    check(page.stat().st_size < 0.6 * size_of_f16, f"{page.stat().st_size / size_of_f16:.2f} of the size with f16")
    start(browser, page)
    note = browser.evaluate("$('live-note').textContent")
    check("Weights as int8, within 0.39 %" in note, f"the page says which weights it has: {note}")
    rows = browser.evaluate(
        "(() => { const { Tensor } = live.library, tensor = (data, shape) => new Tensor(data, shape);"
        " const found = dequantized({ a: tensor(Int8Array.of(1, -2, 3, 4, 5, -6), [2, 3]),"
        " 'a.scale': tensor(Float32Array.of(0.5, 2), [2, 1]), 'b.scale': tensor(Float32Array.of(7), [1]) });"
        " return [Object.keys(found), Array.from(found.a.data), Array.from(found['b.scale'].data)]; })()"
    )
    check(rows == [["a", "b.scale"], [0.5, -1, 1.5, 8, 10, -12], [7]], f"each row has its scale: {rows}")
    cosines(browser, 5e-3, "int8")
    end(browser, page)


def test_file(browser):
    page, said = written("file.html", "--live-weights", "file")
    check("the model but for its weights" in said and page.stat().st_size < 3e6, "the page has no weights")
    browser.open(page.as_uri())
    browser.wait("!!document.querySelector('#live-file')", 60)
    asked = browser.evaluate("document.querySelector('#live-file').labels[0].textContent")
    check("choose its file model.safetensors (" in asked, f"the page asks: {asked}")

    def choose(file):
        document = browser.call("DOM.getDocument")["root"]["nodeId"]
        node = browser.call("DOM.querySelector", nodeId=document, selector="#live-file")["nodeId"]
        browser.call("DOM.setFileInputFiles", nodeId=node, files=[str(file)])

    choose(pathlib.Path(MODEL).resolve() / "config.json")
    browser.wait("$('live-wrong').textContent")
    wrong = browser.evaluate("$('live-wrong').textContent")
    check("cannot be used: config.json has " in wrong and "the model's file has" in wrong, f"another file is refused: {wrong}")
    model = pathlib.Path(MODEL).resolve() / "model.safetensors"
    for name, damage in (
        ("zeros", lambda bytes: b"\0" * len(bytes)),
        ("damage", lambda bytes: bytes[:-4_000_000] + b"\xff" * 4_000_000),
    ):
        (FOLDER / name).write_bytes(damage(model.read_bytes()))
        for _ in range(2):
            choose(FOLDER / name)
            browser.wait("$('live-wrong').textContent.includes('not that of this page')", 60)
            browser.evaluate("$('live-wrong').textContent = ''")
        check(True, f"a file of the same size with {name} is refused, and can be chosen again")
    browser.evaluate("choose({ lang: 'zh' })")
    told = browser.evaluate("$('live').textContent")
    check("文件不会离开这台电脑" in told and "无法使用该文件" in told, f"question and refusal follow the language: {told}")
    browser.evaluate("choose({ lang: 'en' })")
    choose(model)
    browser.wait("document.documentElement.dataset.live === 'yes'", 60)
    check("Weights of the file that you chose." in browser.evaluate("$('live-note').textContent"), "it says whose weights")
    cosines(browser, 1e-5, "the model's own file")
    end(browser, page)


def main():
    browser = Browser(CHROMIUM)
    try:
        size = test_f16(browser)
        test_int8(browser, size)
        test_file(browser)
    finally:
        browser.close()
    if failures:
        sys.exit(f"{len(failures)} checks failed:\n  " + "\n  ".join(failures))


if __name__ == "__main__":
    main()
