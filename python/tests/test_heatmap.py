"""heatmap: pictures that Jupyter and terminals show, and that can be saved."""

import pickle
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import saccade

WEIGHTS = np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None]
TOKENS = ["Your", "journey", "<starts>", "旅"]


def test_svg_is_a_document_with_the_tokens():
    picture = saccade.heatmap(WEIGHTS, TOKENS, title="Where each token looks")
    texts = {element.text for element in ElementTree.fromstring(picture.svg).iter("{http://www.w3.org/2000/svg}text")}
    assert {*TOKENS, "Where each token looks", "0.25", "1.00"} <= texts
    assert picture._repr_svg_() == picture.svg


def test_saves_by_ending(tmp_path):
    picture = saccade.heatmap(np.stack([WEIGHTS, WEIGHTS]), TOKENS, key_tokens=list("abcd"), title="a & b")
    for ending in ("svg", "html", "png"):
        picture.save(tmp_path / f"x.{ending}")
    assert (tmp_path / "x.svg").read_text(encoding="utf-8") == picture.svg
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "<title>a &amp; b</title>" in page and picture.svg[picture.svg.index("<svg") :] in page
    png = (tmp_path / "x.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    picture.save(tmp_path / "large.png", zoom=4)
    with pytest.raises(ValueError, match="zoom: .*picture would be"):
        picture.png(1e9)
    assert (tmp_path / "large.png").stat().st_size > len(png)
    with pytest.raises(ValueError, match="path: expected a name that ends"):
        picture.save(tmp_path / "x.jpg")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["large.png", "x.html", "x.png", "x.svg"]


def test_shows_itself_in_a_terminal():
    text = str(saccade.heatmap(WEIGHTS, TOKENS))
    assert "journey" in text and "0.50" in text and "\x1b" not in text


def test_is_finished():
    weights = WEIGHTS.copy()
    picture = saccade.heatmap(weights, TOKENS)
    text = str(picture)
    weights[:] = 0
    assert str(picture) == text


def test_goes_through_pickle():
    for picture in (saccade.heatmap(WEIGHTS, TOKENS, title="a"), saccade.attention_lines(WEIGHTS, TOKENS)):
        loaded = pickle.loads(pickle.dumps(picture))
        assert (loaded.svg, str(loaded), repr(loaded)) == (picture.svg, str(picture), repr(picture))


def test_lines():
    picture = saccade.attention_lines(WEIGHTS, TOKENS)
    assert "journey" in picture.svg and str(picture) == repr(picture)


def test_any_dtype_and_a_large_matrix():
    for dtype in (np.float16, np.float64, np.int64):
        saccade.heatmap(np.eye(3, dtype=dtype))
    assert len(saccade.heatmap(np.random.default_rng(0).random((3000, 2000))).svg) < 5_000_000


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"weights": np.ones(3)}, "weights"),
        ({"weights": None}, "weights"),
        ({"tokens": ["a"]}, "^tokens has 1 "),
        ({"key_tokens": ["a"]}, "^key_tokens has 1 "),
        ({"scale": "cubic"}, "scale"),
        ({"low": 1.0, "high": 0.0}, "low"),
        ({"decimals": 99}, "decimals"),
        ({"decimals": "two"}, "decimals"),
        ({"panel_titles": ["a", "b"]}, "panel"),
    ],
)
def test_refusals_name_the_argument(arguments, text):
    with pytest.raises(ValueError, match=text):
        saccade.heatmap(**{"weights": WEIGHTS, **arguments})


def test_lines_name_the_argument_too():
    with pytest.raises(ValueError, match="^tokens has 1 "):
        saccade.attention_lines(WEIGHTS, ["a"])
