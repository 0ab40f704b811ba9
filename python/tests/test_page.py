"""page: every head of a model in one file."""

import base64
import html.parser
import json
import re
import struct
import zlib

import numpy as np
import pytest
import saccade

PICTURE = np.zeros((2, 2, 3), np.uint8)
TOKENS = ["Your", "\u0120journey", "</script>", "旅"]


def part(text, name):
    """A part of a page's data."""
    begin = text.index(f'id="{name}">') + len(name) + 5
    return zlib.decompress(base64.b64decode(text[begin : text.index("<", begin)]))


def index(page):
    return json.loads(part(page.html(), "index"))


def weights(layers=2, heads=3, rows=4, keys=4, causal=False, seed=0):
    raw = np.random.default_rng(seed).random((layers, heads, rows, keys))
    raw = np.tril(raw) if causal else raw
    return raw / raw.sum(-1, keepdims=True)


def test_holds_the_weights():
    given = weights()
    page = saccade.page(given, TOKENS, title="a & b", subtitle="<b>")
    own = index(page)["parts"][0]
    assert own["queries"]["tokens"] == ["Your", "journey", "</script>", "旅"]
    assert own["queries"]["gaps"] == ["", " ", "", ""]
    assert (own["layers"], own["heads"], own["causal"]) == (2, 3, False)
    codes = np.frombuffer(part(page.html(), "head-0-5"), np.uint8).reshape(4, 4)
    np.testing.assert_allclose(2.0 ** ((codes - 255.0) / 16), given[1, 2], rtol=0.022)
    assert (
        "<title>a &amp; b</title>" in page.html()
        and page.html() == saccade.page(given, TOKENS, title="a & b", subtitle="<b>").html()
    )


def test_takes_what_models_give():
    given = weights(causal=True)
    layers = tuple(layer[None].astype(np.float16) for layer in given)
    page = saccade.page(layers, special=[True, False, False, False], words=[None, 0, 0, 1], kv_heads=1)
    own = index(page)["parts"][0]
    assert own["causal"] and own["kvHeads"] == 1
    assert own["queries"]["words"] == [-1, 0, 0, 1] and own["queries"]["special"] == [1, 0, 0, 0]
    assert own["queries"]["tokens"] == ["0", "1", "2", "3"]
    assert len(part(page.html(), "head-0-0")) == 10  # up to the diagonal


def test_has_several_parts():
    page = saccade.Page("translation", is_sequence=False)
    page.add(weights(), TOKENS, name="encoder", maps={"gradient": np.full((4, 4), 0.5)})
    page.add(weights(rows=2, keys=7), ["a", "b"], name="cross", key_seconds=0.02)
    parts = index(page)["parts"]
    assert [own["name"] for own in parts] == ["encoder", "cross"]
    assert parts[0]["maps"] == ["gradient"] and part(page.html(), "map-0-0") == bytes([239] * 16)
    assert parts[1]["keys"]["seconds"] == 0.02 and len(parts[1]["keys"]["tokens"]) == 7


def test_shows_a_picture_whose_patches_are_tokens():
    picture = np.zeros((4, 6, 3), np.uint8)
    picture[1, 2] = 255, 128, 0
    page = saccade.Page("patches")
    page.add(weights(rows=5, keys=5), image=picture, name="square")
    page.add(weights(rows=8, keys=8), list("ab123456"), image=picture, patches=(2, 3), name="wide")
    square, wide = (own["queries"] for own in index(page)["parts"])
    assert square["tokens"] == ["0", "", "", "", ""] and wide["tokens"] == list("ab123456")
    image = {key: square["image"][key] for key in ("rows", "columns", "first")}
    assert image == {"rows": 2, "columns": 2, "first": 1}
    assert [wide["image"][key] for key in ("rows", "columns", "first")] == [2, 3, 2]
    assert square["image"]["source"].startswith("data:image/png;base64,iVBORw0KGgo")
    page = saccade.page(weights(rows=8, keys=8), image=picture, patches=(2, 4), title="one")
    page.add(weights(rows=8, keys=8), list("abcabcab"), name="two")
    patches, letters = index(page)["parts"]
    assert (patches["name"], letters["name"]) == ("one", "two")
    induction = 3  # of the statistics
    assert all(each[induction] is None for each in patches["statistics"])
    assert all(each[induction] is not None for each in letters["statistics"])


@pytest.mark.parametrize("size", [(1500, 2000), (2, 5000), (1001, 1)])
def test_large_pictures_are_shown_smaller(size):
    page = saccade.page(weights(), image=np.full((*size, 3), 200, np.uint8), patches=np.array([2, 2]))
    source = index(page)["parts"][0]["queries"]["image"]["source"].partition(",")[2]
    width, height = struct.unpack(">II", base64.b64decode(source)[16:24])
    step = -(-max(size) // 1000)
    assert abs(height - size[0] / step) < 1 and abs(width - size[1] / step) < 1 and max(width, height) <= 1000


def test_is_saved(tmp_path):
    page = saccade.page(weights(), TOKENS, title='"quoted"')
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html()
    assert repr(page) == "<saccade.Page: \"quoted\"; .save('x.html')>"


def elements(text):
    """The elements of HTML as a browser reads them, and its text outside them."""
    found, texts = [], []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda name, attributes: found.append((name, dict(attributes)))
    parser.handle_data = texts.append
    parser.feed(text)
    parser.close()
    return found, "".join(texts)


@pytest.mark.parametrize("title", ["two layers", '"><script>alert(1)</script>', "</iframe><b>", "&quot;&lt;b&gt;", "'"])
def test_notebooks_show_it_in_a_sandbox(title):
    page = saccade.page(weights(), [title, "a", "</iframe>", "&quot;"], title=title)
    shown = page._repr_html_()
    assert shown == page.frame()
    (outer, paragraph, frame), text = elements(shown)
    assert (outer[0], paragraph, frame[0]) == ("div", ("p", {}), "iframe")
    assert frame[1]["srcdoc"] == page.html() and frame[1]["title"] == title
    assert frame[1]["sandbox"] == "allow-scripts allow-downloads"
    assert text.startswith(title + ": ")
    assert set(frame[1]) == {"sandbox", "title", "onload", "style", "srcdoc"}
    assert index(page)["parts"][0]["queries"]["tokens"] == [title, "a", "</iframe>", "&quot;"]


def test_notebooks_fetch_nothing():
    shown = saccade.page(weights(), TOKENS)._repr_html_()
    addresses = set(re.findall(r"(?:https?:)?//[a-z][\w.]*\.[a-z]+", shown))
    assert addresses == {"http://www.w3.org"}  # SVG's name space
    assert "default-src 'none'" in elements(shown)[0][2][1]["srcdoc"]


def test_notebooks_get_less_of_a_large_page():
    page = saccade.page(weights(heads=6, rows=300, keys=300), title="large")
    whole = page.html()
    assert 500_000 < len(whole) < 4_000_000 and elements(page.frame())[0][2][1]["srcdoc"] == whole
    less = elements(page.frame(max_size=400_000, height=900))[0][2][1]
    assert len(less["srcdoc"].encode()) <= 400_000 and "height: 900px" in less["style"]
    assert 0 < less["srcdoc"].count('id="head-') < whole.count('id="head-') == 12
    assert page.html() == whole
    small = saccade.page(weights(heads=6, rows=300, keys=300), title="large", max_size=400_000)
    assert elements(small.frame())[0][2][1]["srcdoc"] == small.html() == less["srcdoc"]


def test_notebooks_get_at_most_four_megabytes(monkeypatch):
    page = saccade.page(weights(), TOKENS)
    asked = []

    class Large:
        def html(self, *max_size):
            asked.append(max_size)
            return "<b>" if max_size else "\u00e9" * 2_000_001

    monkeypatch.setattr(page, "_page", Large())
    assert elements(page._repr_html_())[0][2][1]["srcdoc"] == "<b>" and asked == [(), (4_000_000,)]


@pytest.mark.parametrize("arguments", [{"height": 0}, {"height": "52rem"}, {"height": True}, {"max_size": 0}])
def test_a_frame_refuses_what_does_not_fit(arguments):
    with pytest.raises(ValueError, match=f"^{next(iter(arguments))}: expected a number of "):
        saccade.page(weights(), TOKENS).frame(**arguments)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"weights": np.ones((4, 4))}, r"weights: expected \[layers, heads, seqlen_q, seqlen_k\], got shape \(4, 4\)"),
        ({"weights": []}, "weights: expected at least one layer"),
        ({"weights": [np.ones((2, 3, 3)), np.ones((2, 4, 4))]}, r"weights\[1\]: expected shape \(2, 3, 3\)"),
        ({"weights": [np.ones((2, 2, 3, 3))]}, r"weights\[0\]: expected .* or a batch of one"),
        ({"weights": ["a"]}, r"weights\[0\]: expected"),
        ({"tokens": ["a"]}, "tokens: expected one for each of the 4 tokens, got 1"),
        ({"special": [True]}, "special: expected one for each of the 4 tokens, got 1"),
        ({"kv_heads": 2}, "kv_heads: expected a divisor of the 3 heads, got 2"),
        ({"maps": {"a": np.ones((2, 2))}}, r"maps\['a'\]: expected shape \(4, 4\), got \(2, 2\)"),
        ({"max_size": 0}, "max_size: expected a number of bytes, got 0"),
        ({"title": 3}, "title: expected a str, got int"),
        ({"image": np.zeros((4, 4))}, r"image: expected uint8 \[height, width, 3\], got float64 \[4, 4\]"),
        (
            {"image": PICTURE, "patches": (3, 2)},
            r"patches: expected \(rows, columns\) of at most 4 tokens, got \(3, 2\)",
        ),
        ({"image": PICTURE, "patches": 2}, r"patches: expected \(rows, columns\) of at most 4 tokens, got 2"),
        ({"image": PICTURE, "key_tokens": TOKENS}, "image: expected attention of a sequence to itself"),
        ({"weights": np.ones((1, 1, 7, 7)), "image": PICTURE}, "patches: expected .rows, columns., because 7 tokens"),
        ({"patches": (2, 2)}, "patches: expected an image too"),
        ({"key_seconds": -1}, "key_seconds: expected a number of seconds, got -1"),
    ],
)
def test_refuses_what_does_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        saccade.page(**{"weights": weights(), **arguments})
