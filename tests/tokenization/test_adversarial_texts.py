"""The fixed texts on which encoders are compared."""

import unicodedata

from modalities_pipeline.tokenization.adversarial_texts import adversarial_texts


def test_they_hold_what_tokenizers_have_differed_on() -> None:
    texts = adversarial_texts(["<eod>"])
    joined = "\n".join(texts)
    assert "" in texts
    assert any(text and text.isspace() for text in texts)
    assert sum(len(text) > 10_000 for text in texts) >= 10
    for wanted in (
        "\x00",
        "\u200d",
        "\ufe0f",
        "\u2028",
        "\u0085",
        "\ufeff",
        "\ue000",
        "\U0010ffff",
        "\r\n",
        "'s",
        "1.2.3",
    ):
        assert wanted in joined
    assert {"Mn", "Cc", "Cf", "Co", "Cn", "Zs", "Zl", "Nd", "Nl", "So", "Sm", "Lo", "Lm"} <= set(
        map(unicodedata.category, joined)
    )
    for script in ("CJK", "HANGUL", "HIRAGANA", "ARABIC", "HEBREW", "DEVANAGARI", "THAI", "CYRILLIC", "GREEK"):
        assert any(script in unicodedata.name(character, "") for character in set(joined))


def test_special_tokens_stand_alone_in_words_and_cut() -> None:
    texts = adversarial_texts(["<eod>", "[X]"])
    for token in ("<eod>", "[X]"):
        assert {token, token * 2, f"a{token}b", f" {token} ", token[:-1], token.upper()} <= set(texts)


def test_contractions_stand_in_odd_cases_nested_and_beside_odd_blanks() -> None:
    """Engines for regular expressions differ on all of these."""
    texts = set(adversarial_texts([]))
    assert {"o'\u017f'se", "O'S'S'Sx", "1'\u017f'vE ", "o's\u2019sLA", " \u180e'me\u180e  .\u180e"} <= texts
    joined = "\n".join(texts)
    for letter in "\u017f\u212a\u0130\u0131\u00df\u1e9e\ufb01\ufb02\ufb05\u03c2\u01c5":
        assert f"'{letter}'" in joined


def test_they_are_always_the_same_small_and_encodable() -> None:
    texts = adversarial_texts(["<eod>"])
    assert texts == adversarial_texts(["<eod>"])
    assert sum(len(text.encode()) for text in texts) < 400_000
