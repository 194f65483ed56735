"""Texts on which tokenizers that promise the same ids have been seen, or must be feared, to differ.

They are fixed, so that the same two encoders are always judged alike, and small (about 250 KB).
"""

from collections.abc import Iterator, Sequence

from modalities_pipeline.tokenization.contraction_texts import contraction_texts

_NUM_REPEATS = 10_500

_WORDS = (
    "the cat's dog'll they've we'd I'm you're it's IT'S We'LL don't y'all'd've rock'n'roll 'tis \u2019tis",
    "it\u2019s\n's",
    "\n're 've\t'd\r\n'll ' s ''s 's's 's \u2018quoted\u2019 \u201cdouble\u201d",
    "CamelCase snake_case kebab-case SCREAMING_CASE mixed123abc 4u2c x86_64 v1.2.3-rc.4+build.5",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis Donaudampfschifffahrtsgesellschaft",
)
_NUMBERS = (
    "0 00 007 1 12 123 1234 12345 123456789 3.14159 1,234,567.89 -1e-10 +6.02E+23 0x1F 0b1010 1/2 50% $9.99 \u20ac5",
    "\u00bd \u00b2 \u2167 \u0664\u0665\u0666 \uff11\uff12\uff13 \u4e00\u4e8c\u4e09 1\u00a0000 1\u2009000 1st 2nd 3rd",
)
_CODE = (
    "def f(x: int = 0) -> str:\n    if x >= 1 and not y:\n\t\treturn f'{x!r:>10}'\n\n\n    # \u00e9nd\n",
    '#include <stdio.h>\r\nint main(void){\r\n  printf("%d\\n", a[i++]<<2 | ~b & 0xFF);\r\n}\r\n',
    "<div class='a b'>&amp;&#x27;</div><!-- c --> {{ jinja }} ${VAR:-x} \\alpha_{i}^{2} $$x$$ // /* */ ;;; @@@",
    '{"k": [1, null, true, "\\u00e9\\n"]}\n\n---\n- a: &x !!str\n...\nhttps://u:p@ex.org:80/p?q=1&r=%20#f a@b.co',
)
_SPACES = (
    "",
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    " \n",
    "\n ",
    "\n\n",
    " \t \n \r\n  x",
    "x ",
    "x  ",
    "x   \n",
    "\n\nx",
    "a  b   c    d     e",
    "a \n b\n  c\n\n\n d",
    "\u00a0",
    "a\u00a0b",
    "a \u00a0 b",
    "\u3000\u3000a\u3000b",
    "\u2003a\u2002b",
    "\u200ba\u200bb\u200b",
    "\ufeff",
    "\ufeffa",
    "a\ufeffb",
    "\u2028",
    "a\u2028b\u2029c",
    "\u0085",
    "a\u0085b",
    "\u1680x\u180ex",
    "\x0b\x0c\x1c\x1d\x1e\x1f",
    " \x0b x \x0c y",
)
_CONTROLS = (
    "\x00",
    "a\x00b",
    "\x00\x00\x00",
    " \x00 ",
    "".join(map(chr, range(32))),
    "\x7f",
    "".join(map(chr, range(0x80, 0xA0))),
    "\x1b[31mred\x1b[0m",
    "a\bb",
    "\u0001\u0002 \u0003x",
)
_EMOJI = (
    "\U0001f600",
    "a\U0001f600b \U0001f600\U0001f600",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f44d\U0001f3fd \U0001f44d\U0001f3ff",
    "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7\U0001f1ef",
    "\u2764\ufe0f \u2764\ufe0e 1\ufe0f\u20e3",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "\u200d\u200d",
    "\ufe0f",
    "x\u200dy",
    "\U0001f9d1\U0001f3fb\u200d\U0001f4bb",
)
_MARKS = (
    "e\u0301 \u00e9 n\u0303 \u00f1 a\u0308\u0304 A\u030a \u00c5 \u212b",
    "\u0301",
    " \u0301",
    "\u0301\u0301\u0301a",
    "Z\u0351\u036b\u0343\u036a\u0302a\u0328\u0334l\u0334\u0322g\u0337\u0321o\u0335",
    "\u1100\u1161\u11a8 \uac01",
    "\u0e19\u0e49\u0e33\u0e43\u0e08 \u0e01\u0e33",
    "\u0915\u094d\u0937 \u0939\u093f\u0928\u094d\u0926\u0940",
    "\ufb01 \ufb03 \u01c6 \u0130i\u0131I \u1e9e\u00df\u017f",
)
_SCRIPTS = (
    "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3002\u30ab\u30bf\u30ab\u30ca\u3001\uff76\uff85",
    "\u6f22\u5b57\u304b\u306a\u4ea4\u3058\u308a\u6587",
    "\u4e2d\u6587\uff0c\u6ca1\u6709\u7a7a\u683c\u3002\U00020000\U0002a6d6",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4.",
    "\u0627\u0644\u0639\u064e\u0631\u064e\u0628\u0650\u064a\u0651\u0629 \u0661\u0662\u0663\u060c \u0644\u0627",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "abc \u202eRTL\u202c def \u2067x\u2069 \u200f\u200e",
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u0442\u0435\u043a\u0441\u0442, \u0457\u0436\u0430\u043a",
    "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u03c2\u03c3\u03a3",
    "\u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8",
    "\u0531\u0580\u0574\u0565\u0576 \u12a0\u121b\u122d\u129b \u0f56\u0f7c\u0f51 \u1780\u17d2\u1798\u17c2\u179a",
    "Ti\u1ebfng Vi\u1ec7t \u00c0\u00c9\u00ee\u00f5\u00fc\u00df\u00f8\u00e5\u00e6\u0153",
    "\u0141\u00f3d\u017a \u010de\u0161tina T\u00fcrk\u00e7e",
    "\U00010330\U00010331 \U0001d400\U0001d401 \U00012000 \U0001f0a1",
    "\u2200x\u2208\u211d: \u2211\u00b2\u221e \u2264 \u222b\u03c0 \u2192 \u21d2 \u00b1 \u00d7 \u00f7 \u221a",
    "\ue000\uf8ff\U000f0000\U0010fffd",
    "\ufffd\ufffe\uffff\ufdd0\U0001ffff\U0010ffff",
    "\u2581a\u2581\u2581b \u0120x \u010ay ##ing </w> \u2423",
)
_RUNS = ("a", "ab", "A1", "1", "-", " ", "\n", "\t ", "\u00e9", "\u65e5", "\U0001f600", "\u0301", ".", "'s", "\x00")


def adversarial_texts(special_tokens: Sequence[str]) -> list[str]:
    """The fixed texts, and texts around and inside each of the special tokens."""
    fixed = [*_WORDS, *_NUMBERS, *_CODE, *_SPACES, *_CONTROLS, *_EMOJI, *_MARKS, *_SCRIPTS]
    runs = [(unit * _NUM_REPEATS)[:_NUM_REPEATS] for unit in _RUNS]
    around = [text for token in special_tokens for text in _around(token)]
    return [*fixed, " ".join(fixed), "".join(fixed), *runs, *_every_block(), *contraction_texts(), *around]


def _around(token: str) -> Iterator[str]:
    """A special token alone, repeated, in and beside words and spaces, cut, and in another case."""
    yield from (token, token + token, f"a{token}b", f" {token} ", f"\n{token}\n", f"x  {token}  y {token}.")
    yield from (token[:-1], token[1:], f"{token[:-1]} {token[-1:]}", f"{token[:-1]}\u0301>")
    yield from (token.upper(), token.lower())


def _every_block() -> Iterator[str]:
    """Samples of all of Unicode: each 7th character of the lower planes in lines of 64, surrogates left out."""
    characters = [chr(code) for code in range(0xA0, 0x20000, 7) if not 0xD800 <= code <= 0xDFFF]
    for start in range(0, len(characters), 64):
        yield "".join(characters[start : start + 64])
