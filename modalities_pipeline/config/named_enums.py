"""Fields that take a member of an enum by its name, as Modalities' configs spell most of them, or by its value."""

import enum
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticKnownError, core_schema


class ByName:
    """Marks an enum field, `Annotated[Mode, ByName()]`: a member's name is taken, its value, or the member itself."""

    def __get_pydantic_core_schema__(self, source: type[enum.Enum], handler: GetCoreSchemaHandler) -> CoreSchema:
        """A validator that gives the member."""

        def validate(value: Any) -> enum.Enum:
            if isinstance(value, source):
                return value
            if isinstance(value, str | int) and not isinstance(value, bool):
                for member in source:
                    if value in (member.name, member.value):
                        return member
            raise PydanticKnownError("enum", {"expected": _listed([repr(name) for name in source.__members__])})

        return core_schema.no_info_plain_validator_function(validate)


def _listed(names: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
