"""The words of `data`, in the order in which data is prepared; each is one function of the library."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from modalities_pipeline.command_line.options import CONFIG_FILE, PATH, FunctionT, config_file_path
from modalities_pipeline.command_line.words import Word, WordGroup
from modalities_pipeline.exceptions import ConfigError


class _DataWord(Word):
    shows_bars = True


class _DataGroup(WordGroup):
    command_class = _DataWord


data = _DataGroup("data", help="Prepare data: from JSONL text to packed tokens.")

_seed = click.option("--seed", type=int, help="Same seed, same order.  [default: another order each time]")
_input_data_path = click.option(
    "--input_data_path", type=PATH, required=True, help="The file to shuffle; stays as it is."
)
_output_data_path = click.option("--output_data_path", type=PATH, required=True, help="The shuffled file.")
_policy = click.option(
    "--file_existence_policy",
    type=click.Choice(("error", "skip", "override")),
    default="error",
    show_default=True,
    help="If the output exists: error, skip (keep it), override (replace it once the new one is done).",
)

_ROOT_HELP = "Folder that the names in the list are relative to."


@data.command(
    "create_raw_index", help="Find where each document (line) of a JSONL file starts and write that to an .idx file."
)
@click.argument("src_path", type=PATH, help="The JSONL file: one JSON value per line, UTF-8.")
@click.option("--index_path", type=PATH, help="The .idx file.  [default: beside the JSONL file]")
@click.option(
    "--on_bad_sample",
    type=click.Choice(("error", "skip")),
    default="error",
    show_default=True,
    help="A line that is no JSON in UTF-8: error, or skip (leave it out and count it in the manifest).",
)
@_policy
def create_raw_index(src_path: Path, index_path: Path | None, on_bad_sample: str, file_existence_policy: str) -> None:
    """Index a JSONL file."""
    from modalities_pipeline.data.files import FileExistencePolicy
    from modalities_pipeline.data.raw_index import build_raw_index

    policy = FileExistencePolicy(file_existence_policy)
    build_raw_index(src_path, index_path, policy, drop_faulty_entries=on_bad_sample == "skip")


@data.command("pack_encoded_data", help="Tokenize an indexed JSONL file into a .pbin file, as a YAML file says.")
@click.argument("config_path", type=CONFIG_FILE, help="YAML with the sections 'settings' and 'tokenizer'.")
@_policy
def pack_encoded_data(config_path: Path, file_existence_policy: str) -> None:
    """Pack a JSONL file."""
    from modalities_pipeline import api
    from modalities_pipeline.config.overlays import load_config
    from modalities_pipeline.config.resolution import resolve
    from modalities_pipeline.config.schemas.kinds import describe_other_kind

    policy = api.FileExistencePolicy(file_existence_policy)
    document = load_config(config_path)
    other_kind = describe_other_kind(document.data, "packing")
    if other_kind is not None:
        raise ConfigError(f"{config_path}: {other_kind}")
    resolved = resolve(document)
    resolved.raise_if_unresolved()
    _refuse_to_replace(config_path, _dst_path(resolved.data))
    api.pack_encoded_data(resolved.data, policy, resolved.document)


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


def _chunk_help(suffix: str) -> str:
    return f"Take one of num_chunks shares of every {suffix} file in a list and shuffle their documents."


def _chunk_options(suffix: str) -> Callable[[FunctionT], FunctionT]:
    """Add the options of a word that makes a chunk of files with this suffix."""
    list_help = f"Text file that names one input per line; a.jsonl, a.idx and a.pbin all stand for a{suffix}."
    options = (
        click.option("--input_file_list_path", type=PATH, required=True, help=list_help),
        click.option("--input_data_root_path", type=PATH, required=True, help=_ROOT_HELP),
        click.option("--output_chunk_file_path", type=PATH, required=True, help=f"The chunk, a {suffix} file."),
        click.option("--chunk_id", type=int, required=True, help="Which share, from 0."),
        click.option("--num_chunks", type=int, required=True, help="How many shares there are in all."),
        click.option("--global_seed", type=int, help="Same seed, same order.  [default: another order each time]"),
        _policy,
    )

    def add(function: FunctionT) -> FunctionT:
        for option in reversed(options):
            function = option(function)
        return function

    return add


@data.command("create_shuffled_dataset_chunk", help=_chunk_help(".pbin"))
@_chunk_options(".pbin")
def create_shuffled_dataset_chunk(**options: Any) -> None:
    """Make a chunk of packed files."""
    from modalities_pipeline import api

    _make_chunk(api.create_shuffled_dataset_chunk, ".pbin", **options)


@data.command("create_shuffled_jsonl_chunk", help=_chunk_help(".jsonl"))
@_chunk_options(".jsonl")
def create_shuffled_jsonl_chunk(**options: Any) -> None:
    """Make a chunk of JSONL files."""
    from modalities_pipeline import api

    _make_chunk(api.create_shuffled_jsonl_dataset_chunk, ".jsonl", **options)


def _make_chunk(
    create: Callable[..., None],
    suffix: str,
    input_file_list_path: Path,
    input_data_root_path: Path,
    output_chunk_file_path: Path,
    chunk_id: int,
    num_chunks: int,
    global_seed: int | None,
    file_existence_policy: str,
) -> None:
    from modalities_pipeline.data.files import FileExistencePolicy
    from modalities_pipeline.data.listed_files import listed_files

    _refuse_to_replace(input_file_list_path, output_chunk_file_path)
    files = listed_files(input_file_list_path, input_data_root_path, suffix)
    policy = FileExistencePolicy(file_existence_policy)
    create(files, output_chunk_file_path, chunk_id, num_chunks, policy, global_seed)


def _new_file(context: click.Context, parameter: click.Parameter, path: Path) -> Path:
    if path.exists():
        raise click.BadParameter(f"{path} exists already; the last path is the target, which has to be new")
    return path


@data.command("merge_packed_data", help="Join .pbin files, and all those in folders, into one new file.")
@click.argument(
    "src_paths", type=PATH, nargs=-1, required=True, help=".pbin files, or folders (searched in order of path)."
)
@click.argument("target_path", type=PATH, callback=_new_file, help="The new .pbin file; must not exist.")
def merge_packed_data(src_paths: tuple[Path, ...], target_path: Path) -> None:
    """Merge packed files."""
    from modalities_pipeline import api

    api.merge_packed_data_files(list(src_paths), target_path)


@data.command("shuffle_tokenized_data", help="Put the documents of a .pbin file in random order.")
@_input_data_path
@_output_data_path
@_seed
@_policy
@click.option(
    "--batch_size",
    type=int,
    default=100,
    show_default=True,
    help="Documents written at once; the result does not depend on it.",
)
def shuffle_tokenized_data(
    input_data_path: Path, output_data_path: Path, seed: int | None, file_existence_policy: str, batch_size: int
) -> None:
    """Shuffle a packed file."""
    from modalities_pipeline import api

    policy = api.FileExistencePolicy(file_existence_policy)
    api.shuffle_tokenized_data(input_data_path, output_data_path, batch_size, policy, seed)


@data.command("shuffle_jsonl_data", help="Put the lines of a JSONL file in random order.")
@_input_data_path
@_output_data_path
@_seed
@_policy
def shuffle_jsonl_data(
    input_data_path: Path, output_data_path: Path, seed: int | None, file_existence_policy: str
) -> None:
    """Shuffle a JSONL file."""
    from modalities_pipeline import api

    policy = api.FileExistencePolicy(file_existence_policy)
    api.shuffle_jsonl_data(input_data_path, output_data_path, policy, seed)


@data.command(
    "prepare_instruction_tuning_data",
    help="Apply a chat template to conversations, split them, and index and pack each part, as a YAML file says.",
)
@config_file_path
def prepare_instruction_tuning_data(config_file_path: Path) -> None:
    """Render, split, index and pack conversations."""
    from modalities_pipeline.data.instruction_data import create_instruction_tuning_data

    create_instruction_tuning_data(config_file_path)


@data.command(
    "repair_packed_data",
    help="Mend the index of a .pbin file that Modalities merged (its offsets are too low from the second input on).",
)
@click.argument("src_path", type=PATH, help="The damaged file; stays as it is.")
@click.argument("target_path", type=PATH, help="The mended file.")
@_policy
def repair_packed_data(src_path: Path, target_path: Path, file_existence_policy: str) -> None:
    """Mend a packed file."""
    from modalities_pipeline.data.files import FileExistencePolicy
    from modalities_pipeline.data.repaired_pbin import build_repaired_pbin

    build_repaired_pbin(src_path, target_path, FileExistencePolicy(file_existence_policy))
