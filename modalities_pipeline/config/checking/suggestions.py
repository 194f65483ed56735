"""The valid name that was probably meant."""

import difflib
from collections.abc import Iterable

_MAX_LISTED = 30


def closest_name(name: str, valid_names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The valid name that is most like `name`, None if none is; `cutoff` (0 to 1) is how like it has to be."""
    names = list(valid_names)
    same_but_for_case = [valid for valid in names if valid.lower() == name.lower()]
    if same_but_for_case:
        return same_but_for_case[0]
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=cutoff)), None)


def suggestion(name: str, valid_names: Iterable[str]) -> str:
    """ "; did you mean 'x'?" or, if nothing is close, "; known: a, b, c"."""
    names = sorted(set(valid_names))
    closest = closest_name(name, names)
    if closest is not None:
        return f"; did you mean '{closest}'?"
    more = f", ... ({len(names)} in all)" if len(names) > _MAX_LISTED else ""
    return f"; known: {', '.join(names[:_MAX_LISTED])}{more}" if names else ""
