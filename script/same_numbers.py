#!/usr/bin/env python3
"""Usage: same_numbers.py BOUND FILE OTHER

Compares two texts: what is no number must be the same, and each number differ by at most BOUND times the larger one."""

import re
import sys

NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")
bound, names = float(sys.argv[1]), sys.argv[2:]
texts = [open(name, encoding="utf-8").read() for name in names]
if NUMBER.sub("0", texts[0]) != NUMBER.sub("0", texts[1]):
    sys.exit(f"{names[0]} and {names[1]} differ in more than numbers")
for one, other in zip(*(map(float, NUMBER.findall(text)) for text in texts)):
    if abs(one - other) > bound * max(abs(one), abs(other)):
        sys.exit(f"{names[0]} has {one!r} where {names[1]} has {other!r}")
