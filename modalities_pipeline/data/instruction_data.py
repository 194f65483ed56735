"""Stage instruction_data: conversations rendered by a chat template, split into partitions, indexed and packed."""

import contextlib
import functools
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from modalities_pipeline.config.yaml_files.yaml_text import to_yaml
from modalities_pipeline.data.files import FileExistencePolicy, atomic_path, os_errors_named, remove, temporary_path
from modalities_pipeline.data.instruction.instruction_config import (
    InstructionDataPlan,
    load_pbin_configs,
    load_plan,
)
from modalities_pipeline.data.instruction.output_files import check_output_files, withdraw
from modalities_pipeline.data.instruction.rendering import RenderedPartition, render_partitions
from modalities_pipeline.data.locks import output_lock
from modalities_pipeline.data.manifest import BuildResult, StageIdentity
from modalities_pipeline.data.packing.text_extraction import TextExtractor
from modalities_pipeline.data.production import produce
from modalities_pipeline.data.raw.raw_source import RawSource
from modalities_pipeline.exceptions import MissingSectionError

logger = logging.getLogger(__name__)

STAGE = "instruction_data"
CODE_VERSION = "1"


def create_instruction_tuning_data(config_file_path: Path) -> None:
    """Make training data of conversations: one rendered text each, split, indexed and packed.

    In the folder `<folder of dst_path>/<stem of src_path>_<hash of the config file>`, per partition with conversations:
    `<stem of dst_path>_<partition>.<hash>` with the suffix of `dst_path`, `.idx` and `.pbin`, and the packing config;
    and a copy of the config. What an earlier run with the same config made is removed once all partitions are rendered,
    so partitions of two runs are never side by side.

    Raises:
        ConfigError: the config, its template or the packing config is wrong.
        DatasetFormatError: a line is no conversation, the template cannot render it, or the packing config finds no
            text in it; file and line are named.
        UserError: an output would replace an input or another output, or the packing is refused, see
            `data.tokenized_pack`.
    """
    plan = load_plan(Path(config_file_path))
    pbin_configs = load_pbin_configs(plan)
    extractor = _check_pbin_config(plan, next(iter(pbin_configs.values()))) if pbin_configs else None
    with _lock(plan, Path(config_file_path)) as token:
        partitions = _split_and_apply(plan, extractor, token)
        _index(partitions, plan)
        _pack({partition: pbin_configs[partition] for partition in partitions if pbin_configs}, plan)


def split_and_apply_chat_template(config_file_path: Path) -> dict[str, Path]:
    """The first half of `create_instruction_tuning_data`: partition -> JSON-lines file, without empty partitions.

    Each line is the source's with roles renamed and the rendered text under "chat". Raises as the whole does.
    """
    plan = load_plan(Path(config_file_path))
    with _lock(plan, Path(config_file_path)) as token:
        return _split_and_apply(plan, None, token)


def identity(plan: InstructionDataPlan, partition: str, src_digest: str) -> StageIdentity:
    """Identity of the rendered conversations of one partition."""
    paths = {"src_path", "dst_path", "pbin_creation_config_file_path"}
    config = plan.config.model_dump(mode="json", exclude={"settings": paths})
    return StageIdentity(STAGE, CODE_VERSION, {**config, "partition": partition}, {"source": src_digest})


@contextlib.contextmanager
def _lock(plan: InstructionDataPlan, config_file_path: Path) -> Iterator[str]:
    """Check the names of the files and keep other runs away from them."""
    settings = plan.config.settings
    pbin_config_path = settings.pbin_creation_config_file_path
    inputs = [settings.src_path, config_file_path, *([pbin_config_path] if pbin_config_path else [])]
    check_output_files(plan.output_paths, inputs)
    with output_lock(plan.chat_config_path, also_written=[plan.rendering_path]) as token:
        yield token


def _split_and_apply(plan: InstructionDataPlan, extractor: TextExtractor | None, token: str) -> dict[str, Path]:
    """Render all partitions into a temporary folder, then replace the old set by the new one."""
    source = RawSource(plan.config.settings.src_path)
    folder = temporary_path(plan.rendering_path, token)
    try:
        with os_errors_named(plan.directory):
            folder.mkdir()
            rendered = render_partitions(plan, source, folder, extractor)
        source.check_unchanged()
        _publish(plan, rendered, source)
    finally:
        remove(folder)
    with atomic_path(plan.chat_config_path, token) as temporary:
        temporary.write_bytes(plan.content)
    counted = ", ".join(f"{partition} {part.num_documents}" for partition, part in rendered.items())
    logger.info("%s: conversations in %s: %s", source.path, plan.directory, counted)
    return {partition: plan.path(partition) for partition, part in rendered.items() if part.num_documents}


def _publish(plan: InstructionDataPlan, rendered: dict[str, RenderedPartition], source: RawSource) -> None:
    """Put the rendered files in the place of the old ones, of which all are gone before the first new one comes."""
    withdraw(plan.output_paths)
    for partition, part in rendered.items():
        produce(
            plan.path(partition),
            [source.path],
            FileExistencePolicy.OVERRIDE,
            functools.partial(identity, plan, partition, source.digest),
            functools.partial(_moved, part),
        )


def _moved(part: RenderedPartition, output_path: Path) -> BuildResult:
    os.rename(part.path, output_path)
    return part.result


def _check_pbin_config(plan: InstructionDataPlan, pbin_config: dict[str, Any]) -> TextExtractor | None:
    """Find what is wrong with the packing before anything is written.

    Returns what finds the text of a line, unless lines without text are to be skipped.
    """
    from pydantic import ValidationError

    from modalities_pipeline.config.checking.errors import faults_in_words
    from modalities_pipeline.config.checking.faults import Fault, raise_faults
    from modalities_pipeline.config.overlays import load_config
    from modalities_pipeline.config.schemas.pack_settings import PackConfigSettings
    from modalities_pipeline.tokenization.saved_tokenizer import build_tokenizer, tokenizer_details

    path = plan.config.settings.pbin_creation_config_file_path
    assert path is not None  # else there is no packing config
    if "tokenizer" not in pbin_config:
        raise MissingSectionError(f"{path}: there is no section 'tokenizer'. Add it.")
    # the rendered files are not there yet
    there = {"src_path": plan.config.settings.src_path, "index_path": None}
    try:
        settings = PackConfigSettings.model_validate({**pbin_config["settings"], **there})
    except ValidationError as error:
        document = load_config(path)
        wrong = [(("settings", *where), message) for where, message in faults_in_words(error, PackConfigSettings)]
        raise_faults(Fault(key_path, message, document.origin(key_path)) for key_path, message in wrong)
        raise
    tokenizer_details(build_tokenizer(pbin_config["tokenizer"]), settings.eod_token)
    extractor = TextExtractor(settings.jq_pattern)
    return extractor if settings.on_bad_sample == "error" else None


def _index(partitions: dict[str, Path], plan: InstructionDataPlan) -> None:
    from modalities_pipeline import api

    for partition, path in partitions.items():
        api.create_raw_data_index(path, plan.path(partition, ".idx"), FileExistencePolicy.OVERRIDE)


def _pack(pbin_configs: dict[str, dict[str, Any]], plan: InstructionDataPlan) -> None:
    from modalities_pipeline import api

    for partition, pbin_config in pbin_configs.items():
        with atomic_path(plan.pbin_config_path(partition)) as temporary:
            temporary.write_text(to_yaml(pbin_config), "utf-8")
        api.pack_encoded_data(pbin_config, FileExistencePolicy.OVERRIDE)
