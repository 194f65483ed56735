"""The words that train: `run` and `warmstart`."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modalities_pipeline.command_line import options
from modalities_pipeline.command_line.words import Word

if TYPE_CHECKING:
    from modalities_pipeline.config.overlays import Override
    from modalities_pipeline.distributed.env import DistributedEnv

logger = logging.getLogger(__name__)

_SEVERAL_PROCESSES = "torchrun --standalone --nproc-per-node N -m modalities_pipeline"
_HELP = f"Started alone it is one process; for N of them: {_SEVERAL_PROCESSES} ..."


def _training_options(function: options.FunctionT) -> options.FunctionT:
    """Add what both words have."""
    added: tuple[Callable[[options.FunctionT], options.FunctionT], ...] = (
        options.experiments_root_path,
        options.experiment_id,
        options.overrides,
        click.option("--resume", is_flag=True, help="Continue from the newest checkpoint of this experiment."),
        click.option(
            "--error_log_folder",
            type=options.PATH,
            help="If training fails, write what happened into error_logs_HOST_LOCALRANK.log (JSON) in this folder.",
        ),
        click.option("--test_comm", is_flag=True, help="First test that the processes can talk to each other."),
    )
    for option in reversed(added):
        function = option(function)
    return function


@click.command(cls=Word, help=f"Train as a YAML file says. {_HELP}")
@options.config_file_path
@_training_options
def run(**given: Any) -> int:
    """Train; returns the exit code."""
    return _train(**given)


@click.command(cls=Word, help=f"Train on from the checkpoint that an info file names, as a YAML file says. {_HELP}")
@options.config_file_path
@options.last_checkpoint_info_file_path(is_required=True)
@_training_options
def warmstart(**given: Any) -> int:
    """Train on from a checkpoint; returns the exit code."""
    return _train(**given)


def _train(error_log_folder: Path | None, **given: Any) -> int:
    """Train; an error is written to `error_log_folder`, if there is one, before it is raised."""
    from modalities_pipeline.distributed.env import DistributedEnv
    from modalities_pipeline.distributed.shared_errors import ReportedElsewhereError

    env: DistributedEnv | None = None
    try:
        env = DistributedEnv()
        with env:
            _train_in(env, **given)
    except ReportedElsewhereError:  # the config is wrong; one process tells that, for all of them
        return 1
    except Exception as error:
        if error_log_folder is not None:
            from modalities_pipeline.command_line.error_log import write_error_log

            write_error_log(error_log_folder, error, env)
        raise
    return 0


def _train_in(
    env: "DistributedEnv",
    config_file_path: Path,
    experiments_root_path: Path | None,
    experiment_id: str | None,
    overrides: "Sequence[Override]",
    resume: bool,
    test_comm: bool,
    last_checkpoint_info_file_path: Path | None = None,
) -> None:
    """Train in a process group."""
    from torch.distributed import is_torchelastic_launched

    from modalities_pipeline.config.schemas.training import TrainingComponentsInstantiationModel
    from modalities_pipeline.distributed.communication import check_communication
    from modalities_pipeline.main import Main

    if env.global_rank != 0:
        logging.getLogger().setLevel(logging.WARNING)
    if env.world_size == 1 and not is_torchelastic_launched():
        logger.info("Training with one process; for N processes: %s ...", _SEVERAL_PROCESSES)
    if test_comm:
        check_communication(env.device)
        logger.info("The processes (%d) can talk to each other.", env.world_size)
    main = Main(
        config_file_path,
        experiment_id=experiment_id,
        experiments_root_path=experiments_root_path,
        overrides=overrides,
        resume=resume,
        last_checkpoint_info_file_path=last_checkpoint_info_file_path,
    )
    main.run(main.build_components(TrainingComponentsInstantiationModel))
