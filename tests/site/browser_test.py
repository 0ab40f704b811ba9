"""Opens the documentation site, argv[1], in the browser argv[2]: the homes, a search, and a function of each language.

Nothing may be asked for but files of the site. Pictures of what was seen go to the folder argv[3], if given.
"""

import base64
import sys
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parent.parent / "page"))
from browser import Browser  # noqa: E402

SITE = Path(sys.argv[1]).resolve()
PICTURES = Path(sys.argv[3]) if len(sys.argv) > 3 else None
PAGES = {  # what a reader must see in each
    "index": ("index.html", ["Two commands", "script/demo", "What it has"]),
    "home_in_chinese": ("README.zh-CN.html", ["注意力"]),
    "cpp": ("api/attention.h.html", ["attention(const TensorView", "AttentionOptions", "window_left"]),
    "c": ("api/c_api.h.html", ["saccade_attention(", "saccade_options_set_i64(", "saccade_status"]),
    "python": ("api/python/saccade/index.html", ["saccade.attention(", "return_lse"]),
    "command": ("command/run.html", ["saccade run", "--causal"]),
    "options": ("docs/options.html", ["window_left"]),
}


def main() -> None:
    browser = Browser(sys.argv[2])
    outside = []

    def visit(name: str, address: str) -> str:
        browser.open(f"file://{SITE}/{address}")
        if name == "search":
            browser.wait("document.querySelectorAll('#search-results ul.search li').length > 3")
        text = browser.evaluate("document.querySelector('article').innerText")
        outside.extend(url for url in browser.requests() if not url.startswith(f"file://{SITE}/"))
        if PICTURES:
            PICTURES.mkdir(parents=True, exist_ok=True)
            shot = browser.call("Page.captureScreenshot", format="png")["data"]
            (PICTURES / f"{name}.png").write_bytes(base64.b64decode(shot))
        return text

    for name, (address, wanted) in PAGES.items():
        text = visit(name, address)
        for word in wanted:
            assert word in text, f"{address} does not show {word!r}"
    text = visit("search", f"search.html?q={quote('window')}")
    links = browser.evaluate("[...document.querySelectorAll('#search-results ul.search li a')].map(a => a.textContent)")
    assert any("window_left" in link or "Options" in link or "option" in link.lower() for link in links), links
    assert not outside, f"asked for from elsewhere: {outside}"
    browser.close()
    print(f"{len(PAGES)} pages and a search with {len(links)} results; no request left the site")


if __name__ == "__main__":
    main()
