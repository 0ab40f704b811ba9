"""Attention for ONNX Runtime on the CPU: models' nodes ``Attention`` (opsets 23 to 25) computed by saccade.

``docs/onnxruntime.md`` describes it.
"""

from __future__ import annotations

import pathlib

import onnxruntime

__all__ = ["library_path", "register"]


def library_path() -> str:
    """The path of the library of custom operators, for programs in other languages."""
    return str(pathlib.Path(__file__).parent / "libsaccade_onnxruntime.so")


def register(
    options: onnxruntime.SessionOptions | None = None, *, num_threads: int = 0, domain: str = ""
) -> onnxruntime.SessionOptions:
    """Adds the operator to the options of sessions.

    :param options: of ``InferenceSession``; default: new ones.
    :param num_threads: threads of a node; 0: the library's default, one for each core or ``OMP_NUM_THREADS``. Results
        do not depend on it.
    :param domain: of the nodes that are computed. The default is the standard's: the operator takes the place of ONNX
        Runtime's own. With another, such as "saccade", only nodes of that domain are computed, and the others as ever.
    :returns: the options.
    :raises ValueError: for options that have the operator already, and for a negative number of threads.
    """
    options = onnxruntime.SessionOptions() if options is None else options
    if num_threads < 0 or num_threads > 9999:
        raise ValueError(f"num_threads: expected 0 to 9999, got {num_threads}")
    for name, value in (("saccade.num_threads", str(num_threads)), ("saccade.domain", domain)):
        options.add_session_config_entry(name, value)
    options.register_custom_ops_library(library_path())
    return options
