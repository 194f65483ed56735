"""Runs one stage in a fresh process and watches its memory; several runs of the same become one measurement."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from timed_section import tree_anonymous_in_bytes

Profile = Sequence[tuple[str, float]]

_FOLDER = Path(__file__).parent
_SAMPLING_INTERVAL_IN_S = 0.01
_TIMEOUT_IN_S = 3600.0


class StageFailedError(RuntimeError):
    """A stage's process ended with an error, or not in time."""


@dataclasses.dataclass(frozen=True)
class Run:
    """The figures of one process.

    Attributes:
        cpu_s: CPU seconds of the timed section, all threads and child processes.
        wall_s: seconds on the clock.
        peak_in_bytes: the most anonymous memory during the section, interpreter and imports included.
        growth_in_bytes: the same less what there was when the section began.
        description: what the stage says about its result, to be compared.
        profile: functions with the most CPU time of their own, in seconds, where that was asked for.
    """

    cpu_s: float
    wall_s: float
    peak_in_bytes: int
    growth_in_bytes: int
    description: Any
    profile: Profile


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The median of several runs, and their largest memory."""

    cpu_s: float
    wall_s: float
    peak_in_bytes: int
    growth_in_bytes: int
    num_runs: int

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Measurement:
        """Sum up runs of the same stage."""
        return cls(
            cpu_s=statistics.median(run.cpu_s for run in runs),
            wall_s=statistics.median(run.wall_s for run in runs),
            peak_in_bytes=max(run.peak_in_bytes for run in runs),
            growth_in_bytes=max(run.growth_in_bytes for run in runs),
            num_runs=len(runs),
        )


@dataclasses.dataclass(frozen=True)
class Interpreter:
    """What runs the stages of one package."""

    python: Path
    script: Path


def our_interpreter() -> Interpreter:
    """This interpreter."""
    return Interpreter(Path(sys.executable), _FOLDER / "our_stage.py")


def peer_interpreter(python: Path) -> Interpreter:
    """The interpreter of the environment that has Modalities."""
    return Interpreter(python, _FOLDER / "peer_stage.py")


def run_stage(interpreter: Interpreter, request: Mapping[str, Any]) -> Run:
    """Run one stage in a fresh process.

    Raises:
        StageFailedError: it failed; the message has the end of its output.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        result_path = Path(folder) / "figures.json"
        content = json.dumps({**request, "result_path": str(result_path)})
        # Without network nothing may be looked up while a stage runs.
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        process = subprocess.Popen(
            [interpreter.python, interpreter.script, content],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        samples = _watch(process)
        if process.returncode or not result_path.exists():
            log.seek(0)
            raise StageFailedError(
                f"{interpreter.script.name} {request['stage']} ended with {process.returncode}:\n"
                + log.read()[-4000:].decode(errors="replace")
            )
        return _run_of(json.loads(result_path.read_text("utf-8")), samples)


def _watch(process: subprocess.Popen[bytes]) -> list[tuple[float, int]]:
    """Clock and anonymous memory of the process tree, many times a second until the process ends."""
    samples = []
    deadline = time.monotonic() + _TIMEOUT_IN_S
    while process.poll() is None:
        samples.append((time.monotonic(), tree_anonymous_in_bytes(process.pid)))
        time.sleep(_SAMPLING_INTERVAL_IN_S)
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise StageFailedError(f"A stage did not end within {_TIMEOUT_IN_S:.0f} s.")
    return samples


def _run_of(figures: dict[str, Any], samples: list[tuple[float, int]]) -> Run:
    within = [size for at, size in samples if figures["started_at"] <= at <= figures["ended_at"]]
    before, after = figures["anonymous_before_in_bytes"], figures["anonymous_after_in_bytes"]
    peak = max(before, after, *within) if within else max(before, after)
    return Run(figures["cpu_s"], figures["wall_s"], peak, peak - before, figures["description"], figures["profile"])
