"""The public functions of Modalities, by its names and signatures; what they need is imported when they are called.

Paths may be strings, too.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modalities_pipeline.data.files import FileExistencePolicy, enforce_file_existence_policy

if TYPE_CHECKING:
    from modalities_pipeline.conversion.hf_adapter import HFModelAdapter

if TYPE_CHECKING:
    from modalities_pipeline.config.origins import ConfigDocument
    from modalities_pipeline.config.schemas.pack_settings import PackConfigSettings
    from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

__all__ = [
    "FileExistencePolicy",
    "convert_pytorch_to_hf_checkpoint",
    "create_filtered_tokenized_dataset",
    "create_raw_data_index",
    "create_shuffled_dataset_chunk",
    "create_shuffled_jsonl_dataset_chunk",
    "enforce_file_existence_policy",
    "generate_text",
    "merge_packed_data_files",
    "pack_encoded_data",
    "shuffle_jsonl_data",
    "shuffle_tokenized_data",
]


def create_raw_data_index(
    src_path: Path, index_path: Path | None, file_existence_policy: FileExistencePolicy = FileExistencePolicy.ERROR
) -> None:
    """Index the lines of a JSON-lines file; see `data.raw_index.build_raw_index`."""
    from modalities_pipeline.data.raw_index import build_raw_index

    build_raw_index(Path(src_path), Path(index_path) if index_path is not None else None, file_existence_policy)


def pack_encoded_data(
    config_dict: dict[str, Any],
    file_existence_policy: FileExistencePolicy,
    document: "ConfigDocument | None" = None,
) -> None:
    """Tokenize an indexed JSON-lines file; see `data.tokenized_pack.build_tokenized_pack`.

    Args:
        config_dict: `settings` (see `PackConfigSettings`) and `tokenizer`, a component node.
        file_existence_policy: what to do if the output exists.
        document: the file that the config comes from; with it, everything that is wrong is a `ConfigError` which says
            where that stands.

    Raises:
        MissingSectionError: `settings` or `tokenizer` is missing.
        pydantic.ValidationError: a setting is missing, unknown, or wrong.
        ConfigError: the tokenizer's node is wrong.
    """
    from modalities_pipeline.config.schemas.pack_settings import PackConfigSettings
    from modalities_pipeline.data.tokenized_pack import build_tokenized_pack
    from modalities_pipeline.exceptions import MissingSectionError
    from modalities_pipeline.tokenization.saved_tokenizer import build_tokenizer

    if document is not None:
        settings, tokenizer = _build_with_positions(config_dict, document)
    else:
        for section in ("settings", "tokenizer"):
            if section not in config_dict:
                found = ", ".join(config_dict) or "nothing"
                raise MissingSectionError(f"The packing config has no section '{section}' (found: {found}). Add it.")
        settings = PackConfigSettings.model_validate(config_dict["settings"])
        tokenizer = build_tokenizer(config_dict["tokenizer"])
    build_tokenized_pack(settings, tokenizer, file_existence_policy)


def _build_with_positions(
    config_dict: dict[str, Any], document: "ConfigDocument"
) -> "tuple[PackConfigSettings, TokenizerWrapper]":
    from modalities_pipeline.config.factory import ComponentFactory
    from modalities_pipeline.config.registry import Registry
    from modalities_pipeline.config.schemas.packing import PackedDatasetComponentsInstantiationModel

    factory = ComponentFactory(Registry(), document)
    built = factory.build_components(config_dict, PackedDatasetComponentsInstantiationModel)
    return built.settings, built.tokenizer


def shuffle_tokenized_data(
    input_data_path: Path,
    output_data_path: Path,
    batch_size: int,
    file_existence_policy: FileExistencePolicy,
    seed: int | None = None,
) -> None:
    """Put the documents of a `.pbin` file into random order; see `data.shuffled_pbin.build_shuffled_pbin`."""
    from modalities_pipeline.data.shuffled_pbin import build_shuffled_pbin

    build_shuffled_pbin(Path(input_data_path), Path(output_data_path), batch_size, file_existence_policy, seed)


def shuffle_jsonl_data(
    input_data_path: Path,
    output_data_path: Path,
    file_existence_policy: FileExistencePolicy,
    seed: int | None = None,
) -> None:
    """Put the lines of a JSON-lines file into random order; see `data.shuffled_jsonl.build_shuffled_jsonl`."""
    from modalities_pipeline.data.shuffled_jsonl import build_shuffled_jsonl

    build_shuffled_jsonl(Path(input_data_path), Path(output_data_path), file_existence_policy, seed)


def create_shuffled_dataset_chunk(
    file_path_list: list[Path],
    output_chunk_file_path: Path,
    chunk_id: int,
    num_chunks: int,
    file_existence_policy: FileExistencePolicy,
    global_seed: int | None = None,
) -> None:
    """Write one shuffled share of several `.pbin` files; see `data.shuffled_chunks.build_shuffled_chunk`."""
    from modalities_pipeline.data.shuffled_chunks import build_shuffled_chunk

    build_shuffled_chunk(
        [Path(path) for path in file_path_list],
        Path(output_chunk_file_path),
        chunk_id,
        num_chunks,
        file_existence_policy,
        global_seed,
    )


def create_shuffled_jsonl_dataset_chunk(
    file_path_list: list[Path],
    output_chunk_file_path: Path,
    chunk_id: int,
    num_chunks: int,
    file_existence_policy: FileExistencePolicy,
    global_seed: int | None = None,
) -> None:
    """Write one shuffled share of several JSON-lines files; see `data.shuffled_jsonl_chunks`."""
    from modalities_pipeline.data.shuffled_jsonl_chunks import build_shuffled_jsonl_chunk

    build_shuffled_jsonl_chunk(
        [Path(path) for path in file_path_list],
        Path(output_chunk_file_path),
        chunk_id,
        num_chunks,
        file_existence_policy,
        global_seed,
    )


def merge_packed_data_files(src_paths: list[Path], target_path: Path) -> None:
    """Join `.pbin` files into a new one; see `data.merged_pbin.build_merged_pbin`."""
    from modalities_pipeline.data.merged_pbin import build_merged_pbin

    build_merged_pbin([Path(path) for path in src_paths], Path(target_path))


def create_filtered_tokenized_dataset(
    input_data_path: Path,
    filter_routine: Callable[[int], bool],
    output_data_path: Path,
    file_existence_policy: FileExistencePolicy,
) -> None:
    """Keep the documents of a `.pbin` file whose position the routine accepts; see `data.filtered_pbin`."""
    from modalities_pipeline.data.filtered_pbin import build_filtered_pbin

    build_filtered_pbin(Path(input_data_path), filter_routine, Path(output_data_path), file_existence_policy)


def generate_text(config_file_path: Path) -> None:
    """Ask for a prompt and print how a model goes on; see `inference.text_inference.generate_text`."""
    from modalities_pipeline.inference.text_inference import generate_text as generate

    generate(Path(config_file_path))


def convert_pytorch_to_hf_checkpoint(
    config_file_path: Path, output_hf_checkpoint_dir: Path, prediction_key: str
) -> "HFModelAdapter":
    """Write a checkpoint as a Hugging Face model folder; see `conversion.checkpoint_conversion`."""
    from modalities_pipeline.conversion.checkpoint_conversion import convert_checkpoint

    return convert_checkpoint(Path(config_file_path), Path(output_hf_checkpoint_dir), prediction_key)
