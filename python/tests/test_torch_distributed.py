"""saccade.torch.distributed and PyTorch's context_parallel() over gloo: the bits of one process."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="saccade.torch needs PyTorch")
dist = pytest.importorskip("torch.distributed", reason="PyTorch without torch.distributed")
if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("PyTorch without gloo", allow_module_level=True)
pytest.importorskip("torch.distributed.tensor.experimental", reason="PyTorch without context_parallel()")

import divided_torch  # noqa: E402
import lost_rank  # noqa: E402
import processes  # noqa: E402
from divided import different  # noqa: E402
from saccade.torch import distributed  # noqa: E402


@pytest.fixture(scope="module")
def found():
    """What four processes return."""
    results = processes.run(4, divided_torch.everything, timeout=100)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def test_random_problems_have_the_bits_of_one_process(found):
    assert [result["problems"] for result in found] == [[]] * 4


def test_context_parallel(found):
    """Of four processes, and of each pair: the steps of PyTorch's tutorial."""
    for result in found:
        assert len(result["context_parallel"]) == 10
        for (is_causal, balanced, patched), steps in result["context_parallel"]:
            if not patched:  # the same steps without saccade
                assert isinstance(steps, NotImplementedError), steps
                continue
            got, wanted, sites = steps
            for name, one, whole in zip(("o", "dq", "dk", "dv"), got, wanted):
                if name in ("o", "dq"):
                    assert different(name, one, whole) == [], (is_causal, balanced)
                else:
                    np.testing.assert_allclose(one, whole, rtol=0, atol=16 * 2.0**-23 * np.abs(whole).max())
            assert sites == ["divided_torch.py"] * 2


def test_an_error_on_one_rank_is_the_same_error_on_all(found):
    one, *others = (result["errors"] for result in found)
    assert others == [one] * 3
    for name, words in {
        "causal": "rank 1: causal: expected None, 'top_left'",
        "window": "rank 1: window: expected an int or two",
        "sinks": "rank 1: sinks: expected a tensor, got a str",
        "method": "rank 1: method: expected one of 'automatic'",
        "softcap": "softcap must be the same on every rank",
        "integers": "rank 1: q: expected float64, float32",
        "requires_grad": "requires_grad must be the same on every rank, but it is True on rank 1 and False on rank 0",
        "twice": "rank 1: dout: gradients cannot be differentiated again",
        "vmap": "rank 1: q: torch.compile and transforms of torch.func are not supported",
    }.items():
        assert one[name][0] == "ValueError" and words in one[name][1], name
    assert one["fine"] is None


def test_groups_and_states_of_pytorch(found):
    for rank, details in enumerate(result["details"] for result in found):
        assert details["same"] and details["rank"] == rank
        assert details["pair"] == (rank % 2, 2)
        assert details["not in it"] == ("ValueError", "group: this process is not in it")
        assert details["no group"][1].startswith("group: expected a process group or a DeviceMesh of one dimension")
        assert details["dropout"] == (True, True) and details["autocast"]
        assert details["patch"].startswith("patch() within context_parallel()")


def test_a_rank_that_is_late_or_killed():
    first, second, lost = processes.run(3, lost_rank.lose_rank_2, timeout=100)
    assert isinstance(lost, processes.Killed)
    for late, killed in (first, second):
        for (error, again), seconds in (late, killed):
            assert error.startswith("rank ") and "failed before" in again and seconds < 15
        assert late[1] > 0.9


def test_without_a_process_group():
    x = torch.ones(2, 3, 4)
    with pytest.raises(ValueError, match="init_process_group"):
        distributed.scaled_dot_product_attention(x, x, x)
