"""saccade.torch.statistics(): what happened to the calls under a patch."""

import _thread
import os
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch", reason="saccade.torch needs PyTorch")

import saccade.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402


def call(seqlen=5, device="cpu"):
    x = torch.randn(1, 2, seqlen, 8, device=device)
    return F.scaled_dot_product_attention(x, x, x)


def test_counts_by_call_site_and_reason():
    with saccade.torch.patch() as patch:
        for _ in range(3):
            call()  # short
            call(200)  # not short
        call(device="meta")
        with sdpa_kernel(SDPBackend.MATH):
            call()
        torch.func.vmap(lambda x: F.scaled_dot_product_attention(x, x, x))(torch.randn(2, 2, 5, 8))
    call()  # undone
    found = patch.statistics()
    (site,) = found.taken
    assert found.taken[site] == 6
    assert site.function == "scaled_dot_product_attention" and site.file == __file__
    assert site.line == call.__code__.co_firstlineno + 2
    reasons = {why: n for (_, why), n in found.passed_on.items()}
    assert reasons == {
        "a tensor on meta": 1,
        "PyTorch's fused kernel is switched off": 1,
        "a transform of torch.func": 1,
    }
    assert str(found).startswith(
        "saccade.torch: 6 calls computed, 3 calls passed on to PyTorch\n        6  computed   "
    )


def test_counts_fused_layers():
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    x = torch.randn(2, 3, 16)
    with torch.no_grad(), saccade.torch.patch() as patch:
        layer(x)
        layer.self_attn(x, x, x)
    assert sorted(site.function for site in patch.statistics().taken) == [
        "_native_multi_head_attention",
        "_transformer_encoder_layer_fwd",
    ]


def test_a_handle_counts_since_it_came_into_force():
    with saccade.torch.patch() as outer:
        call()
        with saccade.torch.patch() as inner:
            call()
        with inner:
            call()
        assert [sum(patch.statistics().taken.values()) for patch in (outer, inner)] == [3, 1]
    before = saccade.torch.statistics()
    assert not before.since(before).taken


def test_files_with_the_same_lines_are_told_apart(tmp_path):
    sites = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.py"
        path.write_text(
            "import torch.nn.functional as F\ndef f(q):\n    return F.scaled_dot_product_attention(q, q, q)\n"
        )
        scope = {}
        exec(compile(path.read_text(), str(path), "exec"), scope)
        with saccade.torch.patch() as patch, torch.device("cpu"):  # a mode, which calls the function once more
            scope["f"](torch.randn(1, 2, 5, 8))
        sites += [(site.file, site.line, n) for site, n in patch.statistics().taken.items()]
    assert sites == [(str(tmp_path / "one.py"), 3, 1), (str(tmp_path / "two.py"), 3, 1)]


def test_calls_that_raise_are_not_counted():
    x = torch.randn(1, 2, 5, 8)
    with saccade.torch.patch() as patch:
        with pytest.raises(ValueError):
            F.scaled_dot_product_attention(x, x[:, :, :, :5], x)
        kept = F.scaled_dot_product_attention
    kept(x, x, x)
    with saccade.torch.patch():
        call()
    assert not patch.statistics().taken and not patch.statistics().passed_on


def test_a_thread_without_a_python_function():
    done = threading.Event()
    x = torch.randn(1, 2, 5, 8)
    with saccade.torch.patch() as patch:
        _thread.start_new_thread(F.scaled_dot_product_attention, (x, x, x))
        for _ in range(200):
            if patch.statistics().taken or done.wait(0.05):
                break
    assert [site.file for site in patch.statistics().taken] == ["no Python"]


def test_threads_lose_no_call():
    def work():
        for _ in range(300):
            call()

    with saccade.torch.patch() as patch:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(patch.statistics().taken.values()) == 1200


@pytest.mark.parametrize("log", ["1", "0", None])
def test_are_printed_at_exit_if_the_environment_asks(log):
    program = "import saccade.torch, torch; saccade.torch.patch(); x = torch.ones(1, 2, 5, 8); " + (
        "torch.nn.functional.scaled_dot_product_attention(x, x, x)"
    )
    environment = {key: value for key, value in os.environ.items() if key != "SACCADE_LOG"}
    if log is not None:
        environment["SACCADE_LOG"] = log
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == ""
    assert ("saccade.torch: 1 call computed, 0 calls passed on to PyTorch" in done.stderr) == (log == "1")
