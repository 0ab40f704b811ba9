"""Pictures whose patches are tokens."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np


def pixels_of(image: Any) -> np.ndarray:
    """The argument `image`: a picture of Pillow, or uint8 [height, width, 3]."""
    try:
        convert = getattr(image, "convert", None)
        array = np.asarray(convert("RGB") if callable(convert) else image)  # Pillow's pictures may have other modes
    except Exception as error:  # reading what a caller gives may raise anything
        raise ValueError(f"image: cannot be read ({error})") from error
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8 or array.size == 0:
        raise ValueError(f"image: expected uint8 [height, width, 3], got {array.dtype} {list(array.shape)}")
    return np.ascontiguousarray(array)


def png_of(pixels: np.ndarray, most: int = 1000) -> bytes:
    """The pixels as a PNG file, which the page shows, with at most `most` of them along an edge."""
    step = -(-max(pixels.shape[:2]) // most)
    if step > 1:  # a pixel of its middle stands for each block
        row, column = (min(step // 2, size - 1) for size in pixels.shape[:2])
        pixels = pixels[row::step, column::step]
    height, width, _ = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each row begins with its filter: none
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
