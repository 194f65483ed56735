"""What a check of a whole config finds."""

from typing import NamedTuple


class Finding(NamedTuple):
    """Something wrong, or worth knowing: where (the key to be changed), what, and whether it is only worth knowing."""

    key_path: tuple[str | int, ...]
    message: str
    is_note: bool = False
