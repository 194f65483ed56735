"""The folders of a sweep: `<time>_<hash of the file>/<world size>/<hash of the combination>_<time>/<config>`."""

import dataclasses
import re
from datetime import datetime
from pathlib import Path

_TIME_FORMAT = "%Y-%m-%d__%H-%M-%S"
_RUN_FOLDER = re.compile(r"(?P<hash>[a-zA-Z0-9]+)_(?P<time>\d{4}-\d\d-\d\d__\d\d-\d\d-\d\d)")


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The folder of one run.

    Attributes:
        path: the folder.
        hash: of the combination of settings.
        time: when the folder was made; as text, in an order that is that of time.
    """

    path: Path
    hash: str
    time: str

    @property
    def world_size(self) -> int | None:
        """Number of processes, which the name of the folder above tells; None if that is no number."""
        name = self.path.parent.name
        return int(name) if name.isdecimal() else None


def parse_run_folder(path: Path) -> RunFolder | None:
    """What the name of a folder tells; None if it is not the folder of a run."""
    match = _RUN_FOLDER.fullmatch(path.name)
    return RunFolder(path, match["hash"], match["time"]) if match else None


def run_folder_name(combination_hash: str, time: str) -> str:
    """The name of the folder of a run."""
    return f"{combination_hash}_{time}"


def sweep_folder_name(file_hash: str, time: str) -> str:
    """The name of the folder of a sweep."""
    return f"{time}_{file_hash}"


def time_of_folders() -> str:
    """The present time as folders' names tell it."""
    return datetime.now().strftime(_TIME_FORMAT)
