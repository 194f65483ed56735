"""Models in parts and in wrappers: builders that take the parts of one, and what is inside one that is not built."""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec

from modalities_pipeline.config.unbuilt import Unbuilt

P = ParamSpec("P")


def for_each_part(
    parameter: str, combine: Callable[[list[Any], list[Any]], Any] | None = None
) -> Callable[[Callable[P, Any]], Callable[P, Any]]:
    """Let a builder also take a list where it takes one object: it is then called for each element, in order.

    Args:
        parameter: name of the builder's parameter that may be a list.
        combine: (elements, what was built for them) -> the result; without it, the list of what was built.

    Raises:
        ValueError: the builder has no such parameter.
    """

    def decorate(build: Callable[P, Any]) -> Callable[P, Any]:
        signature = inspect.signature(build)
        if parameter not in signature.parameters:
            raise ValueError(f"{build.__qualname__} has no parameter {parameter}.")

        @functools.wraps(build)
        def build_each(*args: P.args, **kwargs: P.kwargs) -> Any:
            bound = signature.bind(*args, **kwargs)
            parts = bound.arguments[parameter]
            if not isinstance(parts, list):
                return build(*args, **kwargs)
            results = []
            for part in parts:
                bound.arguments[parameter] = part
                results.append(build(*bound.args, **bound.kwargs))
            return results if combine is None else combine(parts, results)

        return build_each

    return decorate


def models_inside(model: Any) -> Iterator[Unbuilt]:
    """A model that is not built yet and what it is made of, from outside in; of a list those of its first part."""
    while isinstance(model, Unbuilt | list) and model:
        if isinstance(model, list):
            model = model[0]
            continue
        yield model
        model = getattr(model.config, "model", None)
