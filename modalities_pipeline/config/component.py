"""The base of every component's config."""

from pydantic import BaseModel, ConfigDict


class ComponentConfig(BaseModel):
    """Fields of one component in a YAML file: unknown keys are refused, built objects are allowed as values."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, protected_namespaces=())
