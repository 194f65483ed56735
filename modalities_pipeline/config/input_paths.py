"""Fields that name a file or folder to be read: a check tells if it is not there, a run refuses to begin."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel


@dataclasses.dataclass(frozen=True)
class MustExist:
    """Marks a field whose path has to exist when the component is built.

    Attributes:
        may_be_name: the field may hold the name of something elsewhere instead (a model of a hub); only what looks like
            a path is looked for.
    """

    may_be_name: bool = False

    def refers_to_path(self, value: object) -> bool:
        """Whether a value of the field is a path."""
        if isinstance(value, Path):
            return True
        return isinstance(value, str) and (not self.may_be_name or _looks_like_path(value))


InputPath = Annotated[Path, MustExist()]


def missing_paths(config: BaseModel) -> Iterator[tuple[str, Path]]:
    """(field, path) of every path that has to exist and does not."""
    for name, field in type(config).model_fields.items():
        marker = next((item for item in field.metadata if isinstance(item, MustExist)), None)
        value = getattr(config, name)
        if marker is None or not marker.refers_to_path(value):
            continue
        path = Path(value)
        if not path.expanduser().exists():
            yield name, path


def _looks_like_path(value: str) -> bool:
    return value.startswith(("/", "./", "../", "~")) or value.count("/") > 1
