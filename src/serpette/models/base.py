"""What the rest of serpette may ask of a model, whatever library it comes from.

Shapes: B images, T tokens (prefix tokens first), C channels, D features of the classifier, K classes, S pixels a side.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from serpette.errors import ModelError
from serpette.records import Plan, Preprocessing, Site


class Branches(NamedTuple):
    """The children of a block that make up its two residual branches, in the order in which they are applied.

    The stream between the branches is the input of the first child of `mlp`; tap it there, never recompute it.
    """

    attention: tuple[str, ...]
    mlp: tuple[str, ...]


class Origin(NamedTuple):
    """Where a module came from: carried by the module as `serpette_origin`, so that saving and records can name it.

    `name` is the string that was loaded, `plan` what has been removed from it, `preprocessing` an override of the
    model's own, `classes` the class names of a head that serpette fitted or that the folder stated.
    """

    name: str
    plan: Plan | None = None
    preprocessing: Preprocessing | None = None
    classes: tuple[str, ...] | None = None


class Adapter(ABC):
    """One model, seen through the few questions that serpette asks. The model is never changed."""

    library: ClassVar[str]

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    @property
    def origin(self) -> Origin:
        """Where the model came from; a module made elsewhere is named by its class."""
        found: Origin | None = getattr(self.model, "serpette_origin", None)
        return found or Origin(type(self.model).__name__)

    # What it is made of

    @property
    @abstractmethod
    def family(self) -> str:
        """The family that the blocks belong to, such as `vit`."""

    @property
    @abstractmethod
    def architecture(self) -> str:
        """The name by which the library builds this model."""

    @property
    @abstractmethod
    def blocks(self) -> tuple[nn.Module, ...]:
        """The residual blocks in the order in which they run."""

    @abstractmethod
    def branches(self, block: nn.Module) -> Branches:
        """The residual branches of one block.

        Raises:
            ModelError: the block is of a class that no family describes.
        """

    @abstractmethod
    def with_blocks(self, blocks: Sequence[nn.Module]) -> nn.Module:
        """A new model that runs `blocks` and shares every parameter with this one; configuration rebuilt to match."""

    @property
    @abstractmethod
    def num_prefix_tokens(self) -> int:
        """Tokens before the patches: CLS, distillation, registers."""

    @abstractmethod
    def pool(self, stream: Float[Tensor, "B T C"]) -> Float[Tensor, "B D"]:
        """The residual stream pooled as the classifier's input is (without the final norm)."""

    # What goes in and what comes out

    @property
    @abstractmethod
    def library_preprocessing(self) -> Preprocessing:
        """The preprocessing that the model's own configuration states."""

    @property
    def preprocessing(self) -> Preprocessing:
        """How images become inputs: the override that was loaded with the model, else the model's own."""
        return self.origin.preprocessing or self.library_preprocessing

    @property
    @abstractmethod
    def library_class_names(self) -> tuple[str, ...] | None:
        """The class names in the model's configuration, in the order of its logits."""

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The class names of the model's own head, `None` where they are not known."""
        return self.origin.classes or self.library_class_names

    @abstractmethod
    def features(self, images: Float[Tensor, "B 3 S S"]) -> Float[Tensor, "B D"]:
        """What the library's classification class feeds its classifier."""

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """Outputs of the model's own classifier, 0 where it has none."""

    @abstractmethod
    def logits(self, images: Float[Tensor, "B 3 S S"]) -> Float[Tensor, "B K"]:
        """The output of the model's own classifier.

        Raises:
            ModelError: the model has none.
        """

    @abstractmethod
    def with_classifier(
        self, weight: Float[Tensor, "K D"], bias: Float[Tensor, "K"], classes: Sequence[str]
    ) -> nn.Module:
        """A new model of the library's classification class, sharing the backbone, with this linear head."""

    # How it is stored

    @property
    @abstractmethod
    def stock_format_fits(self) -> bool:
        """Whether the library's own format can express the model as it is: no block lacks a branch."""

    @abstractmethod
    def write_stock(self, folder: Path) -> None:
        """Write the library's own files; only called where `stock_format_fits`."""

    @abstractmethod
    def blueprint(self) -> Mapping[str, Any]:
        """JSON from which `from_blueprint` builds the dense architecture of this model, without weights."""

    # Shared by all families

    def sites(self) -> tuple[Site, ...]:
        """Every removable site: all blocks, then all attention and all MLP branches that the model still has."""
        present = [(i, self.branches(block)) for i, block in enumerate(self.blocks)]
        return (
            *(Site(i, "block") for i, _ in present),
            *(Site(i, "attention") for i, branches in present if branches.attention),
            *(Site(i, "mlp") for i, branches in present if branches.mlp),
        )


def stream_in(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
    """The residual stream among the arguments of a block: the first one, by position or as `hidden_states`."""
    stream = args[0] if args else kwargs["hidden_states"]
    assert isinstance(stream, Tensor)
    return stream


def stream_out(output: Any) -> Tensor:
    """The residual stream in the output of a block or branch, which some libraries wrap in a tuple."""
    stream = output[0] if isinstance(output, tuple) else output
    assert isinstance(stream, Tensor)
    return stream


def sharing_copy(model: nn.Module) -> nn.Module:
    """A copy of the module tree whose parameters and buffers are those of `model`, not copies of them."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, memo=dict(shared))


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside `torch.compile`, `DataParallel` and `DistributedDataParallel` wrappers."""
    while True:
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            return model


@contextmanager
def inference(model: nn.Module) -> Iterator[None]:
    """Evaluation and inference mode; the training flag of every submodule is put back afterwards."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module, training in flags:
            module.training = training


def adapt(model: nn.Module) -> Adapter:
    """The adapter for a module of a supported family.

    Raises:
        ModelError: the module belongs to no supported family; says what was looked for.
    """
    model = unwrapped(model)
    package = type(model).__module__.partition(".")[0]
    if is_transformers_model(model):
        from serpette.models.transformers import TransformersAdapter

        return TransformersAdapter(model)
    if hasattr(model, "blocks") and hasattr(model, "forward_features"):
        from serpette.models.timm import TimmAdapter

        return TimmAdapter(model)
    raise ModelError(
        f"{type(model).__name__} (from {package}) is not a supported vision transformer; expected a timm model with "
        "`blocks` and `forward_features`, or a transformers vision model."
    )


def is_transformers_model(model: nn.Module) -> bool:
    """Whether a module is a transformers model, told by the names of its base classes so that nothing is imported."""
    return any(base.__module__ == "transformers.modeling_utils" for base in type(model).__mro__)
