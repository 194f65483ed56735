"""What is done to the content of a config file before its `${...}` are resolved. Imports no torch."""

import dataclasses

from modalities_pipeline.config.origins import ConfigDocument
from modalities_pipeline.config.schemas.findings import Finding
from modalities_pipeline.config.schemas.old_vocabulary import translate_old_vocabulary
from modalities_pipeline.config.schemas.short_configs import with_default_settings


def prepare(document: ConfigDocument, kind: str) -> tuple[ConfigDocument, list[Finding]]:
    """A config in today's vocabulary and with all settings, and notes on what was translated.

    What is added stands, as far as messages are concerned, where the key is that caused it.
    """
    if kind != "training":
        return document, []
    translated, translations = translate_old_vocabulary(document.data)
    data = with_default_settings(translated)
    origins = dict(document.origins)
    for translation in translations:
        origins[translation.made] = document.origin(translation.made_of)
    notes = [Finding(translation.made_of, translation.note, is_note=True) for translation in translations]
    return dataclasses.replace(document, data=data, origins=origins), notes
