"""The words of `profile`."""

from pathlib import Path

import click

from modalities_pipeline.command_line.options import PATH, config_file_path
from modalities_pipeline.command_line.words import WordGroup

profile = WordGroup("profile", help="Measure where time and memory go.")


@profile.command(
    "distributed",
    help="Profile the steps of the component 'steppable_component' of a YAML file, in each process of torchrun.",
)
@config_file_path
@click.option(
    *("--experiment_root_path", "--experiments_root_path", "experiment_root_path"),
    type=PATH,
    required=True,
    help="Where the folder with the measurements is made.",
)
def distributed(config_file_path: Path, experiment_root_path: Path) -> None:
    """Profile on one or more processes."""
    from modalities_pipeline.profiling.run import profile_distributed

    profile_distributed(config_file_path, experiment_root_path)
