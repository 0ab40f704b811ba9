"""Opens the documentation site, argv[1], in the browser argv[2]: the homes, a search, and a function of each language.

Nothing may be asked for but files of the site. Pictures of what was seen go to the folder argv[3], if given.
"""

import base64
import sys
from pathlib import Path
from urllib.parse import quote, unquote

sys.path.insert(0, str(Path(__file__).parent.parent / "page"))
from browser import Browser  # noqa: E402

SITE = Path(sys.argv[1]).resolve()
PICTURES = Path(sys.argv[3]) if len(sys.argv) > 3 else None
PAGES = {  # what a reader must see in each
    "index": ("index.html", ["Who it is for", "Two commands", "script/demo"]),
    "home_in_chinese": ("README.zh-CN.html", ["注意力"]),
    "cpp": ("api/attention.h.html", ["attention(const TensorView", "AttentionOptions", "window_left"]),
    "c": ("api/c_api.h.html", ["saccade_attention(", "saccade_options_set_i64(", "saccade_status"]),
    "python": ("api/python/saccade/index.html", ["saccade.attention(", "return_lse"]),
    "command": ("command/run.html", ["saccade run", "--causal"]),
    "options": ("docs/options.html", ["window_left"]),
    "gallery": ("docs/gallery/README.html", ["An induction head forms", "Open it", "掩码与偏置"]),
    "tutorial_1": ("docs/tutorial/1-simple-self-attention.html", ["computed", "0.4419 0.6515 0.5683", "Exercises"]),
    "tutorial_2": ("docs/tutorial/2-query-key-value.html", ["computed", "0.3061 0.8210", "Exercises"]),
    "tutorial_3": ("docs/tutorial/3-causal-mask-and-dropout.html", ["computed", "0.5517 0.4483", "Exercises"]),
    "tutorial_4": ("docs/tutorial/4-several-heads.html", ["computed", "0.3190 0.4858", "Exercises"]),
    "tutorial_5": ("docs/tutorial/5-to-the-engine.html", ["computed", "0.4419 0.6515 0.5683", "Exercises"]),
    "tutorial_in_chinese": ("docs/tutorial/zh-CN/1-simple-self-attention.html", ["算得", "练习"]),
}


def main() -> None:
    browser = Browser(sys.argv[2])
    outside = []

    def visit(name: str, address: str) -> str:
        browser.open(f"file://{SITE}/{address}")
        if name == "search":
            browser.wait("document.querySelectorAll('#search-results ul.search li').length > 3")
        browser.wait("[...document.querySelectorAll('.live')].every(each => each.dataset.ready)")
        text = browser.evaluate("document.querySelector('article').innerText")
        outside.extend(url for url in browser.requests() if not url.startswith(f"file://{SITE}/"))
        if PICTURES:
            PICTURES.mkdir(parents=True, exist_ok=True)
            size = browser.evaluate("[innerWidth, document.documentElement.scrollHeight]")
            clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
            whole = {"captureBeyondViewport": True, "clip": clip} if name.startswith("tutorial") else {}
            shot = browser.call("Page.captureScreenshot", format="png", **whole)["data"]
            (PICTURES / f"{name}.png").write_bytes(base64.b64decode(shot))
        return text

    for name, (address, wanted) in PAGES.items():
        text = visit(name, address)
        for word in wanted:
            assert word in text, f"{address} does not show {word!r}"
        if name == "gallery":
            widths = browser.evaluate("[...document.querySelectorAll('article img')].map(each => each.naturalWidth)")
            assert len(widths) >= 8 and min(widths) > 1000, f"pictures of the gallery: {widths}"
            links = browser.evaluate(
                "[...document.querySelectorAll('article p > a:not([href*=\":\"])')].map(each => each.href)"
            )
            missing = [link for link in links if not Path(unquote(link.partition("#")[0])[7:]).is_file()]
            assert len(links) >= 19 and not missing, f"pages of the gallery that are not there: {missing}"
        if name.startswith("tutorial"):
            summaries = browser.evaluate("[...document.querySelectorAll('.live-summary')].map(e => e.textContent)")
            assert any("as printed" in each or "印出的相同" in each for each in summaries), (address, summaries)
            formulas = browser.evaluate("[...document.querySelectorAll('math')].map(each => each.clientHeight)")
            assert formulas and min(formulas) > 10, f"{address} does not show its formulas: {formulas}"
    text = visit("search", f"search.html?q={quote('window')}")
    links = browser.evaluate("[...document.querySelectorAll('#search-results ul.search li a')].map(a => a.textContent)")
    assert any("window_left" in link or "Options" in link or "option" in link.lower() for link in links), links
    assert not outside, f"asked for from elsewhere: {outside}"
    browser.close()
    print(f"{len(PAGES)} pages and a search with {len(links)} results; no request left the site")


if __name__ == "__main__":
    main()
