"""Seeds for calls with dropout but without a seed."""

from __future__ import annotations

from ._core import manual_seed as _manual_seed


def manual_seed(seed: int) -> None:
    """Makes dropout reproducible for calls without a seed: the n-th seed drawn after this call is the same in
    every run. By default the seeds follow from a random number of the operating system.

    It does not affect :mod:`saccade.nn`, whose modules have their own seeds, or :mod:`saccade.torch`, which
    follows ``torch.manual_seed``.

    :param seed: an integer of 64 bits, -2^63 <= seed < 2^64.
    :raises ValueError: for any other value.
    """
    _manual_seed(seed)
