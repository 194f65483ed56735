"""The gpt2 model: names, numbers and what its config refuses."""

import pytest
import torch
from torch.nn import functional

from modalities_pipeline.exceptions import UserError
from modalities_pipeline.models.gpt2 import build_gpt2, swiglu_hidden_dim

CONFIGS = [
    "abs_gelu_ln_tied_mha",
    "abs_gelu_ln_untied_nobias",
    "rope_swiglu_prms_gqa_flash",
    "rope_swiglu_prms_mqa_qknorm",
    "nope_swiglu_rms_nobias_eps",
]


@pytest.mark.parametrize("name", CONFIGS)
def test_names_and_shapes_are_those_of_modalities_checkpoints(name, read_vectors):
    expected = read_vectors("gpt2_models.json")["configs"][name]
    model = build_gpt2(**expected["config"])
    assert [[key, list(value.shape)] for key, value in model.named_parameters()] == expected["parameters"]
    assert list(model.state_dict()) == expected["state_dict_keys"]
    assert sum(parameter.numel() for parameter in model.parameters()) == expected["num_parameters"]
    assert model.weight_decay_groups == expected["weight_decay_groups"]


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_loss_and_gradients_match_modalities(name, read_vectors, fill):
    vectors, logits = read_vectors("gpt2_models.json"), read_vectors("gpt2_logits.npz")
    expected = vectors["configs"][name]
    model = build_gpt2(**expected["config"])
    fill(model)
    ids, targets = torch.tensor(vectors["input_ids"]), torch.tensor(vectors["target_ids"])
    output = model({"input_ids": ids})["logits"]
    assert torch.allclose(output, torch.from_numpy(logits[f"{name}/logits"]), rtol=0, atol=2e-5)
    assert torch.allclose(model(ids[:, :7]), torch.from_numpy(logits[f"{name}/logits_len7"]), rtol=0, atol=2e-5)
    loss = functional.cross_entropy(output.flatten(0, 1), targets.flatten())
    assert loss.item() == pytest.approx(expected["loss"], abs=2e-6)
    loss.backward()
    norms = {key: value.grad.norm().item() for key, value in model.named_parameters()}
    assert norms == pytest.approx(expected["grad_norms"], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", ["gpt2_124M_like", "lorem_ipsum_fsdp2_yaml", "llama3_8B_like"])
def test_full_size_models_have_the_expected_number_of_parameters(name, read_vectors):
    expected = read_vectors("parameter_counts.json")["models"][name]
    model = build_gpt2(**expected["config"])
    assert sum(parameter.numel() for parameter in model.parameters()) == expected["num_parameters"]
    assert all(parameter.is_meta for parameter in model.parameters())


def test_swiglu_widths_match_the_table(read_vectors):
    for ffn_hidden, multiple_of, width in read_vectors("parameter_counts.json")["swiglu_hidden_dim"]["rows"]:
        assert swiglu_hidden_dim(ffn_hidden, multiple_of) == width


def test_a_token_does_not_see_later_ones(make_gpt2_config):
    model = build_gpt2(**make_gpt2_config())
    ids = torch.arange(10).unsqueeze(0)
    changed = ids.clone()
    changed[0, 6:] += 50
    difference = (model(ids) - model(changed)).abs().amax(dim=(0, 2))
    assert difference[:6].max() < 1e-6 < difference[6:].min()


@pytest.mark.parametrize("implementation", ["manual", "pytorch_flash"])
def test_dropout_is_off_in_evaluation_and_on_in_training(implementation, make_gpt2_config):
    model = build_gpt2(**make_gpt2_config(dropout=0.5, attention_implementation=implementation))
    ids = torch.arange(10).unsqueeze(0)
    assert not torch.equal(model(ids), model(ids))
    model.eval()
    assert torch.equal(model(ids), model(ids))


def test_training_works_after_an_evaluation_in_inference_mode(make_gpt2_config):
    model = build_gpt2(**make_gpt2_config())
    ids = torch.arange(10).unsqueeze(0)
    with torch.inference_mode():
        model(ids)
    model(ids).sum().backward()
    assert model.transformer["wte"].weight.grad is not None


def test_more_tokens_than_the_sequence_length_are_refused(make_gpt2_config):
    model = build_gpt2(**make_gpt2_config())
    with pytest.raises(UserError, match="33 tokens per sample, more than its sequence_length"):
        model(torch.zeros(1, 33, dtype=torch.int64))
