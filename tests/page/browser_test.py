#!/usr/bin/env python3
"""Usage: browser_test.py FIXTURE [CHROMIUM]

Opens pages of AttentionPage in a real browser, and checks what it shows: numbers, keys, names for screen readers,
hostile and damaged files, how it meets a reader, and how long it takes. FIXTURE is the program page_fixture."""

import base64
import random
import struct
import sys

import design
from browser import Browser
from checks import check, failures
from support import READY, fixture, folder, open_page


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


def test_numbers(browser):
    for causal in ((), ("causal",)):
        page, numbers = fixture("numbers", 3, 4, 60, *causal)
        open_page(browser, page)
        check(browser.requests() == [page.as_uri()], f"nothing is fetched: {browser.requests()}")
        draw, worst = random.Random(5), 0.0
        for _ in range(500):
            layer, head, i, j = draw.randrange(3), draw.randrange(4), draw.randrange(60), draw.randrange(60)
            got = browser.evaluate(f"headWeights(0, {layer * 4 + head}).then((w) => w[{i * 60 + j}])")
            wanted = reference(numbers, (3, 4, 60, 60), (layer, head, i, j))
            worst = max(worst, (abs(got - wanted) - 1.6e-5) / max(wanted, 1e-30))
        check(worst <= 0.022, f"500 numbers {'causal' if causal else 'not causal'} within 2.2 %: {worst:.4f}")


def test_keys(browser):
    page, _ = fixture("keys", 3, 4, 30, "causal")
    open_page(browser, page)
    browser.evaluate("choose({ l: 0, h: 0 })")
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
    for view, element in (("text", "text-queries"), ("lines", "lines"), ("cell", "cell"), ("model", "grid")):
        browser.evaluate(f"document.querySelector('[data-key=view{view}]').focus()")
        browser.press("Enter")
        browser.wait(f"state.view === '{view}' && $('{element}').getBoundingClientRect().height > 0")
        check(True, f"Enter opens {view}")
    browser.evaluate("choose({ view: 'text', q: [] })")
    browser.wait("document.querySelectorAll('#text-queries span').length === 30")
    browser.evaluate("$('text-queries').focus()")
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
    open_page(browser, page, "#sort=none&scale=7&dir=up&l=99&q=1000&of=map3&view=no&lang=xx")
    check(
        browser.evaluate("[state.view, state.sort, state.scale, state.dir, state.l, state.of].join()")
        == "model,place,sqrt,from,2,head",
        "a link with choices that are none opens the page",
    )
    # Of a long list of heads the canvas shows what is in sight.
    browser.evaluate("choose({ sort: 'entropy', l: 0, h: 0 })")
    browser.evaluate("$('sheet').style.maxHeight = '150px'")
    browser.evaluate("$('sheet').style.width = '260px'")
    browser.evaluate("redraw()")
    last = browser.evaluate("grid.order[grid.order.length - 1]")
    browser.evaluate(f"chooseHead({last})")
    browser.evaluate("showChosenHead(), new Promise((r) => setTimeout(r, 100))")
    check(
        browser.evaluate("$('sheet').scrollTop > 100 && $('grid').clientHeight <= 150"),
        "the list moves to the chosen head",
    )
    x, y = browser.evaluate(
        "[$('grid').getBoundingClientRect().left + 60, $('grid').getBoundingClientRect().top + 100]"
    )
    wanted = browser.evaluate(f"headAt({{ clientX: {x}, clientY: {y} }})")
    browser.click(x, y)
    check(browser.evaluate("currentHead()") == wanted and wanted is not None, "a click chooses the head in sight")


def test_names(browser):
    page, _ = fixture("names", 2, 2, 10)
    open_page(browser, page)
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    named = {(n["role"]["value"], n["name"]["value"]) for n in nodes if n.get("role") and n.get("name")}
    for view in ("Model", "Map", "Text", "Lines", "Arithmetic"):
        check(("tab", view) in named, f"screen readers find the tab {view}")
    check(any(role == "application" and "Arrow keys" in name for role, name in named), "thumbnails say their keys")
    check(any(name == "Legend" for _, name in named), "and the legend")
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
    light = [browser.evaluate(f"colorOf({x / 20})") for x in range(21)]
    luminance = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in light]
    check(all(a > b for a, b in zip(luminance, luminance[1:])), "colors only get darker, so no hue is needed")
    for deficiency in ("protanopia", "deuteranopia", "tritanopia", "achromatopsia", "none"):
        browser.call("Emulation.setEmulatedVisionDeficiency", type=deficiency)
    pdf = base64.b64decode(browser.call("Page.printToPDF")["data"])
    check(pdf.startswith(b"%PDF") and len(pdf) > 5000, "it prints")


def test_hostile(browser):
    broken = "document.querySelectorAll('img[src=x], body script:not([type])').length"
    harmless, _ = fixture("harmless", 1, 2, 20)
    open_page(browser, harmless, "#view=text")
    browser.wait("document.querySelectorAll('#text-queries span').length === 20")
    scripts = browser.evaluate(broken)
    page, _ = fixture("hostile", 1, 2, 20, "hostile")
    open_page(browser, page, "#view=text")
    browser.wait("document.querySelectorAll('#text-queries span').length === 20")
    title = browser.evaluate("document.title")
    for view in ("text", "map", "lines", "cell", "model", "text"):
        browser.evaluate(f"choose({{ view: '{view}' }})")
        check(browser.evaluate(broken) == scripts, f"no token, title, name or map becomes an element: {view}")
    check(title.startswith("</title><script>"), f"a title is text: {title}")
    check(browser.evaluate("document.title") == title, "no token or title runs as a script")
    check(browser.evaluate("document.querySelectorAll('img[src=x]').length") == 0, "no picture is asked for")
    dialogs = [e for e in browser.events if e.get("method") == "Page.javascriptDialogOpening"]
    wanted = {harmless.as_uri(), page.as_uri()}
    check(not dialogs and set(browser.requests()) <= wanted, f"nothing opens: {browser.requests()}")
    # What ran nevertheless could send nothing: the page's policy refuses it.
    violated = """new Promise((end) => {
        addEventListener("securitypolicyviolation", (event) => end(event.effectiveDirective));
        setTimeout(() => end("nothing"), 5000);
        %s;
    })"""
    for action, directive in (
        ("fetch('data:,x').catch(() => {})", "connect-src"),
        ("new Image().src = 'x.png'", "img-src"),
    ):
        check(browser.evaluate(violated % action) == directive, f"the policy refuses {action}")


def test_damage(browser):
    page, _ = fixture("damage", 1, 2, 20)
    html = page.read_text()
    for part in ("index", "thumbnails-0-0", "head-0-0"):
        begin = html.index(f'id="{part}">') + len(part) + 6
        for kind, changed in (
            ("cut", html[:begin] + html[begin + 8 :]),
            ("changed", html[: begin + 20] + ("A" if html[begin + 20] != "A" else "B") + html[begin + 21 :]),
            ("missing", html.replace(f'id="{part}"', 'id="other"')),
        ):
            damaged = folder / f"{part}-{kind}.html"
            damaged.write_text(changed)
            browser.open(damaged.as_uri() + "#view=map&l=0&h=0")
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


def numbers_of(browser, expression):
    """The numbers of a typed array in the page."""
    return browser.evaluate(f"(async () => Array.from({expression}))()")


def test_views(browser):
    page = fixture("views", "views")[0]
    open_page(browser, page, "#view=map&l=1&h=0")
    # A head's arithmetic gives its weight.
    for query, key in ((0, 0), (3, 7), (9, 2)):
        steps = browser.evaluate(f"detailsOfHead(0, 2).then((d) => arithmeticOf(d, {query}, {key}).weight)")
        weight = browser.evaluate(f"headWeights(0, 2).then((w) => w[{query} * 10 + {key}])")
        check(abs(steps - weight) <= 0.023 * weight, f"the arithmetic of {query}, {key}: {steps:.4f} and {weight:.4f}")
    browser.evaluate("choose({ view: 'cell', q: [3], k: 7 })")
    browser.wait("$('cell').querySelectorAll('rect').length === 6")
    rows = browser.evaluate("[...$('cell').querySelectorAll('td.number')].map((td) => td.textContent)")
    exact, shown, share = map(float, rows[5:])
    check(0 < exact < 1 and 0 < share < 1, f"the cell is explained in a table: {rows}")
    stored = browser.evaluate("headWeights(0, 2).then((w) => [w[37], shareOfOutput(w, 2, 3, 7)])")
    check(
        abs(shown - stored[0]) <= 0.05 * stored[0], f"beside the weight is what the map shows: {shown}, {stored[0]:.4f}"
    )
    said = browser.evaluate("[0.8052, 0.0923, 0.00284, 1, -0.5, 0, 0.0995].map(percent)")
    check(said == ["81 %", "9.2 %", "0.28 %", "100 %", "−50 %", "0 %", "10 %"], f"weights have two digits: {said}")
    # Summaries.
    for of in ("layerMean", "layerMax", "allMean", "rollout", "map0"):
        browser.evaluate(f"choose({{ view: 'map', of: '{of}' }})")
        sums = browser.evaluate("shownMatrix().then((m) => [m.n, m.m, m.weights.reduce((a, b) => a + b, 0)])")
        wanted = {"layerMax": None, "map0": 5}.get(of, 10)
        check(sums[:2] == [10, 10] and (wanted is None or abs(sums[2] - wanted) < 0.3), f"{of}: {sums}")
    means = numbers_of(browser, "await meanOf(0, [0, 3], false)")
    browser.evaluate("choose({ of: 'chosen', set: [0, 3] })")
    shown = numbers_of(browser, "(await shownMatrix()).weights")
    check(shown == means, "the chosen heads' mean")
    browser.evaluate("choose({ of: 'head', norm: 1 })")
    shares = browser.evaluate("shownMatrix().then((m) => m.weights.subarray(30, 40).reduce((a, b) => a + b, 0))")
    of_output = browser.evaluate("shownMatrix().then((m) => m.weights[37])")
    check(
        abs(shares - 1) < 1e-3 and abs(of_output - stored[1]) < 1e-3 and abs(of_output - share) <= 0.05 * share,
        f"weights by values: {of_output:.4f}, {stored[1]:.4f}, {share}",
    )
    # One part against the other.
    browser.evaluate("choose({ norm: 0, b: 1 })")
    signed = numbers_of(browser, "(await shownMatrix()).weights")
    first, second = (numbers_of(browser, f"await headWeights({p}, 2)") for p in (0, 1))
    check(max(abs(s - (a - b)) for s, a, b in zip(signed, first, second)) < 1e-6, "first minus second")
    check(min(signed) < 0 < max(signed), "with both signs")
    for view in ("model", "text", "lines"):
        browser.evaluate(f"choose({{ view: '{view}' }})")
    # Words and hidden tokens.
    browser.evaluate("choose({ b: -1, words: 1 })")
    check(browser.evaluate("shownMatrix().then((m) => m.n)") == 5, "pieces of words are merged")
    browser.evaluate("choose({ words: 0, special: 1 })")
    check(browser.evaluate("shownMatrix().then((m) => m.n)") == 9, "special tokens are hidden")
    # Sound and a picture.
    browser.evaluate("choose({ special: 0, p: 2, view: 'text', q: [2], k: -1, dir: 'from' })")
    browser.wait("$('text-keys').querySelector('canvas') !== null")
    check(browser.evaluate("$('detail').textContent.includes(' s')"), "sound is in seconds")
    pick = "const b = $('text-keys').firstChild.getBoundingClientRect();"
    point = browser.evaluate(f"(() => {{ {pick} return [b.left + b.width / 2, b.top + 20]; }})()")
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, x=point[0], y=point[1], button="left", clickCount=1)
    browser.wait("state.dir === 'to'")
    check(browser.evaluate("state.q[0]") in (149, 150, 151), "a click chooses a time")
    browser.evaluate("choose({ p: 3, dir: 'from', q: [8], view: 'text' })")
    browser.wait("$('text-queries').querySelector('canvas') !== null")
    check(browser.evaluate("part().queries.labels[8]") == "1,2", "patches have rows and columns")
    check(
        browser.requests() == [page.as_uri()] or all(r.startswith("data:") for r in browser.requests()[1:]),
        "no network",
    )
    for view in ("map", "cell", "model"):
        browser.evaluate(f"choose({{ view: '{view}' }})")
    check(browser.evaluate("$('status').textContent").find("could not") < 0, "every view draws")


def test_steps(browser):
    page = fixture("steps", "steps")[0]
    open_page(browser, page)
    slider = "document.querySelector('#controls input[type=range]')"
    check(browser.evaluate(f"{slider}.max") == "2", "states of a model are along a slider")
    check(browser.evaluate("state.p") == 2, "the page opens on the last state")
    browser.evaluate(f"{slider}.focus()")
    browser.press("ArrowLeft")
    browser.wait("state.p === 1 && $('controls').querySelector('output').textContent === '100'")
    check(browser.evaluate(f"{slider}.getAttribute('aria-valuetext')") == "step 100", "it says where it is")
    check(browser.evaluate(f"{slider}.parentElement.textContent") == "Training step 100", "in training steps")


def test_long(browser):
    page = fixture("long", "long")[0]
    size = page.stat().st_size / 1e6
    check(size <= 25, f"one head of 100,000 tokens: {size:.2f} MB, at most 25")
    open_page(browser, page)
    print_times(browser)
    browser.evaluate("choose({ view: 'text', q: [80000] })")
    browser.wait("document.querySelectorAll('#text-queries span.chosen').length === 1")
    check(
        browser.evaluate("document.querySelector('#text-queries span.chosen').dataset.token") == "80000",
        "the text is there",
    )
    tops = browser.evaluate(
        "[...$('detail').querySelectorAll('table')[0].querySelectorAll('tbody tr')].map((r) => r.cells[1].textContent)"
    )
    check(tops[:2] == ["79999", "60000"], f"the largest keys of a token: {tops[:3]}")
    browser.evaluate("choose({ view: 'text', q: [60000], dir: 'to' })")
    browser.wait("$('detail').querySelectorAll('table').length === 2")
    tops = browser.evaluate(
        "[...$('detail').querySelectorAll('table')[0].querySelectorAll('tbody tr')].map((r) => r.cells[1].textContent)"
    )
    check("60001" in tops[:1] and "80000" in tops[:3], f"who looks at it: {tops[:3]}")
    browser.evaluate("choose({ view: 'map', dir: 'from', q: [50010], k: 49910 })")
    exact = browser.evaluate("shownMatrix().then((m) => describeCell(m, 50010, 49910))")
    pooled = browser.evaluate("shownMatrix().then((m) => describeCell(m, 10, 5))")
    check("≤" not in exact and "≤" in pooled, f"a tile is exact, a block is a bound: {exact!r}, {pooled!r}")
    interactions(browser, ("{ view: 'map' }", "{ q: [7] }", "{ view: 'text' }", "{ q: [90000] }"))


def print_times(browser):
    paint = browser.evaluate("performance.getEntriesByType('paint').map((e) => e.startTime).sort()[0]")
    ready = browser.evaluate("performance.timing.domContentLoadedEventEnd - performance.timing.navigationStart")
    print(f"        first paint {paint:.0f} ms, loaded {ready} ms")


def interactions(browser, actions):
    for action in actions:
        browser.evaluate("shownMatrix()")
        change = f"Object.assign(state, {action}); await draw();"
        spent = browser.evaluate(
            f"(async () => {{ const t = performance.now(); {change} return performance.now() - t; }})()"
        )
        print(f"        {action}: {spent:.0f} ms")


def test_size_and_time(browser):
    for layers, heads, tokens, most in ((12, 12, 128, 3), (12, 12, 512, 25), (48, 64, 256, 25)):
        page, numbers = fixture("size", layers, heads, tokens, "causal")
        numbers.unlink()
        size = page.stat().st_size / 1e6
        check(size <= most, f"{layers} x {heads} heads, {tokens} tokens: {size:.2f} MB, at most {most}")
        open_page(browser, page)
        print_times(browser)
        interactions(browser, ("{ l: 3, h: 5 }", "{ view: 'map' }", "{ q: [7] }", "{ view: 'text' }", "{ q: [9] }"))


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
        test_views,
        test_steps,
        test_long,
        *design.TESTS,
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
