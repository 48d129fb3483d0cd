"""Plans that cannot be followed are refused with the reason; those that can leave no trace of what they remove."""

import pytest
import torch

import serpette
from models.families import DEPTH
from serpette.errors import PlanError
from serpette.models import RemainingBranch, adapt
from serpette.records import Plan
from serpette.surgery.prune import check_removed
from tiny import FAMILY, HF, TIMM, answers, blocks, tiny

LIBRARIES = pytest.mark.parametrize("name", [TIMM, HF])
ALL = tuple(range(DEPTH))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            Plan(drop_blocks=(DEPTH,)),
            "Plan removes block 4, but this model has 4 blocks (0-3). Plans are zero-based; did you mean 3?",
        ),
        (Plan(drop_attention=(7,)), "Plan removes block 7, but this model has 4 blocks (0-3)."),
        (Plan(drop_blocks=ALL), "Plan removes all 4 blocks; at least one must stay."),
        (Plan(drop_attention=ALL, drop_mlp=ALL), "Plan removes all 4 blocks; at least one must stay."),
        (Plan(drop_attention=ALL), "Plan removes the attention of all 4 blocks; at least one must stay."),
        (Plan(drop_blocks=(0, 1), drop_mlp=(2, 3)), "Plan removes the mlp of all 4 blocks; at least one must stay."),
        (Plan(depth=12), "The plan was made for a model of 12 blocks, but this model has 4."),
    ],
)
@LIBRARIES
def test_a_plan_that_does_not_fit_is_refused_with_the_reason(name: str, plan: Plan, message: str) -> None:
    with pytest.raises(PlanError) as error:
        serpette.prune(tiny(name), plan)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("first", [Plan(drop_blocks=(1,)), Plan(drop_attention=(1,))], ids=["block", "attention"])
@LIBRARIES
def test_a_pruned_model_is_not_pruned_again(name: str, first: Plan) -> None:
    pruned = serpette.prune(tiny(name), first)
    with pytest.raises(PlanError, match="already pruned; make one plan for the dense model"):
        serpette.prune(pruned, Plan(drop_blocks=(0,)))


@pytest.mark.parametrize("name", FAMILY)
def test_a_half_block_keeps_the_parameters_of_its_branch_alone(name: str) -> None:
    model = tiny(name)
    whole = {key for key, _ in blocks(name, model)[1].named_parameters()}
    left = {}
    for part, plan in (("mlp", Plan(drop_attention=(1,))), ("attention", Plan(drop_mlp=(1,)))):
        half = blocks(name, serpette.prune(model, plan))[1]
        assert isinstance(half, RemainingBranch)
        left[part] = {key for key, _ in half.named_parameters()}
    # Norms and LayerScales go with their branch: the two halves share nothing and make up the block.
    assert left["mlp"] & left["attention"] == set()
    assert left["mlp"] | left["attention"] == whole
    for part in left.values():
        assert any("norm" in key for key in part)


@pytest.mark.parametrize("name", ["timm-dinov2", "transformers-dinov2"])
def test_layer_scale_goes_with_its_branch(name: str) -> None:
    half = blocks(name, serpette.prune(tiny(name), Plan(drop_attention=(1,))))[1]
    scales = {key for key in half.state_dict() if "ls" in key or "layer_scale" in key}
    assert len(scales) == 1
    assert scales <= {"ls2.gamma", "layer_scale2.lambda1"}


@LIBRARIES
def test_a_dropped_branch_adds_nothing_to_the_stream(name: str) -> None:
    pruned = serpette.prune(tiny(name), Plan(drop_attention=(1,)))
    half = blocks(name, pruned)[1]
    for parameter in half.parameters():
        parameter.data.zero_()  # and so the branch that is left
    stream = torch.randn(2, 5, 48)
    assert torch.equal(half(stream, None), stream)


@LIBRARIES
def test_moving_or_casting_the_pruned_model_leaves_the_original_alone(name: str) -> None:
    model = tiny(name)
    before = answers(model)
    serpette.prune(model, Plan(drop_blocks=(1,))).to(torch.float16)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert torch.equal(answers(model), before)


@pytest.mark.parametrize("plan", [Plan(drop_blocks=(1,)), Plan(drop_attention=(1,), drop_mlp=(2,))])
@pytest.mark.parametrize("name", FAMILY)
def test_a_pruned_model_can_be_fine_tuned(name: str, plan: Plan) -> None:
    model = tiny(name)
    with torch.inference_mode():  # as in a script that measures first; the result must still be trainable
        pruned = serpette.prune(model, plan)
    out = pruned(torch.randn(2, 3, 32, 32))
    (out if isinstance(out, torch.Tensor) else out[0]).square().sum().backward()
    left = [p for block in blocks(name, pruned) for p in block.parameters()]
    assert all(p.grad is not None and p.grad.any() for p in left)
    assert all(p.grad is None for p in model.parameters())


@LIBRARIES
def test_frozen_parameters_stay_frozen(name: str) -> None:
    model = tiny(name).requires_grad_(False)
    assert not any(p.requires_grad for p in serpette.prune(model, Plan(drop_mlp=(0,))).parameters())


@LIBRARIES
def test_the_training_flag_is_kept(name: str) -> None:
    pruned = serpette.prune(tiny(name).train(), Plan(drop_attention=(0,)))
    assert all(module.training for module in pruned.modules())


@LIBRARIES
@pytest.mark.parametrize("wrap", [torch.nn.DataParallel, torch.compile], ids=["DataParallel", "compile"])
def test_wrapped_models_are_understood(name: str, wrap) -> None:
    model, plan = tiny(name), Plan(drop_blocks=(2,), drop_attention=(0,))
    assert torch.equal(answers(serpette.prune(wrap(model), plan)), answers(serpette.prune(model, plan)))


@LIBRARIES
def test_a_block_that_is_used_twice_can_lose_one_of_its_uses(name: str) -> None:
    model = tiny(name)
    layers = blocks(name, model)
    layers[2] = layers[1]
    pruned = serpette.prune(model, Plan(drop_blocks=(1,)))
    left = blocks(name, pruned)
    assert len(left) == DEPTH - 1
    assert next(left[1].parameters()).data_ptr() == next(layers[2].parameters()).data_ptr()


@LIBRARIES
def test_a_surgery_that_removed_something_else_is_noticed(name: str) -> None:
    model = tiny(name)
    pruned = serpette.prune(model, Plan(drop_attention=(1,)))
    with pytest.raises(PlanError, match="the plan removes 2 branches, but 1 are gone"):
        check_removed(adapt(model), adapt(pruned), Plan(drop_attention=(1, 2)))
