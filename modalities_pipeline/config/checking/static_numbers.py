"""Numbers of a config that follow from others, worked out while nothing is built yet."""

import dataclasses
from pathlib import Path

from pydantic import BaseModel

from modalities_pipeline.config.checking.validation import arguments_of, has_unbuilt
from modalities_pipeline.config.interfaces import NUMBER
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.exceptions import ConfigError


@dataclasses.dataclass(frozen=True)
class StaticNumber:
    """What came of working out a number.

    Attributes:
        value: the number, None if it is not known or there is none.
        message: why it is not known, None if that needs no words.
        is_note: the message tells of something that may be right elsewhere or later.
    """

    value: int | None = None
    message: str | None = None
    is_note: bool = False


class StaticNumbers:
    """Works out numbers, each once, and says once why one cannot be.

    A number is what its component makes of its config. Where that takes components that are not built yet, the config
    class has a method `static_value() -> int | None` that reads their configs, None being not known.
    """

    def __init__(self, registry: Registry, is_run: bool) -> None:
        self._registry = registry
        self._is_run = is_run
        self._known: dict[tuple[str | None, str | None, str], StaticNumber] = {}

    def evaluate(self, component: Unbuilt) -> StaticNumber:
        """The number that a component will be; nothing if it is none, is faulty, or depends on what is not known."""
        if component.interface != NUMBER or component.config is None:
            return StaticNumber()
        key = (component.component_key, component.variant_key, repr(component.config))
        if key not in self._known:
            self._known[key] = result = self._work_out(component, component.config)
            return result
        return StaticNumber(self._known[key].value)

    def _work_out(self, component: Unbuilt, config: BaseModel) -> StaticNumber:
        arguments = arguments_of(config)
        static_value = getattr(config, "static_value", None)
        try:
            if static_value is not None:
                return StaticNumber(static_value())
            if has_unbuilt(arguments):
                return StaticNumber()
            build = self._registry.get_component(str(component.component_key), str(component.variant_key))
            return StaticNumber(build(**arguments))
        except (ValueError, TypeError, ZeroDivisionError, OSError) as error:
            missing = [str(path) for path in arguments.values() if isinstance(path, Path) and not path.exists()]
            if missing and not self._is_run and type(error) is not ConfigError:  # that is about the path's name
                return StaticNumber(None, f"not checked, because {missing[0]} does not exist here", is_note=True)
            message = str(error) if isinstance(error, ConfigError | OSError) else f"{type(error).__name__}: {error}"
            return StaticNumber(None, message)
