"""Stage instruction_data: conversations rendered by a chat template, split into partitions, indexed and packed."""

import functools
import json
import logging
import random
from pathlib import Path
from typing import Any

import yaml

from modalities_pipeline.data.files import FileExistencePolicy, atomic_path, refuse_output_among_inputs
from modalities_pipeline.data.instruction.chat_template import TemplateRenderError
from modalities_pipeline.data.instruction.instruction_config import (
    PARTITIONS,
    InstructionDataPlan,
    load_pbin_configs,
    load_plan,
)
from modalities_pipeline.data.manifest import BuildResult, StageIdentity, manifest_path, produce
from modalities_pipeline.data.progress_log import ProgressLog
from modalities_pipeline.data.raw.raw_source import RawSource
from modalities_pipeline.exceptions import ConfigError, DatasetFormatError, MissingSectionError

logger = logging.getLogger(__name__)

STAGE = "instruction_data"
CODE_VERSION = "1"

_CHAT_KEY = "chat"
_ROLE_KEYS = ("role", "from")


def create_instruction_tuning_data(config_file_path: Path) -> None:
    """Make training data of conversations: one rendered text each, split, indexed and packed.

    In the folder `<folder of dst_path>/<stem of src_path>_<hash of the config file>`, per partition with conversations:
    `<stem of dst_path>_<partition>.<hash>` with the suffix of `dst_path`, `.idx` and `.pbin`, and the packing config;
    and a copy of the config. What is there already is replaced, each file once its successor is complete.

    Raises:
        ConfigError: the config, its template or the packing config is wrong.
        DatasetFormatError: a line is no conversation, or the template cannot render it; file and line are named.
        UserError: the packing is refused, see `data.tokenized_pack`.
    """
    plan = load_plan(Path(config_file_path))
    pbin_configs = load_pbin_configs(plan)
    if pbin_configs:
        _check_pbin_config(plan, next(iter(pbin_configs.values())))
    partitions = _split_and_apply(plan, Path(config_file_path))
    for partition in plan.percentages:
        if partition in partitions:
            _index_and_pack(plan, partition, pbin_configs.get(partition))
        else:
            _remove_derived(plan, partition)


def split_and_apply_chat_template(config_file_path: Path) -> dict[str, Path]:
    """The first half of `create_instruction_tuning_data`: partition -> JSON-lines file, without empty partitions.

    Each line is the source's with roles renamed and the rendered text under "chat". Raises as the whole does.
    """
    return _split_and_apply(load_plan(Path(config_file_path)), Path(config_file_path))


def identity(plan: InstructionDataPlan, partition: str, src_digest: str) -> StageIdentity:
    """Identity of the rendered conversations of one partition."""
    paths = {"src_path", "dst_path", "pbin_creation_config_file_path"}
    config = plan.config.model_dump(mode="json", exclude={"settings": paths})
    return StageIdentity(STAGE, CODE_VERSION, {**config, "partition": partition}, {"source": src_digest})


def _split_and_apply(plan: InstructionDataPlan, config_file_path: Path) -> dict[str, Path]:
    src_path = plan.config.settings.src_path
    wanted = [partition for partition in PARTITIONS if plan.percentages[partition]]
    for output_path in (plan.chat_config_path, *map(plan.path, wanted)):
        refuse_output_among_inputs(output_path, [src_path, config_file_path])
    source = RawSource(src_path)
    num_documents = {}
    for partition in wanted:
        source.check_unchanged()
        manifest = produce(
            plan.path(partition),
            [src_path],
            FileExistencePolicy.OVERRIDE,
            functools.partial(identity, plan, partition, source.digest),
            functools.partial(_write_partition, plan, partition),
        )
        num_documents[partition] = int(manifest.counts["num_documents"]) if manifest else 0
    with atomic_path(plan.chat_config_path) as temporary:
        temporary.write_bytes(plan.content)
    counted = ", ".join(f"{partition} {number}" for partition, number in num_documents.items())
    logger.info("%s: conversations in %s: %s", src_path, plan.directory, counted)
    return {partition: plan.path(partition) for partition in wanted if num_documents[partition]}


def _write_partition(plan: InstructionDataPlan, partition: str, output_path: Path) -> BuildResult:
    """Render the conversations that the seed draws into this partition; every pass over the source draws the same."""
    settings = plan.config.settings
    generator = random.Random(settings.split_config.seed if settings.split_config else 0)
    weights = [plan.percentages[name] for name in PARTITIONS]
    size = settings.src_path.stat().st_size
    num_documents = num_written = num_blank_lines = num_bytes = 0
    with (
        open(settings.src_path, "rb") as source,
        open(output_path, "wb") as output,
        ProgressLog(logger, f"Rendering {settings.src_path.name} ({partition})", size, "bytes") as progress,
    ):
        for line_number, line in enumerate(source, start=1):
            num_bytes += len(line)
            if not line.strip():
                num_blank_lines += 1
                continue
            num_documents += 1
            if generator.choices(PARTITIONS, weights)[0] == partition:
                output.write(_converted(plan, line, line_number))
                num_written += 1
            progress.update(num_bytes)
    if not num_documents:
        raise DatasetFormatError(f"{settings.src_path} holds no conversation. Write one JSON object per line into it.")
    return BuildResult(
        {
            "num_documents": num_written,
            "num_documents_in_source": num_documents,
            "num_blank_lines_in_source": num_blank_lines,
        }
    )


def _converted(plan: InstructionDataPlan, line: bytes, line_number: int) -> bytes:
    """A line of the source with roles renamed and the rendered text added, ended by LF."""
    where = f"{plan.config.settings.src_path}, line {line_number}"
    try:
        entry = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DatasetFormatError(f"{where}: byte {error.start} of the line is not UTF-8. Mend the line.") from error
    except (ValueError, RecursionError) as error:
        raise DatasetFormatError(f"{where}: not valid JSON: {error}. Mend the line.") from error
    messages = _messages(plan, entry, where)
    try:
        entry[_CHAT_KEY] = plan.template.render(messages)
        return f"{json.dumps(entry, ensure_ascii=False)}\n".encode()
    except TemplateRenderError as error:
        raise DatasetFormatError(f"{where}: jinja2_chat_template cannot render it: {error}.") from error
    except UnicodeEncodeError as error:
        raise DatasetFormatError(
            f"{where}: half a surrogate pair cannot be written as UTF-8. Mend the line."
        ) from error


def _messages(plan: InstructionDataPlan, entry: Any, where: str) -> list[dict[str, Any]]:
    """The messages of an entry, their roles renamed in place."""
    key = plan.config.settings.messages_key
    if not isinstance(entry, dict):
        raise DatasetFormatError(f"{where}: not a JSON object with a key '{key}'.")
    if key not in entry:
        raise DatasetFormatError(f"{where}: no key '{key}' (found: {', '.join(entry) or 'none'}). Mend messages_key.")
    messages = entry[key]
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise DatasetFormatError(f"{where}: '{key}' is not a list of objects.")
    mapping = plan.config.instruction_data_transformation.role_mapping
    for message in messages:
        for role_key in _ROLE_KEYS:
            if role_key not in message:
                continue
            role = message[role_key]
            if not isinstance(role, str) or role not in mapping:
                raise DatasetFormatError(
                    f"{where}: role_mapping does not know {role_key} {role!r} (it has: "
                    f"{', '.join(mapping) or 'none'}). Add it there."
                )
            message[role_key] = mapping[role]
    return messages


def _check_pbin_config(plan: InstructionDataPlan, pbin_config: dict[str, Any]) -> None:
    """Find what is wrong with the packing before anything is written."""
    from pydantic import ValidationError

    from modalities_pipeline.config.errors import describe_validation_error
    from modalities_pipeline.config.loader import load_yaml
    from modalities_pipeline.data.tokenized_pack import TokenizedPackSettings
    from modalities_pipeline.tokenization.saved_tokenizer import build_tokenizer, tokenizer_details

    path = plan.config.settings.pbin_creation_config_file_path
    assert path is not None  # else there is no packing config
    if "tokenizer" not in pbin_config:
        raise MissingSectionError(f"{path}: there is no section 'tokenizer'. Add it.")
    try:
        settings = TokenizedPackSettings.model_validate(pbin_config["settings"])
    except ValidationError as error:
        lines = describe_validation_error(error, path, load_yaml(path).position, ("settings",), TokenizedPackSettings)
        raise ConfigError("\n".join(lines)) from None
    tokenizer_details(build_tokenizer(pbin_config["tokenizer"]), settings.eod_token)


def _index_and_pack(plan: InstructionDataPlan, partition: str, pbin_config: dict[str, Any] | None) -> None:
    from modalities_pipeline import api

    api.create_raw_data_index(plan.path(partition), plan.path(partition, ".idx"), FileExistencePolicy.OVERRIDE)
    if pbin_config is None:
        return
    with atomic_path(plan.pbin_config_path(partition)) as temporary:
        temporary.write_text(yaml.dump(pbin_config, Dumper=_Dumper, sort_keys=False, allow_unicode=True), "utf-8")
    api.pack_encoded_data(pbin_config, FileExistencePolicy.OVERRIDE)


def _remove_derived(plan: InstructionDataPlan, partition: str) -> None:
    """Remove what an earlier run made of a partition that has no conversation now."""
    for path in (plan.path(partition, ".idx"), plan.path(partition, ".pbin"), plan.pbin_config_path(partition)):
        for leftover in (path, manifest_path(path)):
            leftover.unlink(missing_ok=True)


class _Dumper(yaml.SafeDumper):
    """Quotes every text, so that no reader of YAML takes one for a number."""


_Dumper.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))
