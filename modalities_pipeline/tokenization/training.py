"""Stage tokenizer: train a byte-level BPE tokenizer on a corpus."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity
from modalities_pipeline.data.packing.text_extraction import BadDocumentError, TextExtractor
from modalities_pipeline.data.production import produce
from modalities_pipeline.data.raw.raw_source import RawSource
from modalities_pipeline.data.raw_files import RawFile
from modalities_pipeline.exceptions import DatasetFormatError, UserError
from modalities_pipeline.tokenization.saved_tokenizer import STAGE, tokenizer_details
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer

CODE_VERSION = "1"

_NUM_BYTES = 256
_UNLIMITED = 10**30  # what transformers takes for "no limit"


def identity(input_digests: Mapping[str, str], jq_pattern: str, vocab_size: int, eod_token: str) -> StageIdentity:
    """Identity of a tokenizer trained on files with these digests, by file name."""
    settings = {"train": {"jq_pattern": jq_pattern, "vocab_size": vocab_size}, "eod_token": eod_token}
    return StageIdentity(STAGE, CODE_VERSION, settings, dict(input_digests))


def train_tokenizer(
    text_paths: Sequence[Path],
    jq_pattern: str,
    vocab_size: int,
    eod_token: str,
    output_dir: Path,
    file_existence_policy: FileExistencePolicy = FileExistencePolicy.ERROR,
    listed: Sequence[RawFile] | None = None,
) -> Manifest | None:
    """Train a tokenizer on JSON-lines files and save it as a folder that `AutoTokenizer` loads.

    Every byte is a token, so there are no unknown characters; `eod_token` is the only special token, with id 0. Lines
    without a text are passed over and counted. The same texts give the same tokenizer.

    Args:
        text_paths: JSON-lines files.
        jq_pattern: where the text of a line is, for example `.text`.
        vocab_size: number of tokens, including the 256 bytes and the end-of-document token.
        eod_token: the end-of-document token.
        output_dir: the folder.
        file_existence_policy: what to do if the folder exists.
        listed: the files' entries in the corpus' list, in the same order; without it the files are hashed.

    Raises:
        DatasetNotFoundError: a file does not exist.
        DatasetFormatError: the files hold no text, or too little to find that many tokens in; or a file is not what was
            listed, or changed while it was read.
        UserError: the vocabulary is too small, or the end-of-document token is empty.
        OutputExistsError: the folder exists and the policy is ERROR.
    """
    if vocab_size <= _NUM_BYTES:
        raise UserError(
            f"vocab_size {vocab_size} is too small: the {_NUM_BYTES} bytes and the end-of-document token need "
            f"{_NUM_BYTES + 1}."
        )
    if not eod_token:
        raise UserError("eod_token must not be empty.")
    texts = _Texts(text_paths, TextExtractor(jq_pattern))
    entries: Sequence[RawFile | None] = [None] * len(text_paths) if listed is None else listed

    def made_from() -> StageIdentity:
        sources = [RawSource(path, entry) for path, entry in zip(text_paths, entries, strict=True)]
        for source in sources:
            source.check_unchanged()
        return identity({source.path.name: source.digest for source in sources}, jq_pattern, vocab_size, eod_token)

    def build(temporary: Path) -> BuildResult:
        temporary.mkdir()
        _train(texts, vocab_size, eod_token, temporary)
        counts = {
            "vocab_size": vocab_size,
            "num_documents": texts.num_documents,
            "num_skipped": texts.num_skipped,
            "num_bytes": texts.num_bytes,
        }
        return BuildResult(dict(counts), tokenizer_details(PreTrainedHFTokenizer(str(temporary)), eod_token))

    return produce(output_dir, text_paths, file_existence_policy, made_from, build)


class _Texts:
    """The texts of JSON-lines files, counted while they are read."""

    def __init__(self, paths: Sequence[Path], extractor: TextExtractor) -> None:
        self._paths = paths
        self._extractor = extractor
        self.num_documents = self.num_skipped = self.num_bytes = 0

    def __iter__(self) -> Iterator[str]:
        for path in self._paths:
            with open(path, "rb") as file:
                for line in file:
                    if not line.strip():
                        continue
                    try:
                        text = self._extractor.extract(line)
                    except (BadDocumentError, UnicodeDecodeError):
                        self.num_skipped += 1
                        continue
                    self.num_documents += 1
                    self.num_bytes += len(text.encode())
                    yield text


def _train(texts: _Texts, vocab_size: int, eod_token: str, output_dir: Path) -> None:
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[eod_token],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != vocab_size:
        raise DatasetFormatError(
            f"{texts.num_documents} documents with {texts.num_bytes} bytes of text yield only "
            f"{tokenizer.get_vocab_size()} of {vocab_size} tokens. Lower vocab_size, add documents, or check "
            f"jq_pattern ({texts.num_skipped} lines had no text)."
        )
    tokenizer.save(str(output_dir / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": eod_token,
        "clean_up_tokenization_spaces": False,
        "model_max_length": _UNLIMITED,
    }
    (output_dir / "tokenizer_config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")
