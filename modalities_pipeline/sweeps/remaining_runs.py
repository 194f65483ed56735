"""Lists the runs of a sweep that are not done: `modalities-pipeline benchmark list_remaining_runs`."""

import json
import logging
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from modalities_pipeline.data.files import atomic_path
from modalities_pipeline.exceptions import DatasetNotFoundError, OutputExistsError
from modalities_pipeline.sweeps.run_folders import RunFolder, parse_run_folder, run_folder_name, time_of_folders

logger = logging.getLogger(__name__)

_RESULTS_FILE_NAME = "evaluation_results.jsonl"
_SUMMARY_FILE_NAME = "result.json"
_SWEEP_SECTION = re.compile(r"""^(?:["']?sweep["']?\s*:|\{.*\bsweep\b)""", re.MULTILINE)


def list_remaining_runs(
    exp_root: Path,
    file_list_path: Path,
    expected_steps: int,
    world_size: int | None = None,
    create_new_folders_if_partially_done: bool = False,
    skip_exception_types: Collection[str] = (),
) -> tuple[list[Path], int]:
    """Write the absolute paths of the configs that still have to be run, one a line.

    Of several folders of one combination only the newest counts. A run is done if its `evaluation_results.jsonl` has
    `expected_steps` lines (or more), if its `result.json` tells of as many steps, or if an error log of it names one
    of `skip_exception_types`. Other files in the folders do not matter.

    Args:
        exp_root: the folder of a sweep, one below it, or one above several.
        create_new_folders_if_partially_done: copy the config of a run that has left anything into a new folder, and
            list that.

    Returns:
        The paths that were written, and the number of runs in all.

    Raises:
        DatasetNotFoundError: there is no config of a sweep in `exp_root`.
        OutputExistsError: a new folder was made for the same run in this very second.
        OutputNotWritableError: the list or a folder cannot be written.
    """
    runs = _newest_runs(Path(exp_root), world_size)
    if not runs:
        of_size = f" for {world_size} processes" if world_size is not None else ""
        raise DatasetNotFoundError(
            f"There is no config of a sweep{of_size} in {exp_root}. Name the folder that prepare_sweep_configs wrote."
        )
    remaining = []
    for folder, config in runs.items():
        if _is_done(folder.path, expected_steps, skip_exception_types):
            continue
        if create_new_folders_if_partially_done and len(list(folder.path.iterdir())) > 1:
            config = _copy_to_new_folder(folder, config)
        remaining.append(config.absolute())
    with atomic_path(Path(file_list_path)) as temporary:
        temporary.write_text("".join(f"{path}\n" for path in remaining), encoding="utf-8")
    return remaining, len(runs)


def _newest_runs(exp_root: Path, world_size: int | None) -> dict[RunFolder, Path]:
    """The newest folder of each combination, and the config in it, in the order of their paths."""
    newest: dict[tuple[Path, str], RunFolder] = {}
    for folder in _run_folders(exp_root):
        if world_size is not None and folder.world_size != world_size:
            continue
        key = (folder.path.parent, folder.hash)
        if key not in newest or newest[key].time < folder.time:
            newest[key] = folder
    candidates = {folder: _sweep_configs(folder.path) for folder in newest.values()}
    num_folders_with = Counter(path.name for paths in candidates.values() for path in paths)
    return {
        folder: max(paths, key=lambda path: (num_folders_with[path.name], path.name))
        for folder, paths in sorted(candidates.items(), key=lambda item: item[0].path)
        if paths
    }


def _run_folders(exp_root: Path) -> Iterator[RunFolder]:
    """All folders that are named like those of runs and hold a config, but none within another."""
    for place, names, _ in os.walk(exp_root):
        folder, has_config = parse_run_folder(Path(place)), bool(_sweep_configs(Path(place)))
        if folder is not None and has_config:
            names.clear()
            yield folder
        elif folder is not None:
            logger.warning("%s is passed over: there is no config of a sweep in it.", place)
        elif has_config:
            logger.warning("%s is passed over: its name is not HASH_TIME, as prepare_sweep_configs gives it.", place)


def _sweep_configs(folder: Path) -> list[Path]:
    """The YAML files in a folder that have a section `sweep`; other tools write YAML files, too."""
    return [
        path
        for path in sorted(folder.iterdir())
        if path.suffix in (".yaml", ".yml") and path.is_file() and _SWEEP_SECTION.search(_read(path))
    ]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _is_done(folder: Path, expected_steps: int, skip_exception_types: Collection[str]) -> bool:
    num_results = max((_num_lines(path) for path in _found(folder, _RESULTS_FILE_NAME)), default=0)
    if num_results > expected_steps:
        logger.warning("%s: %d results, more than the %d steps expected", folder, num_results, expected_steps)
    if num_results >= expected_steps:
        return True
    summaries = [_read_json(path) for path in _found(folder, _SUMMARY_FILE_NAME)]
    if any(_number(summary.get("num_steps")) >= expected_steps for summary in summaries):
        return True
    return any(_error_types(path) & set(skip_exception_types) for path in _found(folder, "error_logs_*.log"))


def _found(folder: Path, pattern: str) -> list[Path]:
    """Files of a run: in its folder, or in that of an experiment in it."""
    return [path for path in (*folder.glob(pattern), *folder.glob(f"*/{pattern}")) if path.is_file()]


def _num_lines(path: Path) -> int:
    """Complete lines; the last one of a run that was killed may be cut off."""
    return sum(1 for line in path.read_bytes().split(b"\n")[:-1] if line.strip())


def _read_json(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file; empty if there is none, as in a file whose writer was killed."""
    try:
        content = json.loads(_read(path))
    except json.JSONDecodeError:
        return {}
    return content if isinstance(content, dict) else {}


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _error_types(path: Path) -> set[str]:
    """The name of the error's class, with and without its module."""
    error = _read_json(path).get("error")
    name = str(error.get("type", "")) if isinstance(error, dict) else ""
    name = name.removeprefix("<class '").removesuffix("'>")
    return {name, name.rpartition(".")[2]} - {""}


def _copy_to_new_folder(folder: RunFolder, config: Path) -> Path:
    new_folder = folder.path.with_name(run_folder_name(folder.hash, time_of_folders()))
    if new_folder.exists():
        raise OutputExistsError(f"{new_folder} was made in this very second. Wait a second, then list the runs again.")
    with atomic_path(new_folder) as temporary:
        temporary.mkdir()
        (temporary / config.name).write_bytes(config.read_bytes())
    return new_folder / config.name
