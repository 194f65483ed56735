"""The pipeline's one spec: corpora, tokenizer, experiments; read from `configs/pipeline.yaml`.

What changes bytes lives here. Relative paths are relative to the folder of the spec's file.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from modalities_pipeline.config.errors import describe_fault, describe_validation_error, suggestion
from modalities_pipeline.config.loader import KeyPath, YamlDocument, load_yaml
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.inference.settings import GenerationSettings
from modalities_pipeline.orchestration.layout import Layout

SPEC_ENVIRONMENT_VARIABLE = "MODALITIES_PIPELINE_CONFIG"
DEFAULT_SPEC_PATH = Path("configs") / "pipeline.yaml"

# folders of the output folder, and the group of the first assets
RESERVED_NAMES = frozenset({"raw_documents", "tokenizer", "locks", "sources"})

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$")]
Integer = Annotated[int, Field(strict=True)]  # neither true nor "3" nor 2.0
PositiveInteger = Annotated[int, Field(strict=True, ge=1)]
Seconds = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
PolicyName = Literal["auto", "error", "skip", "override"]
Fault = tuple[KeyPath, str]  # where in the spec, and what is wrong there


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


class PipelineSpec(SpecModel):
    """The whole pipeline, with absolute paths (but for the corpora's files, relative to `base_dir`)."""

    output_dir: Path
    policy: PolicyName = "auto"
    corpora: dict[Name, CorpusSpec] = Field(min_length=1)
    tokenizer: TokenizerSpec
    experiments: dict[Name, ExperimentSpec] = {}

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
        ConfigError: lists every fault of the file with its line, and the closest valid name for a wrong one.
    """
    path = (path or find_spec_path()).resolve()
    document = load_yaml(path)
    data = document.data
    faults = list(_faults_between_sections(data, path, document))
    spec: PipelineSpec | None = None
    try:
        spec = PipelineSpec.model_validate(_with_absolute_paths(data, path.parent))
        spec._base_dir = path.parent
    except ValidationError as error:
        faults = [*describe_validation_error(error, path, document.position, model=PipelineSpec), *faults]
    if faults or spec is None:
        raise ConfigError(f"{len(faults)} fault(s) in the pipeline spec:\n" + "\n".join(faults))
    return spec


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
    config = _as_mapping(experiment).get("training_config")
    return {**experiment, "training_config": str(base_dir / config)} if isinstance(config, str) else experiment


def _faults_between_sections(data: Mapping[str, Any], path: Path, document: YamlDocument) -> Iterator[str]:
    corpora, experiments = _section(data, "corpora"), _section(data, "experiments")
    for where, what in [
        *_name_faults(corpora, experiments),
        *_reference_faults(_section(data, "tokenizer"), corpora, experiments),
        *_training_config_faults(experiments, path.parent),
    ]:
        yield describe_fault(what, path, document.position, where)


def _name_faults(corpora: Mapping[str, Any], experiments: Mapping[str, Any]) -> Iterator[Fault]:
    """Each name becomes a folder of the output folder, so no two may be the same."""
    for section, names in (("corpora", corpora), ("experiments", experiments)):
        for name in names:
            if name in RESERVED_NAMES:
                yield (section, name), "the name is reserved; choose another"
    for name in experiments.keys() & corpora.keys():
        yield ("experiments", name), "the name is already that of a corpus; choose another"


def _reference_faults(
    tokenizer: Mapping[str, Any], corpora: Mapping[str, Any], experiments: Mapping[str, Any]
) -> Iterator[Fault]:
    references: list[tuple[KeyPath, Any]] = [
        (("tokenizer", "train", "corpus"), _section(tokenizer, "train").get("corpus"))
    ]
    for name, experiment in experiments.items():
        for key in ("train_corpus", "validation_corpus"):
            references.append((("experiments", name, key), _as_mapping(experiment).get(key)))
    for where, corpus in references:
        if isinstance(corpus, str) and corpus not in corpora:
            yield where, f"there is no corpus '{corpus}'{suggestion(corpus, corpora)}"


def _training_config_faults(experiments: Mapping[str, Any], base_dir: Path) -> Iterator[Fault]:
    for name, experiment in experiments.items():
        config = _as_mapping(experiment).get("training_config")
        if isinstance(config, str) and not (base_dir / config).is_file():
            yield ("experiments", name, "training_config"), f"there is no file {base_dir / config}"


def _section(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return _as_mapping(data.get(key))


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
