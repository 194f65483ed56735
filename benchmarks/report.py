"""The benchmark's results as a Markdown page: figures, goals, and whether they are met."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from comparison import BATCHES, OURS, PEER, PEER_TWO_WORKERS, REFERENCE
from corpus import Corpus
from machine import describe_machine, our_versions
from measure import Measurement, Profile

Measured = Mapping[str, Measurement]

_MEGABYTE = 1_000_000


@dataclasses.dataclass(frozen=True)
class Goal:
    """How many times less of something we should need than Modalities does."""

    stage: str
    title: str
    ours: str
    peer: str
    minimum: float | None = None
    on_the_clock: bool = False

    def seconds(self, measurement: Measurement) -> float:
        """The figure that counts: CPU seconds, or seconds on the clock."""
        return measurement.wall_s if self.on_the_clock else measurement.cpu_s


GOALS = (
    Goal("raw_index", "`create_raw_data_index`", OURS, PEER, 5),
    Goal("pack", "`pack_encoded_data`, fast backend", OURS, PEER, 40),
    Goal("pack", "`pack_encoded_data`, reference backend", REFERENCE, PEER, 1.5),
    Goal("pack", "the same, seconds on the clock, 2 workers each", REFERENCE, PEER_TWO_WORKERS, 2.5, True),
    Goal("chunk", "`create_shuffled_dataset_chunk`, 1 of 2", OURS, PEER, 30),
    Goal("shuffle", "`shuffle_tokenized_data`", OURS, PEER, 2),
    Goal("merge", "`merge_packed_data_files`, 2 files", OURS, PEER, 4),
    Goal("filter", "`create_filtered_tokenized_dataset`, every second", OURS, PEER),
    Goal("chunk_jsonl", "`create_shuffled_jsonl_dataset_chunk`, 1 of 2", OURS, PEER),
    Goal("shuffle_jsonl", "`shuffle_jsonl_data`", OURS, PEER),
    Goal("open", "open a packed file, read its last document", OURS, PEER, 50),
    Goal("iterate", "blocks of 257 tokens in random order, one by one", OURS, PEER, 8),
    Goal("iterate", "the same, 32 at once as a data loader asks for them", BATCHES, PEER, 8),
)

MEMORY_LIMITS_IN_BYTES = {
    "raw_index": 400 * _MEGABYTE,
    "pack": 400 * _MEGABYTE,
    "chunk": 64 * _MEGABYTE,
    "shuffle": 64 * _MEGABYTE,
    "merge": 64 * _MEGABYTE,
    "filter": 400 * _MEGABYTE,
    "chunk_jsonl": 64 * _MEGABYTE,
    "shuffle_jsonl": 64 * _MEGABYTE,
    "open": 10 * _MEGABYTE,
    "iterate": 400 * _MEGABYTE,
}


def missed_goals(stage: str, measured: Measured) -> Iterator[tuple[Goal, float]]:
    """The goals of a stage that its measurements miss, each with the factor reached."""
    for goal in GOALS:
        ratio = _ratio(goal, measured) if goal.stage == stage else None
        if ratio is not None and goal.minimum is not None and ratio < goal.minimum:
            yield goal, ratio


@dataclasses.dataclass(frozen=True)
class Results:
    """Everything measured: per size label and stage the variants; what the corpora were; profiles of missed goals."""

    by_size: Mapping[str, Mapping[str, Measured]]
    corpora: Sequence[Corpus]
    profiles: Sequence[tuple[str, Profile]]
    tokenizer: str
    peer_versions: str | None
    command: str

    def missed(self, judged_sizes: Sequence[str]) -> list[str]:
        """Goals missed: those of memory at every size, the ratios at the sizes named."""
        missed = []
        for size, stages in self.by_size.items():
            for stage, measured in stages.items() if size in judged_sizes else ():
                for goal, ratio in missed_goals(stage, measured):
                    missed.append(f"{goal.title} at {size}: {ratio:.1f} x instead of {goal.minimum:g} x")
            for stage, variant, measurement in _our_variants(stages):
                used, limit = _memory(stage, measurement), MEMORY_LIMITS_IN_BYTES[stage]
                if used >= limit:
                    missed.append(f"{stage} ({variant}) at {size}: {_mb(used)} MB instead of below {_mb(limit)} MB")
        return missed


def render(results: Results) -> str:
    """The page."""
    parts = [
        "# Benchmarks of the data stages",
        "Made by `benchmarks/data_stages.py`; run it again rather than editing this page.",
        *([_TIMES, _table(_ratio_rows(results))] if results.peer_versions is not None else []),
        *([_PROFILES, *itertools.starmap(_profile, results.profiles)] if results.profiles else []),
        _MEMORY,
        _table(_memory_rows(results)),
        "## What was measured, and on what",
        "\n".join(f"* {line}" for line in _circumstances(results)),
        _REPRODUCE.format(command=results.command),
    ]
    return "\n\n".join(parts) + "\n"


_TIMES = """## Against Modalities

CPU seconds of the stage alone, threads and child processes included: each run in its own process, which has done the
same on a tiny file before, so that imports do not count; the variants in turns; the median of the runs. The factor is
Modalities' figure over ours. Goals are meant for 300 MB. In every round the outputs were compared: data sections equal
byte for byte, and indexes with equal entries; only the index of Modalities' merged file was compared with the right one
instead, since Modalities' own is wrong from the second input on. Memory is the most anonymous memory that the stage
added to what the process had after the tiny file."""

_PROFILES = """## Where the time goes where a goal is missed

CPU seconds of the functions that took most themselves, from one more run; profiling adds to the time of functions that
are called often. Time of other threads is counted where the main thread was meanwhile."""

_MEMORY = """## Time and memory of our stages by size

Memory is the most anonymous memory of the whole process, interpreter and imports included; for opening a file it is
what that adds. Memory-mapped files are not counted: the system takes those pages back when it needs them."""

_REPRODUCE = """## How to run it

```
python3.11 -m venv peer_env
peer_env/bin/pip install modalities==0.5.0 torch==2.13.0 transformers==4.57.6
{command}
```

Modalities 0.5.0 does not import with transformers 5, hence its own environment. Without `--peer-python` only our side
is measured; without `--tokenizer-dir` a tokenizer of the same size as GPT-2's is trained on the corpus first. Run it on
an idle machine: with two workers the clock counts, and CPU seconds grow a little when others use the memory too."""


def _ratio_rows(results: Results) -> Iterator[Sequence[str]]:
    yield ("stage", "data", "Modalities", "ours", "factor", "goal", "met", "memory, Modalities", "memory, ours")
    for goal in GOALS:
        for size, stages in results.by_size.items():
            measured = stages.get(goal.stage, {})
            ratio = _ratio(goal, measured)
            if ratio is None:
                continue
            peer, ours = measured[goal.peer], measured[goal.ours]
            yield (
                *(goal.title, size, _seconds(goal.seconds(peer)), _seconds(goal.seconds(ours)), f"{ratio:.1f}"),
                *(("none", "") if goal.minimum is None else (f"{goal.minimum:g}", _met(ratio >= goal.minimum))),
                *(f"{_mb(peer.growth_in_bytes)} MB", f"{_mb(ours.growth_in_bytes)} MB"),
            )


def _profile(title: str, profile: Profile) -> str:
    rows = [("function", "CPU seconds"), *((f"`{name}`", _seconds(seconds)) for name, seconds in profile)]
    return f"### {title}\n\n{_table(iter(rows))}"


def _memory_rows(results: Results) -> Iterator[Sequence[str]]:
    yield ("stage", "variant", "data", "CPU seconds", "memory", "limit", "met")
    rows = [
        (list(MEMORY_LIMITS_IN_BYTES).index(stage), variant, size, stage, measurement)
        for size, stages in results.by_size.items()
        for stage, variant, measurement in _our_variants(stages)
    ]
    for _, variant, size, stage, measurement in sorted(rows, key=lambda row: row[:2]):
        used, limit = _memory(stage, measurement), MEMORY_LIMITS_IN_BYTES[stage]
        yield (
            *(stage, variant, size, _seconds(measurement.cpu_s), f"{_mb(used)} MB", f"{_mb(limit)} MB"),
            _met(used < limit),
        )


def _our_variants(stages: Mapping[str, Measured]) -> Iterator[tuple[str, str, Measurement]]:
    for stage, measured in stages.items():
        for variant, measurement in measured.items():
            if variant not in (PEER, PEER_TWO_WORKERS):
                yield stage, variant, measurement


def _ratio(goal: Goal, measured: Measured) -> float | None:
    if goal.ours not in measured or goal.peer not in measured:
        return None
    return goal.seconds(measured[goal.peer]) / goal.seconds(measured[goal.ours])


def _memory(stage: str, measurement: Measurement) -> int:
    return measurement.growth_in_bytes if stage == "open" else measurement.peak_in_bytes


def _circumstances(results: Results) -> Iterator[str]:
    for corpus in results.corpora:
        repeated = f", cut anew {corpus.num_passes} times" if corpus.num_passes > 1 else ""
        yield (
            f"Corpus of {corpus.size_in_bytes / _MEGABYTE:,.0f} MB: {corpus.num_documents:,} documents of real text "
            f"(sources, help topics and docstrings installed with Python{repeated}), {corpus.digest[:23]}."
        )
    yield f"Tokenizer: {results.tokenizer}."
    measurements = (m for stages in results.by_size.values() for of in stages.values() for m in of.values())
    num_runs = sorted({measurement.num_runs for measurement in measurements})
    yield f"Runs of each variant: {' or '.join(map(str, num_runs))}."
    yield (
        "Our stages sync their outputs to disk and hash them, which counts. Inputs have the manifests that the stage "
        "before wrote, as in a pipeline; an input without one would be hashed first."
    )
    yield f"Machine: {describe_machine()}."
    yield f"Ours: {our_versions()}."
    if results.peer_versions is not None:
        yield f"Theirs: {results.peer_versions}."
    yield f"Date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."


def _table(rows: Iterator[Sequence[str]]) -> str:
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _met(is_met: bool) -> str:
    return "yes" if is_met else "**no**"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds >= 10 else f"{seconds:.3f}" if seconds >= 0.01 else f"{seconds:.5f}"


def _mb(num_bytes: int) -> str:
    return f"{num_bytes / _MEGABYTE:.0f}" if num_bytes >= 10 * _MEGABYTE else f"{num_bytes / _MEGABYTE:.1f}"
