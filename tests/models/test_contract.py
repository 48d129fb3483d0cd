"""The laws that every family keeps, in both libraries, in fp32 and bf16."""

import copy

import pytest
import timm
import torch
import transformers
from families import DEPTH, FAMILIES, Family, build, images, skipping
from safetensors.torch import load_file

import serpette
from serpette.data.dataset import open_dataset
from serpette.data.pixels import Pixels
from serpette.evaluation.sweep import Sweep
from serpette.evaluation.trunk import features, logits
from serpette.models import adapt, inference
from serpette.records import Plan, Site
from serpette.redundancy.calibrate import measure_pixels

BLOCKS = Plan(drop_blocks=(1, 3))
BRANCHES = Plan(drop_attention=(0, 2), drop_mlp=(3,))
MIXED = Plan(drop_blocks=(0,), drop_attention=(2,), drop_mlp=(3,))
PLANS = pytest.mark.parametrize("plan", [BLOCKS, BRANCHES, MIXED], ids=["blocks", "branches", "mixed"])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])

pytestmark = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def outputs(model: torch.nn.Module, dtype: torch.dtype) -> list[torch.Tensor]:
    """Features, logits where there are any, and what the plain library returns."""
    adapter, x = adapt(model), images(dtype)
    with inference(model):
        raw = model(x)
        found = [adapter.features(x), raw if isinstance(raw, torch.Tensor) else raw[0]]
        return [*found, adapter.logits(x)] if adapter.num_classes else found


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@DTYPES
def test_the_empty_plan_changes_nothing(family: Family, dtype: torch.dtype) -> None:
    model = build(family, dtype)
    assert equal(outputs(serpette.prune(model, Plan()), dtype), outputs(model, dtype))


@DTYPES
@PLANS
def test_dropping_equals_a_forward_by_hand_that_skips(family: Family, plan: Plan, dtype: torch.dtype) -> None:
    model = build(family, dtype)
    pruned = outputs(serpette.prune(model, plan), dtype)
    by_hand = copy.deepcopy(model)
    with skipping(family, by_hand, plan):
        expected = outputs(by_hand, dtype)
    assert equal(pruned, expected)
    assert not equal(pruned, outputs(model, dtype))


@PLANS
def test_the_original_is_unchanged(family: Family, plan: Plan) -> None:
    model = build(family)
    before, state = outputs(model, torch.float32), copy.deepcopy(model.state_dict())
    config = copy.deepcopy(getattr(model, "config", None))
    serpette.prune(model, plan).to(torch.bfloat16)
    assert equal(outputs(model, torch.float32), before)
    assert len(family.blocks(model)) == DEPTH
    assert getattr(model, "config", None) == config
    assert all(torch.equal(model.state_dict()[key], value) for key, value in state.items())


@PLANS
def test_parameters_are_shared_and_dropped_ones_are_gone(family: Family, plan: Plan) -> None:
    model = build(family)
    pruned = serpette.prune(model, plan)
    shared = {p.data_ptr(): p.numel() for p in model.parameters()}
    left = {p.data_ptr(): p.numel() for p in pruned.parameters()}
    assert left.items() <= shared.items()
    gone = sum(shared.values()) - sum(left.values())
    block = family.blocks(model)[0]
    whole = sum(p.numel() for p in block.parameters())
    assert gone == pytest.approx(whole * len(plan.drop_blocks) + branch_size(family, plan), abs=0)


def branch_size(family: Family, plan: Plan) -> int:
    """Parameters of the planned branches, told apart by which of them the branch's output depends on."""
    model, total = build(family), 0
    for i, block in enumerate(family.blocks(model)):
        for dropped, branch in ((plan.drop_attention, family.attention), (plan.drop_mlp, family.mlp)):
            if i in dropped:
                parameters = list(block.parameters())
                x = torch.randn(2, 5, 48)
                grads = torch.autograd.grad(branch(block, x).square().sum(), parameters, allow_unused=True)
                total += sum(p.numel() for p, g in zip(parameters, grads, strict=True) if g is not None)
    return total


@DTYPES
@PLANS
def test_save_and_load_are_equal(family: Family, plan: Plan, dtype: torch.dtype, tmp_path) -> None:
    pruned = serpette.prune(build(family, dtype), plan)
    folder = serpette.save(pruned, tmp_path / "model")
    loaded = serpette.load(folder, dtype={torch.float32: "fp32", torch.bfloat16: "bf16"}[dtype])
    assert type(loaded) is type(pruned)
    assert equal(outputs(loaded, dtype), outputs(pruned, dtype))
    saved = sum(t.numel() for t in load_file(folder / "model.safetensors").values())
    assert saved == sum(t.numel() for t in pruned.state_dict().values())


def test_block_drops_load_in_the_plain_library(family: Family, tmp_path) -> None:
    pruned = serpette.prune(build(family), BLOCKS)
    folder = serpette.save(pruned, tmp_path / "model")
    if family.name.startswith("timm"):
        plain = timm.create_model(f"local-dir:{folder}", pretrained=True)
    else:
        plain, info = type(pruned).from_pretrained(folder, output_loading_info=True)
        assert not any(info.values())
    assert equal(outputs(plain.eval(), torch.float32), outputs(pruned, torch.float32))


def test_timm_folders_load_in_transformers_too(family: Family, tmp_path) -> None:
    pruned = serpette.prune(build(family), BLOCKS)
    if not family.name.startswith("timm") or not adapt(pruned).num_classes:
        pytest.skip("for timm classifiers")
    folder = serpette.save(pruned, tmp_path / "model")
    wrapper = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    with inference(wrapper), inference(pruned):
        assert torch.equal(wrapper(images()).logits, pruned(images()))


@pytest.mark.parametrize("plan", [BRANCHES, MIXED], ids=["branches", "mixed"])
def test_other_plans_are_refused_by_the_plain_libraries(family: Family, plan: Plan, tmp_path) -> None:
    folder = serpette.save(serpette.prune(build(family), plan), tmp_path / "model")
    with pytest.raises((OSError, ValueError)):
        transformers.AutoModel.from_pretrained(folder)
    with pytest.raises((OSError, ValueError)):
        timm.create_model(f"local-dir:{folder}", pretrained=True)


@DTYPES
def test_a_sweep_equals_pruning_one_by_one(family: Family, dtype: torch.dtype) -> None:
    model = build(family, dtype)
    adapter, plans = adapt(model), [Plan(), BLOCKS, BRANCHES, MIXED, BLOCKS]
    for output in (features, logits) if adapter.num_classes else (features,):
        with inference(model):
            swept = Sweep(adapter, plans, output).run(images(dtype))
        for plan, found in zip(plans, swept, strict=True):
            pruned = serpette.prune(model, plan)
            with inference(pruned):
                assert torch.equal(output(adapt(pruned), images(dtype)), found)


def test_a_fitted_head_becomes_the_librarys_classifier(family: Family, tmp_path) -> None:
    pruned = serpette.prune(build(family), BLOCKS)
    with inference(pruned):
        fed = adapt(pruned).features(images())
    weight, bias = torch.randn(3, fed.shape[1]), torch.randn(3)
    headed = adapt(pruned).with_classifier(weight, bias, ("a", "b", "c"))
    folder = serpette.save(headed, tmp_path / "model")
    if family.name.startswith("timm"):
        plain = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
        found = plain(images())
    else:
        plain = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
        if "distilled" in family.name:  # the automatic class has one head
            plain = transformers.DeiTForImageClassificationWithTeacher.from_pretrained(folder).eval()
        assert plain.config.id2label == {0: "a", 1: "b", 2: "c"}
        found = plain(images()).logits
    assert torch.allclose(found, fed @ weight.T + bias, atol=1e-4)
    assert adapt(serpette.load(folder)).class_names == ("a", "b", "c")


def test_every_site_is_listed_and_measured_and_no_hook_remains(family: Family) -> None:
    model = build(family)
    adapter = adapt(model)
    expected = {Site(i, part) for i in range(DEPTH) for part in ("block", "attention", "mlp")}
    assert set(adapter.sites()) == expected
    demo = open_dataset("demo")
    sums = measure_pixels(adapter, Pixels(demo, "train", adapter.preprocessing, limit=6), batch_size=4)
    scores = sums.sites()
    assert {(s.block, s.part) for s in scores} == {(s.block, s.part) for s in expected}
    assert all(s.cosine is not None and -1 <= s.cosine <= 1 for s in scores)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
