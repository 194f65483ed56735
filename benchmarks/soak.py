"""Everything that the test suite only samples, in full: an hour or two, 20 GB of disk.

Run: python benchmarks/soak.py [--seed N] [--work-dir FOLDER]
"""

import argparse
import dataclasses
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_TIMEOUT_IN_S = 3 * 3600


@dataclasses.dataclass(frozen=True)
class Trial:
    """One command that must succeed."""

    title: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


def trials(seed: int, work_dir: Path | None) -> list[Trial]:
    """What to run; `seed` decides what the fuzzers try."""
    large = ["benchmarks/data_stages.py", "--sizes-in-mb", "3000", "--peer-up-to-in-mb", "0", "--rounds", "1"]
    place = ["--work-dir", str(work_dir)] if work_dir is not None else []
    kills = ["-m", "tests.data.kill_campaign", "--kills", "50", "--seed", str(seed)]
    properties = ["-m", "pytest", "-q", "tests/data/test_properties.py", f"--hypothesis-seed={seed}"]
    return [
        Trial("stages killed at random instants, 50 times each", kills),
        Trial("20,000 damaged packs and indexes", ["-m", "tests.data.fuzzing", "20000", str(seed)]),
        Trial("20,000 damaged JSON-lines files", ["-m", "tests.data.fuzzing_jsonl", "20000", str(seed)]),
        Trial("properties, 2,000 examples each", properties, {"HYPOTHESIS_PROFILE": "soak"}),
        Trial("3 GB through all stages in bounded memory", [*large, "--fail-on-missed-goals", *place]),
    ]


def main() -> int:
    """Run all trials, then sum up; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="default: another one each time")
    parser.add_argument("--work-dir", type=Path, help="for 20 GB of files (default: temporary folder)")
    arguments = parser.parse_args()
    lines = []
    for trial in trials(arguments.seed, arguments.work_dir):
        print(f"== {trial.title}", flush=True)
        started = time.monotonic()
        outcome = _run(trial)
        lines.append(f"{outcome:8} {time.monotonic() - started:6.0f} s  {trial.title}")
    print(f"\nSeed {arguments.seed}\n" + "\n".join(lines))
    return 0 if all(line.startswith("passed") for line in lines) else 1


def _run(trial: Trial) -> str:
    command = [sys.executable, *trial.arguments]
    try:
        process = subprocess.run(command, cwd=_ROOT, env={**os.environ, **trial.environment}, timeout=_TIMEOUT_IN_S)
    except subprocess.TimeoutExpired:
        return "hangs"
    return "failed" if process.returncode else "passed"


if __name__ == "__main__":
    raise SystemExit(main())
