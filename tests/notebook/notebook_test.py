#!/usr/bin/env python3
"""Usage: notebook_test.py CHROMIUM PICTURES

Opens a notebook with pages of saccade in JupyterLab and in Notebook, converts it by nbconvert, and shows its outputs
under the rules of VS Code and Colab. In each, every view of the pages is used, and what leaves the machine or fails is
noted. Writes pictures to the folder PICTURES."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import hosts
from checks import check, failures
from framed import FramedBrowser, wait
from server import HOSTILE, Server, environment, jupyter, write_notebook

folder = pathlib.Path(tempfile.mkdtemp())
COLORS = (
    "new Set(new Uint32Array({0}.getContext('2d').getImageData(0, 0, {0}.width, {0}.height).data.buffer)).size"
).format
DRAWN = {  # what each view shows once it is drawn
    "model": COLORS("$('grid')") + " > 8",
    "map": COLORS("$('map')") + " > 8",
    "text": "$('text-queries').querySelectorAll('span').length === part().queries.tokens.length",
    "lines": "$('lines').querySelectorAll('svg text').length >= 2 * part().queries.tokens.length",
    "cell": "$('cell').textContent.length > 20",
}


def use_page(page, text):
    """Every view of a page, and what reaches out of it: files, the address, dialogs, memory."""
    for view, drawn in DRAWN.items():
        page.evaluate(f"choose({{ view: '{view}', q: [3], k: 1 }})")
        page.wait(f"!$('view-{view}').hidden && {drawn}")
    page.evaluate("showKeys(), $('keys').open || complain('no dialog'), $('keys').close()")
    page.evaluate("showTour(0).then(() => showTour(-1))")
    page.evaluate("choose({ view: 'model' }), redraw()")
    said = page.evaluate("$('status').textContent")
    check("could not" not in said, f"{text}: all five views, shortcuts and tour {said}")


def saves(browser, page, text):
    """The files that a page saves."""
    files = pathlib.Path(tempfile.mkdtemp(dir=folder))
    options = {"behavior": "allow", "downloadPath": str(files)}
    browser.call("Browser.setDownloadBehavior", browser=True, **options)
    for kind, begins in (("csv", b',"'), ("png", b"\x89PNG"), ("svg", b"<svg")):
        page.evaluate(f"choose({{ view: 'map' }}), redraw().then(() => save('{kind}'))")

        def is_there(kind=kind, begins=begins):
            return any(file.read_bytes().startswith(begins) for file in files.glob("*." + kind))

        wait(is_there, f"{text}: it saves a file of {kind}", 20)
    check(len(list(files.iterdir())) == 3, f"{text}: it saves CSV, PNG and SVG")
    page.evaluate("choose({ view: 'model' }), redraw()")


def check_quiet(browser, text, own):
    """Nothing left the machine, and nothing failed but what Notebook's own scripts log."""
    away = [url for url in browser.requests() if not url.startswith(own)]
    check(not away, f"{text}: no request leaves the machine {away}")
    errors = [error for _, error in browser.errors() if "/static/notebook/" not in error]
    check(not errors, f"{text}: no errors in the console {errors}")


def is_dark(page):
    return page.evaluate("isDark() && getComputedStyle(document.body).backgroundColor === 'rgb(20, 23, 27)'")


def run_all(browser):
    wait(lambda: browser.documents() and browser.evaluate("Boolean(window.jupyterapp)"), "the application has started")
    kernel = "jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status"
    wait(lambda: browser.evaluate(kernel) == "idle", "the kernel has started")
    browser.evaluate("jupyterapp.commands.execute('notebook:run-all-cells').then(() => true)")


def frame_places(browser):
    """Where the frames of pages are in the window, by their titles."""
    return browser.evaluate(
        "Object.fromEntries([...document.querySelectorAll('iframe[srcdoc]')].map((f) => "
        "[f.title, Object.values(f.getBoundingClientRect().toJSON())]))"
    )


def test_application(browser, server, path, name, pictures):
    browser.open(server.address(path))
    run_all(browser)
    pages = browser.pages(2)
    for page in pages:
        use_page(page, name)
    saves(browser, pages[0], name)
    titles = sorted(page.evaluate("document.querySelector('h1').textContent") for page in pages)
    check(titles == sorted([HOSTILE, "a model"]), f"{name}: titles are as given")
    check(set(frame_places(browser)) == {HOSTILE, "a model"}, f"{name}: so are those of frames")
    notes = "[...document.querySelectorAll('iframe[srcdoc]')].every((f) => f.previousElementSibling.hidden)"
    check(browser.evaluate(notes), f"{name}: no sentence is above a page that is shown")
    check(browser.evaluate("document.title !== 'broken'"), f"{name}: no title runs as a script")
    check(not any(map(is_dark, pages)), f"{name}: pages are light")
    browser.picture(pictures / f"{name}_light.png")
    browser.evaluate("jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    wait(lambda: all(map(is_dark, browser.pages(2))), f"{name}: pages are dark")
    browser.picture(pictures / f"{name}_dark.png")
    click_tab(browser, name)
    browser.picture(pictures / f"{name}_map.png")
    browser.evaluate("jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' })")
    wait(lambda: not any(map(is_dark, browser.pages(2))), f"{name}: pages are light again")
    check(True, f"{name}: pages follow the theme")
    check_quiet(browser, name, f"http://127.0.0.1:{server.port}/")


def at_rest(value):
    """What value() is, once it stays so."""
    last = None
    while last != (last := value()):
        time.sleep(0.5)
    return last


def click_tab(browser, name):
    """A real click on the tab Map of the model's page."""
    page = next(p for p in browser.pages(2) if p.evaluate("document.querySelector('h1').textContent") == "a model")
    browser.evaluate("document.querySelector('iframe[title=\"a model\"]').scrollIntoView({ block: 'start' })")
    left, top = at_rest(lambda: frame_places(browser)["a model"][:2])
    box = "$('views').children[1].getBoundingClientRect()"
    x, y = page.evaluate(f"[{box}.left + {box}.width / 2, {box}.top + {box}.height / 2]")
    browser.click(left + x, top + y)
    page.wait("state.view === 'map' && !$('view-map').hidden && " + DRAWN["map"])
    check(True, f"{name}: a click opens the map")


def test_untrusted(browser, server, executed, pictures):
    """A notebook that someone else ran."""
    browser.open(server.address(f"lab/tree/{executed.name}"))
    shown = "document.querySelectorAll('.jp-RenderedHTML').length"
    wait(lambda: browser.documents() and browser.evaluate(shown) == 2, "the outputs are shown")
    check(browser.evaluate("!document.querySelector('iframe[srcdoc]')"), "untrusted: nothing runs")
    texts = browser.evaluate("[...document.querySelectorAll('.jp-RenderedHTML p')].map((p) => p.innerText)")
    said = "the heads are shown here when the cell is run, or in a trusted notebook."
    check(texts == [f"{title}: {said}" for title in ("a model", HOSTILE)], "untrusted: a sentence says why")
    browser.picture(pictures / "untrusted.png")
    browser.evaluate("void jupyterapp.commands.execute('notebook:trust')")
    wait(lambda: browser.evaluate("Boolean(document.querySelector('.jp-Dialog .jp-mod-accept'))"), "it asks")
    browser.evaluate("document.querySelector('.jp-Dialog .jp-mod-accept').click()")
    browser.pages(2)
    check(True, "untrusted: once trusted, the pages are shown")


def test_converted(browser, executed, pictures, settings):
    """A file of HTML that nbconvert made, from disk. Its own scripts would come from a network that is not there."""
    subprocess.run(
        jupyter("nbconvert", "--to", "html", executed), env=environment(settings), check=True, capture_output=True
    )
    converted = executed.with_suffix(".html")
    online = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    browser.call("Network.emulateNetworkConditions", **online)
    browser.open(converted.as_uri())
    pages = browser.pages(2)
    for page in pages:
        use_page(page, "nbconvert")
    own = {page.session for page in pages}
    errors = [error for session, error in browser.errors() if session in own]
    check(browser.session not in own and not errors, f"nbconvert: no errors in pages {errors}")
    check(converted.stat().st_size < 2_000_000, f"nbconvert: {converted.stat().st_size / 1e6:.1f} MB")
    browser.picture(pictures / "nbconvert.png")


def test_hosts(browser, executed, pictures):
    """The rules of VS Code and of Colab, on the output that the notebook has."""
    cells = json.loads(executed.read_text())["cells"]
    output = "".join(cells[2]["outputs"][0]["data"]["text/html"])
    for name in ("vscode", "colab"):
        host = hosts.write_host(folder, name, *getattr(hosts, name)(output))
        browser.open(host.as_uri())
        page = browser.pages(1)[0]
        use_page(page, name)
        saves(browser, page, name)
        wait(lambda page=page: is_dark(page), f"{name}: the page is dark as its host is")
        check(page.evaluate("document.querySelector('h1').textContent") == HOSTILE, f"{name}: the title is as given")
        check_quiet(browser, name, folder.as_uri())
        browser.picture(pictures / f"{name}.png")


def main():
    program, pictures = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(pictures, ignore_errors=True)
    notebooks, settings = folder / "notebooks", folder / "settings"
    notebooks.mkdir(), settings.mkdir()
    write_notebook(notebooks / "heads.ipynb")
    executed = notebooks / "executed.ipynb"
    command = jupyter("nbconvert", "--execute", "--to", "notebook", "--output", executed, notebooks / "heads.ipynb")
    subprocess.run(command, env=environment(settings), check=True)
    plain = [cell["outputs"][0]["data"]["text/plain"] for cell in json.loads(executed.read_text())["cells"][1:]]
    check("".join(plain[0]) == "<saccade.Page: a model; .save('x.html')>", f"terminals show {plain[0]}")
    server = Server(notebooks, settings)
    tests = (
        lambda browser: test_application(browser, server, "lab/tree/heads.ipynb", "lab", pictures),
        lambda browser: test_application(browser, server, "notebooks/heads.ipynb", "notebook", pictures),
        lambda browser: test_untrusted(browser, server, executed, pictures),
        lambda browser: test_converted(browser, executed, pictures, settings),
        lambda browser: test_hosts(browser, executed, pictures),
    )
    try:
        for test in tests:
            browser = FramedBrowser(program)
            try:
                test(browser)
            finally:
                browser.close()
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(failures)} wrong" if failures else "all good")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
