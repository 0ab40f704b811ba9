"""saccade and PyTorch in one process: OpenMP, threads, forks and memory."""

import os
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch", reason="saccade.torch needs PyTorch")

import saccade.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

sdpa = saccade.torch.scaled_dot_product_attention


def step(seed):
    """Gradients of attention between matrix products of PyTorch, each on all threads."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(2, 4, 200, 32, generator=generator, requires_grad=True) for _ in range(3))
    weight = torch.randn(32, 32, generator=generator)
    loss = (sdpa(q @ weight, k, v @ weight, is_causal=True) @ weight).square().mean()
    return torch.stack(torch.autograd.grad(loss, (q, k, v)))


def run(program, *arguments):
    """The words that a program prints in a separate process."""
    command = [sys.executable, "-c", program, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": os.path.dirname(__file__)}
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_threads_of_python_get_what_each_would_get_alone():
    wanted = [step(seed) for seed in range(4)]
    different = []

    def work(seed):
        different.extend(seed for _ in range(10) if not torch.equal(step(seed), wanted[seed]))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not different


def test_workers_of_a_data_loader():
    """Forked from a process in which both have used their threads. Not from this one: once some tests have used threads
    of PyTorch's engine for gradients, it refuses to compute them in a fork."""
    program = """
import warnings, torch
from test_torch_threads import step
from torch.utils.data import DataLoader, Dataset
class Steps(Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, seed):
        return step(seed)
warnings.filterwarnings("ignore", "This process", DeprecationWarning)
wanted = [step(seed) for seed in range(6)]
loader = DataLoader(Steps(), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60)
for got, expected in zip(loader, wanted):
    torch.testing.assert_close(got, expected)  # PyTorch's matrix products depend on its number of threads
print("same")
"""
    assert run(program) == ["same"]


def test_a_forked_child_computes_on_all_threads():
    """PyTorch's own functions cannot if both use GNU OpenMP, so the child does not call them."""
    program = """
import os, torch, saccade.torch
q, k, v = (torch.randn(2, 4, 300, 32, requires_grad=True) for _ in range(3))
dout = torch.ones(2, 4, 300, 32)
def gradients():
    return torch.autograd.grad(saccade.torch.scaled_dot_product_attention(q, k, v), (q, k, v), dout)
torch.mm(torch.ones(500, 500), torch.ones(500, 500))
wanted = gradients()
child = os.fork()
if child == 0:
    same = all((a.numpy() == b.numpy()).all() for a, b in zip(gradients(), wanted))
    os._exit(0 if same and torch.get_num_threads() == 2 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(program) == ["0"]


@pytest.mark.parametrize("first, second", [("torch", "saccade"), ("saccade", "torch")])
def test_either_may_be_imported_first(first, second):
    program = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
import torch, saccade.torch
x = torch.randn(2, 4, 300, 32)
for _ in range(20):
    x = saccade.torch.scaled_dot_product_attention(x @ torch.eye(32), x, x)
print(x.isfinite().all().item())
"""
    assert run(program, first, second) == ["True"]


def test_threads_are_as_many_as_pytorchs():
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("threads are counted in /proc")
    program = """
import os, torch, saccade.torch
saccade.set_num_threads(3)  # is for the other functions
x = torch.randn(2, 4, 300, 32, requires_grad=True)
def threads_after(number):
    torch.set_num_threads(number)
    saccade.torch.scaled_dot_product_attention(x, x, x).sum().backward()
    return len(os.listdir("/proc/self/task"))
before = threads_after(1)
print(before - threads_after(1), threads_after(2) - before, threads_after(4) - before)
"""
    again, of_two, of_four = map(int, run(program))
    runtimes = of_two  # wheels of PyTorch may include their own OpenMP
    assert again == 0 and runtimes in (1, 2) and of_four == 3 * runtimes


def test_other_threads_run_while_it_computes():
    x = torch.randn(1, 1, 6000, 64, requires_grad=True)
    ticks, done = [0], threading.Event()

    def tick():
        while not done.wait(0.001):
            ticks[0] += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    o = sdpa(x, x, x)
    forward = ticks[0]
    o.backward(torch.ones_like(o))
    done.set()
    ticker.join()
    assert forward >= 3 and ticks[0] - forward >= 3  # none if it held the GIL


# Memory.


def peak_of(setup: str, call: str) -> float:
    """By how many MiB the call raises the peak memory of a new process."""
    program = f"""
import resource, torch, saccade.torch
attention = saccade.torch.scaled_dot_product_attention
x = torch.randn(64, 64, requires_grad=True)
attention(x, x, x, torch.zeros(64, 64)).sum().backward()
{setup}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
{call}
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    return float(run(program)[0])


@pytest.mark.parametrize(
    "kv",
    [
        "k, v = torch.ones(2, 1, 8, 49152, 64)",
        "k, v = torch.ones(1, 49152, 8, 128).transpose(1, 2).split(64, -1)",  # as one projection makes them
        "k, v = torch.ones(2, 1, 1, 393216, 64).expand(2, 1, 8, 393216, 64)[..., :49152, :]",
    ],
)
def test_inputs_are_not_copied(kv):
    """Keys and values are 96 MiB each; one row reads them, then 20 rows that require gradients."""
    setup = f"{kv}; row = torch.ones(1, 8, 1, 64); rows = torch.ones(1, 8, 20, 64, requires_grad=True)"
    assert peak_of(setup, "attention(row, k, v); attention(rows, k, v)") < 40


def test_what_is_kept_for_the_way_back_is_linear():
    """Both matrices would take 4 GiB; q, k, v, o and their gradients are 2 MiB each."""
    setup = "q, k, v = torch.randn(3, 1, 2, 16384, 16).unbind(); q.requires_grad_(); mask = torch.zeros(16384)"
    call = "o = attention(q, k, v, mask, dropout_p=0.1); o.backward(torch.ones_like(o))"
    assert peak_of(setup, call) < 40


def test_nothing_but_output_and_lse_is_saved():
    q, k, v = (torch.randn(2, 3, 50, 8, requires_grad=True) for _ in range(3))
    mask = torch.rand(50, 50) < 0.5
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        o = sdpa(q, k, v, mask, dropout_p=0.2)
    given = {x.data_ptr() for x in (q, k, v, mask, o)}
    assert [tuple(x.shape) for x in saved if x.data_ptr() not in given] == [(2, 3, 50)]  # lse


def test_results_own_their_memory():
    x = torch.randn(3, 4)
    a = sdpa(x, x, x)
    b = sdpa(x + 1, x + 1, x + 1)
    assert a.data_ptr() != b.data_ptr() and not torch.equal(a, b)
    a.add_(1)  # may be written to
    torch.testing.assert_close(a - 1, F.scaled_dot_product_attention(x, x, x))
