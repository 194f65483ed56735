"""How far a training is, in steps and tokens, and the folder name of a checkpoint that says so."""

import dataclasses
import re
from pathlib import Path

from modalities_pipeline.exceptions import ConfigError

_NAME = re.compile(
    r"eid_(?P<experiment_id>.*)-seen_steps_(?P<seen_steps>[0-9]+)-seen_tokens_(?P<seen_tokens>[0-9]+)"
    r"-target_steps_(?P<target_steps>[0-9]+)-target_tokens_(?P<target_tokens>[0-9]+)"
)


@dataclasses.dataclass
class TrainingProgress:
    """Steps and tokens of the current run, of the run it continues, and to be reached in total."""

    num_seen_steps_current_run: int
    num_seen_tokens_current_run: int
    num_target_steps: int
    num_target_tokens: int
    num_seen_steps_previous_run: int = 0
    num_seen_tokens_previous_run: int = 0

    @property
    def num_seen_steps_total(self) -> int:
        """Steps of the previous and the current run."""
        return self.num_seen_steps_previous_run + self.num_seen_steps_current_run

    @property
    def num_seen_tokens_total(self) -> int:
        """Tokens of the previous and the current run."""
        return self.num_seen_tokens_previous_run + self.num_seen_tokens_current_run

    def checkpoint_name(self, experiment_id: str) -> str:
        """Folder name of the checkpoint of this state, as Modalities writes it."""
        return (
            f"eid_{experiment_id}-seen_steps_{self.num_seen_steps_total}-seen_tokens_{self.num_seen_tokens_total}"
            f"-target_steps_{self.num_target_steps}-target_tokens_{self.num_target_tokens}"
        )


def parse_checkpoint_name(checkpoint_path: Path) -> tuple[str, TrainingProgress] | None:
    """(experiment id, progress as that of a previous run) from a checkpoint folder's name, None for another name."""
    match = _NAME.fullmatch(checkpoint_path.name)
    if match is None:
        return None
    numbers = {name: int(value) for name, value in match.groupdict().items() if name != "experiment_id"}
    progress = TrainingProgress(
        num_seen_steps_current_run=0,
        num_seen_tokens_current_run=0,
        num_target_steps=numbers["target_steps"],
        num_target_tokens=numbers["target_tokens"],
        num_seen_steps_previous_run=numbers["seen_steps"],
        num_seen_tokens_previous_run=numbers["seen_tokens"],
    )
    return match["experiment_id"], progress


def number_in_checkpoint_name(checkpoint_path: Path, name: str) -> int:
    """The number that follows `<name>_` in the last component of a checkpoint's path.

    Raises:
        ConfigError: it is not there exactly once.
    """
    numbers = re.findall(rf"(?<![a-z]){name}_([0-9]+)", checkpoint_path.name)
    if len(numbers) != 1:
        found = f"{len(numbers)} times" if numbers else "nowhere"
        raise ConfigError(
            f"'{name}_<number>' has to be in the name of a checkpoint exactly once, but is {found} in "
            f"'{checkpoint_path.name}' (of {checkpoint_path})."
        )
    return int(numbers[0])
