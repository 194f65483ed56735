"""What stands for a component while a config is checked and nothing is built yet."""

import dataclasses

from pydantic import BaseModel

from modalities_pipeline.config.interfaces import NUMBER, can_be


@dataclasses.dataclass(frozen=True, eq=False)
class Unbuilt:
    """A component that will be built from a node of the file.

    Attributes:
        component_key, variant_key: its names; None if the node is faulty.
        interface: what it will be, see `config.interfaces`; None if not known.
        config: its validated config, in which other components are `Unbuilt`, too; None if that is faulty.
    """

    component_key: str | None = None
    variant_key: str | None = None
    interface: str | None = None
    config: BaseModel | None = None

    @property
    def name(self) -> str:
        """ "component_key/variant_key", for messages."""
        return f"{self.component_key}/{self.variant_key}"

    @property
    def is_unknown(self) -> bool:
        """Whether it may stand for a plain value: a number that is not known here, or something nobody declared."""
        return self.interface is None or self.interface == NUMBER

    def can_be(self, wanted: str) -> bool:
        """Whether it may turn out to be a `wanted`."""
        return can_be(self.interface, wanted)
