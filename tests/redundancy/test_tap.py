import copy

import pytest
import torch
from streams import DEPTH, stream_by_hand, tiny
from torch import Tensor, nn
from transformers import Dinov2Config, Dinov2Model

from serpette.errors import ModelError, PlanError
from serpette.models.base import Adapter, Branches, adapt, inference, stream_out
from serpette.redundancy.tap import Tap


def images(n: int = 2) -> Tensor:
    return torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_reads_the_stream_itself() -> None:
    adapter = tiny()
    with inference(adapter.model), Tap(adapter) as tap:
        states = tap.run(images())
    assert len(states) == 2 * DEPTH + 1
    for found, expected in zip(states, stream_by_hand(adapter.model, images()), strict=True):
        torch.testing.assert_close(found, expected)


def test_changes_nothing_and_leaves_nothing() -> None:
    adapter = tiny()
    with inference(adapter.model):
        before = adapter.features(images())
        with Tap(adapter) as tap:
            assert hooks(adapter.model) == 3 * DEPTH
            tap.run(images())
            assert torch.equal(adapter.features(images()), before)
        assert hooks(adapter.model) == 0
        with pytest.raises(KeyboardInterrupt), Tap(adapter):
            raise KeyboardInterrupt
    assert hooks(adapter.model) == 0


def test_runs_again_after_a_pass_that_failed() -> None:
    adapter = tiny()
    with inference(adapter.model), Tap(adapter) as tap:
        handle = adapter.blocks[2].register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            tap.run(images())
        handle.remove()
        assert len(tap.run(images())) == 2 * DEPTH + 1


def replaced(position: int, block: nn.Module) -> Adapter:
    adapter = tiny()
    adapter.model.blocks[position] = block  # type: ignore[index, operator]
    return adapt(adapter.model)


def test_one_module_as_two_blocks() -> None:
    blocks = tiny().blocks
    adapter = replaced(1, blocks[1])
    adapter.model.blocks[3] = blocks[1]  # type: ignore[index, operator]
    with pytest.raises(ModelError, match="serves as block 1 and as block 3"):
        Tap(adapt(adapter.model))


def test_two_blocks_that_share_a_norm() -> None:
    adapter = tiny()
    adapter.blocks[2].norm2 = adapter.blocks[0].norm2
    with pytest.raises(ModelError, match="serves as mlp of block 0 and as mlp of block 2"):
        Tap(adapter)


def test_a_block_that_runs_twice_or_never() -> None:
    adapter = tiny()
    forward = adapter.blocks[1].forward
    with inference(adapter.model), Tap(adapter) as tap:
        adapter.blocks[1].forward = lambda x, **_: adapter.blocks[2](forward(x))  # type: ignore[method-assign]
        with pytest.raises(ModelError, match="block 2 was reached twice"):
            tap.run(images())
        adapter.blocks[1].forward = lambda x, **_: x  # type: ignore[method-assign]
        with pytest.raises(ModelError, match="mlp of block 1 was not reached"):
            tap.run(images())


def test_something_between_two_blocks() -> None:
    adapter = tiny()
    adapter.blocks[2].register_forward_pre_hook(lambda _, args: (2 * args[0], *args[1:]))
    with (
        inference(adapter.model),
        Tap(adapter) as tap,
        pytest.raises(ModelError, match="changes between block 1 and block 2"),
    ):
        tap.run(images())


def test_a_pruned_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = tiny()
    full = adapter.branches(adapter.blocks[0])
    for part in ("attention", "mlp"):
        lacking = full._replace(**{part: ()})

        def branches(block: nn.Module, lacking: Branches = lacking) -> Branches:
            return lacking if block is adapter.blocks[1] else full

        monkeypatch.setattr(adapter, "branches", branches)
        with pytest.raises(PlanError, match=f"Block 1 has no {part}.*Measure the dense model"):
            Tap(adapter)


def test_a_copy_is_no_shared_module() -> None:
    adapter = replaced(3, copy.deepcopy(tiny().blocks[0]))
    with inference(adapter.model), Tap(adapter) as tap:
        assert len(tap.run(images())) == 2 * DEPTH + 1


def test_reads_the_stream_of_a_transformers_model_with_layer_scale() -> None:
    torch.manual_seed(0)
    config = Dinov2Config(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8, layerscale_value=0.3
    )
    adapter = adapt(Dinov2Model(config))
    with inference(adapter.model), Tap(adapter) as tap:
        states = tap.run(images())
    with inference(adapter.model):
        for i, block in enumerate(adapter.blocks):
            part = block.get_submodule
            before, between, after = states[2 * i : 2 * i + 3]
            attended = stream_out(part("attention")(part("norm1")(before)))
            torch.testing.assert_close(between, before + part("layer_scale1")(attended))
            torch.testing.assert_close(after, between + part("layer_scale2")(part("mlp")(part("norm2")(between))))
