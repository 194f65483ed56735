"""Comparing ways to run a stage: in turns, each in its own process, with their outputs checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from checks import WrongOutputError
from corpus import Corpus
from measure import Interpreter, Measurement, Profile, Run, our_interpreter, run_stage

from modalities_pipeline.data.manifest import manifest_path

OURS, REFERENCE, BATCHES = "ours", "ours, reference backend", "ours, 32 at once"
PEER, PEER_TWO_WORKERS = "Modalities", "Modalities, 2 workers"


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to run a stage; `output` is what it makes, if anything."""

    interpreter: Interpreter
    request: Mapping[str, Any]
    output: Path | None = None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A stage with its variants by name; `check` gets their outputs and raises if one is wrong."""

    stage: str
    variants: Mapping[str, Variant]
    check: Callable[[Mapping[str, Path]], None] = lambda outputs: None
    with_descriptions: bool = False


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the stages of one corpus work, and with what.

    Attributes:
        folder: for all files.
        corpus: the raw file.
        tokenizer_dir: folder that `AutoTokenizer` loads.
        peer: the interpreter with Modalities, if it is to be compared.
        with_reference: whether the slow reference backend is to be measured too.
    """

    folder: Path
    corpus: Corpus
    tokenizer_dir: Path
    peer: Interpreter | None
    with_reference: bool

    def output(self, variant: str, suffix: str) -> Path:
        """A path for what a variant makes."""
        return self.folder / (variant.replace(", ", "_").replace(" ", "_").lower() + suffix)

    @property
    def index_path(self) -> Path:
        """Our raw index."""
        return self.folder / "corpus.idx"

    @property
    def packs(self) -> list[Path]:
        """Our pack of the corpus, and a copy of it; both with their manifests."""
        return [self.folder / "corpus.pbin", self.folder / "copy.pbin"]


def compare(comparison: Comparison, warm_up: Comparison, num_rounds: int) -> dict[str, Measurement]:
    """Run the variants in turns, each in its own process, and check the outputs of every round.

    `warm_up` is the same on tiny files: each process runs that first, untimed, so that all it imports is there.
    """
    runs: dict[str, list[Run]] = {name: [] for name in comparison.variants}
    for _ in range(num_rounds):
        outputs = {}
        for name, variant in comparison.variants.items():
            tiny = warm_up.variants[name]
            runs[name].append(run_stage(variant.interpreter, {**variant.request, "warm_up": tiny.request}))
            if variant.output is not None and tiny.output is not None:
                outputs[name] = variant.output
                remove_output(tiny.output)
        comparison.check(outputs)
        for output in outputs.values():
            remove_output(output)
    if comparison.with_descriptions and len({str(run.description) for of in runs.values() for run in of}) > 1:
        raise WrongOutputError(f"{comparison.stage}: the variants see other contents.")
    return {name: Measurement.of(of) for name, of in runs.items()}


def profile(comparison: Comparison, warm_up: Comparison, name: str) -> Profile:
    """Where a variant spends its time, from a run of its own; measuring that slows it down."""
    variant, tiny = comparison.variants[name], warm_up.variants[name]
    run = run_stage(variant.interpreter, {**variant.request, "warm_up": tiny.request, "with_profile": True})
    for output in (variant.output, tiny.output):
        if output is not None:
            remove_output(output)
    return run.profile


def remove_output(path: Path) -> None:
    """Remove a file with what stands beside it."""
    for beside in (path, manifest_path(path), path.with_name(f".{path.name}.lock")):
        beside.unlink(missing_ok=True)


def both(place: Place, variant: Callable[[str, Interpreter], Variant]) -> dict[str, Variant]:
    """The variant of Modalities, if it is to be compared, and ours; made by a function of name and interpreter."""
    peers = {PEER: variant(PEER, place.peer)} if place.peer is not None else {}
    return {**peers, OURS: variant(OURS, our_interpreter())}
