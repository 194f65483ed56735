"""Names of devices in configs."""

import pytest

from modalities_pipeline.config.device_names import device_name


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "cpu"),
        ("cpu", "cpu"),
        (0, "cuda:0"),
        (3, "cuda:3"),
        ("0", "cuda:0"),
        ("cuda:1", "cuda:1"),
        ("cuda", "cuda"),
    ],
)
def test_numbers_and_names_of_devices_become_those_of_torch(value, expected):
    assert device_name(value) == expected


@pytest.mark.parametrize("value", ["gpu", "cuda:", "cuda:-1", "", -1, True, 1.0, "cpu:0"])
def test_anything_else_is_refused(value):
    with pytest.raises(ValueError, match="is no device; use cpu, cuda, or the number of a GPU"):
        device_name(value)
