"""Vision transformers of timm: ViT, DeiT (distilled too), DINOv2, CLIP and SigLIP trunks.

Shapes: B images, T tokens, C channels, D features, K classes, S pixels a side.
"""

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import timm
from jaxtyping import Float
from timm.data.config import resolve_data_config
from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset
from timm.models import is_model
from timm.models._hub import save_config_for_hf
from timm.models._input import get_model_args
from torch import Tensor, nn

from serpette.errors import ModelError, SaveError
from serpette.models.base import Adapter, Branches, RemainingBranch, as_tensor, one_line, sharing_copy, silent
from serpette.models.weights import write_weights
from serpette.records import Preprocessing

# Block class -> its residual branches (timm/models/vision_transformer.py)
BRANCHES = {
    "Block": Branches(("norm1", "attn", "ls1", "drop_path1"), ("norm2", "mlp", "ls2", "drop_path2")),
}


# What would make timm read weights from a file or an address
FETCHING = {"pretrained", "checkpoint_path", "pretrained_cfg", "cache_dir", "url", "file", "hf_hub_id", "source"}


class TimmAdapter(Adapter):
    """A timm model with `blocks`."""

    library: ClassVar[str] = "timm"

    def __init__(self, model: nn.Module) -> None:
        blocks = getattr(model, "blocks", None)
        known = isinstance(blocks, nn.Sequential | nn.ModuleList) and all(
            isinstance(block, RemainingBranch) or type(block).__name__ in BRANCHES for block in blocks
        )
        if not known or not hasattr(model, "forward_features"):
            found = sorted({type(block).__name__ for block in blocks.children()}) if blocks is not None else "none"
            raise ModelError(
                f"{type(model).__name__} is not a supported timm model: looked for `forward_features` and `blocks` "
                f"made of {', '.join(BRANCHES)}; found blocks of {found}."
            )
        super().__init__(model)

    @property
    def _timm(self) -> Any:
        return self.model

    @property
    def _config(self) -> dict[str, Any]:
        """What `timm.create_model` noted down; empty for a model made by its constructor."""
        return getattr(self.model, "pretrained_cfg", None) or {}

    @property
    def family(self) -> str:
        return "deit-distilled" if hasattr(self.model, "head_dist") else "vit"

    @property
    def architecture(self) -> str:
        return str(self._config.get("architecture", type(self.model).__name__))

    @property
    def blocks(self) -> tuple[nn.Module, ...]:
        return tuple(self._timm.blocks)

    @property
    def patch_size(self) -> int:
        return int(self._timm.patch_embed.patch_size[0])

    def branches(self, block: nn.Module) -> Branches:
        return block.branches if isinstance(block, RemainingBranch) else BRANCHES[type(block).__name__]

    def replace_blocks(self, blocks: Sequence[nn.Module]) -> None:
        model = self._timm
        model.blocks = type(model.blocks)(*blocks) if isinstance(model.blocks, nn.Sequential) else nn.ModuleList(blocks)
        if hasattr(model, "feature_info"):
            model.feature_info = [
                {**info, "module": f"blocks.{i}"} for i, info in enumerate(model.feature_info[: len(blocks)])
            ]
        model._model_args = {**getattr(model, "_model_args", {}), "depth": len(blocks)}

    @property
    def num_prefix_tokens(self) -> int:
        return int(self._timm.num_prefix_tokens)

    def pool(self, stream: Float[Tensor, "B T C"]) -> Float[Tensor, "B D"]:
        if hasattr(self.model, "head_dist"):
            return stream[:, :2].mean(1)
        if getattr(self.model, "attn_pool", None) is not None or not self._timm.global_pool:
            return stream[:, self.num_prefix_tokens :].mean(1)
        return as_tensor(self._timm.pool(stream))

    @property
    def library_preprocessing(self) -> Preprocessing:
        config: dict[str, Any] = resolve_data_config({}, model=self.model)  # type: ignore[no-untyped-call]
        if config["crop_mode"] == "border":
            raise ModelError(
                f"{self.architecture} pads images with a border (crop_mode 'border'), which is not supported."
            )
        patch_embed = self._timm.patch_embed
        channels = getattr(getattr(patch_embed, "proj", None), "in_channels", 3)
        if channels != 3:
            raise ModelError(f"{self.architecture} takes images of {channels} channels; only RGB is supported.")
        size = getattr(patch_embed, "img_size", None) or config["input_size"][1:]
        if size[0] != size[1]:
            raise ModelError(
                f"{self.architecture} takes {size[0]} x {size[1]} pixels; only square inputs are supported."
            )
        return Preprocessing(
            image_size=size[0],
            resize=math.floor(size[0] / config["crop_pct"]),
            resize_mode="squash" if config["crop_mode"] == "squash" else "shortest",
            interpolation=config["interpolation"],
            mean=tuple(config["mean"]),
            std=tuple(config["std"]),
        )

    @property
    def library_class_names(self) -> tuple[str, ...] | None:
        names = self._config.get("label_names")
        if isinstance(names, dict):
            names = [names[key] for key in sorted(names, key=int)]
        if not names and self.num_classes >= 1000:
            subset = infer_imagenet_subset(self.model)
            info: Any = ImageNetInfo(subset) if subset else None
            names = info and info.label_names()
        return tuple(names) if names and len(names) == self.num_classes else None

    def features(self, images: Float[Tensor, "B 3 S S"]) -> Float[Tensor, "N D"]:
        return as_tensor(self._timm.forward_head(self._timm.forward_features(images), pre_logits=True))

    @property
    def num_classes(self) -> int:
        return int(self._timm.num_classes)

    def logits(self, images: Float[Tensor, "B 3 S S"]) -> Float[Tensor, "N K"]:
        if not self.num_classes:
            raise ModelError(f"{self.architecture} has no classifier of its own; fit one (--head refit).")
        return as_tensor(self.model(images))

    def with_classifier(
        self, weight: Float[Tensor, "K D"], bias: Float[Tensor, " K"], classes: Sequence[str]
    ) -> nn.Module:
        model: Any = sharing_copy(self.model)
        model.reset_classifier(len(classes))
        for head in (model.head, model.head_dist) if hasattr(model, "head_dist") else (model.head,):
            head.weight.data.copy_(weight)
            head.bias.data.copy_(bias)
        model._model_args = {**getattr(model, "_model_args", {}), "num_classes": len(classes)}
        model.serpette_origin = self.origin._replace(classes=tuple(classes))
        return model  # type: ignore[no-any-return]

    def write_stock(self, folder: Path) -> None:
        self._check_buildable()
        names = self.class_names
        preprocessing = self.preprocessing
        data_config = {
            "input_size": (3, preprocessing.image_size, preprocessing.image_size),
            "crop_pct": crop_pct(preprocessing),
            "crop_mode": "squash" if preprocessing.resize_mode == "squash" else "center",
            "interpolation": preprocessing.interpolation,
            "mean": preprocessing.mean,
            "std": preprocessing.std,
        }
        config_file = folder / "config.json"
        save_config_for_hf(
            self.model,
            str(config_file),
            model_config={"label_names": list(names)} if names and len(names) == self.num_classes else None,
            model_args={"depth": len(self.blocks)},
            data_config=data_config,
        )
        config = json.loads(config_file.read_text())
        # transformers' TimmWrapper passes num_classes itself and fails where model_args names it once more.
        config["model_args"].pop("num_classes", None)
        config_file.write_text(json.dumps(config, indent=2) + "\n")
        write_weights(self.model, folder)

    def _check_buildable(self) -> None:
        if not is_model(self.architecture):
            raise SaveError(
                f"timm cannot build a {self.architecture} by name, so nobody could load what is saved; make the model "
                "with timm.create_model."
            )

    def blueprint(self) -> Mapping[str, Any]:
        self._check_buildable()
        arguments = {**get_model_args(self.model), "depth": len(self.blocks), "num_classes": self.num_classes}
        config = {k: v for k, v in self._config.items() if k not in {*FETCHING, "state_dict"}}
        return {"architecture": self.architecture, "arguments": arguments, "pretrained_cfg": config}

    @classmethod
    def from_blueprint(cls, blueprint: Mapping[str, Any]) -> nn.Module:
        name = blueprint["architecture"]
        if not is_model(name):
            raise ModelError(f"timm {timm.__version__} has no architecture {name!r}; install a version that has it.")
        config = {k: tuple(v) if isinstance(v, list) else v for k, v in blueprint["pretrained_cfg"].items()}
        fetching = FETCHING & {*blueprint["arguments"], *config}
        if fetching:  # nobody's manifest makes this machine open files or addresses of its choice
            raise ModelError(
                f"the blueprint asks timm for {min(fetching)}, which serpette never writes; save it again."
            )
        return timm.create_model(name, pretrained_cfg_overlay=config, **blueprint["arguments"])


def load_timm(name: str, *, image_size: int | None = None, random_weights: bool = False, **arguments: Any) -> nn.Module:
    """Build a timm model by any name that `timm.create_model` takes, with its pretrained weights.

    `arguments` go to `timm.create_model`.

    Raises:
        ModelError: timm has no such model, or its weights cannot be read.
    """
    plain = name.rpartition("/")[2].partition(".")[0]
    if not name.startswith(("hf-hub:", "local-dir:")) and not is_model(plain):
        close = difflib.get_close_matches(plain, timm.list_models(), n=3)
        hint = f"did you mean {', '.join(close)}?" if close else "see timm.list_models()."
        raise ModelError(f"timm has no model {name!r}; {hint}")
    if image_size is not None:
        arguments["img_size"] = image_size
    try:
        with silent("timm", "huggingface_hub"):
            model = timm.create_model(name, pretrained=not random_weights, **arguments)
    except Exception as error:  # every library below timm has its own exceptions
        raise ModelError(f"timm cannot load {name!r}: {one_line(error)}") from error
    stated = (getattr(model, "pretrained_cfg", None) or {}).get("num_classes")
    if not random_weights and stated not in (None, model.num_classes):
        raise ModelError(
            f"the config.json of {name!r} speaks of {stated} and of {model.num_classes} classes; timm would then fill "
            "whatever its weights lack with random numbers. Save the model again."
        )
    return model.eval()


def crop_pct(preprocessing: Preprocessing) -> float:
    """The shortest decimal fraction from which timm's `floor(image_size / crop_pct)` makes the same resize."""
    side, resize = preprocessing.image_size, preprocessing.resize
    fractions = (
        (math.floor(side / resize * 10.0**digits) - less) / 10.0**digits for digits in range(1, 16) for less in (0, 1)
    )
    return next(fraction for fraction in fractions if fraction > 0 and math.floor(side / fraction) == resize)


def resized_timm(model: nn.Module, image_size: int) -> nn.Module:
    """A copy of a timm model for another input size, its position embeddings interpolated by timm.

    Raises:
        ModelError: the model cannot change its input size, or `image_size` is not a multiple of its patch size.
    """
    resized: Any = sharing_copy(model)
    try:
        resized.set_input_size(img_size=(image_size, image_size))
    except (AttributeError, AssertionError, RuntimeError) as error:
        raise ModelError(f"{type(model).__name__} cannot take {image_size} px images: {error}.") from error
    resized._model_args = {**getattr(model, "_model_args", {}), "img_size": image_size}
    resized.serpette_origin = TimmAdapter(resized).origin._replace(preprocessing=None)
    return resized  # type: ignore[no-any-return]
