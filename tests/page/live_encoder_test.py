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


def main():
    page = FOLDER / "live.html"
    written = subprocess.run(
        [SACCADE, "look", "--model", MODEL, "--text", TEXT, "--live", "-o", page],
        check=True,
        capture_output=True,
        text=True,
    )
    check("the page carries the model and what runs it" in written.stderr, written.stderr.strip())
    print(f"        {page.stat().st_size / 1e6:.1f} MB")
    browser = Browser(CHROMIUM)
    try:
        browser.open(page.as_uri())
        browser.wait("document.documentElement.dataset.live === 'yes'", 60)
        check(browser.requests() == [page.as_uri()], "nothing is fetched")
        ours, first = browser.evaluate("[part().queries.tokens, data.index.parts[0].queries.tokens]")
        check(ours == first, f"the first text's tokens are those of the file: {ours}")
        tokenizer = Tokenizer.from_file(str(pathlib.Path(MODEL) / "tokenizer.json"))
        tokenizer.no_padding(), tokenizer.no_truncation()
        for text in TEXTS:
            tokens = browser.evaluate(f"sequenceOf({json.dumps(text)}).tokens")
            check(tokens == tokenizer.encode(text).ids, f"tokens of {text[:40]!r}")
        paint_words(browser)
        change = "(text, head, by) => { live.edits.clear(); if (by) live.edits.set(head, { by }); const begin = performance.now(); setText(text);"
        change += " return [cosine(live.before.embedding, live.now.embedding), performance.now() - begin, $('live-problem').textContent]; }"
        times = []
        for text in (TEXT, TEXTS[0], TEXTS[3]):
            for head, name in ((5, "L0H5"), (26, "L2H2"), (71, "L5H11")):
                for by, more in (("zero", ()), ("mean", ("--mean",))):
                    value, time, problem = browser.evaluate(f"({change})({json.dumps(text)}, {head}, '{by}')")
                    native = cosine_of(text, name, *more)
                    check(
                        abs(value - native) < 1e-4 and not problem,
                        f"{name}, {by}: cosine {value:.6f}, native {native:.6f}",
                    )
                    times.append(time)
        check(
            sorted(times)[len(times) // 2] < 1000,
            f"a new text to all heads, twice: {min(times):.0f} ms (best), {sorted(times)[len(times) // 2]:.0f} (median)",
        )
        problems = [
            each
            for each in browser.events
            if each.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        ]
        check(not problems, f"no errors in the console: {problems}")
    finally:
        browser.close()
    if failures:
        sys.exit(f"{len(failures)} checks failed:\n  " + "\n  ".join(failures))


if __name__ == "__main__":
    main()
