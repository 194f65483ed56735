"""The data have to suffice for the steps, batches and token ids of a training, as far as they are known."""

import pytest
from training_check_helpers import Sized, changed, component, findings, loader

from modalities_pipeline.data.manifest import BuildResult, StageIdentity, record
from modalities_pipeline.data.pbin import PackedFileWriter


@pytest.mark.parametrize(("num_samples", "num_epochs", "is_enough"), [(120, 1, True), (119, 1, False), (60, 2, True)])
def test_the_target_needs_enough_tokens(settings, num_samples, num_epochs, is_enough):
    dataset = Sized(num_samples)
    sections = {"train_dataset": dataset, "train_dataloader": loader(dataset, num_epochs=num_epochs)}
    found = findings(settings, **sections)
    assert not found if is_enough else found.keys() == {"settings.training_target.num_target_tokens"}
    lenient = changed(settings, consistency_enforcement__enforce_enough_tokens_in_dataset=False)
    assert all(is_note for _, is_note in findings(lenient, **sections).values())


def test_a_step_larger_than_the_data_is_a_fault(settings):
    """B078: micro batch larger than the dataset."""
    [(key, (message, is_note))] = findings(settings, train_dataset=Sized(11)).items()
    assert key == "settings.step_profile.local_train_micro_batch_size"
    assert message.startswith("one step takes 12 samples (2 x 2 x 3, that is dp_degree x ")
    assert "the training dataset has only 11" in message
    assert not is_note


def test_the_size_of_packed_data_is_known_before_they_are_built(settings, tmp_path):
    path = tmp_path / "train.pbin"
    with PackedFileWriter(path, 1) as writer:
        writer.write_document([1] * (8 * 120))  # the last sample lacks the token after its last one
    config = {"raw_data_path": path, "sequence_length": 8}
    enough = component("packed_mem_map_dataset_continuous", reuse_last_target=False, **config)
    assert findings(settings, train_dataset=enough) == {}
    too_few = component("packed_mem_map_dataset_continuous", reuse_last_target=True, **config)
    [(key, (message, _))] = findings(settings, train_dataset=too_few).items()
    assert key == "settings.training_target.num_target_tokens"
    assert message.startswith("the training dataset has 952 tokens (119 samples of 8), num_target_tokens is 960")


@pytest.mark.parametrize("is_built", [True, False])
def test_evaluation_data_without_a_batch_are_a_fault(settings, is_built):
    loaders = [loader(Sized(6)), loader(Sized(5))]
    loaders[0].dataloader_tag = "other"
    if not is_built:
        sampler = component("distributed_sampler", num_replicas=2)
        batches = component("default", batch_size=3, sampler=sampler)
        dataset = component("dummy_dataset", num_samples=5)
        loaders[1] = component("default", dataset=dataset, batch_sampler=batches, dataloader_tag="val")
    [(key, (message, is_note))] = findings(settings, eval_dataloaders=loaders).items()
    assert key == "eval_dataloaders.1.config.batch_sampler"
    assert message.startswith(
        "the evaluation data loader 'val' has no batch: its dataset has 5 samples, a batch on all ranks needs 6 "
        "(2 ranks x 3)"
    )
    assert not is_note


def test_data_loaders_have_tags_of_their_own(settings):
    train, first, second = (component(dataloader_tag=tag) for tag in ("val", "val", "test"))
    found = findings(settings, train_dataloader=train, eval_dataloaders=[first, second])
    message = "the tag 'val' is that of train_dataloader, too; give each data loader a dataloader_tag of its own"
    assert found == {"eval_dataloaders.0": (message, False)}


def test_a_vocabulary_smaller_than_the_tokenizers_is_a_fault(settings, tmp_path):
    """B021"""
    path = tmp_path / "train.pbin"
    with PackedFileWriter(path, 1) as writer:
        writer.write_document([1] * 1000)
    record(StageIdentity("tokenized_pack", "1", {}, {}), path, BuildResult(details={"num_token_ids": 200}), 0.0)
    dataset = component(raw_data_path=path)
    model = component("gpt2", vocab_size=128)
    [(key, (message, is_note))] = findings(settings, model_raw=model, train_dataset=dataset).items()
    assert key == "model_raw.config.vocab_size"
    assert message == f"the model knows 128 token ids, but the tokenizer of {path} has 200"
    assert not is_note
    assert findings(settings, model_raw=component("gpt2", vocab_size=200), train_dataset=dataset) == {}
