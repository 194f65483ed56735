"""What differs between two configs, value by value: the words of `config diff`."""

import json
from collections.abc import Iterator
from typing import Any

from modalities_pipeline.config.origins import ConfigDocument, KeyPath

_MISSING = object()


def differences(left: ConfigDocument, right: ConfigDocument) -> Iterator[str]:
    """For each value that is not the same: its dotted key, and a line for each file that has it.

    Mappings are compared key by key, everything else as a whole; `${...}` are compared as they stand.
    """
    for key_path, left_value, right_value in _differing(left.data, right.data, ()):
        yield ".".join(map(str, key_path))
        for sign, document, value in (("-", left, left_value), ("+", right, right_value)):
            if value is not _MISSING:
                yield f"  {sign} {_short(value)}  ({document.origin(key_path)})"


def _differing(left: Any, right: Any, key_path: KeyPath) -> Iterator[tuple[KeyPath, Any, Any]]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys((*left, *right)):
            yield from _differing(left.get(key, _MISSING), right.get(key, _MISSING), (*key_path, key))
    elif repr(left) != repr(right):  # 1, 1.0 and true are equal in Python, and .nan is unlike itself
        yield key_path, left, right


def _short(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:97]}..."
