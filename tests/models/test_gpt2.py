"""The gpt2 model: names, numbers, and parts of it as stages of a pipeline."""

import copy

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from modalities_pipeline.exceptions import UserError
from modalities_pipeline.models.gpt2 import GPT2LLM, build_gpt2, swiglu_hidden_dim

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
    assert [[key, list(value.shape)] for key, value in model.named_buffers()] == expected["buffers"]
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


@pytest.mark.parametrize("name", CONFIGS)
def test_a_forward_pass_in_bfloat16_is_close(name, read_vectors, fill):
    vectors, logits = read_vectors("gpt2_models.json"), read_vectors("gpt2_logits.npz")
    model = build_gpt2(**vectors["configs"][name]["config"])
    fill(model)
    output = model.to(torch.bfloat16)(torch.tensor(vectors["input_ids"]))
    assert output.dtype == torch.bfloat16
    assert torch.allclose(output.float(), torch.from_numpy(logits[f"{name}/logits"]), rtol=0.1, atol=0.1)


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
    """In Modalities that of attention stays on (W5)."""
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


def test_attention_dropout_can_stay_on_in_evaluation_as_in_modalities(make_gpt2_config):
    model = build_gpt2(**make_gpt2_config(dropout=0.5, attention_dropout_in_evaluation=True)).eval()
    ids = torch.arange(10).unsqueeze(0)
    assert not torch.equal(model(ids), model(ids))


def test_a_feed_forward_network_of_unusual_width_is_noted_once(make_gpt2_config, caplog):
    build_gpt2(**make_gpt2_config(ffn_hidden=256))
    assert [record.message for record in caplog.records] == ["ffn_hidden is 256, not 4 * n_embd (512)."]
    caplog.clear()
    build_gpt2(**make_gpt2_config(ffn_hidden=512))
    assert not caplog.records


def test_weights_are_decided_by_the_seed_alone(make_gpt2_config):
    """Nothing global is seeded, and nothing global counts (W32, B058)."""
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = build_gpt2(**make_gpt2_config())
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    second, other = build_gpt2(**make_gpt2_config()), build_gpt2(**make_gpt2_config(seed=8))
    weights = [model.transformer["wte"].weight for model in (first, second, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_tied_weights_are_one_parameter_under_both_names_of_a_checkpoint(make_gpt2_config):
    model = build_gpt2(**make_gpt2_config(use_weight_tying=True))
    names = {name for name, _ in model.named_parameters()}
    assert "transformer.wte.weight" in names
    assert "transformer.lm_head.weight" not in names
    assert {"transformer.wte.weight", "transformer.lm_head.weight"} <= model.state_dict().keys()


@pytest.mark.parametrize("sharded", [False, True])
def test_weights_tied_on_the_meta_device_stay_tied_when_they_get_memory(sharded, process_group, make_gpt2_config):
    model = build_gpt2(**make_gpt2_config(use_weight_tying=True, use_meta_device=True))
    if sharded:
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        for block in model.transformer["h"].children():
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    assert model.transformer["wte"].weight is model.transformer["lm_head"].weight
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.01)
    for module in model.modules():
        if "inv_freq" in dict(module.named_buffers(recurse=False)):
            module.reset_parameters()
    model(torch.arange(10).unsqueeze(0)).sum().backward()
    assert model.transformer["wte"].weight is model.transformer["lm_head"].weight
    assert model.transformer["wte"].weight.grad is not None


def _stage(model: GPT2LLM, *missing: str) -> GPT2LLM:
    """A copy without some modules, as a stage of a pipeline is."""
    stage = copy.deepcopy(model)
    for name in missing:
        parent, _, child = name.rpartition(".")
        del (stage.transformer[parent] if parent else stage.transformer)[child]
    return stage


@pytest.mark.parametrize("poe_type", ["NOPE", "ABSOLUTE"])
def test_stages_one_after_the_other_are_the_whole_model(poe_type, make_gpt2_config):
    model = build_gpt2(**make_gpt2_config(poe_type=poe_type, attention_config={"qkv_transforms": []}, n_layer=3))
    stages = [
        _stage(model, "h.1", "h.2", "lm_head_norm", "lm_head"),
        _stage(model, "wte", "wpe", "drop", "h.0", "h.2", "lm_head_norm", "lm_head"),
        _stage(model, "wte", "wpe", "drop", "h.0", "h.1"),
    ]
    ids = torch.arange(10).unsqueeze(0)
    x = ids
    for stage in stages:
        x = stage(x)
    assert torch.equal(x, model(ids))
    assert set.union(*({*stage.state_dict()} for stage in stages)) == {*model.state_dict()}


def test_stages_with_embedding_or_head_only_work(make_gpt2_config):
    model = build_gpt2(**make_gpt2_config(use_weight_tying=True))
    embedding = _stage(model, "h", "lm_head_norm", "lm_head")
    blocks = _stage(model, "wte", "wpe", "drop", "lm_head_norm", "lm_head")
    head = _stage(model, "wte", "wpe", "drop", "h")
    ids = torch.arange(10).unsqueeze(0)
    assert torch.equal(head(blocks(embedding(ids))), model(ids))


def test_a_compiled_block_has_no_graph_break_and_is_compiled_once(make_gpt2_config):
    """Tables of the rotary embedding that a block keeps would make it compile again at the second call."""
    block, counter = build_gpt2(**make_gpt2_config()).transformer["h"]["0"], CompileCounter()
    x = torch.randn(2, 10, 128, generator=torch.Generator().manual_seed(0))
    expected = block(x)
    compiled = torch.compile(block, backend=counter, fullgraph=True)
    for _ in range(3):
        assert torch.allclose(compiled(x), expected, rtol=0, atol=1e-6)
    assert counter.frame_count == 1


@pytest.mark.parametrize("number_type", [torch.int32, torch.int64])
def test_token_ids_may_be_of_either_integer_type(number_type, make_gpt2_config):
    model = build_gpt2(**make_gpt2_config())
    assert model(torch.arange(10, dtype=number_type).unsqueeze(0)).shape == (1, 10, 128)


def test_a_width_of_swiglu_may_be_rounded_to_another_multiple(make_gpt2_config):
    model = build_gpt2(**make_gpt2_config(ffn_hidden=384, enforce_swiglu_hidden_dim_multiple_of=64))
    assert model.transformer["h"]["0"].mlp.W.out_features == 256
