"""A training error as a JSON file, for scripts that start many runs and want to know which failed and why."""

import json
import logging
import os
import socket
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modalities_pipeline.distributed.env import DistributedEnv

logger = logging.getLogger(__name__)


def write_error_log(folder: Path, error: Exception, env: "DistributedEnv | None") -> None:
    """Write `error_logs_<hostname>_<local rank>.log`; if that fails it is logged, as the error itself matters more.

    The content is that of Modalities: `environment` (rank, local_rank, world_size, hostname) and `error` (error: its
    message, type: its class' name, stacktrace: its lines).

    Args:
        env: this process' place in the run; None if the error was that it could not be found out. The file's name then
            has the process id in the place of the rank.
    """
    hostname = socket.gethostname()
    place = env.local_rank if env is not None else f"pid{os.getpid()}"
    content = {
        "environment": {
            "rank": env.global_rank if env is not None else None,
            "local_rank": env.local_rank if env is not None else None,
            "world_size": env.world_size if env is not None else None,
            "hostname": hostname,
        },
        "error": {
            "error": str(error),
            "type": type(error).__name__,
            "stacktrace": traceback.format_exception(error),
        },
    }
    path = folder / f"error_logs_{hostname}_{place}.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as reason:
        logger.warning("The error could not be written to %s: %s", path, reason)
