"""Reads arguments of any type."""

from __future__ import annotations

from typing import Any, Callable


def flag(value: Any, name: str) -> bool:
    """The argument as a bool; it may be an int or a NumPy bool."""
    try:
        return bool(value)
    except (OverflowError, RuntimeError, TypeError, ValueError):
        raise ValueError(f"{name}: expected True or False, got {type(value).__name__}") from None


def shown(value: Any, text: Callable[[Any], str] = repr) -> str:
    """The value as text for a message; its type if it has no text."""
    try:
        return text(value)
    except (TypeError, ValueError):
        return f"a {type(value).__name__}"


def number(value: Any) -> float:
    """The argument as a float; nan if it is not a number."""
    try:
        return float(value)
    except (OverflowError, RuntimeError, TypeError, ValueError):
        return float("nan")


def drops(dropout_p: Any) -> bool:
    """Whether there is dropout; also True for a value that is not a number, which the library then refuses."""
    return dropout_p is not None and number(dropout_p) != 0
