"""Communicators of distributed attention: over objects with a few methods, over mpi4py, and among threads."""

from __future__ import annotations

import atexit
import sys
from typing import Any, Protocol

from . import _core

CommunicationError = _core.CommunicationError
CommunicationError.__module__ = "saccade.distributed"
CommunicationError.__doc__ = """Ranks could not be reached, or did not answer in time. ``__cause__`` is the exception
behind it, if Python raised one. The communicator is not used again afterwards."""


class Transport(Protocol):
    """What carries the messages of a :class:`Communicator`. Any class with these methods will do.

    Messages from one rank to another have to arrive in the order in which they were sent, and are received in that
    order. All methods are called by the thread that calls attention. What they raise becomes a
    :class:`CommunicationError` with the same message.

    Three more methods are optional. ``make_progress()`` is called some 5 ms apart while kernels compute, for engines
    that only move messages inside their own functions. ``set_timeout(seconds)`` learns how long a call waits.
    ``abort()`` is called after a failure; if it ends the connections, the other ranks need not wait until their
    time is over.
    """

    def rank(self) -> int:
        """This rank's number, from 0 on."""

    def size(self) -> int:
        """The number of ranks."""

    def send(self, to: int, data: memoryview) -> Any:
        """Begins to send all bytes and returns a request at once. Does not change them.

        :param to: the number of the rank to send to.
        :param data: the bytes, 1 to 64 MiB; they stay valid until the request is finished.
        :returns: any object, which :meth:`is_finished` gets.
        """

    def receive(self, source: int, data: memoryview) -> Any:
        """Begins to receive bytes, and returns a request at once.

        :param source: the number of the rank that sends them.
        :param data: where they go; as many are received as it has.
        :returns: any object, which :meth:`is_finished` gets.
        """

    def is_finished(self, request: Any) -> bool:
        """Whether a request is finished; it is then not asked for again. May block until it is, if all other messages
        travel meanwhile.

        :param request: what :meth:`send` or :meth:`receive` returned.
        """


class Communicator:
    """The ranks that call the functions of :mod:`saccade.distributed` together and in the same order.

    Make one for each group of ranks and keep it. Only one thread of a process uses it at a time.

    :param transport: an object with the methods of :class:`Transport`.
    :param timeout: seconds that a call waits for another rank before it raises :class:`CommunicationError`.
    :raises ValueError: for objects without these methods.
    """

    def __init__(self, transport: Transport, *, timeout: float = 300.0) -> None:
        for name in ("rank", "size", "send", "receive", "is_finished"):
            if not callable(getattr(transport, name, None)):
                raise ValueError(
                    f"transport: expected an object with a method {name}(), got a {type(transport).__name__}"
                )
        self._begin(_core.Communicator(transport), transport, timeout)

    def _begin(self, core: Any, transport: Any, timeout: float) -> None:
        self._core, self._transport = core, transport
        self._is_aborted = False
        self.timeout = timeout

    @property
    def rank(self) -> int:
        """This rank's number, from 0 on."""
        return self._core.rank()

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._core.size()

    @property
    def timeout(self) -> float:
        """Seconds that a call waits for another rank."""
        return self._timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._core.set_timeout(seconds)
        self._timeout = seconds
        if hasattr(self._transport, "set_timeout"):
            self._transport.set_timeout(seconds)

    @property
    def failure(self) -> str:
        """What made this communicator unusable; empty: nothing."""
        return self._core.failure()

    def abort(self) -> None:
        """After a failure: lets the transport tell the other ranks, once."""
        if not self._is_aborted and hasattr(self._transport, "abort"):
            self._is_aborted = True
            self._transport.abort()

    def __repr__(self) -> str:
        return f"<saccade.distributed.Communicator, rank {self.rank} of {self.size}>"


def local_communicators(ranks: int, *, timeout: float = 300.0) -> list[Communicator]:
    """Communicators of as many threads of this process, in the order of their ranks: to try out a division.

    :param ranks: how many.
    :param timeout: seconds that a call waits for another rank.
    :raises ValueError: unless ranks is positive.
    """
    result = []
    for core in _core.local_communicators(ranks):
        communicator = Communicator.__new__(Communicator)
        communicator._begin(core, None, timeout)
        result.append(communicator)
    return result


class _Mpi:
    """Messages over a duplicate of an mpi4py communicator, which meet no others."""

    def __init__(self, comm: Any, mpi: Any) -> None:
        self._comm, self._bytes = comm.Dup(), mpi.BYTE

    def rank(self) -> int:
        return self._comm.Get_rank()

    def size(self) -> int:
        return self._comm.Get_size()

    def send(self, to: int, data: memoryview) -> Any:
        return self._comm.Isend([data, self._bytes], dest=to)

    def receive(self, source: int, data: memoryview) -> Any:
        return self._comm.Irecv([data, self._bytes], source=source)

    def is_finished(self, request: Any) -> bool:
        return request.Test()

    def make_progress(self) -> None:
        self._comm.Iprobe()

    def free(self) -> None:
        self._comm.Free()


_key: Any = None  # of the attribute of an MPI communicator that is its number in _of_key
_of_key: dict[int, Communicator] = {}
atexit.register(_of_key.clear)  # MPI keeps its attributes for longer than the interpreter lives


def _of_mpi(comm: Any, mpi: Any) -> Communicator:
    global _key
    if _key is None:

        def free(_: Any, __: int, number: int) -> None:
            communicator = _of_key.pop(number, None)
            if communicator and not communicator.failure:  # freeing waits for ranks that do not answer
                communicator._transport.free()

        _key = type(comm).Create_keyval(delete_fn=free)
    number = comm.Get_attr(_key)
    if number is None:
        communicator = Communicator(_Mpi(comm, mpi))
        number = id(communicator)
        _of_key[number] = communicator
        comm.Set_attr(_key, number)
    return _of_key[number]


def communicator_of(comm: Any, timeout: float | None) -> Communicator:
    """The communicator of an argument, always the same one for the same MPI communicator."""
    mpi = sys.modules.get("mpi4py.MPI")
    if isinstance(comm, Communicator):
        communicator = comm
    elif mpi is not None and isinstance(comm, mpi.Intracomm):
        communicator = _of_mpi(comm, mpi)
    else:
        raise ValueError(
            "comm: expected an mpi4py.MPI.Intracomm or a saccade.distributed.Communicator, which is made of any object "
            f"that carries messages, got a {type(comm).__name__}"
        )
    if timeout is not None:
        communicator.timeout = timeout
    return communicator
