"""What the pipeline asks of a tokenizer."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modalities_pipeline.tokenization.encoders import Encoder


class TokenizerWrapper(ABC):
    """A tokenizer: text to ids and back, and what must be known of its vocabulary."""

    @abstractmethod
    def tokenize(self, text: str) -> list[int]:
        """The ids of one text; empty for the empty text unless the tokenizer adds special tokens."""

    @abstractmethod
    def tokenize_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, each as `tokenize` gives them, but faster."""

    def reference_encoder(self) -> "Encoder":
        """An encoder of this tokenizer's own library: what the ids are is defined by it."""
        from modalities_pipeline.tokenization.encoders import ListEncoder

        return ListEncoder(self)

    def fast_encoder(self) -> "Encoder | str":
        """An encoder of another library that promises the same ids, or a sentence that says why there is none."""
        return f"there is none for {type(self).__name__}"

    @property
    def added_tokens(self) -> list[str]:
        """All tokens that are looked for in a text before it is split into words; the special ones among them."""
        return self.special_tokens

    @abstractmethod
    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ids."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Size of the base vocabulary, without tokens that were added later."""

    @property
    @abstractmethod
    def num_token_ids(self) -> int:
        """Largest id plus one, added tokens included: what an embedding must hold."""

    @property
    @abstractmethod
    def special_tokens(self) -> list[str]:
        """All special tokens, sorted."""

    @property
    def padded_length(self) -> int | None:
        """Number of ids to which every text is padded or cut, or None if lengths vary."""
        return None

    @abstractmethod
    def find_token_id(self, token: str) -> int | None:
        """The id of exactly this token, or None if the vocabulary lacks it."""

    @abstractmethod
    def get_token_id(self, token: str) -> int:
        """The id of a token.

        Raises:
            UserError: the vocabulary lacks the token and has no unknown token to stand for it.
        """

    @abstractmethod
    def is_special_token_id(self, token_id: int) -> bool:
        """Whether the id is that of a special token."""

    @abstractmethod
    def fingerprint(self) -> str:
        """`xxh128:<hex>` of all that decides the ids of a text; the same wherever the tokenizer's files lie."""

    @abstractmethod
    def save(self, output_dir: Path) -> None:
        """Write the tokenizer's files into an existing directory."""
