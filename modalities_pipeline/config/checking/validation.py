"""Validates data that still have components to be built in them, and says in words what is wrong."""

import functools
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, WrapValidator, create_model
from pydantic.fields import FieldInfo

from modalities_pipeline.config.checking.error_locations import models_in
from modalities_pipeline.config.checking.errors import faults_in_words
from modalities_pipeline.config.origins import KeyPath
from modalities_pipeline.config.unbuilt import Unbuilt

ModelT = TypeVar("ModelT", bound=BaseModel)
FaultAt = tuple[KeyPath, str]  # where in the data, and what is wrong


def validate_config(model: type[ModelT], values: Any) -> ModelT:
    """The validated config of a component; unknown keys are refused whatever its class says about them."""
    if model.model_config.get("extra") is None:
        return model.model_validate(values, extra="forbid")
    return _strict(model).model_validate(values)


@functools.cache
def _strict(model: type[ModelT]) -> type[ModelT]:
    """The model itself, or one of it that refuses unknown keys although its class lets them pass."""
    if model.model_config.get("extra") == "forbid":
        return model
    bases = (model, cast(type[ModelT], _Strict))  # pydantic takes a setting of the last one that has it
    return create_model(model.__name__, __base__=bases, __module__=model.__module__)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


def arguments_of(config: BaseModel) -> dict[str, Any]:
    """What a component is called with: every field of its config but those that are excluded."""
    return {name: getattr(config, name) for name, field in type(config).model_fields.items() if not field.exclude}


def validate_unbuilt(model: type[ModelT], values: Any, is_config: bool = False) -> tuple[ModelT | None, list[FaultAt]]:
    """The validated data, None if they are faulty; and the faults.

    Where a value is not known before components are built, an `Unbuilt` stands in the result; a check of several values
    together that stumbles over it is left to the building. `is_config`: validate as `validate_config` does.
    """
    result, faults, is_unknown = _validate(model, values, is_config)
    if is_unknown and not faults:
        result, faults, _ = _validate(_lenient(model), values, is_config)
    return result, faults


def _validate(model: type[ModelT], values: Any, is_config: bool) -> tuple[ModelT | None, list[FaultAt], bool]:
    """The validated data, the faults, and whether a value that nobody can know yet was in the way."""
    try:
        return (validate_config(model, values) if is_config else model.model_validate(values)), [], False
    except ValidationError as error:
        return None, list(faults_in_words(error, model)), True
    except Exception as error:
        if has_unbuilt(values):  # a check computed with what is not there yet
            return None, [], False
        return None, [((), f"cannot be checked: {type(error).__name__}: {error}")], False


def has_unbuilt(value: Any) -> bool:
    """Whether a component that is not built yet stands anywhere in a value."""
    if isinstance(value, dict):
        return any(map(has_unbuilt, value.values()))
    if isinstance(value, list):
        return any(map(has_unbuilt, value))
    return isinstance(value, Unbuilt)


def _let_unbuilt_pass(value: Any, handler: Callable[[Any], Any]) -> Any:
    """What is not built, or was made a model by an earlier validator, stays as it is."""
    return value if isinstance(value, BaseModel | Unbuilt) else handler(value)


@functools.cache
def _lenient(model: type[ModelT], around: frozenset[type[BaseModel]] = frozenset()) -> type[ModelT]:
    """The same model, but every field of it, and of models in it, takes what is not built yet.

    `around` are the models that this one is a field of; one that contains itself stays strict there.
    """
    fields: dict[str, Any] = {
        name: (_lenient_type(field, around | {model}), field)
        for name, field in model.model_fields.items()
        if get_origin(field.annotation) is not Literal  # the key by which a union's member is chosen takes no wrapper
    }
    return create_model(model.__name__, __base__=model, **fields)


def _lenient_type(field: FieldInfo, around: frozenset[type[BaseModel]]) -> Any:
    annotation = _lenient_annotation(field.annotation, around)
    return Annotated[(annotation, *field.metadata, WrapValidator(_let_unbuilt_pass))]


def _lenient_annotation(annotation: Any, around: frozenset[type[BaseModel]]) -> Any:
    """The annotation with every model in it replaced by its lenient form."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        is_model = issubclass(annotation, BaseModel) and annotation not in around
        return _lenient(annotation, around) if is_model else annotation
    if not any(models_in(annotation)):
        return annotation
    arguments = tuple(_lenient_annotation(argument, around) for argument in get_args(annotation))
    if get_origin(annotation) in (Union, types.UnionType):
        return Union[arguments]  # noqa: UP007 (members are only known here)
    if get_origin(annotation) is Annotated:
        return Annotated[(arguments[0], *get_args(annotation)[1:])]
    return annotation.copy_with(arguments) if hasattr(annotation, "copy_with") else get_origin(annotation)[arguments]
