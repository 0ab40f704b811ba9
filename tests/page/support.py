"""What the tests of pages share: pages by the program page_fixture, and the browser."""

import pathlib
import subprocess
import sys
import tempfile

READY = "document.documentElement.dataset.ready === 'yes'"
FIXTURE = sys.argv[1]
folder = pathlib.Path(tempfile.mkdtemp())


def fixture(name, *arguments):
    out = folder / name
    subprocess.run([FIXTURE, *map(str, arguments), str(out)], check=True)
    return out.with_suffix(".html"), out.with_suffix(".npy")


def open_page(browser, path, fragment="", tour=False):
    """Opens a page; on a first visit its tour is closed unless it is asked for."""
    browser.open(path.as_uri() + fragment)
    browser.wait(READY)
    if not tour:
        browser.evaluate("showTour(-1)")
