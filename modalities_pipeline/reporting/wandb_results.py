"""Results to Weights & Biases. The only user of wandb, imported when a run really reports to it."""

import hashlib
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modalities_pipeline.batch import EvaluationResultBatch
from modalities_pipeline.config.yaml_files.yaml_text import to_yaml
from modalities_pipeline.data.files import os_errors_named
from modalities_pipeline.reporting.broker import Message, MessageSubscriberIF
from modalities_pipeline.reporting.configs import WandbMode
from modalities_pipeline.reporting.results import DummyResultSubscriber

logger = logging.getLogger(__name__)

_INIT_TIMEOUT_IN_S = 60.0  # for the server's answer; the other ranks wait meanwhile
_FINISH_TIMEOUT_IN_S = 300.0  # for what is not uploaded when the run is over; it stays on disk
_DIRECTORY_VARIABLES = ("CACHE_DIR", "DIR", "DATA_DIR", "ARTIFACT_LOCATION", "ARTIFACT_DIR", "CONFIG_DIR")
_NOT_IN_AN_ID = re.compile(r"[/\\#?%:\s]")
_MAX_ID_LENGTH = 128


class WandBResultSubscriber(MessageSubscriberIF[EvaluationResultBatch]):
    """One wandb run per experiment id; a run that is started again with the same id continues it.

    Args:
        run: what `wandb.init` gave.
        config_file_path: names the file of the resolved config in the artifact.
    """

    def __init__(self, run: Any, config_file_path: Path) -> None:
        self._run = run
        self._config_file_name = f"{config_file_path.name}.resolved"

    def consume_message(self, message: Message[EvaluationResultBatch]) -> None:
        """Log all numbers of one result, at once, under "<dataloader tag> <name>"; `step` is the training step."""
        result = message.payload
        items = result.losses | result.metrics | result.throughput_metrics
        numbers = {f"{result.dataloader_tag} {name}": item.value.double().mean().item() for name, item in items.items()}
        self._run.log(numbers, step=result.num_train_steps_done)

    def consume_dict(self, message_dict: dict[str, Any]) -> None:
        """Add facts to the run's config."""
        self._run.config.update(message_dict, allow_val_change=True)

    def consume_config(self, config: Mapping[str, Any]) -> None:
        """Make it the run's config, and store it as the artifact `config_<run id>` of type "config"."""
        import wandb

        self._run.config.update(dict(config), allow_val_change=True)
        artifact = wandb.Artifact(name=f"config_{self._run.id}", type="config")
        with artifact.new_file(self._config_file_name, encoding="utf-8") as file:
            file.write(to_yaml(dict(config)))
        self._run.log_artifact(artifact)

    def close(self, is_completed: bool) -> None:
        """Mark the run as finished or failed; waits for uploads, but not for ever."""
        self._run.finish(exit_code=0 if is_completed else 1)


def get_wandb_result_subscriber(
    global_rank: int,
    project: str,
    experiment_id: str,
    mode: WandbMode,
    directory: Path,
    config_file_path: Path,
    entity: str | None = None,
) -> MessageSubscriberIF[EvaluationResultBatch]:
    """A wandb run on rank 0; nothing on other ranks or if the mode is DISABLED.

    wandb keeps all its files in `<directory>/wandb`: its variables WANDB_DIR, WANDB_CACHE_DIR, ... are set to it.
    A run that should be ONLINE and cannot be (no login, no network, no answer within a minute) goes on OFFLINE with a
    warning; `wandb sync` brings it to the server later. What else goes wrong is logged, and nothing is reported.

    Raises:
        OutputNotWritableError: the directory cannot be made.
    """
    if global_rank != 0 or mode is WandbMode.DISABLED:
        return DummyResultSubscriber()
    folder = directory.absolute() / "wandb"
    with os_errors_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
    os.environ.update({f"WANDB_{name}": str(folder) for name in _DIRECTORY_VARIABLES})
    options = {"entity": entity, "project": project, "name": experiment_id, "dir": str(directory.absolute())}
    run = _online_run(experiment_id, options) if mode is WandbMode.ONLINE else None
    run = run or _offline_run(experiment_id, options)
    return WandBResultSubscriber(run, config_file_path) if run is not None else DummyResultSubscriber()


def run_id_of(experiment_id: str) -> str:
    r"""The experiment id as id of a wandb run, which must not hold `/\#?%:` or white space, nor have more than 128.

    Different experiment ids have different ones: where something has to be changed, a hash of it is appended.
    """
    run_id = _NOT_IN_AN_ID.sub("-", experiment_id)
    if run_id == experiment_id and 0 < len(run_id) <= _MAX_ID_LENGTH:
        return run_id
    digest = hashlib.sha256(experiment_id.encode()).hexdigest()[:16]
    return f"{run_id[: _MAX_ID_LENGTH - len(digest) - 1]}-{digest}"


def _online_run(experiment_id: str, options: dict[str, Any]) -> Any:
    """The run, None if wandb cannot start one; never asks for a password."""
    import wandb

    why = "there is no login (set WANDB_API_KEY, or run `wandb login`)"
    try:
        if wandb.login(prompt=False):
            settings = wandb.Settings(init_timeout=_INIT_TIMEOUT_IN_S, finish_timeout=_FINISH_TIMEOUT_IN_S)
            return wandb.init(**options, id=run_id_of(experiment_id), resume="allow", mode="online", settings=settings)
    except Exception as error:
        why = str(error)
    logger.warning("wandb is not online: %s. The run is kept offline; `wandb sync` uploads it.", why.rstrip("."))
    return None


def _offline_run(experiment_id: str, options: dict[str, Any]) -> Any:
    import wandb

    try:
        return wandb.init(**options, id=run_id_of(experiment_id), mode="offline")
    except Exception:
        logger.exception("wandb could not be started; nothing is reported to it.")
        return None
