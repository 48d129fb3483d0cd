"""What the rest of serpette may ask of a model, whatever library it comes from.

Shapes: B images, T tokens (prefix tokens first), C channels, D features of the classifier, K classes, S pixels a side;
N is B, unless another stream was put in place of the images' own (serpette.evaluation.trunk).
"""

import copy
import logging
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from serpette.errors import ModelError
from serpette.records import Plan, Preprocessing, Site


class Branches(NamedTuple):
    """The children of a block that make up its two residual branches, in the order in which they are applied.

    The stream between the branches is the input of the first child of `mlp`; tap it there, never recompute it.
    `mixer` is the child of `attention` that gets the other arguments of the block (masks, position embeddings).
    """

    attention: tuple[str, ...]
    mlp: tuple[str, ...]
    mixer: str = "attn"


class RemainingBranch(nn.Module):
    """What is left of a block whose other branch was dropped: x + branch(x).

    The children keep their names, so that their keys in a state dict stay the same. A dropped branch is nowhere: not an
    identity, which would add norm(x) to the stream.
    """

    def __init__(self, block: nn.Module, branches: Branches, part: Literal["attention", "mlp"]) -> None:
        super().__init__()
        self.branches = Branches(**{"attention": (), "mlp": (), part: getattr(branches, part)}, mixer=branches.mixer)
        for name in (*self.branches.attention, *self.branches.mlp):
            self.add_module(name, getattr(block, name))
        self.train(block.training)

    def forward(self, hidden_states: Float[Tensor, "B T C"], *args: Any, **kwargs: Any) -> Float[Tensor, "B T C"]:
        """Apply the branch to the stream; other arguments go to the attention, as they do in the whole block."""
        x = hidden_states
        for name, child in self.named_children():
            x = stream_out(child(x, *args, **kwargs) if name == self.branches.mixer else child(x))
        return hidden_states + x


class Origin(NamedTuple):
    """Where a module came from: carried by the module as `serpette_origin`, so that saving and records can name it.

    `name` is the string that was loaded, `base` the dense model behind it, `plan` what has been removed from that,
    `preprocessing` an override of the model's own, `classes` the class names of a head that serpette fitted or that the
    folder stated.
    """

    name: str
    base: str | None = None
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

    @property
    @abstractmethod
    def patch_size(self) -> int:
        """Side of a patch in pixels."""

    @abstractmethod
    def branches(self, block: nn.Module) -> Branches:
        """The residual branches of one block.

        Raises:
            ModelError: the block is of a class that no family describes.
        """

    @abstractmethod
    def replace_blocks(self, blocks: Sequence[nn.Module]) -> None:
        """Make the model run `blocks` and rebuild its configuration, in place: only for serpette's own copies."""

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
    def features(self, images: Float[Tensor, "B 3 S S"]) -> Float[Tensor, "N D"]:
        """What the library's classification class feeds its classifier."""

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """Outputs of the model's own classifier, 0 where it has none."""

    @abstractmethod
    def logits(self, images: Float[Tensor, "B 3 S S"]) -> Float[Tensor, "N K"]:
        """The output of the model's own classifier.

        Raises:
            ModelError: the model has none.
        """

    @abstractmethod
    def with_classifier(
        self, weight: Float[Tensor, "K D"], bias: Float[Tensor, " K"], classes: Sequence[str]
    ) -> nn.Module:
        """A new model of the library's classification class, sharing the backbone, with this linear head."""

    # How it is stored

    @abstractmethod
    def write_stock(self, folder: Path) -> None:
        """Write the library's own files; only for a model of which every block is whole."""

    @abstractmethod
    def blueprint(self) -> Mapping[str, Any]:
        """JSON from which `from_blueprint` builds this architecture, with as many whole blocks as the model has."""

    @classmethod
    @abstractmethod
    def from_blueprint(cls, blueprint: Mapping[str, Any]) -> nn.Module:
        """A model with the architecture of `blueprint` and weights of no meaning.

        Raises:
            ModelError: the installed library does not know the architecture.
        """

    # Shared by all families

    @property
    def half_blocks(self) -> dict[int, RemainingBranch]:
        """The blocks of which only one branch is left, by position."""
        return {i: block for i, block in enumerate(self.blocks) if isinstance(block, RemainingBranch)}

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
    return as_tensor(output[0] if isinstance(output, tuple) else output)


def as_tensor(output: Any) -> Tensor:
    """What an untyped library returned, known to be a tensor."""
    assert isinstance(output, Tensor), f"expected a tensor, found {type(output).__name__}"
    return output


def one_line(error: Exception) -> str:
    """What an exception of another library says, on one line that a person can read."""
    return textwrap.shorten(str(error) or repr(error), 300, placeholder=" ...")


@contextmanager
def silent(*loggers: str) -> Iterator[None]:
    """Only errors from the loggers of other libraries; what matters in their warnings is checked instead."""
    levels = {name: logging.getLogger(name).level for name in loggers}
    for name in loggers:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def sharing_copy(model: nn.Module) -> nn.Module:
    """A copy of the module tree whose parameters and buffers have the storage of those of `model`.

    The tensors are new objects on old storage, so that `.to()` on the copy moves the copy alone.
    """
    with torch.inference_mode(False):  # tensors made in inference mode could never be trained
        memo: dict[int, Any] = {id(p): nn.Parameter(p.detach(), p.requires_grad) for p in model.parameters()}
        memo |= {id(buffer): buffer.detach() for buffer in model.buffers()}
        return copy.deepcopy(model, memo=memo)


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside `torch.compile`, `DataParallel` and `DistributedDataParallel` wrappers."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(inner, nn.Module):
            model = inner
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
    if not isinstance(model, nn.Module):
        raise ModelError(f"expected a torch module, found {model!r}; load it first: serpette.load({model!r}).")
    model = unwrapped(model)
    # The names of the base classes tell the library, so that the other one is not imported.
    packages = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    if "transformers" in packages:
        from serpette.models.transformers import TransformersAdapter

        return TransformersAdapter(model)
    if "timm" in packages:
        from serpette.models.timm import TimmAdapter

        return TimmAdapter(model)
    raise ModelError(
        f"{type(model).__name__} is not a supported vision transformer; expected a timm model with `blocks` and "
        "`forward_features`, or a transformers vision model."
    )
