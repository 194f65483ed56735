"""What the tests of the resolution of `${...}` share."""

from modalities_pipeline.config.resolution import ResolverContext, Unresolved

CHECK = ResolverContext(check_only=True)


def reason_of(value: object) -> str:
    """Why a value could not be resolved, which has to be a fault."""
    assert isinstance(value, Unresolved)
    assert value.is_fault
    return value.reason
