"""How a page meets a reader: what it opens on, legends, keys, the tour, widths, contrast."""

import json

from checks import check
from support import fixture, open_page

VIEWS = ("model", "map", "text", "lines", "cell")
WIDTHS = {390: 844, 1024: 768, 1600: 1000}

# The contrast ratio of WCAG 2 of every text that is seen, by its style and the first opaque ground behind it.
LEAST_CONTRAST = """(() => {
  const numbers = (css) => css.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = numbers(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  let least = [99, ""];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim() !== "");
    if (!own || !element.checkVisibility() || element.matches("script, style, option, noscript")) continue;
    const style = getComputedStyle(element), ink = element.closest("svg") ? style.fill : style.color;
    const a = luminance(numbers(ink)), b = luminance(ground(element));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least[0]) least = [ratio, element.tagName + " " + element.textContent.slice(0, 30)];
  }
  return least;
})()"""


def resize(browser, width):
    browser.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=WIDTHS[width], deviceScaleFactor=1, mobile=width < 500
    )


def show(browser, changes):
    browser.evaluate(f"choose({json.dumps(changes)}), redraw()")


def test_opening(browser):
    page = fixture("telling", "telling")[0]
    open_page(browser, page)
    check(
        browser.evaluate("state.view + ' ' + nameOf(currentHead())") == "model L1H0", "it opens on the induction head"
    )
    value = browser.evaluate("part().statistics[2][MEASURES.indexOf('induction')].toFixed(2)")
    sentence = browser.evaluate("$('sentence').textContent")
    check(sentence == f"L1H0 looks back to what followed last time (induction {value})", sentence)
    check(browser.evaluate("$('preview').getBoundingClientRect().height > 150"), "beside it is the head's map")
    wanted = {0: "just before", 1: "rests on the first key", 3: "spreads its weight widely"}
    for head, words in wanted.items():
        browser.evaluate(f"chooseHead({head}), redraw()")
        sentence = browser.evaluate("$('sentence').textContent")
        check(words in sentence, sentence)
    browser.press("g")
    check(browser.evaluate("nameOf(currentHead())") == "L1H0", "g returns to the head that tells most")
    show(browser, {"lang": "zh"})
    check("归纳" in browser.evaluate("$('sentence').textContent"), "the sentence in Chinese")
    show(browser, {"lang": "en"})
    best = "[...$('detail').querySelectorAll('tbody tr')].map((r) => r.querySelector('button')?.textContent)"
    check(browser.evaluate(best)[:4] == ["L0H0", "L0H1", "L1H1", "L1H0"], "a table names the head with most of each")
    fill = browser.evaluate("[grid.width / $('sheet').clientWidth, grid.height / $('sheet').clientHeight]")
    check(0.9 < max(fill) <= 1, f"thumbnails fill the window: {fill}")


def test_legends(browser):
    page = fixture("telling", "telling")[0]
    open_page(browser, page)
    wanted = {view: ["%"] for view in VIEWS} | {"cell": ["adds to the score", "takes from the score"]}
    for view in ("model", "map"):
        wanted[view] += ["masked", "weight"]
    for view, words in wanted.items():
        show(browser, {"view": view})
        text = browser.evaluate("$('legend').textContent")
        check(all(word in text for word in words), f"the legend of {view}: {text!r}")
    show(browser, {"view": "map"})
    pixel = "[...$('map').getContext('2d').getImageData(x, y, 1, 1).data.slice(0, 3)]"
    at = "const x = map.frame.left + {} * map.sx, y = map.frame.top + {} * map.sy;"
    hidden, none = (
        browser.evaluate(f"(() => {{ {at.format(*place)} return {pixel}; }})()") for place in ((11.2, 1.2), (1.2, 11.2))
    )
    check(max(abs(a - b) for a, b in zip(hidden, none)) > 10, f"masked and near zero differ: {hidden}, {none}")
    said = browser.evaluate("shownMatrix().then((m) => describeCell(m, 1, 11))")
    check("mask" in said, said)
    names = browser.evaluate("$('map').getAttribute('aria-label')")
    check("query: who looks" in names and "key: at what" in names, f"the map names its axes: {names}")
    show(browser, {"view": "lines"})
    texts = browser.evaluate("[...$('lines').querySelectorAll('text.quiet')].map((t) => t.textContent)")
    check(texts == ["query: who looks", "key: at what"], f"so do lines: {texts}")
    show(browser, {"view": "model", "min": 0.12})
    check("below the threshold" in browser.evaluate("$('legend').textContent"), "a threshold is in the legend")
    check(browser.evaluate("$('panel').querySelector('output').textContent") == "12 %", "and shows its value")
    color = browser.evaluate("(state.min = 0, colorOf(shareOf(1 / 25)))")
    check(min(color) > 140, f"an even row of 25 keys stays pale: {color}")
    for view in VIEWS:
        show(browser, {"view": view})
        size = browser.evaluate("shownMatrix().then((m) => pictureToSave(m)).then((c) => [c.width, c.height])")
        check(min(size) > 300, f"{view} is saved as a picture: {size}")
    show(browser, {"view": "model"})
    title = "$('legend').querySelector('.scale > span').textContent"
    check(browser.evaluate(title) == "weight (square-root scale)", "the legend names the scale")
    show(browser, {"view": "model", "scale": "log"})
    check("0.1" in browser.evaluate("$('legend').textContent"), "the legend follows the scale")


def test_controls(browser):
    page = fixture("views", "views")[0]
    open_page(browser, page)
    for key, view in enumerate(VIEWS, 1):
        browser.press(str(key))
        browser.wait(f"state.view === '{view}' && !$('view-{view}').hidden")
    check(True, "1 to 5 open the views")
    without = browser.evaluate(
        "[...document.querySelectorAll(':is(#views, #tools, #controls, #panel) :is(button, select, input)')]"
        ".filter((e) => !e.title || !e.getAttribute('aria-keyshortcuts')).map((e) => e.textContent)"
    )
    check(without == ["Close"], f"all other controls have a tooltip and a key: {without}")
    keys = browser.evaluate("Object.values(KEYS).map(([key]) => key)")
    check(len(set(keys)) == len(keys), "no key is given twice")
    browser.press("?")
    listed = browser.evaluate("$('keys').open && [...$('keys').querySelectorAll('kbd')].map((k) => k.textContent)")
    check(listed and set(keys) <= set(listed), f"? lists all {len(keys)} keys")
    browser.evaluate("$('keys').close()")
    before = browser.evaluate("[state.l, state.h, state.dir, state.scale, state.words].join()")
    for key in "lhdcw":
        browser.press(key)
    after = browser.evaluate("[state.l, state.h, state.dir, state.scale, state.words].join()")
    check(all(a != b for a, b in zip(before.split(","), after.split(","))), f"keys act: {before}, {after}")
    for key in "LHD":
        browser.press(key)
    check(browser.evaluate("[state.l, state.h, state.dir].join()") == before[:8], "with Shift the other way")
    check(browser.evaluate("$('panel').hidden"), "the panel is closed at first")
    browser.press("o")
    check(browser.evaluate("!$('panel').hidden && $('panel').contains(document.activeElement)"), "o opens the panel")
    browser.press("/")
    browser.press("l"), browser.press("1")
    check(browser.evaluate("[state.find, state.view].join()") == "l1,cell", "letters in the field are text")
    browser.press("Escape", code="Escape")
    closed = "$('panel').hidden && document.activeElement.id === 'options'"
    check(browser.evaluate(closed), "Escape closes it, and the button has the focus again")
    show(browser, {"view": "map", "find": "", "b": 1})
    sentence = browser.evaluate("$('sentence').textContent")
    check("differs most where" in sentence and "points more in the" in sentence, f"two parts: {sentence}")
    caption = "[...$('detail').querySelectorAll('caption')].map((c) => c.textContent)"
    check("Heads that differ most" in browser.evaluate(caption), "and in which heads")


def test_tour(browser):
    page = fixture("telling", "telling")[0]
    open_page(browser, page, "#view=map", tour=True)
    check(browser.evaluate("$('tour').hidden"), "a link opens without a tour")
    browser.open("about:blank")
    open_page(browser, page, tour=True)
    seen = []
    while not browser.evaluate("$('tour').hidden") and len(seen) < 9:
        seen.append(browser.evaluate("$('tour').querySelector('p').textContent"))
        marked = browser.evaluate("document.querySelectorAll('.toured').length")
        inside = browser.evaluate(
            "(({ left, top, right, bottom }) => left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight)"
            "($('tour').getBoundingClientRect())"
        )
        check(marked == 1 and inside, f"step {len(seen)} is in the window and marks what it speaks of")
        next_button = "[...$('tour').querySelectorAll('button')].find((b) => /Next|Done/.test(b.textContent))"
        browser.evaluate(f"{next_button}.click(), new Promise((r) => setTimeout(r, 100))")
    check(len(seen) == 6, f"the first visit shows six steps: {len(seen)}")
    check("docs/tutorial" in seen[-1], "the last one names the tutorial")
    browser.open("about:blank")
    open_page(browser, page, tour=True)
    check(browser.evaluate("$('tour').hidden"), "the second visit does not")
    browser.press("q")
    browser.wait("!$('tour').hidden")
    browser.press("Escape", code="Escape")
    check(browser.evaluate("$('tour').hidden"), "q opens it again, Escape closes it")
    check(browser.requests() == [page.as_uri()], "and nothing is fetched")


def test_widths(browser):
    for name in ("telling", "views", "steps"):
        page, wide, wraps = fixture(name, name)[0], [], []
        for width in WIDTHS:
            resize(browser, width)
            open_page(browser, page)
            for view in VIEWS:
                browser.press("o")
                show(browser, {"view": view})
                if browser.evaluate("document.documentElement.scrollWidth > innerWidth"):
                    wide.append((width, view))
            boxes = "[...$(id).children].map((e) => e.getBoundingClientRect())"
            line = f"(boxes => Math.max(...boxes.map((b) => b.top)) < Math.min(...boxes.map((b) => b.bottom)))({boxes})"
            wrapped = browser.evaluate(f"['views', 'controls', 'tools'].filter((id) => !({line}))")
            if width >= 1024 and wrapped:
                wraps.append((width, wrapped))
        check(not wide, f"{name}: no view is wider than a window of {list(WIDTHS)}: {wide}")
        check(not wraps, f"{name}: controls stay on their line at 1024 pixels: {wraps}")
    browser.call("Emulation.clearDeviceMetricsOverride")


def test_touch(browser):
    page = fixture("telling", "telling")[0]
    open_page(browser, page)
    hint = browser.evaluate("$('hint').textContent")
    check("Double-click" in hint, f"with a mouse: {hint}")
    resize(browser, 390)
    browser.call("Emulation.setTouchEmulationEnabled", enabled=True)
    open_page(browser, page)
    for view in VIEWS[:4]:
        show(browser, {"view": view})
        hint = browser.evaluate("$('hint').textContent")
        check("Tap" in hint, f"without a mouse: {hint}")
    show(browser, {"view": "model", "l": 1, "h": 0})
    above = "$('preview').getBoundingClientRect().bottom <= $('sheet').getBoundingClientRect().top"
    check(browser.evaluate(above), "the head is shown above the thumbnails")
    place = "const { left, top } = $('grid').getBoundingClientRect(), [x, y] = cornerOf(grid.order.indexOf(1));"
    tap = "$('grid').dispatchEvent(new MouseEvent('click', { clientX: left + x + 5, clientY: top + y + 5 }))"
    for wanted in ("model L0H1", "map L0H1"):
        browser.evaluate(f"(() => {{ {place} {tap}; return redraw(); }})()")
        check(browser.evaluate("state.view + ' ' + nameOf(currentHead())") == wanted, f"a tap leads to {wanted}")
    browser.call("Emulation.setTouchEmulationEnabled", enabled=False)
    browser.call("Emulation.clearDeviceMetricsOverride")


def test_contrast(browser):
    page = fixture("views", "views")[0]
    open_page(browser, page)
    for theme in ("light", "dark"):
        worst = [99, ""]
        show(browser, {"theme": theme})
        browser.evaluate("showPanel(true), showTour(1)")
        for changes in [*({"view": view, "q": [3], "b": -1} for view in VIEWS), {"view": "text", "b": 1}]:
            show(browser, changes)
            worst = min(worst, browser.evaluate(LEAST_CONTRAST))
        browser.evaluate("showKeys()")
        worst = min(worst, browser.evaluate(LEAST_CONTRAST))
        browser.evaluate("$('keys').close(), showTour(-1)")
        check(worst[0] >= 4.5, f"{theme}: contrast of at least 4.5 everywhere: {worst}")
    luminance = [
        0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (browser.evaluate(f"colorOf({x / 20})") for x in range(21))
    ]
    check(all(a < b for a, b in zip(luminance, luminance[1:])), "on a dark page colors only get lighter")
    browser.press("m")
    check(browser.evaluate("state.theme") == "light", "m turns it around")


TESTS = (test_opening, test_legends, test_controls, test_tour, test_widths, test_touch, test_contrast)
