"""look: from a model's folder and a text to a page."""

import json
import os
import pathlib
import sys

import numpy as np
import pytest
import saccade
from test_page import index, part

MODELS = pathlib.Path(__file__).parents[2] / "tests" / "data" / "models"
ENCODER, DECODER = MODELS / "text-encoder", MODELS / "text-decoder"

if not hasattr(saccade._core, "look"):
    pytest.skip("this build cannot read models", allow_module_level=True)


def test_shows_every_head_over_a_text(tmp_path):
    page = saccade.look(ENCODER, "A causal mask.")
    own = index(page)["parts"][0]
    assert (own["layers"], own["heads"], own["causal"]) == (2, 4, False)
    assert "text-encoder" in page.html() and "bert: 2 layers of 4 heads" in page.html()
    assert repr(page) == "<saccade.Page: text-encoder; .save('x.html')>"
    tokens = len(own["queries"]["tokens"])
    for head in range(8):
        weights = np.frombuffer(part(page.html(), f"head-0-{head}"), np.uint8).reshape(tokens, tokens)
        sums = np.where(weights > 0, 2.0 ** ((weights - 255.0) / 16), 0).sum(-1)
        np.testing.assert_allclose(sums, 1, atol=0.03)
    assert 'title="text-encoder"' in page._repr_html_() and 'sandbox="allow-scripts' in page._repr_html_()
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html()
    assert saccade.look(str(ENCODER), "A causal mask.", num_threads=1).html() == page.html()


def test_takes_names_of_folders_as_bytes():
    frame = saccade.look(str(ENCODER), "A mask.").frame()
    assert saccade.look(os.fsencode(ENCODER), "A mask.").frame() == frame


@pytest.mark.skipif(sys.platform != "linux", reason="names of folders are text on this system")
def test_takes_folders_whose_name_is_not_utf8(tmp_path):
    (tmp_path / "mod\udcffel").symlink_to(ENCODER)
    page = saccade.look(tmp_path / "mod\udcffel", "A mask.")
    assert 'title="mod?el"' in page.frame() and "mod?el" in repr(page)


def test_titles_may_have_lone_surrogates():
    assert 'title="mod?el"' in saccade.look(ENCODER, "A mask.", title="mod\udcffel").frame()


def test_refuses_names_that_no_folder_can_have():
    with pytest.raises(ValueError, match="model: expected the path of a model's folder, got '.ud800', which none"):
        saccade.look("\ud800", "A mask.")


def test_compares_and_shows_what_an_answer_rests_on():
    page = saccade.look(DECODER, "A mask.", other_text="A causal mask.", gradient=True, title="two", details=[(0, 1)])
    parts = index(page)["parts"]
    assert [own["name"] for own in parts] == ["\u201cA mask.\u201d", "\u201cA causal mask.\u201d"]
    assert all(len(own["maps"]) == 2 and "1" in own["details"] for own in parts)
    names = [own["name"] for own in index(saccade.look(ENCODER, "A mask.", other_model=DECODER))["parts"]]
    assert names == ["text-encoder", "text-decoder"]


def test_more_parts_may_be_added():
    page = saccade.look(ENCODER, "A mask.").add(np.full((2, 4, 3, 3), 1 / 3), name="other")
    assert [own["name"] for own in index(page)["parts"]] == ["text-encoder", "other"]


def test_shows_pictures():
    image = (np.arange(20 * 30 * 3) * 37 % 256).astype(np.uint8).reshape(20, 30, 3)
    source = index(saccade.look(MODELS / "vit", image=image))["parts"][0]["queries"]["image"]
    assert (source["rows"], source["columns"], source["first"]) == (3, 3, 1)
    assert source["source"].startswith("data:image/png;base64,iVBORw0KGgo")

    class Picture:  # as Pillow's are
        def convert(self, mode):
            assert mode == "RGB"
            return image

    assert index(saccade.look(MODELS / "vit", image=Picture()))["parts"][0]["queries"]["image"] == source


def test_hears(tmp_path):
    folder = tmp_path / "whisper"
    folder.mkdir()
    for file in (MODELS / "whisper").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": {f"w{i}": i for i in range(60)}, "unk_token": "w0"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    parts = index(saccade.look(folder, audio=np.sin(np.arange(1600) * 0.2), target="w5 w6"))["parts"]
    assert [own["name"] for own in parts] == ["cross-attention", "encoder", "decoder"]
    assert parts[0]["keys"]["seconds"] == 0.02 and len(parts[0]["keys"]["tokens"]) == 5


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "the model is a bert, which reads text: give one"),
        ({"text": 3}, "text: expected a str, got int"),
        ({"text": ""}, None),
        ({"text": "a", "target": "b"}, "which does not read a target"),
        ({"text": "a", "audio": [0.0] * 400}, "which does not read sound"),
        ({"text": "a", "audio": [[0.0]]}, r"audio: expected one channel, \[samples\], got \[1, 1\]"),
        ({"text": "a", "image": np.zeros((2, 2))}, r"image: expected uint8 \[height, width, 3\], got float64 \[2, 2\]"),
        ({"text": "a", "details": [(2, 0)]}, "L2H0: the model has 2 layers of 4 heads"),
        ({"text": "a", "details": [3]}, r"details: expected \(layer, head\), got 3"),
        ({"text": "a", "tiles": [(0, 0, range(2), range(2))]}, "tiles are for texts of over 4096 tokens"),
        ({"text": "a", "tiles": [(0, 0, range(2), 3)]}, "tiles: expected .*, got 3"),
        ({"text": "a", "max_size": 0}, "max_size: expected a number of bytes, got 0"),
        ({"text": "a", "num_threads": -1}, "num_threads: expected a number from 0 on"),
        ({"model": object(), "text": "a"}, r"model: expected the path of a model's folder.*saccade.page\(\)"),
    ],
)
def test_refuses_what_does_not_fit(arguments, message):
    if message is None:  # [CLS] and [SEP] alone
        assert len(index(saccade.look(ENCODER, ""))["parts"][0]["queries"]["tokens"]) == 2
        return
    with pytest.raises(ValueError, match=message):
        saccade.look(**{"model": ENCODER, **arguments})


def test_refuses_folders_that_are_none(tmp_path):
    with pytest.raises(RuntimeError):
        saccade.look(tmp_path, "a")


def test_says_what_a_build_lacks(monkeypatch):
    monkeypatch.delattr(saccade._core, "look")
    with pytest.raises(
        RuntimeError, match="built without look.., which needs zlib, nlohmann-json, Oniguruma and utf8proc"
    ):
        saccade.look(ENCODER, "a")
