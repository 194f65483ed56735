"""Kills stages with SIGKILL at random instants and checks that nothing is lost, half done, or left behind.

Run: python -m tests.data.kill_campaign [--kills 50] [--seed N] [--stages NAME ...]

For each kill a stage is started in a process of its own, now with an older output in place, now without one, and killed
at an instant drawn evenly from the time that it takes undisturbed; every third one from the last tenth of that, where
the output is put in its place and its manifest written. Then

- the output is the old one, the new one, or absent, and a manifest describes the output that is there;
- running the stage again gives the bytes of a run that nobody disturbed, and leaves the same files as that.
"""

import argparse
import collections
import dataclasses
import multiprocessing
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from modalities_pipeline.data.files import digest_file
from modalities_pipeline.data.manifest import read_manifest
from tests.data.killable_stages import STAGES, run_stage, write_input

_NUM_DOCUMENTS = 60_000
_NUM_TIMED_RUNS = 3
_TIMEOUT_IN_S = 120
_PRELOADED = ["tests.data.killable_stages", "modalities_pipeline.tokenization.tokenizers", "transformers"]


class KillCampaignError(AssertionError):
    """A killed stage left what it should not have left."""


@dataclasses.dataclass
class Outcome:
    """What the kills of one stage found.

    Attributes:
        duration_in_s: undisturbed, at the end.
        num_found: how often the output was found "old", "absent", "new without manifest" or "new" after a kill.
    """

    duration_in_s: float = 0.0
    num_found: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


def run(stage_name: str, num_kills: int, seed: int, folder: Path, num_documents: int = _NUM_DOCUMENTS) -> Outcome:
    """Kill a stage `num_kills` times, working in an empty folder on inputs of so many documents.

    Raises:
        KillCampaignError: the stage left something wrong.
    """
    generator = random.Random(f"{stage_name} {seed}")
    place = _Place(stage_name, folder, num_documents)
    outcome = Outcome()
    for number in range(num_kills):
        has_old_output = number % 2 == 0
        place.set_up(has_old_output)
        earliest = 0.9 if number % 3 == 2 else 0.0
        share = generator.uniform(earliest, 1.0)
        title = f"{stage_name}, seed {seed}, kill {number} after {share:.4f} of {place.duration_in_s:.4f} s"
        place.run_stage(kill_after_in_s=share * place.duration_in_s)
        outcome.num_found[place.check_killed(title, has_old_output)] += 1
        place.run_stage()
        place.check_complete(title)
        outcome.duration_in_s = place.duration_in_s
    return outcome


class _Place:
    """A folder with a stage's inputs and output, and copies of its older and its right output."""

    def __init__(self, stage_name: str, folder: Path, num_documents: int) -> None:
        self._stage_name = stage_name
        self._stage = stage = STAGES[stage_name]
        self._output = folder / "out" / stage.output_name
        self._old, self._clean = folder / "old", folder / "clean"
        self._inputs = [folder / "in" / f"{name}{stage.input_suffix}" for name in "ab"]
        self._durations_in_s: collections.deque[float] = collections.deque(maxlen=_NUM_TIMED_RUNS)
        (folder / "in").mkdir()
        for number_of, kept in ((10, self._old), (num_documents, self._clean)):
            for number, path in enumerate(self._inputs):
                write_input(path, number_of, seed=number)
            shutil.rmtree(self._output.parent, ignore_errors=True)
            self._output.parent.mkdir()
            self._durations_in_s.clear()
            for _ in range(_NUM_TIMED_RUNS):
                self.run_stage()
            shutil.copytree(self._output.parent, kept)
        self._right_digest = digest_file(self._clean / stage.output_name)

    @property
    def duration_in_s(self) -> float:
        """Time that the stage took undisturbed lately; a busy machine changes its pace."""
        return statistics.median(self._durations_in_s)

    def set_up(self, has_old_output: bool) -> None:
        """Put the older output, or none, in place."""
        shutil.rmtree(self._output.parent)
        if has_old_output:
            shutil.copytree(self._old, self._output.parent)
        else:
            self._output.parent.mkdir()

    def run_stage(self, kill_after_in_s: float | None = None) -> None:
        """Run the stage in a process of its own, which may be killed some time after its start."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=run_stage, args=(self._stage, self._inputs, self._output, theirs))
        process.start()
        theirs.close()
        with ours:
            if not ours.poll(_TIMEOUT_IN_S):
                raise KillCampaignError(f"{self._stage_name} did not start.")
            ours.recv_bytes()
            started = time.perf_counter()
            if kill_after_in_s is not None:
                time.sleep(kill_after_in_s)
                process.kill()
            process.join(_TIMEOUT_IN_S)
            duration_in_s = time.perf_counter() - started
        if process.exitcode is None or (kill_after_in_s is None and process.exitcode != 0):
            process.kill()
            raise KillCampaignError(f"{self._stage_name} ended with {process.exitcode} (None: it hangs).")
        if kill_after_in_s is None:
            self._durations_in_s.append(duration_in_s)

    def check_killed(self, title: str, has_old_output: bool) -> str:
        """What the output is after a kill: old, absent or new, and described by its manifest if it has one."""
        manifest = read_manifest(self._output)
        if not self._output.exists():
            if has_old_output or manifest is not None:
                raise KillCampaignError(f"{title}: the output is gone, or has a manifest without being there.")
            return "absent"
        digest = digest_file(self._output)
        if manifest is not None and manifest.digest != digest:
            raise KillCampaignError(f"{title}: the manifest describes another output.")
        if digest == self._right_digest:
            return "new" if manifest is not None else "new without manifest"
        if not has_old_output or digest != digest_file(self._old / self._output.name):
            raise KillCampaignError(f"{title}: the output is neither the old nor the new one.")
        return "old"

    def check_complete(self, title: str) -> None:
        """The output, its manifest and the files beside it are those of an undisturbed run."""
        manifest, right = read_manifest(self._output), read_manifest(self._clean / self._output.name)
        if manifest is None or right is None or manifest.fingerprint != right.fingerprint:
            raise KillCampaignError(f"{title}: after running again the manifest is missing or wrong.")
        if not manifest.digest == digest_file(self._output) == self._right_digest:
            raise KillCampaignError(f"{title}: running again does not give the right bytes.")
        names = {path.name for path in self._output.parent.iterdir()}
        right_names = {path.name for path in self._clean.iterdir()}
        if names != right_names:
            raise KillCampaignError(f"{title}: other files were left: {sorted(names ^ right_names)}.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of outcomes; 1 if a stage failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="per stage")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="default: another one each time")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES), metavar="NAME")
    options = parser.parse_args(arguments)
    num_failures = 0
    print(f"{options.kills} kills per stage, seed {options.seed}; what the output was after the kill:")
    for stage_name in options.stages:
        with tempfile.TemporaryDirectory(prefix="kill_campaign_") as folder:
            try:
                outcome = run(stage_name, options.kills, options.seed, Path(folder))
            except KillCampaignError as error:
                num_failures += 1
                print(f"{stage_name:22} FAILED: {error}", flush=True)
                continue
        found = ", ".join(f"{what} {number}" for what, number in sorted(outcome.num_found.items()))
        print(f"{stage_name:22} {1000 * outcome.duration_in_s:5.0f} ms  {found}", flush=True)
    return 1 if num_failures else 0


if __name__ == "__main__":
    sys.exit(main())
