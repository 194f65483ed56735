"""The command line. Each word is one function of the library, imported when it is used."""

import argparse
import json
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from modalities_pipeline import __version__
from modalities_pipeline.exceptions import ConfigError, ModalitiesPipelineError

_POLICIES = ("error", "skip", "override")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 is success, 1 an error (one message on stderr), 2 wrong usage."""
    options = _parser().parse_args(arguments)
    handler: Callable[[argparse.Namespace], int | None] = options.handler
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        return handler(options) or 0
    except ModalitiesPipelineError as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="modalities-pipeline", description="LLM pre-training from text to HF model.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_training(commands)
    data = commands.add_parser("data", help="prepare data").add_subparsers(required=True, metavar="DATA_COMMAND")
    _add_data(data)
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


def _add_data(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    index = commands.add_parser("create_raw_index", help="find the documents of a JSONL file")
    index.add_argument("src_path", type=Path)
    index.add_argument("--index_path", type=Path, help="default: beside the source, .idx")
    index.set_defaults(handler=_create_raw_index)
    pack = commands.add_parser("pack_encoded_data", help="tokenize an indexed JSONL file")
    pack.add_argument("config_path", type=Path)
    pack.set_defaults(handler=_pack_encoded_data)
    chunk = commands.add_parser("create_shuffled_dataset_chunk", help="one shuffled chunk of several packed files")
    chunk.add_argument("--input_file_list_path", type=Path, required=True, help="a file with one relative path a line")
    chunk.add_argument("--input_data_root_path", type=Path, required=True)
    chunk.add_argument("--output_chunk_file_path", type=Path, required=True)
    chunk.add_argument("--chunk_id", type=int, required=True)
    chunk.add_argument("--num_chunks", type=int, required=True)
    chunk.add_argument("--global_seed", type=int)
    chunk.set_defaults(handler=_create_shuffled_dataset_chunk)
    for command in (index, pack, chunk):
        command.add_argument("--file_existence_policy", choices=_POLICIES, default="error")
    merge = commands.add_parser("merge_packed_data", help="join packed files, and those in folders, into one")
    merge.add_argument("src_paths", type=Path, nargs="+")
    merge.add_argument("target_path", type=Path)
    merge.set_defaults(handler=_merge_packed_data)


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


def _create_raw_index(options: argparse.Namespace) -> None:
    from modalities_pipeline import api

    policy = api.FileExistencePolicy(options.file_existence_policy)
    api.create_raw_data_index(options.src_path, options.index_path, policy)


def _pack_encoded_data(options: argparse.Namespace) -> None:
    from pydantic import ValidationError

    from modalities_pipeline import api
    from modalities_pipeline.config.errors import describe_validation_error
    from modalities_pipeline.config.loader import load_app_config_dict, load_yaml
    from modalities_pipeline.data.tokenized_pack import TokenizedPackSettings

    policy = api.FileExistencePolicy(options.file_existence_policy)
    try:
        api.pack_encoded_data(load_app_config_dict(options.config_path), policy)
    except ValidationError as error:
        position = load_yaml(options.config_path).position
        faults = describe_validation_error(error, options.config_path, position, ("settings",), TokenizedPackSettings)
        raise ConfigError("\n".join(faults)) from None


def _create_shuffled_dataset_chunk(options: argparse.Namespace) -> None:
    from modalities_pipeline import api

    names = options.input_file_list_path.read_text(encoding="utf-8").split("\n")
    paths = [options.input_data_root_path / Path(name.strip()).with_suffix(".pbin") for name in names if name.strip()]
    api.create_shuffled_dataset_chunk(
        paths,
        options.output_chunk_file_path,
        options.chunk_id,
        options.num_chunks,
        api.FileExistencePolicy(options.file_existence_policy),
        options.global_seed,
    )


def _merge_packed_data(options: argparse.Namespace) -> None:
    from modalities_pipeline import api

    api.merge_packed_data_files(options.src_paths, options.target_path)


def _summary(options: argparse.Namespace) -> int | None:
    from modalities_pipeline.orchestration import summary

    return summary.main(options.since)


if __name__ == "__main__":
    sys.exit(main())
