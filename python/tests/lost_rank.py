"""What other ranks of a gloo group see when one does not come, or is killed: a function for processes.run()."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch
import torch.distributed as dist
from saccade.torch.distributed import CommunicationError, scaled_dot_product_attention


def lose_rank_2() -> Any:
    """What rank 0 and 1 see, and after how long, when rank 2 comes too late, and when it is killed."""
    groups = [dist.new_group([0, 1, 2]) for _ in range(2)]
    late = _calls(groups[0], 1.0, lambda: time.sleep(3))
    dist.barrier()
    return late, _calls(groups[1], 30.0, lambda: os.kill(os.getpid(), signal.SIGKILL))


def _calls(group: Any, timeout: float, instead: Any) -> Any:
    """The errors of two calls, and the seconds that they took. Rank 2 does something else instead."""
    x = torch.ones(2, 6, 8)
    scaled_dot_product_attention(x, x, x, group=group, timeout=timeout)
    if dist.get_rank() == 2:
        return instead()
    begin, errors = time.monotonic(), []
    for _ in range(2):
        try:
            scaled_dot_product_attention(x, x, x, group=group)
        except CommunicationError as error:
            errors.append(str(error))
    return errors, time.monotonic() - begin
