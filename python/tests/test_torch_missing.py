"""saccade without PyTorch, and with one that is too old."""

import subprocess
import sys

MISSING = "sys.modules['torch'] = None"
OLD = "sys.modules['torch'] = types.SimpleNamespace(Tensor=str, __version__='2.4.1+cpu')"


def error_of(setup: str) -> str:
    """The error of importing saccade.torch, after saccade itself has worked."""
    program = f"""
import sys, types
{setup}
import numpy as np, saccade
x = np.ones((2, 3), np.float32)
assert (saccade.scaled_dot_product_attention(x, x, x) == 1).all()
try:
    saccade.torch.patch()
except ImportError as error:
    text = str(error)
try:
    import saccade.torch
except ImportError as error:
    assert str(error) == text
    print(error)
"""
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def test_without_pytorch_the_import_says_how_to_get_it():
    assert "saccade.torch needs PyTorch, which is not installed: 'pip install torch'" in error_of(MISSING)


def test_an_old_pytorch_is_named():
    assert "saccade.torch needs PyTorch 2.5 or newer, and 2.4.1+cpu is installed" in error_of(OLD)
