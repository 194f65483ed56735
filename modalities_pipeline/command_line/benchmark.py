"""The words of `benchmark`: many runs of one config with other settings."""

from pathlib import Path

import click

from modalities_pipeline.command_line.options import CONFIG_FILE, PATH
from modalities_pipeline.command_line.output import emit
from modalities_pipeline.command_line.words import WordGroup

benchmark = WordGroup("benchmark", help="Run one config with many combinations of settings.")


class _WorldSizes(click.ParamType):
    """Numbers of processes, separated by commas."""

    name = "n,n,..."

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        words = value.replace(",", " ").split()
        if not words or not all(word.isdecimal() and int(word) > 0 for word in words):
            self.fail(f"{value!r} is not a list of numbers of processes, such as 2,4,8", param, ctx)
        return tuple(dict.fromkeys(int(word) for word in words))


@benchmark.command(
    "prepare_sweep_configs",
    help="Write one config for each combination of the lists under the key 'sweep' of a config, and for each number of "
    "processes: OUTPUT_DIR/TIME_HASH/WORLD_SIZE/HASH_TIME/CONFIG. In each of them the sweep's lists are single values, "
    "which the rest of the config refers to, as in ${sweep.learning_rate}.",
)
@click.option("--sweep_config_path", type=CONFIG_FILE, required=True, help="The YAML file with the key 'sweep'.")
@click.option("--output_dir", type=PATH, required=True, help="Where the sweep's folder is made.")
@click.option(
    "--world_sizes", type=_WorldSizes(), default="2", show_default=True, help="Numbers of processes, as in 2,4,8."
)
def prepare_sweep_configs(sweep_config_path: Path, output_dir: Path, world_sizes: tuple[int, ...]) -> None:
    """Write the configs of a sweep."""
    from modalities_pipeline.sweeps.sweep_configs import prepare_sweep_configs

    folder, num_configs = prepare_sweep_configs(sweep_config_path, output_dir, world_sizes)
    emit(f"{num_configs} configs in {folder}")


@benchmark.command(
    "list_remaining_runs",
    help="Write the paths of the configs of a sweep that still have to be run, one a line. A run is done if its "
    "evaluation_results.jsonl has as many lines as steps are expected, or its result.json tells of as many steps. Of "
    "several folders of one combination the newest counts.",
)
@click.option("--exp_root", type=PATH, required=True, help="The sweep's folder, or one with several.")
@click.option("--file_list_path", type=PATH, required=True, help="The list to write.")
@click.option("--expected_steps", type=click.IntRange(min=1), required=True, help="Steps of a complete run.")
@click.option("--world_size", type=click.IntRange(min=1), help="Only runs with so many processes.  [default: all]")
@click.option(
    "--create_new_folders_if_partially_done",
    is_flag=True,
    help="List a copy of the config in a new folder for a run that was started, so that it starts anew.",
)
@click.option(
    "--skip_exception_types",
    default="",
    help="Runs that ended with one of these errors count as done: class names, as in OutOfMemoryError,ValueError.",
)
def list_remaining_runs(
    exp_root: Path,
    file_list_path: Path,
    expected_steps: int,
    world_size: int | None,
    create_new_folders_if_partially_done: bool,
    skip_exception_types: str,
) -> None:
    """List the runs of a sweep that are not done."""
    from modalities_pipeline.sweeps.remaining_runs import list_remaining_runs

    remaining, num_runs = list_remaining_runs(
        exp_root,
        file_list_path,
        expected_steps,
        world_size,
        create_new_folders_if_partially_done,
        skip_exception_types.replace(",", " ").split(),
    )
    emit(f"{len(remaining)} of {num_runs} runs remain; their configs are listed in {file_list_path}")
