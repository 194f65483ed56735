"""What is done to the content of a config file before its `${...}` are resolved. Imports no torch."""

import dataclasses
from typing import Any

from modalities_pipeline.config.origins import ConfigDocument
from modalities_pipeline.config.schemas.findings import Finding
from modalities_pipeline.config.schemas.kinds import PARTS, has_training_settings
from modalities_pipeline.config.schemas.old_vocabulary import translate_old_vocabulary
from modalities_pipeline.config.schemas.short_configs import with_default_settings
from modalities_pipeline.sweeps.run_folders import parse_run_folder

_MAY_EXTEND_TRAINING = ("profiling", "model", PARTS)
_SWEEP = "sweep"


def prepare(document: ConfigDocument, kind: str, is_run: bool = False) -> tuple[ConfigDocument, list[Finding]]:
    """A config in today's vocabulary and with all settings, and notes on what was translated.

    What is added stands, as far as messages are concerned, where the key is that caused it. A sweep whose lists are not
    combined yet is prepared with the first value of each; if it `is_run`, that is a fault.
    """
    document, findings = _with_first_values_of_sweep(document, is_run)
    if kind in _MAY_EXTEND_TRAINING and has_training_settings(document.data):
        return dataclasses.replace(document, data=with_default_settings(document.data)), findings
    if kind != "training":
        return document, findings
    translated, translations = translate_old_vocabulary(document.data)
    data = with_default_settings(translated)
    origins = dict(document.origins)
    for translation in translations:
        origins[translation.made] = document.origin(translation.made_of)
    findings += [Finding(translation.made_of, translation.note, is_note=True) for translation in translations]
    return dataclasses.replace(document, data=data, origins=origins), findings


def _with_first_values_of_sweep(document: ConfigDocument, is_run: bool) -> tuple[ConfigDocument, list[Finding]]:
    """A config of one combination may hold a list that is one value; it is known by the folder where it lies."""
    sweep = document.data.get(_SWEEP)
    if not isinstance(sweep, dict) or parse_run_folder(document.path.absolute().parent) is not None:
        return document, []
    first = _first_values(sweep)
    if first == sweep:
        return document, []
    message = "holds lists, of which each run takes one value; `modalities-pipeline benchmark prepare_sweep_configs` "
    message += "writes a config for each combination"
    if not is_run:
        message += ". Checked with the first value of each list"
    finding = Finding((_SWEEP,), message, is_note=not is_run)
    return dataclasses.replace(document, data={**document.data, _SWEEP: first}), [finding]


def _first_values(node: dict[str, Any]) -> dict[str, Any]:
    """The mapping, and those in it, with the first element of each list in place of the list."""
    result: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, dict):
            result[key] = _first_values(value)
        else:
            result[key] = value[0] if isinstance(value, list) and value else value
    return result
