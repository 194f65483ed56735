"""Profiles what a YAML file describes; with torchrun in many processes, without it in one."""

import logging
import shutil
import time
from pathlib import Path

import torch.distributed as dist

from modalities_pipeline.config.schemas.profiling import ProfilingInstantiationModel
from modalities_pipeline.distributed.env import DistributedEnv
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.main import Main
from modalities_pipeline.profiling.profilers import SteppableProfilerIF
from modalities_pipeline.profiling.steppable import SteppableComponentIF

logger = logging.getLogger(__name__)


def profile_distributed(config_file_path: Path, experiment_root_path: Path, experiment_id: str | None = None) -> Path:
    """Build a config's `steppable_component` and `profiler`, and do as many steps as the profiler needs.

    Args:
        config_file_path: see `config.schemas.profiling`; is copied into the experiment folder.
        experiment_root_path: where experiment folders are.
        experiment_id: name of the experiment's folder; made from time and config if not given.

    Returns:
        The experiment folder.

    Raises:
        ConfigError: the config is wrong, or its profiler needs no steps.
    """
    config_file_path = Path(config_file_path)
    with DistributedEnv() as env:
        main = Main(config_file_path, experiment_id=experiment_id, experiments_root_path=Path(experiment_root_path))
        components = main.build_components(ProfilingInstantiationModel)
        if len(components.profiler) == 0:
            raise ConfigError(f"{config_file_path}: profiler: it needs no steps, so there is nothing to do.")
        folder = Path(experiment_root_path) / main.experiment_id
        if env.global_rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            copy = folder / config_file_path.name
            if not (copy.exists() and copy.samefile(config_file_path)):
                shutil.copyfile(config_file_path, copy)
        dist.barrier()
        step_all(components.steppable_component, components.profiler)
        dist.barrier()
        return folder


def step_all(component: SteppableComponentIF, profiler: SteppableProfilerIF) -> None:
    """Do as many steps as the profiler needs, and log how long one took on average."""
    num_steps = len(profiler)
    started = time.perf_counter()
    with profiler:
        for _ in range(num_steps):
            component.step()
            profiler.step()
    duration_in_s = time.perf_counter() - started
    logger.info("%d steps in %.2f s, %.4f s each.", num_steps, duration_in_s, duration_in_s / num_steps)
