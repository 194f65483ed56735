"""Damaged JSON-lines files put through indexing and packing.

Each must end in one of this package's errors for users, or in outputs whose counts add up; never in a crash or a hang.

Run: python -m tests.data.fuzzing_jsonl NUM_CASES [SEED]
"""

import faulthandler
import json
import logging
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.jsonl import LargeFileLinesReader, read_index
from modalities_pipeline.data.manifest import Manifest
from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.data.tokenized_pack import TokenizedPackSettings, build_tokenized_pack
from modalities_pipeline.exceptions import UserError
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer

_TIMEOUT_IN_S = 60
_TESTS = Path(__file__).parents[1]
_TOKENIZER_DIR = _TESTS / "tokenization" / "vectors" / "tiny_wordlevel"
_EOD_TOKEN = "<eod>"

_WORDS = ["the", "cat", "sat", "<eod>", "über", "中文", "😀", "line\nbreak", '"quoted"', "back\\slash", "\u2028"]

# What real files have that a reader stumbles over: encodings, controls, other JSON values, escapes, depth, digits.
_SNIPPETS = [
    *(b"\n", b"\r\n", b"\n\n\n", b"\r", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3", b"\x0c"),
    *("\u2028".encode(), "\u0085".encode(), "😀e\u0301中文".encode(), b"<eod>", b"\t", b'"', b"\\", b"{", b"}", b"]"),
    *(b'{"text": "\\ud800"}\n', b'{"text": "\\u0000"}\n', b'{"text": ""}\n', b'{"text": null}\n', b'{"text": 1}\n'),
    *(b'{"text": ["a"]}\n', b'{"other": "a"}\n', b'["a"]\n', b"NaN\n", b'{"text": "a", "text": "cat"}\n'),
    *(b'{"text": "a"} {"text": "b"}\n', b"[" * 3000, b"9" * 5000, b'{"text": "' + b"the cat " * 2000 + b'"}\n'),
    *(b'{"text": "<eod>"}\n', b'{"n": 1e999, "text": "cat"}\n', b'{"text": "cat sat<eod>"}', b"\xfe\xff\x00{\x00}"),
]


class Fuzzer:
    """Makes sound files, damages most of them, and tries them."""

    def __init__(self, seed: int, tokenizer: TokenizerWrapper, folder: Path) -> None:
        """`folder` is for the files of one case at a time."""
        self._random = random.Random(seed)
        self._tokenizer = tokenizer
        self._folder = folder

    def damaged(self) -> bytes:
        """The bytes of the next case."""
        content = bytearray(b"".join(self._sound_line() for _ in range(self._random.randint(1, 12))))
        for _ in range(int(self._random.expovariate(0.6))):
            start = self._random.randint(0, len(content))
            end = min(len(content), start + self._random.randint(0, 40))
            match self._random.randrange(6):
                case 0:
                    content[start:start] = self._random.choice(_SNIPPETS)
                case 1:
                    content[start:end] = self._random.randbytes(end - start)
                case 2:
                    del content[start:end]
                case 3:
                    content[start:start] = content[start:end]
                case 4:
                    del content[start:]
                case 5 if start < len(content):
                    content[start] ^= 1 << self._random.randrange(8)
        return bytes(content)

    def _sound_line(self) -> bytes:
        text = " ".join(self._random.choices(_WORDS, k=self._random.randint(1, 12)))
        record = {"id": self._random.randrange(1000), "text": text}
        line = json.dumps(record, ensure_ascii=self._random.random() < 0.5).encode()
        return line + self._random.choice([b"\n", b"\n", b"\n", b"\r\n", b"\n\n"])

    def attempt(self, content: bytes, skip: bool) -> str:
        """Index and pack one file, without or with leaving bad lines out; in a word, how it ended."""
        source, index, pack = (self._folder / name for name in ("x.jsonl", "x.idx", "x.pbin"))
        for output in (index, pack):
            output.unlink(missing_ok=True)
        source.write_bytes(content)
        try:
            indexed = build_raw_index(source, index, FileExistencePolicy.OVERRIDE, drop_faulty_entries=skip)
        except UserError:
            assert not index.exists(), "a failed stage left an output"
            assert skip or not _all_sound(content), "a sound file was refused"
            return "index refused"
        assert indexed is not None
        _check_index(content, index, indexed)
        settings = TokenizedPackSettings(
            src_path=source,
            index_path=index,
            dst_path=pack,
            jq_pattern=".text",
            eod_token=_EOD_TOKEN,
            on_bad_sample="skip" if skip else "error",
        )
        try:
            packed = build_tokenized_pack(settings, self._tokenizer, FileExistencePolicy.OVERRIDE)
        except UserError:
            assert not pack.exists(), "a failed stage left an output"
            return "pack refused"
        assert packed is not None
        self._check_pack(source, index, pack, packed)
        return "packed"

    def _check_pack(self, source: Path, index: Path, pack: Path, packed: Manifest) -> None:
        with PackedFile(pack) as file, LargeFileLinesReader(source, index) as reader:
            file.check_index()
            assert file.num_documents == packed.counts["num_documents"]
            assert packed.counts["num_documents"] + packed.counts["num_skipped"] == len(reader)
            eod_id = self._tokenizer.get_token_id(_EOD_TOKEN)
            for position in range(file.num_documents):
                assert file.document(position)[-1] == eod_id


def _check_index(content: bytes, index: Path, indexed: Manifest) -> None:
    """Every sound line is indexed, nothing else but lines is, and all lines are counted."""
    counts = indexed.counts
    extents = set(read_index(index))
    lines = _lines(content)
    assert extents <= {(offset, len(line)) for offset, line in lines}
    assert {(offset, len(line)) for offset, line in lines if _is_sound(line)} <= extents
    assert counts["num_documents"] == len(extents)
    assert counts["num_documents"] + counts["num_blank_lines"] + counts["num_faulty_lines"] == len(lines)


def _lines(content: bytes) -> list[tuple[int, bytes]]:
    """Offset and bytes of every line; the end of the file after an LF is no line."""
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    offset, found = 0, []
    for line in lines:
        found.append((offset, line))
        offset += len(line) + 1
    return found


def _is_sound(line: bytes) -> bool:
    try:
        json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return False
    return True


def _all_sound(content: bytes) -> bool:
    """Whether there is a document, and no line that is neither a document nor blank."""
    lines = [line for _, line in _lines(content) if line.strip()]
    return bool(lines) and all(map(_is_sound, lines))


def run(num_cases: int, seed: int) -> Counter[str]:
    """Try so many damaged files, each without and with skipping; how often each way to end occurred.

    Raises:
        AssertionError: counts do not add up; a note has the bytes of the file. A case that takes a minute ends the
            process with a traceback.
    """
    outcomes: Counter[str] = Counter()
    logging.disable(logging.ERROR)
    try:
        with tempfile.TemporaryDirectory() as folder:
            fuzzer = Fuzzer(seed, PreTrainedHFTokenizer(str(_TOKENIZER_DIR)), Path(folder))
            for number in range(num_cases):
                content = fuzzer.damaged()
                for skip in (False, True):
                    faulthandler.dump_traceback_later(_TIMEOUT_IN_S, exit=True)
                    try:
                        outcomes[f"{'skip' if skip else 'error'}: {fuzzer.attempt(content, skip)}"] += 1
                    except Exception as error:
                        error.add_note(f"case {number} of seed {seed}, skip={skip}: {content!r}")
                        raise
    finally:
        faulthandler.cancel_dump_traceback_later()
        logging.disable(logging.NOTSET)
    return outcomes


def main(arguments: Sequence[str]) -> None:
    """Run from the command line and print the outcomes."""
    num_cases, seed = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    for outcome, number in sorted(run(num_cases, seed).items()):
        print(f"{outcome}: {number}")


if __name__ == "__main__":
    main(sys.argv[1:])
