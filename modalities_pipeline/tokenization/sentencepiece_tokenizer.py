"""Pretrained tokenizers of SentencePiece. The library is imported when a tokenizer is built."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from modalities_pipeline.data.files import digest_file, digest_strings
from modalities_pipeline.exceptions import ConfigError, DatasetNotFoundError, UserError
from modalities_pipeline.tokenization.hf_loading import first_line
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

if TYPE_CHECKING:
    from modalities_pipeline.tokenization.encoders import Encoder

SENTENCEPIECE_FILE_NAME = "tokenizer.model"


class PreTrainedSPTokenizer(TokenizerWrapper):
    """A SentencePiece model; no beginning or end token is added."""

    def __init__(self, tokenizer_model_file: str) -> None:
        """Load the model.

        Raises:
            DatasetNotFoundError: there is no such file.
            ConfigError: it is no SentencePiece model.
        """
        import sentencepiece

        self._model_path = Path(tokenizer_model_file)
        if not self._model_path.is_file():
            raise DatasetNotFoundError(f"{tokenizer_model_file} does not exist. Name a SentencePiece .model file.")
        self._digest = digest_file(self._model_path)
        self.tokenizer = sentencepiece.SentencePieceProcessor()
        try:
            self.tokenizer.Load(str(tokenizer_model_file))
        except RuntimeError as error:
            raise ConfigError(f"{tokenizer_model_file} is no SentencePiece model ({first_line(error)}).") from error

    def tokenize(self, text: str) -> list[int]:
        """See `TokenizerWrapper`."""
        return self.tokenizer.Encode(text)

    def tokenize_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """See `TokenizerWrapper`; in the calling thread alone."""
        return self.tokenizer.Encode(list(texts), num_threads=1)

    def reference_encoder(self) -> "Encoder":
        """See `TokenizerWrapper`; the library lets several threads encode at once."""
        from modalities_pipeline.tokenization.encoders import ListEncoder

        return ListEncoder(self, "sentencepiece", is_concurrent=True)

    def decode(self, token_ids: Sequence[int]) -> str:
        """See `TokenizerWrapper`."""
        return self.tokenizer.Decode(list(token_ids))

    @property
    def vocab_size(self) -> int:
        """See `TokenizerWrapper`."""
        return self.tokenizer.vocab_size()

    @property
    def num_token_ids(self) -> int:
        """See `TokenizerWrapper`."""
        return self.vocab_size

    @property
    def special_tokens(self) -> list[str]:
        """See `TokenizerWrapper`: the model's control pieces."""
        ids = range(self.vocab_size)
        return sorted(self.tokenizer.IdToPiece(token_id) for token_id in ids if self.is_special_token_id(token_id))

    def find_token_id(self, token: str) -> int | None:
        """See `TokenizerWrapper`."""
        token_id = self.tokenizer.PieceToId(token)
        return token_id if self.tokenizer.IdToPiece(token_id) == token else None

    def get_token_id(self, token: str) -> int:
        """See `TokenizerWrapper`; the unknown piece does not stand for other tokens."""
        token_id = self.find_token_id(token)
        if token_id is None or token_id == self.tokenizer.unk_id():
            raise UserError(f"The tokenizer has no token '{token}' (special tokens: {', '.join(self.special_tokens)}).")
        return token_id

    def is_special_token_id(self, token_id: int) -> bool:
        """See `TokenizerWrapper`: control pieces are special."""
        return self.tokenizer.IsControl(token_id)

    def fingerprint(self) -> str:
        """See `TokenizerWrapper`; of the model as it was loaded."""
        return digest_strings(["sentencepiece", self._digest])

    def save(self, output_dir: Path) -> None:
        """See `TokenizerWrapper`."""
        shutil.copyfile(self._model_path, output_dir / SENTENCEPIECE_FILE_NAME)
