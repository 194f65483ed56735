"""One pass over a source of conversations, each rendered and dealt into a partition."""

import contextlib
import dataclasses
import json
import logging
import random
from pathlib import Path
from typing import Any

from modalities_pipeline.data.instruction.chat_template import TemplateRenderError
from modalities_pipeline.data.instruction.instruction_config import PARTITIONS, InstructionDataPlan
from modalities_pipeline.data.manifest import BuildResult
from modalities_pipeline.data.packed.hashed_file import HashedFile
from modalities_pipeline.data.packing.text_extraction import BadDocumentError, TextExtractor
from modalities_pipeline.data.progress_log import ProgressLog
from modalities_pipeline.data.raw.raw_source import RawSource
from modalities_pipeline.exceptions import DatasetFormatError

logger = logging.getLogger(__name__)

_CHAT_KEY = "chat"
_ROLE_KEYS = ("role", "from")
_WRITE_BUFFER_IN_BYTES = 128 << 10


@dataclasses.dataclass
class RenderedPartition:
    """The conversations of one partition.

    Attributes:
        path: JSON-lines file, complete.
        result: its counts and its digest.
    """

    path: Path
    result: BuildResult

    @property
    def num_documents(self) -> int:
        """Number of conversations."""
        return int(self.result.counts["num_documents"])


def render_partitions(
    plan: InstructionDataPlan, source: RawSource, folder: Path, extractor: TextExtractor | None
) -> dict[str, RenderedPartition]:
    """Write each conversation into the file of the partition that the seed draws for it; partition -> file.

    Args:
        plan: what to render.
        source: the conversations.
        folder: where the files are written.
        extractor: finds the text that will be packed; given, every line has to have one.

    Raises:
        DatasetFormatError: a line is no conversation, or the template cannot render it; file and line are named. Or
            there is none, or the source changed meanwhile.
    """
    settings = plan.config.settings
    generator = random.Random(settings.split_config.seed if settings.split_config else 0)
    weights = [plan.percentages[name] for name in PARTITIONS]
    num_written = dict.fromkeys(plan.partitions, 0)
    num_blank_lines = 0
    title = f"Rendering {source.path.name}"
    with contextlib.ExitStack() as stack:
        files = {
            partition: stack.enter_context(HashedFile(folder / partition, _WRITE_BUFFER_IN_BYTES))
            for partition in plan.partitions
        }
        progress = stack.enter_context(ProgressLog(logger, title, source.size_in_bytes, "bytes"))
        for line_number, line in enumerate(stack.enter_context(source.lines(progress.update)), start=1):
            if not line.strip():
                num_blank_lines += 1
                continue
            partition = generator.choices(PARTITIONS, weights)[0]
            files[partition].write(_converted(plan, extractor, line, f"{source.path}, line {line_number}"))
            num_written[partition] += 1
    in_source = {
        "num_documents_in_source": sum(num_written.values()),
        "num_blank_lines_in_source": num_blank_lines,
    }
    if not in_source["num_documents_in_source"]:
        raise DatasetFormatError(f"{source.path} holds no conversation. Write one JSON object per line into it.")
    return {
        partition: RenderedPartition(
            folder / partition,
            BuildResult({"num_documents": num_written[partition], **in_source}, output_digest=file.digest),
        )
        for partition, file in files.items()
    }


def _converted(plan: InstructionDataPlan, extractor: TextExtractor | None, line: bytes, where: str) -> bytes:
    """A line of the source with roles renamed and the rendered text added, ended by LF."""
    try:
        entry = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DatasetFormatError(f"{where}: byte {error.start} of the line is not UTF-8. Mend the line.") from error
    except (ValueError, RecursionError) as error:
        raise DatasetFormatError(f"{where}: not valid JSON: {error}. Mend the line.") from error
    messages = _messages(plan, entry, where)
    try:
        entry[_CHAT_KEY] = plan.template.render(messages)
        converted = f"{json.dumps(entry, ensure_ascii=False)}\n".encode()
    except TemplateRenderError as error:
        raise DatasetFormatError(f"{where}: jinja2_chat_template cannot render it: {error}.") from error
    except UnicodeEncodeError as error:
        raise DatasetFormatError(
            f"{where}: half a surrogate pair cannot be written as UTF-8. Mend the line."
        ) from error
    if not entry[_CHAT_KEY]:
        raise DatasetFormatError(
            f"{where}: jinja2_chat_template makes an empty text of its messages. Leave the line out."
        )
    if extractor is not None:
        _check_text(plan, extractor, converted, where)
    return converted


def _check_text(plan: InstructionDataPlan, extractor: TextExtractor, converted: bytes, where: str) -> None:
    try:
        text = extractor.extract(converted)
    except BadDocumentError as error:
        fault = str(error)
    else:
        fault = "" if text else "the text is empty"
    if fault:
        config_path = plan.config.settings.pbin_creation_config_file_path
        raise DatasetFormatError(
            f"{where}: jq_pattern of {config_path} finds no text to pack in the rendered line: {fault}. Mend it; the "
            f"rendered text is at .{_CHAT_KEY}."
        )


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
