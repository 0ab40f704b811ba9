#!/usr/bin/env python3
"""Writes tests/data/files: small files by NumPy, safetensors and pandas, read by the tests and seeds of the fuzz targets.

Run by hand, from anywhere, when cases are added; no build needs it. It needs packages from PyPI:

    python3 -m venv venv && venv/bin/pip install numpy safetensors ml_dtypes pandas
    venv/bin/python tests/goldens/make_file_goldens.py

Unless a name says otherwise a file holds the matrix [[0, 1, 2], [3, 4, 5]], of booleans [[0, 1, 0], [1, 0, 1]].
"""
import io
import pathlib
import struct
import warnings
import zipfile

import ml_dtypes
import numpy as np
import pandas
from safetensors.numpy import save as safetensors_bytes

FILES = pathlib.Path(__file__).resolve().parent.parent / "data" / "files"
TYPES = ["f2", "f4", "f8", "b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]


def matrix(dtype):
    numbers = np.arange(6).reshape(2, 3)
    return (numbers % 2).astype(dtype) if dtype == "b1" else numbers.astype(dtype)


def write(name, data):
    path = FILES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def npy_bytes(array, version=None):
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about newer versions of the format than needed
        np.lib.format.write_array(out, array, version)
    return out.getvalue()


def write_npy():
    for dtype in TYPES:
        write(f"npy/{dtype}.npy", npy_bytes(matrix(dtype)))
    for dtype in ["f8", "i2", "u4"]:
        write(f"npy/order/{dtype}_big_endian.npy", npy_bytes(matrix(dtype).astype(">" + dtype)))
        write(f"npy/order/{dtype}_fortran.npy", npy_bytes(np.asfortranarray(matrix(dtype))))
    write("npy/order/f4_big_endian_fortran.npy", npy_bytes(np.asfortranarray(matrix("f4").astype(">f4"))))
    write("npy/f4_version_2.npy", npy_bytes(matrix("f4"), (2, 0)))
    write("npy/f4_version_3.npy", npy_bytes(matrix("f4"), (3, 0)))
    write("npy/scalar.npy", npy_bytes(np.array(2.5)))
    write("npy/empty.npy", npy_bytes(np.zeros((3, 0), "f4")))
    write("npy/refused/bf16.npy", npy_bytes(matrix(ml_dtypes.bfloat16)))
    write("npy/refused/complex.npy", npy_bytes(matrix("c8")))
    write("npy/refused/objects.npy", npy_bytes(matrix("O")))
    write("npy/refused/fields.npy", npy_bytes(np.zeros(3, [("x", "f4"), ("y", "i2")])))


class Stream(io.RawIOBase):
    """A stream that cannot seek, so that zipfile writes sizes and checksums after the data."""

    def __init__(self):
        self.data = b""

    def writable(self):
        return True

    def write(self, data):
        self.data += bytes(data)
        return len(data)


def zip64_bytes(name, data):
    """An archive that stores every possible number in zip64 records."""
    crc = zipfile.crc32(data)
    size = len(data)
    common = struct.pack("<HHHHHIIIH", 45, 0, 0, 0, 0x21, crc, 0xFFFFFFFF, 0xFFFFFFFF, len(name))
    local = b"PK\3\4" + common + struct.pack("<H", 20) + name + struct.pack("<HHQQ", 1, 16, size, size) + data
    extra = struct.pack("<HHB", 0x5455, 1, 0) + struct.pack("<HHQQQ", 1, 24, size, size, 0)
    central = (b"PK\1\2" + struct.pack("<H", 45) + common + struct.pack("<HHHHII", len(extra), 0, 0, 0, 0, 0xFFFFFFFF) +
               name + extra)
    end64 = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, len(central), len(local))
    locator = b"PK\6\7" + struct.pack("<IQI", 0, len(local) + len(central), 1)
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    archive = local + central + end64 + locator + end
    assert np.array_equal(np.load(io.BytesIO(archive))[name.decode()[:-4]], matrix("f4"))
    return archive


def write_npz():
    arrays = {"f4": matrix("f4"), "i8": matrix("i8"), "b1": matrix("b1"), "W_query.weight": matrix("f8")}
    for name, save in [("stored", np.savez), ("deflated", np.savez_compressed)]:
        out = io.BytesIO()
        save(out, **arrays)
        write(f"npz/{name}.npz", out.getvalue())
    stream = Stream()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            archive.writestr(zipfile.ZipInfo(name + ".npy"), npy_bytes(array), zipfile.ZIP_DEFLATED)
    write("npz/streamed.npz", stream.data)
    write("npz/zip64.npz", zip64_bytes(b"f4.npy", npy_bytes(matrix("f4"))))


def write_safetensors():
    names = {"f2": "F16", "f4": "F32", "f8": "F64", "b1": "BOOL"}
    arrays = {names.get(t, t[0].upper() + str(8 * int(t[1]))): matrix(t) for t in TYPES}
    arrays["BF16"] = matrix(ml_dtypes.bfloat16)
    write("safetensors/all_types.safetensors", safetensors_bytes(arrays))
    shapes = {"scalar": np.array(2.5), "empty": np.zeros((3, 0), "f4"), "\u6ce8\u610f\n\"": matrix("f4")}
    write("safetensors/shapes.safetensors", safetensors_bytes(shapes, {"format": "np", "\u00e9": "\u00fc\n"}))
    write("safetensors/nothing.safetensors", safetensors_bytes({}))


def write_embeddings():
    write("json/rows.json", "[[0, 1, 2], [3, 4.0, 5e0]]")
    write("json/tokens.json", '\ufeff{"tokens": ["a", "\\u6ce8\\ud83d\\ude00"], "inputs": [[0, 1, 2], [3, 4, 5]]}\n')
    write("json/other_keys.json",
          '{"about": {"inputs": [[9]], "deep": [[[{}]]]}, "inputs": [[0, 1, 2], [3, 4, 5]], "n": null}')
    rows = matrix("f8")
    write("csv/numbers.csv", "0,1,2\n3,4,5\n")
    write("csv/header_crlf.csv", "\ufeffx,y,z\r\n0,1,2\r\n\r\n3,4,5\r\n")
    write("csv/tokens.csv", '"one, two",0,1,2\n\u6ce8"\u610f, 3 ,+4,5e0')
    write("csv/pandas.csv", pandas.DataFrame(rows, index=["a", 'say "b"']).to_csv())
    named = pandas.DataFrame({"token": ["a", "2024"], "x": rows[:, 0], "y": rows[:, 1], "z": rows[:, 2]})
    write("csv/pandas_named.csv", named.to_csv(index=False))
    out = io.StringIO()
    np.savetxt(out, rows, delimiter=",", header="x,y,z")
    write("csv/savetxt.csv", out.getvalue())


write_npy()
write_npz()
write_safetensors()
write_embeddings()
