#!/usr/bin/env python3
"""Usage: browser_test.py FIXTURE [CHROMIUM]

Opens pages of AttentionPage in a real browser, and checks what it shows: numbers, keys, names for screen readers,
hostile and damaged files, and how long it takes. FIXTURE is the program page_fixture."""

import base64
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

from browser import Browser

READY = "document.documentElement.dataset.ready === 'yes'"
FIXTURE = sys.argv[1]
folder = pathlib.Path(tempfile.mkdtemp())
failures = []


def check(condition, text):
    print(("  good  " if condition else "  WRONG ") + text)
    if not condition:
        failures.append(text)


def fixture(name, *arguments):
    out = folder / name
    subprocess.run([FIXTURE, *map(str, arguments), str(out)], check=True)
    return out.with_suffix(".html"), out.with_suffix(".npy")


def reference(path, shape, place):
    """One number of an .npy file."""
    index = 0
    for length, i in zip(shape, place):
        index = index * length + i
    with open(path, "rb") as file:
        file.seek(8)
        header = struct.unpack("<H", file.read(2))[0]
        file.seek(10 + header + 4 * index)
        return struct.unpack("<f", file.read(4))[0]


def open_page(browser, path, fragment=""):
    browser.open(path.as_uri() + fragment)
    browser.wait(READY)


def test_numbers(browser):
    for causal in ((), ("causal",)):
        page, numbers = fixture("numbers", 3, 4, 60, *causal)
        open_page(browser, page)
        check(browser.requests() == [page.as_uri()], f"nothing is fetched: {browser.requests()}")
        draw, worst = random.Random(5), 0.0
        for _ in range(500):
            layer, head, i, j = draw.randrange(3), draw.randrange(4), draw.randrange(60), draw.randrange(60)
            got = browser.evaluate(f"headWeights({layer * 4 + head}).then((w) => w[{i * 60 + j}])")
            wanted = reference(numbers, (3, 4, 60, 60), (layer, head, i, j))
            worst = max(worst, (abs(got - wanted) - 1.6e-5) / max(wanted, 1e-30))
        check(worst <= 0.022, f"500 numbers {'causal' if causal else 'not causal'} within 2.2 %: {worst:.4f}")


def test_keys(browser):
    page, _ = fixture("keys", 3, 4, 30, "causal")
    open_page(browser, page)
    # By the Tab key alone from the beginning of the page to the thumbnails.
    for _ in range(40):
        browser.press("Tab")
        if browser.evaluate("document.activeElement.id") == "grid":
            break
    check(browser.evaluate("document.activeElement.id") == "grid", "Tab reaches the thumbnails")
    browser.press("ArrowRight"), browser.press("ArrowDown")
    check(browser.evaluate("[state.l, state.h].join()") == "1,1", "arrows choose a head")
    browser.press("Enter")
    browser.wait("state.view === 'map' && !$('view-map').hidden")
    browser.evaluate("$('map').focus()")
    browser.press("ArrowDown"), browser.press("ArrowDown"), browser.press("ArrowRight")
    browser.wait("$('status').textContent.includes('→')")
    check("word" in browser.evaluate("$('status').textContent"), "arrows in the map say the cell")
    for view, element in (("text", "text"), ("lines", "lines"), ("model", "grid")):
        browser.evaluate(f"document.querySelector('[data-key=view{view}]').focus()")
        browser.press("Enter")
        browser.wait(f"state.view === '{view}' && $('{element}').getBoundingClientRect().height > 0")
        check(True, f"Enter opens {view}")
    browser.evaluate("choose({ view: 'text', q: [] })")
    browser.wait("$('text').children.length === 30")
    browser.evaluate("$('text').focus()")
    browser.press("ArrowRight"), browser.press("ArrowRight")
    browser.wait("$('detail').querySelectorAll('table').length === 2")
    check(browser.evaluate("state.q.join()") == "1", "arrows in the text choose a token, and a table lists its keys")
    address = browser.evaluate("location.hash")
    check("q=1" in address and "view=text" in address, f"the address holds the state: {address}")
    open_page(browser, page, "#view=map&l=2&h=3&q=4&k=2")
    check(
        browser.evaluate("[state.view, currentHead(), state.q, state.k].join()") == "map,11,4,2",
        "a link reopens a state",
    )


def test_names(browser):
    page, _ = fixture("names", 2, 2, 10)
    open_page(browser, page)
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    named = {(n["role"]["value"], n["name"]["value"]) for n in nodes if n.get("role") and n.get("name")}
    for view in ("Model", "Map", "Text", "Lines"):
        check(("tab", view) in named, f"screen readers find the tab {view}")
    check(any(role == "application" and "Arrow keys" in name for role, name in named), "thumbnails say their keys")
    check(any(role == "combobox" and name.startswith("Head") for role, name in named), "choices have names")


def test_looks(browser):
    page, _ = fixture("looks", 2, 2, 12)
    pictures = {}
    for scheme in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        open_page(browser, page)
        pictures[scheme] = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    check(pictures["light"] != pictures["dark"], f"light and dark: {pictures}")
    browser.call("Emulation.setEmulatedMedia", features=[])
    light = [browser.evaluate(f"colourOf({x / 20})") for x in range(21)]
    luminance = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in light]
    check(all(a > b for a, b in zip(luminance, luminance[1:])), "colours only get darker, so no hue is needed")
    for deficiency in ("protanopia", "deuteranopia", "tritanopia", "achromatopsia", "none"):
        browser.call("Emulation.setEmulatedVisionDeficiency", type=deficiency)
    pdf = base64.b64decode(browser.call("Page.printToPDF")["data"])
    check(pdf.startswith(b"%PDF") and len(pdf) > 5000, "it prints")


def test_hostile(browser):
    page, _ = fixture("hostile", 1, 2, 20, "hostile")
    open_page(browser, page, "#view=text")
    browser.wait("$('text').children.length === 20")
    check(browser.evaluate("document.title") == "fixture", "no token runs as a script")
    check(
        browser.evaluate("document.querySelectorAll('#text img, #text script').length") == 0,
        "no token becomes an element",
    )
    for view in ("map", "lines", "model"):
        browser.evaluate(f"choose({{ view: '{view}' }})")
    dialogs = [e for e in browser.events if e.get("method") == "Page.javascriptDialogOpening"]
    check(not dialogs and browser.requests() == [page.as_uri()], f"nothing opens: {browser.requests()}")


def test_damage(browser):
    page, _ = fixture("damage", 1, 2, 20)
    html = page.read_text()
    for part in ("index", "thumbnails", "head-0"):
        begin = html.index(f'id="{part}">') + len(part) + 6
        for kind, changed in (
            ("cut", html[:begin] + html[begin + 8 :]),
            ("changed", html[: begin + 20] + ("A" if html[begin + 20] != "A" else "B") + html[begin + 21 :]),
            ("missing", html.replace(f'id="{part}"', 'id="other"')),
        ):
            damaged = folder / f"{part}-{kind}.html"
            damaged.write_text(changed)
            browser.open(damaged.as_uri() + "#view=map")
            browser.wait(READY + " || $('status').textContent !== ''")
            text = browser.evaluate("$('status').textContent")
            check("could not be shown" in text, f"{part} {kind}: {text!r}")


def test_frames(browser):
    page, _ = fixture("frames", 2, 2, 10)
    inner = page.read_text().replace("&", "&amp;").replace('"', "&quot;")
    host = folder / "host.html"
    host.write_text(f'<!DOCTYPE html><iframe srcdoc="{inner}"></iframe><iframe srcdoc="{inner}"></iframe>')
    browser.open(host.as_uri())
    browser.wait("[0, 1].every((i) => frames[i].document.documentElement.dataset.ready === 'yes')")
    check(True, "two pages within one, as in a notebook")
    requests = [r for r in browser.requests() if r != host.as_uri()]
    check(not requests, f"they fetch nothing: {requests}")


def test_size_and_time(browser):
    for layers, heads, tokens, most in ((12, 12, 128, 3), (12, 12, 512, 25), (48, 64, 256, 25)):
        page, numbers = fixture("size", layers, heads, tokens, "causal")
        numbers.unlink()
        size = page.stat().st_size / 1e6
        check(size <= most, f"{layers} x {heads} heads, {tokens} tokens: {size:.2f} MB, at most {most}")
        open_page(browser, page)
        paint = browser.evaluate("performance.getEntriesByType('paint').map((e) => e.startTime).sort()[0]")
        ready = browser.evaluate("performance.timing.domContentLoadedEventEnd - performance.timing.navigationStart")
        print(f"        first paint {paint:.0f} ms, loaded {ready} ms")
        for action in ("{ l: 3, h: 5 }", "{ view: 'map' }", "{ q: [7] }", "{ view: 'text' }", "{ q: [9] }"):
            browser.evaluate("shownMatrix()")
            change = f"Object.assign(state, {action}); await draw();"
            spent = browser.evaluate(
                f"(async () => {{ const t = performance.now(); {change} return performance.now() - t; }})()"
            )
            print(f"        {action}: {spent:.0f} ms")


def main():
    program = sys.argv[2] if len(sys.argv) > 2 else "chromium"
    for test in (
        test_numbers,
        test_keys,
        test_names,
        test_looks,
        test_hostile,
        test_damage,
        test_frames,
        test_size_and_time,
    ):
        print(test.__name__)
        browser = Browser(program)
        try:
            test(browser)
        finally:
            browser.close()
    print(f"{len(failures)} wrong" if failures else "all good")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
