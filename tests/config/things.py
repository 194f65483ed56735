"""Small components for the tests of the factory and of the check: they count how many of them were built."""

import enum
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from modalities_pipeline.config.component import ComponentConfig, are_known
from modalities_pipeline.config.interfaces import NUMBER
from modalities_pipeline.config.origins import ConfigDocument
from modalities_pipeline.config.overlays import load_config
from modalities_pipeline.config.pydantic_if_types import PydanticThirdPartyTypeIF
from modalities_pipeline.config.registry import ComponentEntity, Registry
from modalities_pipeline.config.resolution import resolve
from modalities_pipeline.exceptions import DatasetNotFoundError

built: list[Any] = []  # every component that was built, in this order


class Thing:
    """A component that keeps what it is given."""

    def __init__(self, size: int, child: Any, children: list[Any], nested: Any, colour: Any) -> None:
        self.size, self.child, self.children, self.nested, self.colour = size, child, children, nested, colour
        if size == 13:
            raise ValueError("13 brings bad luck")
        if size == 404:
            raise DatasetNotFoundError("there are no data")
        if size == 405:
            raise PermissionError(13, "Permission denied", "/x")
        if size == 406:
            sys.exit("no more")
        if size == 500:
            raise RuntimeError("out of memory")
        built.append(self)


class Tool:
    """A component of another kind."""

    def __init__(self) -> None:
        built.append(self)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Nested(ComponentConfig):
    depth: int = 0
    deeper: "Nested | None" = None


IsThing = Annotated[Any, PydanticThirdPartyTypeIF(f"{__name__}:Thing")]


class ThingConfig(ComponentConfig):
    size: Annotated[int, Field(strict=True, gt=0)]
    child: Any = Field(default=None, validation_alias=AliasChoices("child", "kid"))
    children: list[IsThing] = Field(default_factory=list)
    nested: Nested = Nested()
    colour: Colour = Colour.RED
    ignored: Any = Field(default=None, exclude=True)

    @model_validator(mode="after")
    def _check_size(self) -> "ThingConfig":
        if are_known(self.size) and self.nested.depth > self.size:
            raise ValueError(f"depth {self.nested.depth} is more than size {self.size}")
        return self


class ToolConfig(ComponentConfig):
    pass


class SumConfig(ComponentConfig):
    numbers: list[int]
    path: Path | None = None


def add(numbers: list[int], path: Path | None) -> int:
    """The sum of numbers, which counts how often it is asked for, and of the number in a file."""
    built.append(numbers)
    if any(number < 0 for number in numbers):
        raise ValueError("a number is negative")
    return sum(numbers) + (int(path.read_text("utf-8")) if path else 0)


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    number: int = 0

    @model_validator(mode="after")
    def _check(self) -> "Settings":
        if self.number == 13:
            raise ValueError("13 brings bad luck")
        return self


class Finding(NamedTuple):
    key_path: tuple[str | int, ...]
    message: str
    is_note: bool = False


class Model(BaseModel):
    """A whole run, whose settings have to name as many letters as the first thing is large."""

    settings: Settings
    first: Any
    optional: Any = None
    thing: IsThing | None = None
    mode: Literal["slow", "fast"] = "slow"

    @classmethod
    def cross_checks(cls, sections):
        settings, first = sections.get("settings"), sections.get("first")
        size = getattr(getattr(first, "config", None), "size", None)
        if settings is not None and isinstance(size, int) and size == 99:
            yield Finding(("first", "config", "size"), f"99 is too much for {settings.name}")
            yield Finding(("settings", "name"), "is a short name", True)


def registry() -> Registry:
    """A registry of the components above and of one that cannot be built."""
    here = f"{__name__}:"
    return Registry(
        [
            ComponentEntity("thing", "plain", Thing, ThingConfig, f"{here}Thing", old_variant_keys=("simple",)),
            ComponentEntity("tool", "hammer", Tool, ToolConfig, f"{here}Tool"),
            ComponentEntity("tool", "unknown", Tool, ToolConfig),
            ComponentEntity("number", "sum", add, SumConfig, NUMBER),
        ]
    )


def load(path: Path, text: str) -> tuple[dict[str, Any], ConfigDocument]:
    """Write a config and read it: its resolved data, and where they stand."""
    path.write_text(text, encoding="utf-8")
    document = load_config(path)
    return resolve(document).data, document
