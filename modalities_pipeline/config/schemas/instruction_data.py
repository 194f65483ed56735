"""The config of instruction-tuning data: what is converted, how it is split, where it goes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, FilePath, model_validator

from modalities_pipeline.config.schemas.findings import Finding
from modalities_pipeline.exceptions import ConfigError

_RESERVED_SUFFIXES = (".idx", ".pbin")

_Percentage = Annotated[int, Field(strict=True, ge=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Splitting(_Section):
    """Percentages of the conversations that go into each partition; a partition of 0 is not written."""

    train: _Percentage
    val: _Percentage
    test: _Percentage

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        if self.train + self.val + self.test != 100:
            total = self.train + self.val + self.test
            raise ValueError(f"train, val and test have to add up to 100, but are {total}")
        return self


class SplitConfig(_Section):
    """How conversations are drawn into partitions, one after the other, by a generator of this seed."""

    splitting: Splitting
    seed: Annotated[int, Field(strict=True)]


class InstructionDataSettings(_Section):
    """What to read and write.

    Without `split_config` everything is training data. Without `pbin_creation_config_file_path`, a packing config whose
    paths are filled in, the conversations are indexed, but not packed.
    """

    src_path: FilePath
    dst_path: Path
    messages_key: str
    split_config: SplitConfig | None = None
    pbin_creation_config_file_path: FilePath | None = None

    @model_validator(mode="after")
    def _check_dst_path(self) -> Self:
        if self.dst_path.suffix in _RESERVED_SUFFIXES:
            raise ValueError(
                f"dst_path must not end with {self.dst_path.suffix}: files of this name are made from it; use .jsonl"
            )
        return self


class InstructionDataTransformation(_Section):
    """Name of a role in the data -> name for the template; every role of the data has to be there."""

    role_mapping: dict[str, str]


class InstructionTuningDataInstantiationModel(_Section):
    """A whole config."""

    settings: InstructionDataSettings
    instruction_data_transformation: InstructionDataTransformation
    jinja2_chat_template: str
    chat_template_data: dict[str, Any]

    @classmethod
    def cross_checks(cls, sections: Mapping[str, Any]) -> Iterator[Finding]:
        """Whether the template can be compiled with the data that it is given."""
        template, data = sections.get("jinja2_chat_template"), sections.get("chat_template_data")
        if isinstance(template, str) and isinstance(data, dict):
            from modalities_pipeline.data.instruction.chat_template import ChatTemplate  # imports jinja2

            try:
                ChatTemplate(template, data)
            except ConfigError as error:
                yield Finding(("jinja2_chat_template",), str(error))
