"""One row of the table of components."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclasses.dataclass(frozen=True)
class ComponentEntity:
    """One variant of a component. Types may be "module:Name" strings, which are imported when first asked for.

    Attributes:
        component_key, variant_key: the names under which a YAML file asks for it.
        component_type: the class or function that builds it.
        component_config_type: the pydantic class of its `config`.
        interface: what the built object is, "module:Class" as in `config.interfaces`, or "int" for a number; None if
            that depends on the config or is not known.
        description: one line for the component reference.
        old_variant_keys: names that the variant had in earlier versions of Modalities.
    """

    component_key: str
    variant_key: str
    component_type: "Callable[..., Any] | str"
    component_config_type: "type[BaseModel] | str"
    interface: str | None = None
    description: str = ""
    old_variant_keys: tuple[str, ...] = ()
