"""Stages that are killed lose nothing; `kill_campaign` does the same much more often."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.data.kill_campaign import KillCampaignError, run
from tests.data.killable_stages import STAGES, Stage

pytestmark = pytest.mark.multi_process


@pytest.mark.parametrize("stage_name", STAGES)
def test_a_stage_killed_at_any_instant_leaves_the_old_output_or_a_whole_one_and_can_run_again(
    tmp_path: Path, stage_name: str
) -> None:
    outcome = run(stage_name, num_kills=2, seed=0, folder=tmp_path, num_documents=15_000)
    assert sum(outcome.num_found.values()) == 2


def _write_in_place(inputs: Sequence[Path], output_path: Path) -> None:
    with open(output_path, "wb", buffering=0) as output:
        output.write(b"half of ")
        time.sleep(0.3)
        output.write(inputs[0].read_bytes())


def _write_no_manifest(inputs: Sequence[Path], output_path: Path) -> None:
    time.sleep(0.3)
    output_path.write_bytes(inputs[0].read_bytes())


@pytest.mark.parametrize(
    ("build", "message"),
    [(_write_in_place, "neither the old nor the new"), (_write_no_manifest, "the manifest is missing")],
)
def test_a_stage_that_does_not_keep_the_promise_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Callable[[Sequence[Path], Path], None], message: str
) -> None:
    monkeypatch.setitem(STAGES, "careless", Stage(".jsonl", "out.jsonl", build))
    with pytest.raises(KillCampaignError, match=message):
        run("careless", num_kills=1, seed=0, folder=tmp_path, num_documents=100)
