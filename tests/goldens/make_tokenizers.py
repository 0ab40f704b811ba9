#!/usr/bin/env python3
"""Writes tests/data/tokenizers: small tokenizers of the kinds that models use, and what the tokenizers library makes of
some texts: NAME.json and cases/NAME.json.

Run by hand, from anywhere; no build needs it. It needs two packages from PyPI:

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3 sentencepiece protobuf
    venv/bin/python tests/goldens/make_tokenizers.py [--cases]

With --cases the tokenizers stay as they are: training gives others each time.
"""
import io
import json
import pathlib
import random
import sys
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data" / "tokenizers"
TEXTS = """Attention weighs the values of all keys by how well each key answers a query.
The softmax of the scores is a row of weights: none is negative, and their sum is 1.
A causal mask hides the keys that come after a row; a window hides those that are too far away.
Don't be surprised: the heads that we've seen weren't trained to do what they're doing, it's what helped.
In 2017 "Attention is all you need" had 8 heads, 512 numbers a token and 65,000,000 parameters.
def attention(q, k, v, *, causal=None, window=None):  # https://example.org/a_b?c=d&e=f
    return softmax(q @ k.T / sqrt(d)) @ v
Die Gewichte einer Zeile ergeben zusammen eins; größere Köpfe hören mehr. Où est le modèle entraîné ? À côté.
注意力机制把每个查询与所有的键相比较，得出权重，再按权重混合各个值。因果掩码遮住后面的键。
日本語の文章は空白で区切られないので、単語の境界を見つけるのは簡単ではありません。
Внимание сравнивает запрос со всеми ключами и складывает значения с весами.
""".split("\n")
FIXED = [
    *("", " ", "Hello, world!", "  two  spaces\tand\ntabs ", "café déjà vu — naïve", "Ångström ﬁne ½ ① ﷺ"),
    *("日本語とCJK：注意力 机制。", "한국어 텍스트 각", "emoji 👩‍👩‍👧‍👦 🇩🇪 ok", "İstanbul ISTANBUL ß ẞ"),
    *("don't I'll we've 's 'S", "1234567 3.14 x_1", "a\u0301\u0323 o\u0308\u0304", "\u200b\ufeff\u00ad zero"),
    *("<s>hi</s> <mask> [MASK][SEP] <|endoftext|>x", "Headattention attention,attentions  mask  Head", "x" * 120),
    *("नमस्ते ทดสอบ עברית العربية", "http://a.b/c?d=e&f=g#h", "tail   ", "\r\n\r\n a \n", "mixed日本x한y"),
    # What moves offsets in the library: spaces that are added, characters that are taken away, marks out of order.
    *("</s>\u200c x<|endoftext|>각", "\x01 start", "\x7f\u2003 Ġ \ufe0f", "e\u0301\u0f73 \u0f73\u0301", "\U0001d161x"),
    *("\x07\x16;", "\ufffe\U0010ffff a\U0001fffe\U0010fffeb"),
    *("…“quoted” ‘x’ ´ ` ¨", "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋ ∧ α < β, ¬a ↔ ≥", "    four spaces", "e\u0301 and é", "▁under ▁ line"),
]
DRAWN = 40
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
ALPHABET = pre_tokenizers.ByteLevel.alphabet()


def train(tokenizer, trainer, size, special=SPECIAL, **options):
    tokenizer.train_from_iterator(
        TEXTS, trainer(vocab_size=size, special_tokens=list(special), show_progress=False, **options)
    )
    return tokenizer


def template(tokenizer, single, pair, *tokens):
    return processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(token, tokenizer.token_to_id(token)) for token in tokens]
    )


def bert(lowercase=True, **options):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, **options)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    train(tokenizer, trainers.WordPieceTrainer, 400)
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = template(tokenizer, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", "[CLS]", "[SEP]")
    return tokenizer


def gpt2(prefix=False, trim=False):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim)
    return train(tokenizer, trainers.BpeTrainer, 400, ("<|endoftext|>",), initial_alphabet=ALPHABET)


def roberta(prefix):
    tokenizer = gpt2(prefix)
    tokenizer.add_special_tokens(["<s>", "</s>", AddedToken("<mask>", lstrip=True, special=True)])
    begin, end = (("<s>", tokenizer.token_to_id("<s>")), ("</s>", tokenizer.token_to_id("</s>")))
    tokenizer.post_processor = processors.RobertaProcessing(end, begin, trim_offsets=True, add_prefix_space=prefix)
    return tokenizer


def llama(legacy):
    trained = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    train(trained, trainers.BpeTrainer, 600, ("<unk>", "<s>", "</s>", *BYTES))
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = Tokenizer(models.BPE(model["vocab"], merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if legacy:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = template(tokenizer, "<s> $A", "<s> $A <s>:1 $B:1", "<s>")
    return tokenizer


def llama3():
    words = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
        r"\s+(?!\S)|\s+"
    )
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(words), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, trainers.BpeTrainer, 400, ("<|begin|>", "<|end|>"), initial_alphabet=ALPHABET)
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            template(tokenizer, "<|begin|> $A", "<|begin|> $A <|begin|>:1 $B:1", "<|begin|>"),
        ]
    )
    return tokenizer


def unigram(falls_back=False):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ("<pad>", "</s>", "<unk>", *(BYTES if falls_back else []))
    train(tokenizer, trainers.UnigramTrainer, 500, special, unk_token="<unk>")
    if falls_back:
        model = json.loads(tokenizer.to_str())["model"]
        tokenizer.model = models.Unigram([tuple(piece) for piece in model["vocab"]], model["unk_id"], True)
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = template(tokenizer, "$A </s>", "$A </s> $B </s>", "</s>")
    return tokenizer


def charsmap():
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for text in TEXTS if text]),
        model_writer=file,
        vocab_size=230,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(file.getvalue())
    tokenizer = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in model.pieces], 0, False))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
            normalizers.Strip(left=False),
            normalizers.Replace(Regex(" {2,}"), "▁"),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


def misc():
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Whitespace(),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Punctuation("merged_with_previous"),
        ]
    )
    train(tokenizer, trainers.BpeTrainer, 300)
    tokenizer.add_tokens(
        [
            AddedToken("attention", single_word=True),
            AddedToken("Head", normalized=True),
            AddedToken(" mask ", lstrip=True, rstrip=True, normalized=False),
        ]
    )
    return tokenizer


def level():
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.NFKD()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous")]
    )
    return train(tokenizer, trainers.WordLevelTrainer, 300)


class Draws:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.pool = "".join(TEXTS) * 2 + "".join(FIXED)

    def text(self):
        """A part of the texts, or characters of them and of Unicode 3.2: the libraries' versions of Unicode differ."""
        if self.random.random() < 0.4:
            begin = self.random.randrange(len(self.pool))
            return self.pool[begin : begin + self.random.randrange(1, 60)]
        blocks = [(32, 127), (160, 0x700), (0x900, 0x3100)]
        characters = [
            self.random.choice(self.pool) if self.random.random() < 0.8 else chr(self.random.randrange(*self.random.choice(blocks)))
            for _ in range(self.random.randrange(1, 40))
        ]
        return "".join(c for c in characters if c in self.pool or unicodedata.ucd_3_2_0.category(c) != "Cn")


def bytes_before(text):
    """For each character, and the end, the bytes before it."""
    positions = [0]
    for character in text:
        positions.append(positions[-1] + len(character.encode()))
    return positions


def case(tokenizer, draws, text):
    add, skip = draws.random.random() < 0.8, draws.random.random() < 0.5
    pair = draws.text() if add and draws.random.random() < 0.25 else None
    found = tokenizer.encode(text, pair, add_special_tokens=add)
    positions = [bytes_before(text), bytes_before(pair or "")]
    ranges = [
        [0, 0] if sequence is None else [positions[sequence][position] for position in offsets]
        for offsets, sequence in zip(found.offsets, found.sequence_ids)
    ]
    result = {"text": text, "add": add, "skip": skip, "ids": found.ids, "tokens": found.tokens, "ranges": ranges}
    result |= {"types": found.type_ids, "words": found.word_ids}
    result["decoded"] = tokenizer.decode(found.ids, skip_special_tokens=skip)
    return result if pair is None else {**result, "pair": pair}


KINDS = {
    "bert": bert(),
    "bert_cased": bert(False, strip_accents=True, handle_chinese_chars=False),
    "gpt2": gpt2(),
    "gpt2_trim": gpt2(True, True),
    "roberta": roberta(False),
    "roberta_prefix": roberta(True),
    "llama": llama(True),
    "llama_new": llama(False),
    "llama3": llama3(),
    "t5": unigram(),
    "unigram_bytes": unigram(True),
    "misc": misc(),
    "level": level(),
    "charsmap": charsmap(),
}
(FOLDER / "cases").mkdir(parents=True, exist_ok=True)
for seed, (name, tokenizer) in enumerate(KINDS.items()):
    draws = Draws(seed)
    file = FOLDER / f"{name}.json"
    if "--cases" in sys.argv:
        tokenizer = Tokenizer.from_file(str(file))
    else:
        file.write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False) + "\n")
    cases = [case(tokenizer, draws, text) for text in FIXED + [draws.text() for _ in range(DRAWN)]]
    lines = ",\n".join(json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in cases)
    (FOLDER / "cases" / f"{name}.json").write_text(f"[\n{lines}\n]\n")
