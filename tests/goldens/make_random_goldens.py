#!/usr/bin/env python3
"""Writes tests/data/random_goldens.h: the numbers that PyTorch and NumPy draw, for random_test.

Run by hand, from anywhere, when cases are added; no build needs it. It needs PyTorch and NumPy from PyPI, on an
x86-64 machine with AVX2:

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tests/goldens/make_random_goldens.py

PyTorch 2.6 and older draw dropout masks differently from 2.9 and newer. With an older one the script writes
tests/data/random_goldens_mkl.h instead, which has only masks.
"""
import pathlib
import sys

import numpy as np
import torch

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
SEEDS = [0, 123, 2**32 - 1, 2**32 + 5, 2**64 - 1]
SIZES = [1, 2, 7, 15, 16, 17, 31, 32, 33, 40, 100, 1000, 4096]
LAYERS = [(1, 1), (3, 2), (2, 2), (4, 16), (7, 5), (10, 1), (16, 16), (33, 17), (64, 64), (768, 3)]
XAVIER_SHAPES = [(3, 2), (6, 4), (48, 16), (1, 1, 4), (1, 1, 33), (2, 3, 4, 5)]
RANGES = [(0, 1), (0, 2), (0, 3), (-5, 6), (0, 256), (0, 1000), (0, 2**31), (0, 2**32 - 1), (0, 2**32),
          (0, 2**32 + 1), (-10**12, 10**12), (0, 2**63 - 1), (-2**63, 2**63 - 1)]
DROPOUTS = [0.1, 0.5, 0.9, 1 / 3]


def digest(array):
    """FNV-1a over the array's elements, each as its bits in an unsigned integer."""
    value = 0xCBF29CE484222325
    array = np.ascontiguousarray(array)
    for word in array.reshape(-1).view(f"u{array.dtype.itemsize}").tolist():
        value = (value ^ word) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def seeded(seed):
    torch.manual_seed(seed if seed < 2**63 else seed - 2**64)


def row(call, seed, shape, arguments, tensor):
    array = tensor.detach().numpy() if isinstance(tensor, torch.Tensor) else tensor
    lengths = ", ".join(map(str, shape))
    values = ", ".join(arguments)
    return f'    {{"{call}", {seed}u, {{{lengths}}}, {{{values}}}, 0x{digest(array):016x}}},'


def real(value):
    return float(value).hex()


def torch_rows():
    for seed in SEEDS:
        for size in SIZES:
            seeded(seed)
            yield row("rand", seed, [size], [], torch.rand(size))
            seeded(seed)
            yield row("randn", seed, [size], [], torch.randn(size))
        for low, high in [(-1.0, 1.0), (-0.25, 0.8125), (2.5, 7.0625)]:
            seeded(seed)
            yield row("uniform", seed, [1000], [real(low), real(high)], torch.empty(1000).uniform_(low, high))
        for size in (9, 1000):
            seeded(seed)
            yield row("normal", seed, [size], [real(0.3), real(1.7)], torch.empty(size).normal_(0.3, 1.7))
        for d_in, d_out in LAYERS:
            seeded(seed)
            layer = torch.nn.Linear(d_in, d_out)
            yield row("linear_weight", seed, [d_in, d_out], [], layer.weight)
            yield row("linear_bias", seed, [d_in, d_out], [], layer.bias)
        for shape in XAVIER_SHAPES:
            seeded(seed)
            yield row("xavier_uniform", seed, shape, [], torch.nn.init.xavier_uniform_(torch.empty(shape)))
            seeded(seed)
            yield row("xavier_normal", seed, shape, [], torch.nn.init.xavier_normal_(torch.empty(shape)))


def dropout_rows():
    for seed in SEEDS:
        for p in DROPOUTS:
            for size in (36, 1601):
                seeded(seed)
                kept = torch.nn.functional.dropout(torch.ones(size), p) != 0
                yield row("dropout_mask", seed, [size], [real(p)], kept)


def numpy_rows():
    for seed in [0, 42, 2**32 - 1]:
        yield row("random_sample", seed, [7, 5], [], np.random.RandomState(seed).random_sample((7, 5)))


def randint_rows():
    for seed in [0, 42, 2**32 - 1]:
        for low, high in RANGES:
            drawn = np.random.RandomState(seed).randint(low, high, size=100).astype(np.int64)
            first = "INT64_MIN" if low == -2**63 else low
            yield f"    {{{seed}u, {first}, {high}, 0x{digest(drawn):016x}}},"


def literals(kind, name, values):
    suffix = "f" if kind == "float" else ""
    numbers = [float(value).hex() + suffix for value in values.tolist()]
    lines = [", ".join(numbers[i:i + 4]) for i in range(0, len(numbers), 4)]
    body = ",\n    ".join(lines)
    return f"inline constexpr {kind} {name}[] = {{\n    {body}}};\n"


def write(name, source, tables):
    head = f"// Made by tests/goldens/make_random_goldens.py with {source}. Do not edit.\n#pragma once\n\n"
    head += '#include "support/random_golden.h"\n\n// clang-format off\n'
    (DATA / name).write_text(head + "\n".join(tables) + "// clang-format on\n")


def table(name, element, rows):
    return f"inline const std::vector<{element}> {name} = {{\n" + "\n".join(rows) + "\n};\n"


def main():
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        sys.exit("make_random_goldens.py: needs a processor with AVX2")
    seeded(123)
    draws_by_mkl = torch.empty(36).bernoulli_(0.5)[2].item() == 1
    if draws_by_mkl:
        write("random_goldens_mkl.h", f"PyTorch {torch.__version__}",
              [table("kMklDropoutGoldens", "RandomGolden", dropout_rows())])
        return
    seeded(123)
    below_16 = torch.randn(5)
    seeded(123)
    from_16_on = torch.randn(20)
    write("random_goldens.h", f"PyTorch {torch.__version__} and NumPy {np.__version__}", [
        literals("float", "kRandn5Seed123", below_16),
        literals("float", "kRandn20Seed123", from_16_on),
        literals("double", "kNumpyNormal7Seed42", np.random.RandomState(42).standard_normal(7)),
        table("kTorchGoldens", "RandomGolden", torch_rows()),
        table("kDropoutGoldens", "RandomGolden", dropout_rows()),
        table("kNumpyGoldens", "RandomGolden", numpy_rows()),
        table("kRandintGoldens", "RandintGolden", randint_rows()),
    ])


if __name__ == "__main__":
    main()
