"""The command line. Each word is one function of the library, imported when it is used."""

import argparse
import contextlib
import faulthandler
import io
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from modalities_pipeline import __version__
from modalities_pipeline.data.command_line import add_data_commands
from modalities_pipeline.exceptions import (
    ConfigError,
    ModalitiesPipelineError,
    OutputLockedError,
    OutputNotWritableError,
)

_EXIT_CODES = """exit codes:
  0    done (or left alone, as the file existence policy says)
  1    an input, a setting or a config is wrong; the message says which and what to do
  2    wrong usage of the command line
  3    the machine refused: disk full, no permission, not enough memory
  70   a fault of this program, with the place where it happened
  130  interrupted
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a failure is one message on stderr."""
    options = _parser().parse_args(arguments)
    handler: Callable[[argparse.Namespace], int | None] = options.handler
    try:
        with _reports_on_stderr(getattr(options, "shows_bars", False)):
            return handler(options) or 0
    except (OutputNotWritableError, OutputLockedError) as error:
        return _fail(error, 3)
    except ModalitiesPipelineError as error:
        return _fail(error, 1)
    except MemoryError:
        return _fail("not enough memory", 3)
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            return _fail(error, 3)
        traceback.print_exc()
        return _fail("this is a fault of modalities-pipeline, please report it with the lines above", 70)
    except KeyboardInterrupt:
        return _fail("interrupted; outputs that were not finished are as they were before", 130)


def _fail(error: object, exit_code: int) -> int:
    print(f"Error: {error}", file=sys.stderr, flush=True)
    return exit_code


@contextlib.contextmanager
def _reports_on_stderr(shows_bars: bool) -> Iterator[None]:
    """Log to stderr; if that is a terminal and the command wants it, show progress as bars there."""
    layout = "%(asctime)s %(levelname)s %(message)s"
    if sys.stderr is None:  # closed by whoever started this
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for the rest of the process)
    with contextlib.suppress(io.UnsupportedOperation):  # stderr may be no file
        faulthandler.enable()  # a file cut off by another program while it is mapped ends this one without a word
    if not (shows_bars and sys.stderr.isatty()):
        logging.basicConfig(level=logging.INFO, format=layout, stream=sys.stderr)
        yield
        return
    from rich.console import Console
    from rich.logging import RichHandler

    from modalities_pipeline.data.progress_log import progress_bars

    console = Console(stderr=True)
    handler = RichHandler(console=console, show_path=False, log_time_format="%H:%M:%S")
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[handler])
    with progress_bars(console):
        yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="modalities-pipeline",
        description="LLM pre-training from raw text to a Hugging Face model.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_training(commands)
    data = commands.add_parser("data", help="prepare data: from JSONL text to packed tokens")
    data.set_defaults(shows_bars=True)
    add_data_commands(data.add_subparsers(required=True, metavar="DATA_COMMAND"))
    summary = commands.add_parser("summary", help="what the pipeline has produced so far")
    summary.add_argument("--since", type=int, help="Unix seconds; tell what was built after that time")
    summary.set_defaults(handler=_summary)
    return parser


def _add_training(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    run = commands.add_parser("run", help="train; start it with torchrun for more than one process")
    run.add_argument("--config_file_path", type=Path, required=True)
    run.add_argument("--experiments_root_path", type=Path, help="where experiment folders are (default: experiments)")
    run.add_argument("--experiment_id", help="name of the experiment folder (default: time and hash of the config)")
    run.add_argument("--resume", action="store_true", help="continue from the newest checkpoint of this experiment")
    run.set_defaults(handler=_run)
    warmstart = commands.add_parser("warmstart", help="train on from the checkpoint that an info file names")
    warmstart.add_argument("--config_file_path", type=Path, required=True)
    warmstart.add_argument("--experiments_root_path", type=Path)
    warmstart.add_argument("--last_checkpoint_info_file_path", type=Path, required=True)
    warmstart.set_defaults(handler=_warmstart)


def _run(options: argparse.Namespace) -> None:
    _train(options, experiment_id=options.experiment_id, resume=options.resume)


def _warmstart(options: argparse.Namespace) -> None:
    try:
        info = json.loads(options.last_checkpoint_info_file_path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise ConfigError(f"{options.last_checkpoint_info_file_path} is no checkpoint info file: {error}") from None

    def resolve(name: str) -> object:
        if name != "checkpoint_paths":
            raise ConfigError(f"unknown warmstart_env variable '{name}'; known here: checkpoint_paths")
        return info

    _train(options, warmstart_env=resolve)


def _train(
    options: argparse.Namespace,
    experiment_id: str | None = None,
    resume: bool = False,
    **resolvers: Callable[[str], object],
) -> None:
    from modalities_pipeline.config.schemas import TrainingComponentsInstantiationModel
    from modalities_pipeline.distributed.env import DistributedEnv
    from modalities_pipeline.main import Main

    with DistributedEnv() as env:
        if env.global_rank != 0:
            logging.getLogger().setLevel(logging.WARNING)
        main = Main(
            options.config_file_path,
            additional_resolver_funs=resolvers,
            experiment_id=experiment_id,
            experiments_root_path=options.experiments_root_path,
            resume=resume,
        )
        main.run(main.build_components(TrainingComponentsInstantiationModel))


def _summary(options: argparse.Namespace) -> int | None:
    from modalities_pipeline.orchestration import summary

    return summary.main(options.since)


if __name__ == "__main__":
    sys.exit(main())
