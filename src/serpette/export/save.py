"""Save a model so that it loads again with equal outputs: in its library's own format where that can say it all."""

import os
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn

from serpette.errors import ModelError, SaveError, SerpetteError
from serpette.export.load import load_stock, read_folder
from serpette.files import hash_of, new_folder
from serpette.models.base import Adapter, adapt, inference, one_line
from serpette.models.runtime import dtype_name, placement
from serpette.models.weights import write_weights
from serpette.records import MANIFEST, Plan, Pruning
from serpette.surgery.prune import kept_blocks

TOLERANCE = 1e-5  # of the largest output; equal kernels on equal weights differ by nothing at all


def save(model: nn.Module, path: str | os.PathLike[str]) -> Path:
    """Save `model` to the folder `path`, read it back and compare before calling it done.

    Models of whole blocks are written in the stock format of their library, others in serpette's own form, which only
    `serpette.load` reads. Nothing is left at `path` if anything goes wrong.

    Returns:
        The folder.

    Raises:
        SaveError: the saved model does not load, or not with equal outputs.
        SerpetteError: `path` cannot be written, or is somebody else's folder.
    """
    adapter = adapt(model)
    folder = Path(path)
    form = "serpette" if adapter.half_blocks else adapter.library
    with new_folder(folder, marker=MANIFEST) as temporary:
        try:
            write(adapter, form, temporary)
            check_equal(adapter, read_folder(temporary))
            if form != "serpette":
                check_equal(adapter, load_stock(temporary, adapter.library))
        except ModelError as error:
            reason = str(error).replace(str(temporary), str(folder))
            raise SaveError(f"{adapter.architecture} was saved but does not load again: {reason}") from error
        except (SerpetteError, OSError):
            raise
        except Exception as error:  # every library below has its own exceptions
            raise SaveError(f"{adapter.architecture} cannot be saved: {one_line(error)}") from error
    return folder


def write(adapter: Adapter, form: str, folder: Path) -> None:
    """Write the files of a model, and the manifest that lists them, to a new folder."""
    if form == "serpette":
        write_weights(adapter.model, folder)
    else:
        adapter.write_stock(folder)
    manifest_of(adapter, form, folder).save(folder / MANIFEST)


def manifest_of(adapter: Adapter, form: str, folder: Path) -> Pruning:
    """Describe a model, and the files in `folder` that hold it."""
    origin = adapter.origin
    plan = origin.plan or Plan(depth=len(adapter.blocks))
    depth = len(adapter.blocks) + len(plan.drop_blocks)
    return Pruning(
        form=form,
        library=adapter.library,
        base=origin.base or origin.name,
        plan=plan,
        kept=kept_blocks(depth, plan),
        half_blocks={i: "attention" if block.branches.attention else "mlp" for i, block in adapter.half_blocks.items()},
        blueprint=dict(adapter.blueprint()),
        preprocessing=adapter.preprocessing,
        classes=adapter.class_names,
        dtype=dtype_name(placement(adapter.model)[1]),
        files={file.name: hash_of(file) for file in sorted(folder.iterdir())},
        versions={name: version(name) for name in ("serpette", "torch", "timm", "transformers")},
    )


def check_equal(saved: Adapter, loaded_model: nn.Module) -> None:
    """Compare features and logits of two models on the same random images.

    Raises:
        SaveError: the outputs differ by more than `TOLERANCE` of the largest one.
    """
    device, dtype = placement(saved.model)
    loaded = adapt(loaded_model.to(device, dtype))
    side = saved.preprocessing.image_size
    images = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    with inference(saved.model), inference(loaded.model):
        pairs = [(saved.features(images), loaded.features(images))]
        if saved.num_classes:
            pairs.append((saved.logits(images), loaded.logits(images)))
    for expected, found in pairs:
        difference = (expected - found).abs().max().item()
        if not difference <= TOLERANCE * max(expected.abs().max().item(), 1.0):  # also catches NaN
            raise SaveError(
                f"{saved.architecture} was saved but loads with other outputs (difference {difference:.2g})."
            )
