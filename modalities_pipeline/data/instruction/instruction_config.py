"""A checked config of instruction-tuning data, its template, and the names of the files made from it."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

from modalities_pipeline.config.checking.faults import raise_faults
from modalities_pipeline.config.checking.static_check import StaticCheck
from modalities_pipeline.config.loader import load_app_config_dict
from modalities_pipeline.config.overlays import load_config
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.config.resolution import resolve
from modalities_pipeline.config.schemas.instruction_data import InstructionTuningDataInstantiationModel
from modalities_pipeline.data.instruction.chat_template import ChatTemplate
from modalities_pipeline.exceptions import MissingSectionError

PARTITIONS = ("train", "val", "test")
_NUM_HASH_DIGITS = 7


@dataclasses.dataclass(frozen=True)
class InstructionDataPlan:
    """A valid config, its template, and the names of all files.

    Attributes:
        config: the config.
        template: its compiled template.
        content: the bytes of the config file.
        config_hash: first 7 digits of their SHA-256, part of all names.
    """

    config: InstructionTuningDataInstantiationModel
    template: ChatTemplate
    content: bytes

    @property
    def config_hash(self) -> str:
        """First 7 digits of the SHA-256 of the config file."""
        return hashlib.sha256(self.content).hexdigest()[:_NUM_HASH_DIGITS]

    @property
    def directory(self) -> Path:
        """`<folder of dst_path>/<stem of src_path>_<hash>`."""
        settings = self.config.settings
        return settings.dst_path.parent / f"{settings.src_path.stem}_{self.config_hash}"

    @property
    def percentages(self) -> dict[str, int]:
        """Partition -> percentage."""
        split_config = self.config.settings.split_config
        return split_config.splitting.model_dump() if split_config else {"train": 100, "val": 0, "test": 0}

    @property
    def partitions(self) -> list[str]:
        """Those that are written."""
        return [partition for partition in PARTITIONS if self.percentages[partition]]

    @property
    def chat_config_path(self) -> Path:
        """The copy of the config."""
        return self.directory / f"instruction_chat_template_config.{self.config_hash}.yaml"

    def path(self, partition: str, suffix: str | None = None) -> Path:
        """`<stem of dst_path>_<partition>.<hash><suffix>`; the suffix is that of `dst_path` unless given."""
        dst_path = self.config.settings.dst_path
        suffix = dst_path.suffix if suffix is None else suffix
        return self.directory / f"{dst_path.stem}_{partition}.{self.config_hash}{suffix}"

    def pbin_config_path(self, partition: str) -> Path:
        """The packing config of a partition."""
        return self.directory / f"pbin_config_{partition}.{self.config_hash}.yaml"

    @property
    def rendering_path(self) -> Path:
        """Beside this, the partitions are written until all are complete."""
        return self.directory / "rendering"

    @property
    def output_paths(self) -> list[Path]:
        """All files that are made, what is made from others before these."""
        paths = [self.chat_config_path]
        for partition in self.partitions:
            if self.config.settings.pbin_creation_config_file_path is not None:
                paths += [self.pbin_config_path(partition), self.path(partition, ".pbin")]
            paths += [self.path(partition, ".idx"), self.path(partition)]
        return paths


def load_plan(config_file_path: Path) -> InstructionDataPlan:
    """Read and check a config.

    Raises:
        ConfigError: the file or the template is wrong; all faults with file, line and key.
    """
    document = load_config(config_file_path)
    data = resolve(document).data
    check = StaticCheck(data, Registry(), document)
    check.check_model(InstructionTuningDataInstantiationModel)
    raise_faults(check.faults)
    config = InstructionTuningDataInstantiationModel.model_validate(data)
    template = ChatTemplate(config.jinja2_chat_template, config.chat_template_data)
    return InstructionDataPlan(config, template, config_file_path.read_bytes())


def load_pbin_configs(plan: InstructionDataPlan) -> dict[str, dict[str, Any]]:
    """Partition -> the packing config with its paths filled in; empty if nothing is to be packed.

    Raises:
        MissingSectionError: the packing config has no section `settings`.
        ConfigError: it cannot be read.
    """
    template_path = plan.config.settings.pbin_creation_config_file_path
    if template_path is None:
        return {}
    template = load_app_config_dict(template_path)
    if not isinstance(template.get("settings"), dict):
        raise MissingSectionError(f"{template_path}: there is no section 'settings'. Add it.")
    return {
        partition: {
            **template,
            "settings": {
                **template["settings"],
                "src_path": str(plan.path(partition)),
                "index_path": str(plan.path(partition, ".idx")),
                "dst_path": str(plan.path(partition, ".pbin")),
            },
        }
        for partition in plan.partitions
    }
