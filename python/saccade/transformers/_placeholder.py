"""Objects that a model gets in the place of a tensor and hands on to attention."""

from __future__ import annotations

from typing import Any

import torch


class Placeholder:
    """What describes a tensor without its numbers. A model that computes with it gets an error.

    :param shape: that of the tensor.
    """

    ndim, device = 4, torch.device("cpu")

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape

    def _refusal(self) -> str:
        """What the error says."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return self._shape

    def contiguous(self) -> Any:
        return self

    def to(self, *_: Any, **__: Any) -> Any:
        return self

    def dim(self) -> int:
        return self.ndim

    def size(self, axis: int | None = None) -> Any:
        """The shape, as a tensor's ``size()`` gives it.

        :param axis: give the length of this axis only; default: all of them.
        """
        return self._shape if axis is None else self._shape[axis]

    def numel(self) -> int:
        return torch.Size(self._shape).numel()

    # What a model may do with a tensor.

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError(self._refusal())

    __getitem__ = __setitem__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse
    __neg__ = __invert__ = __and__ = __rand__ = __or__ = __ror__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __matmul__ = __rmatmul__ = _refuse

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (torch.Tensor, bool, int, float)):
            self._refuse()
        return self is other

    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"{name}: {self._refusal()}")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        given = [*arguments, *(options or {}).values()]
        given += [x for some in given if isinstance(some, (list, tuple)) for x in some]  # as torch.cat takes them
        found = [x for x in given if isinstance(x, Placeholder)]
        raise TypeError(found[0]._refusal() if found else f"{cls.__name__} is no tensor")
