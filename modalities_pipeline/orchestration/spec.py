"""The pipeline's one spec: corpora, tokenizer, experiments; read from `configs/pipeline.yaml`.

What changes bytes lives here. Relative paths are relative to the folder of the spec's file.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from modalities_pipeline.config.checking.errors import faults_in_words
from modalities_pipeline.config.checking.faults import ConfigFaultsError, Fault, raise_faults, sorted_faults
from modalities_pipeline.config.origins import ConfigDocument, KeyPath, Origin
from modalities_pipeline.config.overlays import load_config
from modalities_pipeline.config.plugins import PluginSpec
from modalities_pipeline.config.yaml_files.self_contained import self_contained_data
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.inference.settings import GenerationSettings
from modalities_pipeline.orchestration.experiment_config import experiment_document
from modalities_pipeline.orchestration.layout import Layout
from modalities_pipeline.orchestration.spec_checks import as_mapping, faults_between_sections

SPEC_ENVIRONMENT_VARIABLE = "MODALITIES_PIPELINE_CONFIG"
DEFAULT_SPEC_PATH = Path("configs") / "pipeline.yaml"

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$")]
Integer = Annotated[int, Field(strict=True)]  # neither true nor "3" nor 2.0
PositiveInteger = Annotated[int, Field(strict=True, ge=1)]
Seconds = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
PolicyName = Literal["auto", "error", "skip", "override"]


class SpecModel(BaseModel):
    """Base of the spec's sections: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class DocumentsSpec(SpecModel):
    """The embedded text: documentation that every Python installation carries."""

    python_docs: Literal["train", "validation"]


class CorpusSpec(SpecModel):
    """Text that is packed into one file of tokens."""

    # JSONL files: paths or globs, relative to the spec's folder
    files: list[str] | None = Field(default=None, min_length=1)
    documents: DocumentsSpec | None = None
    jq_pattern: str = ".text"
    on_bad_sample: Literal["error", "skip"] = "error"
    num_chunks: PositiveInteger = 2
    seed: Integer | None = 42  # of the shuffle; null keeps the documents' order

    @model_validator(mode="after")
    def _has_one_source(self) -> "CorpusSpec":
        if (self.files is None) == (self.documents is None):
            raise ValueError("give either 'files' (paths or globs of JSONL files) or 'documents', not both")
        return self


class TokenizerTrainingSpec(SpecModel):
    """A byte-level BPE that is trained on the raw files of one corpus."""

    corpus: str
    vocab_size: PositiveInteger


class TokenizerSpec(SpecModel):
    """Either a tokenizer to train, or a tokenizer component as a Modalities YAML names it."""

    train: TokenizerTrainingSpec | None = None
    component: dict[str, Any] | None = None
    eod_token: str = Field(min_length=1)  # ends every document

    @model_validator(mode="after")
    def _has_one_source(self) -> "TokenizerSpec":
        if (self.train is None) == (self.component is None):
            raise ValueError("give either 'train' or 'component', not both")
        return self


class LauncherSpec(SpecModel):
    """How torchrun is started on this machine; only `num_processes` changes the result."""

    num_processes: PositiveInteger = 2
    num_threads_per_process: PositiveInteger = 1
    grace_in_s: Seconds = 30.0  # between SIGTERM and SIGKILL when a run is stopped
    timeout_in_s: Seconds | None = None
    max_retries: Annotated[int, Field(strict=True, ge=0)] = 1  # after a lost process, from the newest checkpoint


class HFModelSpec(SpecModel):
    """How weights are stored in the Hugging Face folder."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"


class ExperimentSpec(SpecModel):
    """One training run and what is made from its checkpoint."""

    training_config: Path
    overrides: dict[str, Any] = {}  # dotted key of the training config -> value
    train_corpus: str
    validation_corpus: str
    launcher: LauncherSpec = LauncherSpec()
    hf_model: HFModelSpec = HFModelSpec()
    generated_text: GenerationSettings

    _origins: Mapping[str, Origin] = PrivateAttr(default_factory=dict)
    _plugins: tuple[tuple[dict[str, str], Origin], ...] = PrivateAttr(default=())

    def origin_of(self, override: str) -> Origin:
        """Where the spec says an override."""
        return self._origins.get(override, Origin("overrides"))

    @property
    def plugins(self) -> tuple[tuple[dict[str, str], Origin], ...]:
        """The plugins of the spec, with absolute paths, and where it says them."""
        return self._plugins


class PipelineSpec(SpecModel):
    """The whole pipeline, with absolute paths (but for the corpora's files, relative to `base_dir`)."""

    output_dir: Path
    policy: PolicyName = "auto"
    corpora: dict[Name, CorpusSpec] = Field(min_length=1)
    tokenizer: TokenizerSpec
    experiments: dict[Name, ExperimentSpec] = {}
    plugins: list[PluginSpec] = []  # components of the user's own, for all training configs

    _base_dir: Path = PrivateAttr(default_factory=Path.cwd)

    @property
    def base_dir(self) -> Path:
        """Folder of the spec's file; kept apart from the globs, because its name may hold `[`, `*` or `?`."""
        return self._base_dir

    @property
    def layout(self) -> Layout:
        """Where the outputs lie."""
        return Layout(self.output_dir)


def load_pipeline_spec(path: Path | None = None) -> PipelineSpec:
    """Read and check a spec; without a path, the one that `find_spec_path` finds.

    Raises:
        ConfigFaultsError: lists every fault of the file with its line, and the closest valid name for a wrong one; also
            those of the overrides of training configs.
    """
    path = (path or find_spec_path()).resolve()
    document = load_config(path)
    data = document.data
    faults = [Fault(where, what, document.origin(where)) for where, what in faults_between_sections(data, path.parent)]
    try:
        spec = PipelineSpec.model_validate(_with_absolute_paths(data, path.parent))
    except ValidationError as error:
        wrong = faults_in_words(error, PipelineSpec)
        faults += [Fault(where, what, document.origin(where)) for where, what in wrong]
        raise ConfigFaultsError(sorted_faults(faults)) from None
    spec._base_dir = path.parent
    for name, experiment in spec.experiments.items():
        _connect(experiment, ("experiments", name, "overrides"), document)
    faults += _nested_override_faults(spec, document)
    faults += _training_config_faults(spec)
    raise_faults(faults)
    return spec


def _connect(experiment: ExperimentSpec, overrides: KeyPath, document: ConfigDocument) -> None:
    """Tell an experiment where the spec says its overrides, and which plugins it says."""
    experiment._origins = {key: document.origin((*overrides, key)) for key in experiment.overrides}
    plugins = self_contained_data(document).get("plugins") or []
    experiment._plugins = tuple((plugin, document.origin(("plugins", index))) for index, plugin in enumerate(plugins))


def _nested_override_faults(spec: PipelineSpec, document: ConfigDocument) -> Iterator[Fault]:
    """Overrides that would replace a whole component by a part of one."""
    for name, experiment in spec.experiments.items():
        for key, value in experiment.overrides.items():
            if isinstance(value, dict) and "component_key" not in value and value.keys() & {"config", "variant_key"}:
                where: KeyPath = ("experiments", name, "overrides", key)
                what = f"would replace all of {key}; write each value with a dotted key, as in {key}.config.NAME: VALUE"
                yield Fault(where, what, document.origin(where))


def _training_config_faults(spec: PipelineSpec) -> Iterator[Fault]:
    """What is wrong with the training configs as they are read; what is in them is checked before a training."""
    for experiment in spec.experiments.values():
        if experiment.training_config.is_file():
            try:
                experiment_document(experiment)
            except ConfigError as error:
                yield Fault((), str(error))


def find_spec_path() -> Path:
    """The file named by MODALITIES_PIPELINE_CONFIG, else configs/pipeline.yaml here, else that of the checkout.

    Raises:
        ConfigError: there is no such file.
    """
    chosen = os.environ.get(SPEC_ENVIRONMENT_VARIABLE)
    if chosen:
        if Path(chosen).is_file():
            return Path(chosen)
        raise ConfigError(f"{SPEC_ENVIRONMENT_VARIABLE} names {chosen}, which is not a file.")
    checkout = Path(__file__).resolve().parents[2]
    for folder in (Path.cwd(), checkout):
        if (folder / DEFAULT_SPEC_PATH).is_file():
            return folder / DEFAULT_SPEC_PATH
    raise ConfigError(
        f"No {DEFAULT_SPEC_PATH} in {Path.cwd()}. Go to the folder of your pipeline, or let "
        f"{SPEC_ENVIRONMENT_VARIABLE} name its spec."
    )


def _with_absolute_paths(data: Mapping[str, Any], base_dir: Path) -> dict[str, Any]:
    """The spec's data with its paths made absolute; whatever has the wrong shape is left for validation to name."""
    result = dict(data)
    if isinstance(data.get("output_dir"), str):
        result["output_dir"] = (base_dir / data["output_dir"]).resolve()
    if isinstance(data.get("experiments"), Mapping):
        result["experiments"] = {
            name: _with_absolute_config(entry, base_dir) for name, entry in data["experiments"].items()
        }
    component = _section(_section(data, "tokenizer"), "component")
    config = _section(component, "config")
    if config:
        # a tokenizer may also be named by its model id, so only what is there counts as a path
        config = {
            key: str(base_dir / value) if isinstance(value, str) and value and (base_dir / value).exists() else value
            for key, value in config.items()
        }
        result["tokenizer"] = {**data["tokenizer"], "component": {**component, "config": config}}
    return result


def _with_absolute_config(experiment: Any, base_dir: Path) -> Any:
    """An experiment with the path of its training config made absolute."""
    config = as_mapping(experiment).get("training_config")
    return {**experiment, "training_config": str(base_dir / config)} if isinstance(config, str) else experiment


def _section(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return as_mapping(data.get(key))
