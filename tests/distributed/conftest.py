"""Fixtures of the tests that need several processes."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def run_distributed() -> Callable[..., None]:
    """Function (script, number of processes, arguments): runs a script under torchrun and fails with its output."""

    def run(script: Path, num_processes: int, *arguments: str) -> None:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_processes}"]
        result = subprocess.run(
            [*launcher, str(script), *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_REPOSITORY)},
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert result.returncode == 0, result.stdout + result.stderr

    return run
