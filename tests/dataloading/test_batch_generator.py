"""Random batches for measuring."""

import pytest
import torch

from modalities_pipeline.exceptions import ConfigError

DIMS = {"batch_size": 3, "sequence_length": 50}


def _generator(build_component, **changes):
    fields = {"dims": DIMS, "data_type": "int64", "min_val": 5, "max_val": 9, **changes}
    return build_component("dataset_batch_generator", "random", **fields)


@pytest.fixture(autouse=True)
def _on_cpu(monkeypatch):
    monkeypatch.setenv("MODALITIES_PIPELINE_DEVICE", "cpu")


@pytest.mark.parametrize("data_type", ["float32", "bfloat16", "int64"])
def test_batches_have_the_asked_shape_type_and_range(data_type, build_component):
    batch = _generator(build_component, data_type=data_type).get_dataset_batch()
    for tensor in (batch.samples["input_ids"], batch.targets["target_ids"]):
        assert tensor.shape == (3, 50)
        assert tensor.dtype == getattr(torch, data_type)
        assert tensor.min() >= 5
        assert tensor.max() <= 9
    assert not torch.equal(batch.samples["input_ids"], batch.targets["target_ids"])


def test_integers_are_below_the_upper_end(build_component):
    assert set(_generator(build_component).get_dataset_batch().samples["input_ids"].unique().tolist()) == {5, 6, 7, 8}


def test_batches_differ_but_come_again_in_the_next_run(build_component):
    one, two = (_generator(build_component) for _ in range(2))
    first, second = one.get_dataset_batch(), one.get_dataset_batch()
    assert not torch.equal(first.samples["input_ids"], second.samples["input_ids"])
    assert torch.equal(first.samples["input_ids"], two.get_dataset_batch().samples["input_ids"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_type": "float16"}, "data_type"),
        ({"max_val": 5}, r"min_val: has to be smaller than max_val \(5\)"),
        ({"dims": {}}, "dims"),
        ({"dims": {"batch_size": 0}}, "dims"),
    ],
)
def test_batches_that_cannot_be_are_refused(changes, message, build_component):
    with pytest.raises(ConfigError, match=message):
        _generator(build_component, **changes)
