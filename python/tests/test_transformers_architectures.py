"""attn_implementation="saccade" beside "eager" in every architecture of the installed transformers that can be made
tiny: forward, with another last token, with padding on both sides, backward, and the weights.

compare_architectures.py says what is compared, tiny_models.py how models are made. In as many processes as there are
processors; on two of them it takes some minutes.
"""

from collections import Counter

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5")

from compare_architectures import compare_all  # noqa: E402
from tiny_models import architectures  # noqa: E402

COMPUTES, WANTED = "computes with its attention mask", "attention_mask: expected one for 20 queries and 25 keys"
UNKNOWN = "'saccade'"  # the KeyError of models that look the name up themselves
REFUSED = {
    **dict.fromkeys(("axk2", "deepseek_v32", "dots3_note", "dots3_note_text", "glm_moe_dsa", "hy_v4"), COMPUTES),
    **dict.fromkeys(("hy_v4_vl", "hy_v4_vl_text", "mistral_large4", "mistral_large4_text", "t5gemma2"), COMPUTES),
    "bigbird_pegasus": f"padded left: saccade.transformers: the model of BigBirdPegasusConfig {COMPUTES}",
    "deepseek_v4": WANTED,
    **dict.fromkeys(("data2vec-vision", "deepseek_vl_hybrid", "git", "gpt_neo", "sam_hq_vision_model"), UNKNOWN),
    **dict.fromkeys(("sam_vision_model", "unlimited_ocr"), UNKNOWN),
}
# Their code takes weights from "eager" alone.
WITHOUT_WEIGHTS = ("bridgetower",)


@pytest.fixture(scope="session")
def outcomes(request):
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    return compare_all([call.params["model_type"] for call in calls if call and "model_type" in call.params])


@pytest.mark.parametrize("model_type", architectures())
def test_architecture(model_type, outcomes):
    outcome = outcomes[model_type]
    if outcome.kind == "no tiny model":
        pytest.skip(f"{model_type} cannot be made tiny: {outcome.text}")
    assert outcome.kind != "wrong", outcome.text
    assert (outcome.kind == "refused") == (model_type in REFUSED), outcome
    if outcome.kind == "refused":
        assert "saccade" in outcome.text and REFUSED[model_type] in outcome.text
    else:
        assert bool(outcome.text) == (model_type in WITHOUT_WEIGHTS), outcome.text


def test_most_are_compared(outcomes, capsys):
    """And a summary."""
    kinds = Counter(outcome.kind for outcome in outcomes.values())
    compared = [outcome for outcome in outcomes.values() if outcome.kind == "compared"]
    done = Counter(what for outcome in compared for what in outcome.done)
    with capsys.disabled():
        print(f"\n{len(outcomes)} architectures: {dict(kinds)}; compared: {dict(done)}")
    if len(outcomes) == len(architectures()):
        assert len(compared) > len(outcomes) / 2
