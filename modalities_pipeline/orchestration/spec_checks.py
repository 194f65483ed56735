"""What has to hold between the sections of a pipeline's spec; all of it is found in the data, however faulty."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from modalities_pipeline.config.checking.suggestions import suggestion
from modalities_pipeline.config.origins import KeyPath

# folders of the output folder, and the group of the first assets
RESERVED_NAMES = frozenset({"raw_documents", "tokenizer", "locks", "sources"})

KeyFault = tuple[KeyPath, str]  # where in the spec, and what is wrong there


def faults_between_sections(data: Mapping[str, Any], base_dir: Path) -> Iterator[KeyFault]:
    corpora, experiments = _section(data, "corpora"), _section(data, "experiments")
    yield from _name_faults(corpora, experiments)
    yield from _reference_faults(_section(data, "tokenizer"), corpora, experiments)
    yield from _missing_file_faults(experiments, base_dir)


def _name_faults(corpora: Mapping[str, Any], experiments: Mapping[str, Any]) -> Iterator[KeyFault]:
    """Each name becomes a folder of the output folder, so no two may be the same."""
    for section, names in (("corpora", corpora), ("experiments", experiments)):
        for name in names:
            if name in RESERVED_NAMES:
                yield (section, name), "the name is reserved; choose another"
    for name in experiments.keys() & corpora.keys():
        yield ("experiments", name), "the name is already that of a corpus; choose another"


def _reference_faults(
    tokenizer: Mapping[str, Any], corpora: Mapping[str, Any], experiments: Mapping[str, Any]
) -> Iterator[KeyFault]:
    references: list[tuple[KeyPath, Any]] = [
        (("tokenizer", "train", "corpus"), _section(tokenizer, "train").get("corpus"))
    ]
    for name, experiment in experiments.items():
        for key in ("train_corpus", "validation_corpus"):
            references.append((("experiments", name, key), as_mapping(experiment).get(key)))
    for where, corpus in references:
        if isinstance(corpus, str) and corpus not in corpora:
            yield where, f"there is no corpus '{corpus}'{suggestion(corpus, corpora)}"


def _missing_file_faults(experiments: Mapping[str, Any], base_dir: Path) -> Iterator[KeyFault]:
    for name, experiment in experiments.items():
        config = as_mapping(experiment).get("training_config")
        if isinstance(config, str) and not (base_dir / config).is_file():
            yield ("experiments", name, "training_config"), f"there is no file {base_dir / config}"


def _section(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return as_mapping(data.get(key))


def as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
