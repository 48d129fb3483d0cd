"""Small random models of every supported family, and a forward pass written by hand for each block class."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import timm
import torch
import transformers
from torch import Tensor, nn

from serpette.records import Plan

SIDE = 32
DEPTH = 4


@dataclass(frozen=True)
class Family:
    """A builder of one family's model; `blocks` finds its blocks without the help of serpette."""

    name: str
    build: Callable[[], nn.Module]
    blocks: Callable[[Any], Any]
    attention: Callable[[Any, Tensor], Tensor]
    mlp: Callable[[Any, Tensor], Tensor]


def timm_attention(b: Any, x: Tensor) -> Tensor:
    return b.ls1(b.attn(b.norm1(x)))


def timm_mlp(b: Any, x: Tensor) -> Tensor:
    return b.ls2(b.mlp(b.norm2(x)))


def vit_attention(b: Any, x: Tensor) -> Tensor:
    return b.attention(b.layernorm_before(x), None)[0]


def vit_mlp(b: Any, x: Tensor) -> Tensor:
    return b.mlp(b.layernorm_after(x))


def dino_attention(b: Any, x: Tensor) -> Tensor:
    return b.layer_scale1(b.attention(b.norm1(x), attention_mask=None)[0])


def dino_mlp(b: Any, x: Tensor) -> Tensor:
    return b.layer_scale2(b.mlp(b.norm2(x)))


def clip_attention(b: Any, x: Tensor) -> Tensor:
    return b.self_attn(hidden_states=b.layer_norm1(x), attention_mask=None)[0]


def clip_mlp(b: Any, x: Tensor) -> Tensor:
    return b.mlp(b.layer_norm2(x))


def timm_family(name: str, architecture: str, **arguments: Any) -> Family:
    sizes = {"img_size": SIDE, "patch_size": 8, "embed_dim": 48, "num_heads": 3, "depth": DEPTH}
    return Family(
        f"timm-{name}",
        lambda: timm.create_model(architecture, **{**sizes, **arguments}),
        lambda model: model.blocks,
        timm_attention,
        timm_mlp,
    )


def hf_config(config: Any, **arguments: Any) -> Any:
    sizes = {
        "hidden_size": 48,
        "num_attention_heads": 3,
        "num_hidden_layers": DEPTH,
        "image_size": SIDE,
        "patch_size": 8,
    }
    return config(**{**sizes, **arguments})


def hf_family(name: str, build: Callable[[], nn.Module], blocks: Any, attention: Any, mlp: Any) -> Family:
    return Family(f"transformers-{name}", build, blocks, attention, mlp)


T = transformers
CLASSES = {"id2label": {0: "cat", 1: "dog", 2: "fox"}, "label2id": {"cat": 0, "dog": 1, "fox": 2}}
CLIP = {"intermediate_size": 96, "projection_dim": 16}

FAMILIES = [
    timm_family("vit", "vit_tiny_patch16_224", num_classes=5),
    timm_family("vit-no-head", "vit_tiny_patch16_224", num_classes=0),
    timm_family("deit-distilled", "deit_tiny_distilled_patch16_224", num_classes=5),
    timm_family("deit3", "deit3_small_patch16_224", num_classes=5),
    timm_family("dinov2", "vit_small_patch14_dinov2", num_classes=0),
    timm_family("dinov2-registers", "vit_small_patch14_reg4_dinov2", num_classes=5),
    timm_family("dinov2-giant-swiglu", "vit_giant_patch14_dinov2", num_classes=0),
    timm_family("gap-no-class-token", "vit_medium_patch16_gap_240", num_classes=5),
    timm_family("clip-pre-norm", "vit_base_patch32_clip_224", num_classes=5),
    timm_family("siglip-attention-pool", "vit_base_patch16_siglip_224", num_classes=5),
    hf_family(
        "vit",
        lambda: T.ViTModel(hf_config(T.ViTConfig, intermediate_size=96)),
        lambda m: m.layers,
        vit_attention,
        vit_mlp,
    ),
    hf_family(
        "vit-classifier",
        lambda: T.ViTForImageClassification(hf_config(T.ViTConfig, intermediate_size=96, **CLASSES)),
        lambda m: m.vit.layers,
        vit_attention,
        vit_mlp,
    ),
    hf_family(
        "deit",
        lambda: T.DeiTModel(hf_config(T.DeiTConfig, intermediate_size=96)),
        lambda m: m.layers,
        vit_attention,
        vit_mlp,
    ),
    hf_family(
        "deit-classifier",
        lambda: T.DeiTForImageClassification(hf_config(T.DeiTConfig, intermediate_size=96, **CLASSES)),
        lambda m: m.deit.layers,
        vit_attention,
        vit_mlp,
    ),
    hf_family(
        "deit-distilled",
        lambda: T.DeiTForImageClassificationWithTeacher(hf_config(T.DeiTConfig, intermediate_size=96, **CLASSES)),
        lambda m: m.deit.layers,
        vit_attention,
        vit_mlp,
    ),
    hf_family(
        "dinov2", lambda: T.Dinov2Model(hf_config(T.Dinov2Config)), lambda m: m.encoder.layer, dino_attention, dino_mlp
    ),
    hf_family(
        "dinov2-swiglu-classifier",
        lambda: T.Dinov2ForImageClassification(hf_config(T.Dinov2Config, use_swiglu_ffn=True, **CLASSES)),
        lambda m: m.dinov2.encoder.layer,
        dino_attention,
        dino_mlp,
    ),
    hf_family(
        "dinov2-registers",
        lambda: T.Dinov2WithRegistersModel(hf_config(T.Dinov2WithRegistersConfig)),
        lambda m: m.encoder.layer,
        dino_attention,
        dino_mlp,
    ),
    hf_family(
        "dinov2-registers-classifier",
        lambda: T.Dinov2WithRegistersForImageClassification(hf_config(T.Dinov2WithRegistersConfig, **CLASSES)),
        lambda m: m.dinov2_with_registers.encoder.layer,
        dino_attention,
        dino_mlp,
    ),
    hf_family(
        "clip",
        lambda: T.CLIPVisionModel(hf_config(T.CLIPVisionConfig, **CLIP)),
        lambda m: m.encoder.layers,
        clip_attention,
        clip_mlp,
    ),
    hf_family(
        "clip-classifier",
        lambda: T.CLIPForImageClassification(
            T.CLIPConfig(vision_config=hf_config(T.CLIPVisionConfig, **CLIP).to_dict(), **CLASSES)
        ),
        lambda m: m.vision_model.encoder.layers,
        clip_attention,
        clip_mlp,
    ),
]


def build(family: Family, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A model whose every parameter is random, LayerScale and the heads too, so that no branch is nearly zero."""
    torch.manual_seed(0)
    model = family.build()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model.eval().to(dtype)


def images(dtype: torch.dtype = torch.float32, n: int = 3) -> Tensor:
    return torch.randn(n, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1)).to(dtype)


@contextmanager
def skipping(family: Family, model: nn.Module, plan: Plan) -> Iterator[None]:
    """Make the blocks of `model` run a forward pass written by hand, which leaves out the sites of `plan`."""
    blocks = family.blocks(model)
    try:
        for i, block in enumerate(blocks):
            block.forward = by_hand(family, block, i, plan)
        yield
    finally:
        for block in blocks:
            del block.forward


def by_hand(family: Family, block: nn.Module, i: int, plan: Plan) -> Callable[..., Tensor]:
    def forward(x: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
        if i in plan.drop_blocks:
            return x
        if i not in plan.drop_attention:
            x = x + family.attention(block, x)
        if i not in plan.drop_mlp:
            x = x + family.mlp(block, x)
        return x

    return forward
