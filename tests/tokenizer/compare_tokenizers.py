#!/usr/bin/env python3
"""Usage: compare_tokenizers.py PROGRAM LINES TOKENIZER.json...

Compares the tokens of many lines with those of PyPI's `tokenizers`, ids and offsets: the licence texts of Debian, and
lines that are drawn from the odd corners of Unicode. PROGRAM is tokenize_lines."""

import pathlib
import random
import subprocess
import sys
import unicodedata

from tokenizers import Tokenizer

ODD = [
    *(
        "a\u0301\u0323",
        "e\u0301",
        "\u00e9",
        "\u1100\u1161\u11a8",
        "각",
        "한국어",
        "\u0958",
        "\u0f73",
        "\u2126",
        "ﬁ",
        "①",
    ),
    *(
        "👩‍👩‍👧‍👦",
        "🇩🇪",
        "👍🏽",
        "\U0001f1e9",
        "\u200d",
        "\ufe0f",
        "שָׁלוֹם",
        "العَرَبِيَّة",
        "\u202e",
        "\u202c",
        "\u2067",
        "\u061c",
    ),
    *(
        "\u200b",
        "\u200c",
        "\u2060",
        "\ufeff",
        "\u00ad",
        "\0",
        "\x01",
        "\x7f",
        "\x85",
        "\u2028",
        "\u2029",
        "\ufffd",
        "\ufffe",
    ),
    *(
        "\U0010ffff",
        "\ue000",
        "\u3000",
        "\u00a0",
        "\u1680",
        "\u2003",
        "\t",
        "\n",
        "\r\n",
        "  ",
        "    ",
        "注意力",
        "日本語",
        "。",
    ),
    *(
        "ß",
        "ẞ",
        "İ",
        "ı",
        "ǅ",
        "Σίσυφος",
        "ς",
        "Å",
        "नमस्ते",
        "ทดสอบ",
        "ქართული",
        "𝔄𝔱𝔱",
        "½",
        "٣",
        "x²",
        "H₂O",
        "don't",
        "I'LL",
    ),
    *(
        "▁",
        "Ġ",
        "Ċ",
        "##ing",
        "<s>",
        "</s>",
        "[MASK]",
        "[CLS]",
        "<|endoftext|>",
        "<0x0A>",
        "https://a.b/c?d=e",
        "3,141.59",
    ),
    *(
        "the",
        " attention",
        "Transformers",
        "_x1",
        "--",
        "…",
        "“q”",
        "\\",
        '"',
        "{}",
        "x" * 90,
        "1234567890",
        "C++",
        "ÀÉ",
    ),
]


def lines_of(count):
    """Texts as bytes."""
    generator = random.Random(7)
    # Characters of Unicode 3.2 that have not changed, and some that never will be: the library has tables of several
    # later versions.
    old = unicodedata.ucd_3_2_0.category
    all_characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    characters = [c for c in all_characters if old(c) != "Cn" and old(c) == unicodedata.category(c)]
    characters += [chr(plane << 16 | 0xFFFE) for plane in range(17)] * 100
    licences = []
    for file in sorted(pathlib.Path("/usr/share/common-licenses").iterdir()):
        if not file.is_symlink():
            licences += file.read_bytes().split(b"\n")
    lines = licences[: count // 2]
    while len(lines) < count:
        kind = generator.random()
        if kind < 0.7:
            text = "".join(
                generator.choice(ODD) + generator.choice(["", " ", ""]) for _ in range(generator.randint(1, 12))
            )
            data = text.encode()
        elif kind < 0.9:
            data = "".join(generator.choice(characters) for _ in range(generator.randint(1, 20))).encode()
        else:
            data = bytes(generator.randrange(256) for _ in range(generator.randint(1, 30)))
        lines.append(data)
    return lines


def expected_tokens(tokenizer, line):
    """Ids, and offsets in bytes; of bytes that are no UTF-8, the ids alone."""
    text = line.decode("utf-8", "replace")
    encoding = tokenizer.encode(text)
    if text.encode() != line:
        return encoding.ids, None
    starts = [0]
    for character in text:
        starts.append(starts[-1] + len(character.encode()))
    return encoding.ids, [(starts[begin], starts[end]) for begin, end in encoding.offsets]


def main():
    program, count, files = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    lines = lines_of(count)
    assert lines and files, "nothing to compare"
    given = b"".join(b"%d\n%s" % (len(line), line) for line in lines)
    wrong = 0
    for file in files:
        tokenizer = Tokenizer.from_file(file)
        tokenizer.no_truncation(), tokenizer.no_padding()
        printed = subprocess.run([program, file], input=given, stdout=subprocess.PIPE, check=True).stdout
        rows = printed.decode().split("\n")[:-1]
        assert len(rows) == len(lines), (file, len(rows))
        differ = 0
        for line, row in zip(lines, rows):
            numbers = [int(number) for number in row.split()]
            ids, offsets = numbers[::3], list(zip(numbers[1::3], numbers[2::3]))
            wanted_ids, wanted_offsets = expected_tokens(tokenizer, line)
            if ids != wanted_ids or (wanted_offsets is not None and offsets != wanted_offsets):
                differ += 1
                if differ <= 3:
                    print(f"  {line!r}\n    got    {ids} {offsets}\n    wanted {wanted_ids} {wanted_offsets}")
        print(f"{file} ({tokenizer.model.__class__.__name__}): {differ} of {len(lines)} lines differ", flush=True)
        wrong += differ
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
