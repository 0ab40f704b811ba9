"""Seeds for calls with dropout that are given none."""

from __future__ import annotations

from ._core import manual_seed as _manual_seed


def manual_seed(seed: int) -> None:
    """Makes the seeds reproducible that calls with dropout draw where they are given none: the n-th that is drawn after
    this call is the same in every run. Before, they follow from a number of the operating system's.

    Concerns neither :mod:`saccade.nn`, whose modules have seeds of their own, nor :mod:`saccade.torch`, which follows
    ``torch.manual_seed``.

    :param seed: an integer of 64 bits, -2^63 <= seed < 2^64.
    :raises ValueError: for what is no such integer.
    """
    _manual_seed(seed)
