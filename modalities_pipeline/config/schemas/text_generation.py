"""A text generation config."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from modalities_pipeline.config.device_names import DeviceName
from modalities_pipeline.config.pydantic_if_types import PydanticTextInferenceComponentType
from modalities_pipeline.config.schemas.settings import Settings


def _exists(path: Path) -> Path:
    if not path.exists():
        raise ValueError(f"{path} does not exist")
    return path


class TextGenerationSettings(Settings):
    """Section `settings`; a part of it counts only where the file refers to it by `${...}`."""

    model_path: Annotated[Path, AfterValidator(_exists)]
    sequence_length: Annotated[int, Field(ge=1)]
    device: DeviceName = "cpu"
    referencing_keys: dict[str, str]
    paths: dict[str, Path] = Field(default_factory=dict)
    experiment_id: str | None = None  # these three are only there for the file that was made of a training config
    config_file_path: Path | None = None
    cuda_env: dict[str, int] | None = None


class TextGenerationInstantiationModel(BaseModel):
    """Generates text with a trained model."""

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    text_inference_component: PydanticTextInferenceComponentType
    settings: TextGenerationSettings
