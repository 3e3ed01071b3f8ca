"""Trains three small byte-level BPE tokenizers and records what the `tokenizers` package (0.23) makes of hard texts:
gpt2.json, llama3.json, prefix.json (tokenizer.json files) and cases.json {NAME: [{text, ids, decoded}]}.

    python3 tests/engine/tokenizers/record.py TEXT...        run in this folder's parent project; TEXT: what to learn from
"""

import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# Every kind of White_Space, and U+180E, which once was one.
SPACES = "".join(f"a{chr(c)}b{chr(c)}{chr(c)}" for c in [9, 10, 11, 12, 13, 28, 31, 32, 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x2010),
                                                        0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF])
TEXTS = [
    "", " ", "  ", "\n", "\n\n \n", "a", " a", "  a", "a ", "a  b", "Hello world", "Hello, world! It's 2026.", "the the the  the   the",
    "I'm you're he's we've they'll I'd don't", "I'M YOU'RE HE'S WE'VE THEY'LL I'D DON'T 'S", "'\u017f 'K \u212a's", "o'clock 'tis 'twas",
    "1 12 123 1234 12345678901 3.14 1,000,000 \u0663\u0664\u0665 \u00bd \u2167 \u4e00\u4e8c", "x1y2z3 A1b2", "tabs\tand\t\tmore \t mixed",
    "line one\nline two\r\nline three\r\rfour\n\n\nfive\n  indented\n\ttabbed   \n", "   leading", "trailing   ", SPACES,
    "na\u00efve caf\u00e9 \u00fcber \u00df \u00c5ngstr\u00f6m", "e\u0301 n\u0303 combining \u0e01\u0e33\u0e19\u0e31", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3002\u6c49\u5b57 \ud55c\uad6d\uc5b4",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u05e2\u05d1\u05e8\u05d9\u05ea \u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u0939\u093f\u0928\u094d\u0926\u0940",
    "\U0001f600\U0001f44d\U0001f3fd\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001d54f \U00010348", "\x00\x01\x1f\x7f\x80\xff\uffff\U0010ffff", "\ufffd\u200b\u200d\u2066",
    "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> <|endoftext|><|endoftext|>\n", "<|endoftext", "<|<|endoftext|>|>", "<|end|><|endof|><|endoftext|>",
    "x<tool>y<tool_call>z<tool", "a [MASK] b[MASK]", "price: $5.00 (50%) #1 @you & me * ~ ` ^ | \\ / ?!...", "http://example.org/a_b-c?d=e&f=%20#g",
    "def f(x):\n    return x ** 2  # square\n\n\nclass A:\n\tpass\n", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "abababababab" * 20, "=" * 100 + "-" * 37, " " * 200 + "x" + "\n" * 50, "thethethethe" * 30 + "\u00e9" * 300,
]


def trained(text, pre_tokenizer, size, special):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizer
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=special,
                                                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def random_texts(n):
    rng = random.Random(1)
    ranges = [(32, 127)] * 6 + [(9, 14), (0xA0, 0x250), (0x300, 0x370), (0x400, 0x530), (0x660, 0x670), (0x900, 0x980), (0x2000, 0x2070),
                                (0x3040, 0x3100), (0x4E00, 0x4F00), (0x1F600, 0x1F650)]
    for _ in range(n):
        yield "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.randrange(1, 60)))


def main():
    text = [pathlib.Path(p).read_text() for p in sys.argv[1:]] + TEXTS * 3
    end = AddedToken("<|endoftext|>", special=True, normalized=False)
    gpt2 = trained(text, pre_tokenizers.ByteLevel(add_prefix_space=False), 900, [end])
    gpt2.add_tokens([AddedToken("[MASK]", normalized=True)])
    llama3 = trained(text, pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), 900, [])
    # As Meta's file: words that are tokens need no merges, added tokens follow the vocabulary, one begins another, one
    # is no ASCII, a begin token stands before every text unless it is asked not to.
    document = json.loads(llama3.to_str())
    document["model"]["ignore_merges"] = True
    document["model"]["vocab"][" zebras".replace(" ", "\u0120")] = len(document["model"]["vocab"])
    llama3 = Tokenizer.from_str(json.dumps(document))
    llama3.add_special_tokens([AddedToken(s, normalized=False) for s in
                               ["<|begin_of_text|>", "<|endoftext|>", "<|end|>", "<|endof|>", "<tool_call>", "<tool>"]])
    llama3.add_tokens([AddedToken("\u6c49\u5b57", normalized=False)])
    llama3.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", llama3.token_to_id("<|begin_of_text|>"))])
    prefix = trained(text, pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)]), 400, [end])

    cases = {}
    for name, t in [("gpt2", gpt2), ("llama3", llama3), ("prefix", prefix)]:
        document = json.loads(t.to_str())
        if name == "gpt2":  # the older form of merges
            document["model"]["merges"] = [" ".join(m) for m in document["model"]["merges"]]
        (HERE / f"{name}.json").write_text(json.dumps(document, ensure_ascii=True, separators=(",", ":")) + "\n")
        t = Tokenizer.from_file(str(HERE / f"{name}.json"))
        cases[name] = []
        for s in TEXTS + [" zebras and zebras"] + list(random_texts(60)):
            ids = t.encode(s, add_special_tokens=False).ids
            cases[name].append({"text": s, "ids": ids, "decoded": t.decode(ids, skip_special_tokens=False)})
    (HERE / "cases.json").write_text(json.dumps(cases, ensure_ascii=True, separators=(",", ":")) + "\n")


main()
