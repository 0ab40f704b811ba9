"""Names of files, and files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from typing import Any

_numbers = itertools.count()


def file_name(path: Any) -> bytes:
    """The bytes of a file's name.

    :raises ValueError: if path is none: a number would be a file that is open.
    """
    try:
        name = os.fsencode(path)
        if b"\0" not in name:
            return name
    except TypeError:
        raise ValueError(f"path: expected a file name, got {type(path).__name__}") from None
    except UnicodeEncodeError:
        pass
    raise ValueError(f"path: expected a file name, got {ascii(path)}, which no file can have")


def write_file(name: bytes, content: bytes) -> None:
    """Writes a file as the library does: a temporary file in its folder, flushed to disk, takes its name.

    Where that is a symbolic link, it replaces what the link names. Devices and pipes are written directly.

    :raises OSError: if that fails; then an old file is as it was, and no temporary file is left.
    """
    try:
        _replace(os.path.realpath(name), content)
    except OSError as error:  # names the file of the caller, whichever it failed for
        raise OSError(error.errno, error.strerror, os.fsdecode(name)) from None


def _replace(target: bytes, content: bytes) -> None:
    mode = os.stat(target).st_mode if os.path.exists(target) else None
    if mode is not None and not stat.S_ISREG(mode):
        with open(target, "wb") as file:
            file.write(content)
        return
    if mode is not None and not os.access(target, os.W_OK):  # which renaming would ignore
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    temporary = os.path.join(os.path.dirname(target), b".saccade-%d-%d.tmp" % (os.getpid(), next(_numbers)))
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise
