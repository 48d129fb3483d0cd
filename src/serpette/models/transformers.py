"""Vision transformers of transformers: ViT, DeiT (distilled too), DINOv2 (registers too), CLIP's vision tower.

Shapes: B images, T tokens, C channels, D features, K classes, S pixels a side.
"""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
import transformers
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AutoConfig, AutoImageProcessor, CLIPConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING, MODEL_MAPPING
from transformers.utils import logging

from serpette.errors import ModelError, SaveError
from serpette.files import write_text
from serpette.models.base import Adapter, Branches, RemainingBranch, as_tensor, one_line, sharing_copy, silent
from serpette.models.weights import WEIGHTS_FILE, own_tensors, read_weights
from serpette.records import Preprocessing

_VIT = Branches(("layernorm_before", "attention", "dropout"), ("layernorm_after", "mlp", "dropout"), mixer="attention")
_DINO = Branches(
    ("norm1", "attention", "layer_scale1", "drop_path"),
    ("norm2", "mlp", "layer_scale2", "drop_path"),
    mixer="attention",
)
_CLIP = Branches(("layer_norm1", "self_attn"), ("layer_norm2", "mlp"), mixer="self_attn")

# Block class -> its residual branches (transformers/models/*/modeling_*.py)
BRANCHES = {
    "ViTLayer": _VIT,
    "DeiTLayer": _VIT,
    "Dinov2Layer": _DINO,
    "Dinov2WithRegistersLayer": _DINO,
    "CLIPEncoderLayer": _CLIP,
}
PROCESSOR_FILE = "preprocessor_config.json"
CLASSIFIERS = ("classifier", "cls_classifier", "distillation_classifier")
RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # PIL's numbers


class BlockList(NamedTuple):
    """Where a model keeps its blocks: `setattr(owner, name, ModuleList)`."""

    owner: Any
    name: str

    @property
    def blocks(self) -> nn.ModuleList:
        """The blocks."""
        return getattr(self.owner, self.name)  # type: ignore[no-any-return]


class TransformersAdapter(Adapter):
    """A vision model of transformers."""

    library: ClassVar[str] = "transformers"

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self._list = find_block_list(model)

    @property
    def _hf(self) -> Any:
        return self.model

    @property
    def family(self) -> str:
        return str(self._list.owner.config.model_type).removesuffix("_vision_model")

    @property
    def architecture(self) -> str:
        return type(self.model).__name__

    @property
    def blocks(self) -> tuple[nn.Module, ...]:
        return tuple(self._list.blocks)

    @property
    def patch_size(self) -> int:
        return _square(self._list.owner.config.patch_size)

    def branches(self, block: nn.Module) -> Branches:
        return block.branches if isinstance(block, RemainingBranch) else BRANCHES[type(block).__name__]

    def replace_blocks(self, blocks: Sequence[nn.Module]) -> None:
        setattr(self._list.owner, self._list.name, nn.ModuleList(blocks))
        replace_config(self._hf, self._list.owner.config, num_hidden_layers=len(blocks))

    @property
    def num_prefix_tokens(self) -> int:
        return {"deit": 2}.get(self.family, 1 + getattr(self._list.owner.config, "num_register_tokens", 0))

    def pool(self, stream: Float[Tensor, "B T C"]) -> Float[Tensor, "B D"]:
        cls, patches = stream[:, 0], stream[:, self.num_prefix_tokens :].mean(1)
        if self.family.startswith("dinov2"):
            return torch.cat([cls, patches], 1)
        if self.family == "clip":
            return patches
        return stream[:, :2].mean(1) if hasattr(self.model, "distillation_classifier") else cls

    @cached_property
    def library_preprocessing(self) -> Preprocessing:
        """What the processor class of this family does by default; `load_transformers` reads the model's own file."""
        defaults: dict[str, Any] = {"clip": transformers.CLIPImageProcessor, "deit": transformers.DeiTImageProcessor}
        fallback: Any = transformers.BitImageProcessor if "dinov2" in self.family else transformers.ViTImageProcessor
        processor = defaults.get(self.family, fallback)
        return preprocessing_of(processor(), image_size=_square(self._list.owner.config.image_size))

    @property
    def library_class_names(self) -> tuple[str, ...] | None:
        labels = getattr(self._hf.config, "id2label", None) or {}
        names = tuple(str(labels[i]) for i in sorted(labels))
        placeholders = all(re.fullmatch(r"LABEL_\d+", name) for name in names)
        return None if placeholders or len(names) != self.num_classes else names

    @cached_property
    def _classification_model(self) -> Any:
        """A copy of the library's classification class around the backbone; for a headless model, around all of it."""
        if any(hasattr(self.model, name) for name in CLASSIFIERS):
            return sharing_copy(self.model)
        backbone: Any = sharing_copy(getattr(self.model, "vision_model", self.model))
        config = backbone.config
        wrapper = (
            rebuilt(config) if config.model_type != "clip_vision_model" else CLIPConfig(vision_config=config.to_dict())
        )
        if type(wrapper) not in MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING:
            raise ModelError(f"transformers has no image classification class for {self.architecture}.")
        found: Any = MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING[type(wrapper)]
        with torch.device("meta"), torch.inference_mode(False):
            model = (found[0] if isinstance(found, tuple) else found)(wrapper)
        name = next(name for name, child in model.named_children() if isinstance(child, type(backbone)))
        if getattr(getattr(model, name), "pooler", None) is None and hasattr(backbone, "pooler"):
            backbone.pooler = None  # its output feeds no classifier, and its keys would be unexpected ones
        setattr(model, name, backbone)
        model.serpette_origin = self.origin
        return model.train(backbone.training)

    def _with_heads(self, head: nn.Module) -> Any:
        model = sharing_copy(self._classification_model)
        for name in CLASSIFIERS:
            if hasattr(model, name):
                setattr(model, name, copy.deepcopy(head))  # each its own: no tensor is saved under two names
        return model

    @cached_property
    def _feature_model(self) -> Any:
        # With an identity for a classifier, the "logits" are its input; the mean of two where there are two heads.
        return self._with_heads(nn.Identity()).eval()

    def features(self, images: Float[Tensor, "B 3 S S"]) -> Float[Tensor, "N D"]:
        return as_tensor(self._feature_model(pixel_values=images).logits)

    @property
    def num_classes(self) -> int:
        heads = (getattr(self.model, name, None) for name in CLASSIFIERS)
        return next((head.out_features for head in heads if isinstance(head, nn.Linear)), 0)

    def logits(self, images: Float[Tensor, "B 3 S S"]) -> Float[Tensor, "N K"]:
        if not self.num_classes:
            raise ModelError(f"{self.architecture} has no classifier of its own; fit one (--head refit).")
        return as_tensor(self._hf(pixel_values=images).logits)

    def with_classifier(
        self, weight: Float[Tensor, "K D"], bias: Float[Tensor, " K"], classes: Sequence[str]
    ) -> nn.Module:
        head = nn.Linear(weight.shape[1], weight.shape[0])
        head.weight.data.copy_(weight)
        head.bias.data.copy_(bias)
        parameter = next(self.model.parameters())
        model = self._with_heads(head.to(parameter.device, parameter.dtype))
        names = dict(enumerate(classes))
        replace_config(model, model.config, id2label=names, label2id={name: i for i, name in names.items()})
        model.num_labels = len(names)
        model.serpette_origin = self.origin._replace(classes=tuple(classes))
        return model  # type: ignore[no-any-return]

    def write_stock(self, folder: Path) -> None:
        stated: Any = sharing_copy(self.model)
        adapter = TransformersAdapter(stated)
        adapter.replace_blocks(adapter.blocks)  # its configuration counts the blocks, whoever removed the others
        with quiet():
            stated.save_pretrained(folder, state_dict=own_tensors(stated))
        if not (folder / WEIGHTS_FILE).is_file():
            raise SaveError(f"transformers wrote no {WEIGHTS_FILE} to {folder}; the model is split over several files.")
        write_image_processor(self.preprocessing, folder)

    def blueprint(self) -> Mapping[str, Any]:
        return {"class": self.architecture, "config": self._hf.config.to_diff_dict()}

    @classmethod
    def from_blueprint(cls, blueprint: Mapping[str, Any]) -> nn.Module:
        model_class = _class_named(blueprint["class"])
        return model_class(model_class.config_class.from_dict(dict(blueprint["config"])))  # type: ignore[no-any-return]


def find_block_list(model: nn.Module) -> BlockList:
    """The only list of known blocks in a model.

    Raises:
        ModelError: there is none, or more than one (a text tower beside the vision tower).
    """
    found = [
        (path, module)
        for path, module in model.named_modules()
        if isinstance(module, nn.ModuleList)
        and len(module)
        and all(isinstance(block, RemainingBranch) or type(block).__name__ in BRANCHES for block in module)
    ]
    if not found:
        raise ModelError(
            f"{type(model).__name__} is not a supported transformers model: looked for a list of {', '.join(BRANCHES)}."
        )
    if len(found) > 1:
        paths = ", ".join(path for path, _ in found)
        raise ModelError(f"{type(model).__name__} has several towers ({paths}); pass the vision tower alone.")
    parent, _, name = found[0][0].rpartition(".")
    return BlockList(model.get_submodule(parent), name)


def rebuilt(config: Any, **changes: Any) -> Any:
    """A new configuration with some values changed and everything that depends on depth derived again."""
    values = config.to_dict()
    for derived in ("stage_names", "out_features", "out_indices", "_out_features", "_out_indices"):
        values.pop(derived, None)
    if "id2label" in changes:
        values.pop("num_labels", None)
    new = type(config)(**{**values, **changes})
    new._attn_implementation = config._attn_implementation
    new.architectures = config.architectures
    return new


def replace_config(model: Any, old: Any, **changes: Any) -> None:
    """Put a rebuilt configuration wherever the modules of `model` refer to `old`."""
    new = rebuilt(old, **changes)
    if model.config is not old and getattr(model.config, "vision_config", None) is old:
        model.config.vision_config = new
    for module in model.modules():
        if getattr(module, "config", None) is old:
            module.config = new


def preprocessing_of(processor: Any, image_size: int | None = None) -> Preprocessing:
    """What an image processor does, with its resize scaled to `image_size` where one is given.

    Raises:
        ModelError: the processor does something else than resize, central crop and normalisation to a square.
    """
    settings = {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255}
    other = [f"{name} {getattr(processor, name)}" for name in settings if getattr(processor, name) != settings[name]]
    if other or processor.resample not in RESAMPLING:
        found = ", ".join([*other, f"resample {processor.resample}"])
        raise ModelError(f"{type(processor).__name__} is not supported with {found}.")
    size = dict(processor.size or {})
    if "shortest_edge" in size:
        mode, resize = "shortest", size["shortest_edge"]
    elif size.get("height") and size.get("height") == size.get("width"):
        mode, resize = "squash", size["height"]
    else:
        raise ModelError(
            f"{type(processor).__name__} resizes to {size}; only squares and shortest edges are supported."
        )
    crop = dict(processor.crop_size or {}) if getattr(processor, "do_center_crop", False) else {}
    side = crop.get("height", resize)
    if crop.get("width", side) != side or (mode == "shortest" and not crop):
        raise ModelError(f"{type(processor).__name__} does not make square inputs (size {size}, crop {crop}).")
    target = image_size or side
    normalises = getattr(processor, "do_normalize", True)
    return Preprocessing(
        image_size=target,
        resize=round(resize * target / side),
        resize_mode=mode,
        crop_margin="floor",
        interpolation=RESAMPLING[int(processor.resample)],
        mean=tuple(processor.image_mean) if normalises else (0.0, 0.0, 0.0),
        std=tuple(processor.image_std) if normalises else (1.0, 1.0, 1.0),
    )


def write_image_processor(preprocessing: Preprocessing, folder: Path) -> None:
    """Write the file with which AutoImageProcessor does what `preprocessing` says."""
    squash = preprocessing.resize_mode == "squash"
    side = {"height": preprocessing.image_size, "width": preprocessing.image_size}
    processor = transformers.BitImageProcessor(
        do_convert_rgb=True,
        do_resize=True,
        size=dict.fromkeys(("height", "width"), preprocessing.resize)
        if squash
        else {"shortest_edge": preprocessing.resize},
        resample={name: number for number, name in RESAMPLING.items()}[preprocessing.interpolation],
        do_center_crop=True,
        crop_size=side,
        do_rescale=True,
        rescale_factor=1 / 255,
        do_normalize=True,
        image_mean=list(preprocessing.mean),
        image_std=list(preprocessing.std),
    )
    write_text(folder / PROCESSOR_FILE, processor.to_json_string())


def load_transformers(name: str, *, image_size: int | None = None, random_weights: bool = False) -> nn.Module:
    """Build a transformers vision model from a repository or a folder, in fp32, with its classifier if it has one.

    Raises:
        ModelError: there is no such model, its weights do not fit its configuration, or no adapter describes it.
    """
    with quiet():
        try:
            config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        except Exception as error:  # OSError, ValueError, and those of the hub client
            raise ModelError(f"transformers cannot load {name!r}: {one_line(error)}") from error
        model_class = _model_class(config)
        if random_weights:
            model = model_class(config if isinstance(config, model_class.config_class) else config.vision_config)
        else:
            model = _with_weights(model_class, name)
        adapter = TransformersAdapter(model)
        preprocessing = _stated_preprocessing(name, image_size)
    if preprocessing is None:
        preprocessing = resized_preprocessing(adapter.library_preprocessing, image_size)
    if preprocessing.image_size != _square(adapter._list.owner.config.image_size):
        model = resized_transformers(model, preprocessing.image_size)
    model.serpette_origin = adapter.origin._replace(preprocessing=preprocessing)
    return model.eval()  # type: ignore[no-any-return]


def _stated_preprocessing(name: str, image_size: int | None) -> Preprocessing | None:
    """What the image processor of a repository or folder does; None if it has none.

    Raises:
        ModelError: it has one that cannot be read or followed.
    """
    processor: Any = AutoImageProcessor  # its methods carry no types
    try:
        return preprocessing_of(processor.from_pretrained(name, trust_remote_code=False), image_size)
    except ModelError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and not (Path(name) / PROCESSOR_FILE).exists():
            return None
        raise ModelError(f"the image processor of {name!r} cannot be used: {one_line(error)}") from error


def _with_weights(model_class: Any, name: str) -> Any:
    source: dict[str, Any] = {"pretrained_model_name_or_path": name}
    folder = Path(name)
    arguments = {"dtype": torch.float32, "output_loading_info": True, "ignore_mismatched_sizes": True}
    try:
        if (folder / WEIGHTS_FILE).is_file() and (state := _unwrapped_state(folder)):
            config = model_class.config_class.from_pretrained(name)
            source = {"pretrained_model_name_or_path": None, "config": config, "state_dict": state}
        model, info = model_class.from_pretrained(**source, **arguments)
        if info["missing_keys"] and all(key.startswith("pooler.") for key in info["missing_keys"]):
            model, info = model_class.from_pretrained(**source, **arguments, add_pooling_layer=False)
    except Exception as error:
        raise ModelError(f"transformers cannot load {name!r}: {one_line(error)}") from error
    model_list = find_block_list(model)
    path = next(path for path, module in model.named_modules() if module is model_list.blocks)
    strays = [key for key in info["unexpected_keys"] if path + "." in key and "text_model" not in key]
    wrong = [*info["missing_keys"], *strays, *(str(key[0]) for key in info["mismatched_keys"])]
    if wrong:
        raise ModelError(
            f"the weights in {name!r} do not fit its config.json ({len(wrong)} keys, such as {sorted(wrong)[0]}); it "
            "was probably pruned without its configuration, and transformers would fill the gaps with random weights."
        )
    return model


def _unwrapped_state(folder: Path) -> dict[str, Tensor] | None:
    """The weights of a folder if their names carry the prefix of a wrapper, else None."""
    from safetensors import safe_open

    with safe_open(folder / WEIGHTS_FILE, "pt") as file:
        first = next(iter(file.keys()), "")
    return read_weights(folder) if first.startswith(("module.", "_orig_mod.")) else None


def resized_transformers(model: Any, image_size: int) -> Any:
    """A copy for another input size, its position embeddings interpolated by the model's own method.

    DINOv2 interpolates in every forward pass; nothing is changed there.

    Raises:
        ModelError: `image_size` is smaller than a patch, or the model cannot interpolate.
    """
    owner = find_block_list(model).owner
    patch = _square(owner.config.patch_size)
    if image_size < patch:
        raise ModelError(
            f"{image_size} px images are smaller than one patch of {patch} px; ask for a larger --image-size."
        )
    embeddings = next((m for m in model.modules() if hasattr(m, "interpolate_pos_encoding")), None)
    if embeddings is None:
        raise ModelError(f"{type(model).__name__} cannot change its image size; leave --image-size out.")
    if "dinov2" in owner.config.model_type:
        return model
    clip = hasattr(embeddings, "position_embedding")
    table = embeddings.position_embedding.weight if clip else embeddings.position_embeddings[0]
    old_patches = (_square(owner.config.image_size) // patch) ** 2
    tokens = (image_size // patch) ** 2 + len(table) - old_patches
    with torch.no_grad():
        new = embeddings.interpolate_pos_encoding(table.new_zeros(1, tokens, table.shape[1]), image_size, image_size)
    state = model.state_dict()
    key = next(k for k in state if k.endswith("position_embedding.weight" if clip else "position_embeddings"))
    state[key] = new[0] if clip else new
    resized = sharing_copy(model)
    replace_config(resized, find_block_list(resized).owner.config, image_size=image_size)
    fresh = type(model)(resized.config, **({"add_pooling_layer": False} if getattr(model, "pooler", 0) is None else {}))
    fresh.load_state_dict(state)
    return fresh.to(table.device, table.dtype)


def _model_class(config: Any) -> Any:
    name = next(iter(config.architectures or ()), "")
    if "ForImageClassification" in name:
        return _class_named(name)
    if hasattr(config, "vision_config"):
        return transformers.CLIPVisionModel if config.model_type == "clip" else MODEL_MAPPING[type(config)]
    if type(config) not in MODEL_MAPPING:
        raise ModelError(f"transformers has no vision model for {config.model_type!r} configurations.")
    return MODEL_MAPPING[type(config)]


def _class_named(name: str) -> Any:
    found = getattr(transformers, name, None)
    if not (isinstance(found, type) and issubclass(found, PreTrainedModel)):
        raise ModelError(f"transformers {transformers.__version__} has no model class {name!r}.")
    return found


def resized_preprocessing(preprocessing: Preprocessing, image_size: int | None) -> Preprocessing:
    """The same preprocessing for another input size, its resize scaled along."""
    if image_size is None:
        return preprocessing
    resize = round(preprocessing.resize * image_size / preprocessing.image_size)
    return preprocessing.model_copy(update={"image_size": image_size, "resize": resize})


def _square(size: int | Sequence[int]) -> int:
    if isinstance(size, int):
        return size
    if size[0] != size[1]:
        raise ModelError(f"the model takes {size[0]} x {size[1]} pixels; only square inputs are supported.")
    return size[0]


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the loading reports and progress bars of transformers; what matters in them is checked instead."""
    log: Any = logging  # its functions carry no types
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        with silent("huggingface_hub"):
            yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()
