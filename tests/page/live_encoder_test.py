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
