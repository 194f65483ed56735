"""Short texts around apostrophes, letters with odd case and odd blanks: there, engines for regular expressions differ.

Patterns that split texts into words know the English contractions, often in either case. Which letters count as "s" or
"k" in another case (U+017F, U+212A), and which characters count as blanks (U+180E), depends on the engine.
"""

import itertools

_CONTRACTIONS = ("'s", "'S", "'\u017f", "'t", "'re", "'vE", "'m", "'ll", "'LL", "'d", "'", "\u2019s", "\u2019\u017f")
_FIRST_ONLY = ("", "''", "\u017f", "\u02bcs", "'\u0301s", "'s\u0301", "\uff07\uff53", "'l\u2113", "'\u217c\u217c")
_ODD_CASES = (
    *("\u017ft", "\ufb01", "\ufb02", "\ufb05", "\ufb06", "\u00df", "\u1e9e", "\u212a", "\u212b", "\u0130", "\u0131"),
    *("i\u0307", "\u03c3", "\u03c2", "\u03a3", "\u01c4", "\u01c5", "\u01c6", "\u01c8", "\u01cb", "\u01f2", "\u0345"),
    *("\u1fb3", "\u1fbc", "\u0149", "\u01f0", "\u0390", "\u1e96", "\u1e9b", "\u03f4", "\u2126", "\u1c80", "\u10d0"),
    *("\u1c90", "\u13a0", "\uab70", "\u0280", "\u2160", "\u24d0", "\uff33", "\U0001e922", "\u02b0", "\u1d2c"),
)
_BLANKS = (
    *(
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        "\r",
        "\x0b",
        "\x0c",
        "\x1c",
        "\x1f",
        "\x85",
        "\xa0",
        "\u1680",
        "\u180e",
        "\u2000",
    ),
    *("\u200b", "\u200d", "\u2028", "\u2029", "\u202f", "\u205f", "\u2060", "\u3000", "\ufeff"),
)
_BEFORE = ("", "o", "O", "1", " ", "\n", ".", "\u65e5", "e\u0301", "aB")
_BEHIND = ("", "e", "LA", "1", " ", "'s")


def contraction_texts() -> list[str]:
    """A few thousand texts, always the same."""
    pairs = [first + second for first in (*_CONTRACTIONS, *_FIRST_ONLY) for second in ("", *_CONTRACTIONS)]
    nested = [
        before + pair + _BEHIND[number % len(_BEHIND)]
        for number, (before, pair) in enumerate(itertools.product(_BEFORE, pairs))
    ]
    repeated = [before + contraction * 3 + "x" for before in _BEFORE for contraction in _CONTRACTIONS]
    odd = [
        text
        for letter in _ODD_CASES
        for text in (
            f"o'{letter}'se",
            f"'{letter}{letter} {letter}'s{letter}",
            f"A{letter}a{letter}'{letter}E 1{letter}",
        )
    ]
    blanks = [
        text
        for blank in _BLANKS
        for text in (
            f"{blank}'s",
            f"a{blank}{blank}'se{blank}",
            f"1{blank}1 {blank} a{blank}",
            f".{blank}{blank}\n{blank}x",
            *(f"{blank}{other}'me{other}{blank}{blank}.{other}" for other in _BLANKS),
        )
    ]
    return [*nested, *repeated, *odd, *blanks]
