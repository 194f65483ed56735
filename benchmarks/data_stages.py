"""The data stages against Modalities 0.5.0: CPU time, memory, and equal outputs; see docs/benchmarks.md.

Run: python benchmarks/data_stages.py --peer-python peer_env/bin/python --sizes-in-mb 50 300 --write docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import stages
from comparison import Comparison, Place, compare, profile
from corpus import Corpus, write_corpus
from machine import peer_versions
from measure import Interpreter, Measurement, Profile, peer_interpreter
from report import Results, missed_goals, render

from modalities_pipeline.data.files import digest_directory

_MEGABYTE = 1_000_000
_NUM_OPENED_DOCUMENTS = 5_000_000
_NUM_TINY_DOCUMENTS = 1000
_TINY_SIZE_IN_BYTES = 100_000
_EOD_TOKEN = "<|endoftext|>"
_GPT2_VOCAB_SIZE = 50_257
_TRAINING_SIZE_IN_BYTES = 50 * _MEGABYTE
_JUDGED_FROM_MB = 300  # the goals of speed are meant for files of this size and larger ones


def main() -> int:
    """Measure, print the page, and write it where `--write` says; 1 if goals are missed that must be met."""
    arguments = _parse()
    peer = peer_interpreter(arguments.peer_python) if arguments.peer_python else None
    if peer is None:
        _tell("No --peer-python: only this package is measured, without the columns of Modalities.")
    with tempfile.TemporaryDirectory(dir=arguments.work_dir, prefix="benchmark-") as folder:
        results = _Benchmark(arguments, Path(folder), peer).results()
    page = render(results)
    print(page)
    if arguments.write is not None:
        arguments.write.write_text(page, "utf-8")
    missed = results.missed(_judged(arguments))
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed and arguments.fail_on_missed_goals else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", type=Path, help="interpreter of an environment with Modalities 0.5.0")
    parser.add_argument("--tokenizer-dir", type=Path, help="Hugging Face folder; default: train one of GPT-2's size")
    parser.add_argument("--sizes-in-mb", type=int, nargs="+", default=[50, 300], help="raw file (default: 50 300)")
    parser.add_argument("--peer-up-to-in-mb", type=int, default=300, help="above it only our fast side is measured")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each variant (default: 3)")
    parser.add_argument("--pack-rounds", type=int, help="runs of packing, which takes longest (default: as --rounds)")
    parser.add_argument(
        "--stages", nargs="+", choices=[*_STAGES, _OPEN], default=[*_STAGES, _OPEN], help="default: all"
    )
    parser.add_argument(
        "--work-dir", type=Path, help="for files: ten times the largest size (default: temporary folder)"
    )
    parser.add_argument("--write", type=Path, help="write the page there")
    parser.add_argument("--fail-on-missed-goals", action="store_true", help="exit with 1 if a goal is missed")
    return parser.parse_args()


_STAGES: dict[str, Callable[[Place], Comparison]] = {
    "raw_index": stages.raw_index,
    "pack": stages.pack,
    "chunk": stages.chunk,
    "shuffle": stages.shuffle,
    "merge": stages.merge,
    "filter": stages.keep_half,
    "chunk_jsonl": stages.chunk_lines,
    "shuffle_jsonl": stages.shuffle_lines,
    "iterate": stages.iterate,
}
_OPEN = "open"


class _Benchmark:
    """One run: what was asked for, and tiny files on which every process warms up."""

    def __init__(self, arguments: argparse.Namespace, folder: Path, peer: Interpreter | None) -> None:
        self._arguments = arguments
        self._folder = folder
        self._peer = peer
        self._versions = (
            None if peer is None else peer_versions(peer.python)
        )  # first, since it fails if it is not there
        self._tokenizer_dir, self._tokenizer = _tokenizer(arguments.tokenizer_dir, folder)
        self._corpora: list[Corpus] = []
        self._profiles: list[tuple[str, Profile]] = []
        self._tiny = self._place(folder / "tiny", _TINY_SIZE_IN_BYTES, in_full=True)

    def results(self) -> Results:
        """Measure all that was asked for."""
        by_size: dict[str, dict[str, dict[str, Measurement]]] = {}
        for size in self._arguments.sizes_in_mb:
            with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                _tell(f"Writing {size} MB of text ...")
                in_full = size <= self._arguments.peer_up_to_in_mb
                place = self._place(Path(folder) / "files", size * _MEGABYTE, in_full)
                self._corpora.append(place.corpus)
                stages_of_size = {name: make for name, make in _STAGES.items() if name in self._arguments.stages}
                by_size[_label(size)] = {
                    name: self._compare(make(place), make(self._tiny), _label(size))
                    for name, make in stages_of_size.items()
                }
        if _OPEN in self._arguments.stages:
            tiny, full = (
                stages.open_documents(self._folder, number, self._peer)
                for number in (_NUM_TINY_DOCUMENTS, _NUM_OPENED_DOCUMENTS)
            )
            by_size[_opened_label()] = {_OPEN: self._compare(full, tiny, _opened_label())}
        return Results(
            by_size, self._corpora, self._profiles, self._tokenizer, self._versions, _command(self._arguments)
        )

    def _place(self, folder: Path, size_in_bytes: int, in_full: bool) -> Place:
        folder.mkdir()
        corpus = write_corpus(folder / "corpus.jsonl", size_in_bytes)
        place = Place(folder, corpus, self._tokenizer_dir, self._peer if in_full else None, in_full)
        stages.make_inputs(place)
        return place

    def _compare(self, comparison: Comparison, warm_up: Comparison, label: str) -> dict[str, Measurement]:
        is_pack = comparison.stage == "pack"
        num_rounds = (is_pack and self._arguments.pack_rounds) or self._arguments.rounds
        measured = compare(comparison, warm_up, num_rounds)
        figures = (f"{name} {of.cpu_s:.3f} s, {of.peak_in_bytes // _MEGABYTE} MB" for name, of in measured.items())
        _tell(f"{comparison.stage} at {label}: {'; '.join(figures)}")
        for goal, _ in missed_goals(comparison.stage, measured) if label in _judged(self._arguments) else ():
            self._profiles.append((f"{goal.title}, {label}", profile(comparison, warm_up, goal.ours)))
        return measured


def _tokenizer(given: Path | None, folder: Path) -> tuple[Path, str]:
    """A tokenizer's folder and what it is, for people."""
    if given is not None:
        return given, f"the folder {given.name}, {digest_directory(given)[:23]}"
    from modalities_pipeline.tokenization.training import train_tokenizer

    _tell(f"No --tokenizer-dir: training a byte-level BPE tokenizer of {_GPT2_VOCAB_SIZE} tokens ...")
    texts = write_corpus(folder / "training.jsonl", _TRAINING_SIZE_IN_BYTES)
    train_tokenizer([texts.path], ".text", _GPT2_VOCAB_SIZE, _EOD_TOKEN, folder / "tokenizer")
    texts.path.unlink()
    return folder / "tokenizer", f"byte-level BPE of {_GPT2_VOCAB_SIZE:,} tokens, trained on the same texts"


def _command(arguments: argparse.Namespace) -> str:
    """The command that gives such a page, with names in the place of this machine's paths."""
    sizes = " ".join(map(str, arguments.sizes_in_mb))
    return (
        "python benchmarks/data_stages.py"
        + (" --peer-python peer_env/bin/python" if arguments.peer_python is not None else "")
        + (f" --tokenizer-dir {arguments.tokenizer_dir.name}" if arguments.tokenizer_dir is not None else "")
        + f" --sizes-in-mb {sizes} --rounds {arguments.rounds}"
        + (f" --pack-rounds {arguments.pack_rounds}" if arguments.pack_rounds is not None else "")
        + " --write docs/benchmarks.md"
    )


def _judged(arguments: argparse.Namespace) -> list[str]:
    """The sizes for which the goals are meant."""
    return [*(_label(size) for size in arguments.sizes_in_mb if size >= _JUDGED_FROM_MB), _opened_label()]


def _label(size_in_mb: int) -> str:
    return f"{size_in_mb:,} MB"


def _opened_label() -> str:
    return f"{_NUM_OPENED_DOCUMENTS:,} documents"


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
