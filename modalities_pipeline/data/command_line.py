"""The words of `modalities-pipeline data`: each is one function of the library, imported when it is used."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from modalities_pipeline.data.listed_files import listed_files
from modalities_pipeline.exceptions import ConfigError

_POLICIES = ("error", "skip", "override")
_POLICY_HELP = "if the output exists: error (default), skip (keep it), override (replace it once the new one is done)"

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_data_commands(commands: Commands) -> None:
    """Add all words, in the order in which data is prepared."""
    _add_index(commands)
    _add_pack(commands)
    _add_chunk(commands, "create_shuffled_dataset_chunk", ".pbin", _create_shuffled_dataset_chunk)
    _add_chunk(commands, "create_shuffled_jsonl_chunk", ".jsonl", _create_shuffled_jsonl_chunk)
    _add_merge(commands)
    _add_shuffles(commands)
    _add_instruction_data(commands)
    _add_care(commands)


def _add(commands: Commands, name: str, handler: Callable[..., None], summary: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
    command.set_defaults(handler=handler)
    return command


def _add_policy(command: argparse.ArgumentParser) -> None:
    command.add_argument("--file_existence_policy", choices=_POLICIES, default="error", help=_POLICY_HELP)


def _add_index(commands: Commands) -> None:
    summary = "find where each document (line) of a JSONL file starts and write that to an .idx file"
    index = _add(commands, "create_raw_index", _create_raw_index, summary)
    index.add_argument("src_path", type=Path, help="the JSONL file: one JSON value per line, UTF-8")
    index.add_argument("--index_path", type=Path, help="the .idx file (default: beside the JSONL file)")
    index.add_argument(
        "--on_bad_sample",
        choices=("error", "skip"),
        default="error",
        help="a line that is no JSON in UTF-8: error (default), or skip (leave it out and count it in the manifest)",
    )
    _add_policy(index)


def _add_pack(commands: Commands) -> None:
    summary = "tokenize an indexed JSONL file into a .pbin file, as a YAML file says"
    pack = _add(commands, "pack_encoded_data", _pack_encoded_data, summary)
    pack.add_argument("config_path", type=Path, help="YAML with the sections 'settings' and 'tokenizer'")
    _add_policy(pack)


def _add_chunk(commands: Commands, name: str, suffix: str, handler: Callable[..., None]) -> None:
    summary = f"take one of num_chunks shares of every {suffix} file in a list and shuffle their documents"
    chunk = _add(commands, name, handler, summary)
    chunk.add_argument(
        "--input_file_list_path",
        type=Path,
        required=True,
        help=f"text file that names one input per line; a.jsonl, a.idx and a.pbin all stand for a{suffix}",
    )
    chunk.add_argument(
        "--input_data_root_path", type=Path, required=True, help="folder that the names in the list are relative to"
    )
    chunk.add_argument("--output_chunk_file_path", type=Path, required=True, help=f"the chunk, a {suffix} file")
    chunk.add_argument("--chunk_id", type=int, required=True, help="which share, from 0")
    chunk.add_argument("--num_chunks", type=int, required=True, help="how many shares there are in all")
    chunk.add_argument("--global_seed", type=int, help="same seed, same order (default: another order each time)")
    _add_policy(chunk)


def _add_merge(commands: Commands) -> None:
    summary = "join .pbin files, and all those in folders, into one new file"
    merge = _add(commands, "merge_packed_data", _merge_packed_data, summary)
    merge.add_argument("src_paths", type=Path, nargs="+", help=".pbin files, or folders (searched in order of path)")
    merge.add_argument("target_path", type=_new_file, help="the new .pbin file; must not exist")


def _add_shuffles(commands: Commands) -> None:
    tokens = _add(
        commands, "shuffle_tokenized_data", _shuffle_tokenized_data, "put the documents of a .pbin file in random order"
    )
    lines = _add(commands, "shuffle_jsonl_data", _shuffle_jsonl_data, "put the lines of a JSONL file in random order")
    for command in (tokens, lines):
        command.add_argument("--input_data_path", type=Path, required=True, help="the file to shuffle; stays as it is")
        command.add_argument("--output_data_path", type=Path, required=True, help="the shuffled file")
        command.add_argument("--seed", type=int, help="same seed, same order (default: another order each time)")
        _add_policy(command)
    tokens.add_argument(
        "--batch_size", type=int, default=100, help="documents written at once; the result does not depend on it"
    )


def _add_instruction_data(commands: Commands) -> None:
    summary = "apply a chat template to conversations, split them, and index and pack each part, as a YAML file says"
    instructions = _add(commands, "prepare_instruction_tuning_data", _prepare_instruction_tuning_data, summary)
    instructions.add_argument("--config_file_path", type=Path, required=True, help="the YAML file")


def _add_care(commands: Commands) -> None:
    summary = "mend the index of a .pbin file that Modalities merged (its offsets are too low from the second input on)"
    repair = _add(commands, "repair_packed_data", _repair_packed_data, summary)
    repair.add_argument("src_path", type=Path, help="the damaged file; stays as it is")
    repair.add_argument("target_path", type=Path, help="the mended file")
    _add_policy(repair)


def _new_file(name: str) -> Path:
    if Path(name).exists():
        raise argparse.ArgumentTypeError(f"{name} exists already; the last path is the target, which has to be new")
    return Path(name)


def _create_raw_index(options: argparse.Namespace) -> None:
    from modalities_pipeline.data.files import FileExistencePolicy
    from modalities_pipeline.data.raw_index import build_raw_index

    build_raw_index(
        options.src_path,
        options.index_path,
        FileExistencePolicy(options.file_existence_policy),
        drop_faulty_entries=options.on_bad_sample == "skip",
    )


def _pack_encoded_data(options: argparse.Namespace) -> None:
    from pydantic import ValidationError

    from modalities_pipeline import api
    from modalities_pipeline.config.errors import describe_validation_error
    from modalities_pipeline.config.loader import load_app_config_dict, load_yaml
    from modalities_pipeline.data.files import refuse_irregular
    from modalities_pipeline.data.tokenized_pack import PackConfigSettings

    policy = api.FileExistencePolicy(options.file_existence_policy)
    refuse_irregular([options.config_path])
    config = load_app_config_dict(options.config_path)
    _refuse_to_replace(options.config_path, _dst_path(config))
    try:
        api.pack_encoded_data(config, policy)
    except ValidationError as error:
        position = load_yaml(options.config_path).position
        faults = describe_validation_error(error, options.config_path, position, ("settings",), PackConfigSettings)
        raise ConfigError("\n".join(faults)) from None


def _dst_path(config: dict[str, Any]) -> Path | None:
    """Where a packing config wants the pack, if it says so at all."""
    settings = config.get("settings")
    dst_path = settings.get("dst_path") if isinstance(settings, dict) else None
    return Path(dst_path) if isinstance(dst_path, str) else None


def _refuse_to_replace(input_path: Path, output_path: Path | None) -> None:
    """Raise `UserError` if a file that says what to do would be lost with the output, its record or its lock."""
    from modalities_pipeline.data.production import refuse_to_replace

    if output_path is not None and output_path.name:
        refuse_to_replace([input_path], output_path)


def _create_shuffled_dataset_chunk(options: argparse.Namespace) -> None:
    from modalities_pipeline import api

    _chunk(options, ".pbin", api.create_shuffled_dataset_chunk)


def _create_shuffled_jsonl_chunk(options: argparse.Namespace) -> None:
    from modalities_pipeline import api

    _chunk(options, ".jsonl", api.create_shuffled_jsonl_dataset_chunk)


def _chunk(options: argparse.Namespace, suffix: str, create: Callable[..., None]) -> None:
    from modalities_pipeline import api

    _refuse_to_replace(options.input_file_list_path, options.output_chunk_file_path)
    create(
        listed_files(options.input_file_list_path, options.input_data_root_path, suffix),
        options.output_chunk_file_path,
        options.chunk_id,
        options.num_chunks,
        api.FileExistencePolicy(options.file_existence_policy),
        options.global_seed,
    )


def _merge_packed_data(options: argparse.Namespace) -> None:
    from modalities_pipeline import api

    api.merge_packed_data_files(options.src_paths, options.target_path)


def _shuffle_tokenized_data(options: argparse.Namespace) -> None:
    from modalities_pipeline import api

    policy = api.FileExistencePolicy(options.file_existence_policy)
    api.shuffle_tokenized_data(
        options.input_data_path, options.output_data_path, options.batch_size, policy, options.seed
    )


def _shuffle_jsonl_data(options: argparse.Namespace) -> None:
    from modalities_pipeline import api

    policy = api.FileExistencePolicy(options.file_existence_policy)
    api.shuffle_jsonl_data(options.input_data_path, options.output_data_path, policy, options.seed)


def _prepare_instruction_tuning_data(options: argparse.Namespace) -> None:
    from modalities_pipeline.data.files import refuse_irregular
    from modalities_pipeline.data.instruction_data import create_instruction_tuning_data

    refuse_irregular([options.config_file_path])
    create_instruction_tuning_data(options.config_file_path)


def _repair_packed_data(options: argparse.Namespace) -> None:
    from modalities_pipeline.data.files import FileExistencePolicy
    from modalities_pipeline.data.repaired_pbin import build_repaired_pbin

    policy = FileExistencePolicy(options.file_existence_policy)
    build_repaired_pbin(options.src_path, options.target_path, policy)
