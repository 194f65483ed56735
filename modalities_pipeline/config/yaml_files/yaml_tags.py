"""The explicit tags of YAML (`!!str`, `!remove`, `!!python/...`) that a config may have, and what is said of others."""

CORE_TAG = "tag:yaml.org,2002:"
REMOVE_TAG = "!remove"

# how Modalities writes paths into its resolved configs
PATH_TAGS = frozenset(
    f"{CORE_TAG}python/object/apply:pathlib{module}.{name}"
    for module in ("", "._local")
    for name in ("Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath")
)


def shown_tag(tag: str) -> str:
    """A tag as it is written in a file."""
    return f"!!{tag.removeprefix(CORE_TAG)}" if tag.startswith(CORE_TAG) else tag


def refusal_of_tag(tag: str, what: str) -> str:
    """Why a tag is refused; `what` is what has it ("a list")."""
    if tag.startswith(f"{CORE_TAG}python/"):
        return (
            f"the tag {shown_tag(tag)} asks the reader to make a Python object, which a config may not; remove the tag"
        )
    if tag == REMOVE_TAG:
        return f"{REMOVE_TAG} takes no value; write 'key: {REMOVE_TAG}' alone"
    return f"the tag {shown_tag(tag)} of {what} is not known; leave it out"
