"""A page with an instrument, as a reader works with it: numbers are read where they stand, and everything else is done with the
mouse and the keyboard."""

from __future__ import annotations

import json
import pathlib
import sys

import numpy as np
from checks import check

FOLDER = pathlib.Path(sys.argv[1]).resolve()
NAMES = [
    "1-simple-self-attention",
    "2-query-key-value",
    "3-causal-mask-and-dropout",
    "4-several-heads",
    "5-to-the-engine",
]
# What the tests read in a page.
HELPERS = """
globalThis.number = (text) => text === 'NaN' ? NaN : text === '−∞' ? -Infinity : text === '∞' ? Infinity : Number(text.replace('−', '-'));
globalThis.captioned = (title) => [...document.querySelectorAll('.live-matrix')].filter((each) => each.caption.firstChild.textContent === title);
globalThis.numbersOf = (title, n) => [...captioned(title)[n].tBodies[0].rows].map((row) =>
  [...row.querySelectorAll('td')].map((cell) => number(cell.querySelector('input')?.value ?? cell.textContent)));
globalThis.named = (name) => document.querySelector(`[aria-label="${name}"]`) ??
  [...document.querySelectorAll('button, label')].find((each) => each.textContent.trim().startsWith(name));
globalThis.centre = (element) => { element.scrollIntoView({ block: 'center' }); const box = element.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2]; };
"""


class Chapter:
    """A page with an instrument."""

    def __init__(self, browser, number, language="en"):
        self.browser, self.number = browser, number
        self.file = FOLDER / f"{NAMES[number - 1]}.{language}.html"
        browser.open(self.file.as_uri())
        browser.wait("document.querySelector('.live').dataset.ready || document.querySelector('.live [role=alert]')")
        browser.evaluate(HELPERS)

    def numbers(self, title, n=0):
        """The numbers of the table with that caption."""
        rows = self.browser.evaluate(
            f"JSON.stringify(numbersOf({json.dumps(title)}, {n}).map((row) => row.map(String)))"
        )
        return np.array([[float(value.replace("Infinity", "inf")) for value in row] for row in json.loads(rows)])

    def summary(self, title, n=0):
        return self.browser.evaluate(
            f"captioned({json.dumps(title)})[{n}].caption.querySelector('.live-summary').textContent"
        )

    def equal(self, title, wanted, what, digits=4, n=0):
        shown = self.numbers(title, n)
        wanted = np.asarray(wanted, dtype=float)
        close = shown.shape == wanted.shape and np.allclose(
            shown, wanted, rtol=0, atol=0.5 * 10.0**-digits + 2e-6, equal_nan=True
        )
        apart = (
            np.nanmax(np.abs(shown - wanted)) if shown.shape == wanted.shape else f"{shown.shape} beside {wanted.shape}"
        )
        check(close, f"{what} ({apart:.1e})" if isinstance(apart, float) else f"{what}: {apart}")

    def printed(self, title, count, n=0):
        check(self.summary(title, n) == f"{count} of {count} as printed", f"{title}: {self.summary(title, n)}")

    def click(self, name):
        x, y = self.browser.evaluate(f"centre(named({json.dumps(name)}))")
        self.browser.click(x, y)

    def type(self, name, text):
        self.browser.evaluate(
            f"(() => {{ const field = named({json.dumps(name)}); const input = field.querySelector('input') ?? field; "
            "input.focus(); input.select(); })()"
        )
        self.browser.call("Input.insertText", text=text)

    def slide(self, name, key, times=1):
        """Presses a key on the slider that a label names."""
        self.browser.evaluate(f"named({json.dumps(name)}).querySelector('input').focus()")
        for _ in range(times):
            self.browser.press(key)

    def choose(self, name, value):
        self.browser.evaluate(
            f"(() => {{ const list = named({json.dumps(name)}).querySelector('select'); list.value = {json.dumps(str(value))}; "
            "list.dispatchEvent(new Event('input')); })()"
        )

    def mouse(self, kind, x, y):
        self.browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def drag(self, selector, dx, dy):
        x, y = self.browser.evaluate(f"centre(document.querySelector({json.dumps(selector)}))")
        self.mouse("mousePressed", x, y)
        for share in (0.5, 1.0):
            self.mouse("mouseMoved", x + share * dx, y + share * dy)
        self.mouse("mouseReleased", x + dx, y + dy)

    def cell(self, title, i, j, n=0):
        """Points at a cell and returns what is said about it."""
        x, y = self.browser.evaluate(
            f"centre(captioned({json.dumps(title)})[{n}].tBodies[0].rows[{i}].querySelectorAll('td')[{j}])"
        )
        self.browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return self.browser.evaluate("document.querySelector('.live-detail').textContent")

    def marks(self):
        return self.browser.evaluate(
            "[...document.querySelectorAll('.live-exercises li')].map((each) => each.classList.contains('live-solved'))"
        )

    def solved(self, number, what):
        check(self.marks()[number], f"exercise {number + 1} is solved: {what}")

    def unsolved(self):
        marks = self.marks()
        check(len(marks) == 4 and not any(marks), "four exercises, none of them solved at the start")

    def end(self):
        milliseconds = float(self.browser.evaluate("document.querySelector('.live').dataset.milliseconds"))
        problems = [
            each
            for each in self.browser.events
            if each.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        ]
        check(not problems, f"no errors in the console: {problems}")
        check(self.browser.requests() == [self.file.as_uri()], f"nothing is fetched: {self.browser.requests()}")
        check(
            self.browser.evaluate("document.querySelector('.live-problem').textContent") == "", "no error in the page"
        )
        print(f"        the last redraw took {milliseconds:.1f} ms")
