"""Load a model by its name, in every form that serpette, timm or transformers writes."""

import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import nn

from serpette.errors import ModelError, SerpetteError
from serpette.files import hash_of
from serpette.models.base import Adapter, Origin, RemainingBranch, adapt, one_line, sharing_copy
from serpette.models.runtime import pick_device, pick_dtype, placement
from serpette.models.weights import read_weights
from serpette.records import MANIFEST, Pruning

NAMES = "`demo`, `timm:NAME`, `hf:REPOSITORY` or a folder saved by timm, transformers or serpette"


def load(
    model: str | os.PathLike[str],
    *,
    image_size: int | None = None,
    device: str | None = "cpu",
    dtype: str = "fp32",
    random_weights: bool = False,
) -> nn.Module:
    """Load a model in evaluation mode.

    Args:
        model: `demo`; `timm:NAME` for anything that `timm.create_model` takes; `hf:REPO_OR_DIR`; or a folder.
        image_size: side of the square input in pixels, if not the model's own; the library interpolates the position
            embeddings.
        device: "cpu", "cuda", "cuda:1", "mps"; "auto" or `None` takes a GPU if there is one.
        dtype: "fp32", "bf16" or "fp16".
        random_weights: build the architecture alone, with weights of no meaning.

    Raises:
        ModelError: there is no such model, or what is there cannot be read.
    """
    target, precision = pick_device(device), pick_dtype(dtype)
    name = os.fspath(model)
    loaded = _by_name(name, image_size, random_weights)
    adapter = adapt(loaded)
    check_patches(adapter, image_size)
    origin = adapter.origin
    base = origin.base or (str(_path(name).resolve()) if _path(name).is_dir() else name)
    loaded.serpette_origin = origin._replace(name=name, base=base)  # type: ignore[assignment]
    return loaded.to(target, precision).eval()


def as_module(
    model: str | os.PathLike[str] | nn.Module,
    *,
    image_size: int | None = None,
    device: str | None = None,
    dtype: str | None = None,
    random_weights: bool = False,
) -> nn.Module:
    """A module for whatever names one: strings and paths are loaded; a module is taken as it is, or a changed copy.

    Raises:
        ModelError: see `load`.
    """
    if not isinstance(model, nn.Module):
        return load(model, image_size=image_size, device=device, dtype=dtype or "fp32", random_weights=random_weights)
    module = adapt(model).model
    if image_size not in (None, adapt(module).preprocessing.image_size):
        module = _resized(module, int(image_size or 0))
    here = placement(module)
    wanted = (pick_device(device) if device else here[0], pick_dtype(dtype) if dtype else here[1])
    return module if wanted == here else sharing_copy(module).to(*wanted)


def load_stock(folder: Path, library: str, image_size: int | None = None, random_weights: bool = False) -> nn.Module:
    """Load a folder in the format of timm or transformers."""
    if library == "timm":
        from serpette.models.timm import load_timm

        return load_timm(f"local-dir:{folder}", image_size=image_size, random_weights=random_weights)
    from serpette.models.transformers import load_transformers

    return load_transformers(str(folder), image_size=image_size, random_weights=random_weights)


def read_folder(folder: Path, image_size: int | None = None, random_weights: bool = False) -> nn.Module:
    """Load a folder that serpette wrote.

    Raises:
        ModelError: a file is missing, truncated or changed, or the weights do not fit.
    """
    manifest = Pruning.load(folder / MANIFEST)
    if not random_weights:
        check_files(folder, manifest)
    if manifest.form == "serpette":
        try:
            model = _from_blueprint(folder, manifest, random_weights)
        except SerpetteError:
            raise
        except Exception as error:  # an edited manifest can go wrong in every way
            raise ModelError(f"{folder} does not hold what its {MANIFEST} says: {one_line(error)}") from error
        if image_size not in (None, manifest.preprocessing.image_size):
            raise ModelError(
                f"{folder} was saved for {manifest.preprocessing.image_size} px; prune again for {image_size} px."
            )
        preprocessing = manifest.preprocessing
    else:
        model = load_stock(folder, manifest.form, image_size, random_weights)
        preprocessing = adapt(model).preprocessing if image_size else manifest.preprocessing
    model.serpette_origin = Origin(  # type: ignore[assignment]
        name=str(folder),
        base=manifest.base if manifest.plan.sites else str(folder),
        plan=manifest.plan,
        preprocessing=preprocessing,
        classes=manifest.classes,
    )
    return model


def check_files(folder: Path, manifest: Pruning) -> None:
    """Make sure that every file that the manifest lists is there, byte for byte.

    Raises:
        ModelError: one is missing or was changed.
    """
    for name, expected in manifest.files.items():
        file = folder / Path(name).name
        if not file.is_file():
            raise ModelError(f"{folder} is incomplete: {name} is missing; copy the whole folder or save it again.")
        if hash_of(file) != expected:
            raise ModelError(f"{file} was changed or cut off since it was saved; save the model again.")


def _from_blueprint(folder: Path, manifest: Pruning, random_weights: bool) -> nn.Module:
    if manifest.library == "timm":
        from serpette.models.timm import TimmAdapter as Library
    else:
        from serpette.models.transformers import TransformersAdapter as Library  # type: ignore[assignment]
    model = Library.from_blueprint(manifest.blueprint)
    adapter = adapt(model)
    blocks = list(adapter.blocks)
    for position, part in manifest.half_blocks.items():
        assert part != "block"
        blocks[position] = RemainingBranch(blocks[position], adapter.branches(blocks[position]), part)
    adapter.replace_blocks(blocks)
    if not random_weights:
        model.load_state_dict(read_weights(folder), assign=True)
    return model.eval()


def check_patches(adapter: Adapter, image_size: int | None) -> None:
    """Make sure that `image_size`, if one was asked for, is a whole number of patches.

    Raises:
        ModelError: it is not, so that the library would cut pixels off.
    """
    patch = adapter.patch_size
    if image_size and image_size % patch:
        below, above = image_size // patch * patch, (image_size // patch + 1) * patch
        sizes = f"{below} or {above}" if below else f"{above}"
        raise ModelError(f"{image_size} px are no whole number of patches of {patch} px; ask for {sizes}.")


def _path(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # `~somebody` that is nobody here
        return Path(name)


def _by_name(name: str, image_size: int | None, random_weights: bool) -> nn.Module:
    if name == "demo":
        return load_stock(Path(str(files("serpette") / "demo")), "timm", image_size, random_weights)
    scheme, _, rest = name.partition(":")
    if scheme == "timm" and rest and not rest.startswith("local-dir:"):
        from serpette.models.timm import load_timm

        return load_timm(rest, image_size=image_size, random_weights=random_weights)
    if scheme == "hf" and rest and not _path(rest).is_dir():
        from serpette.models.transformers import load_transformers

        return load_transformers(rest, image_size=image_size, random_weights=random_weights)
    folder = _path(rest.removeprefix("local-dir:") if scheme in ("timm", "hf") else name)
    if not folder.is_dir():
        raise ModelError(f"there is no model {name!r}; expected {NAMES}.")
    if (folder / MANIFEST).is_file():
        return read_folder(folder, image_size, random_weights)
    return load_stock(folder, library_of(folder), image_size, random_weights)


def library_of(folder: Path) -> str:
    """Which library wrote the `config.json` of a folder.

    Raises:
        ModelError: there is none, or neither library did.
    """
    try:
        config: Any = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder} has no readable config.json; expected {NAMES}.") from error
    if (
        isinstance(config, dict)
        and "architecture" in config
        and config.get("model_type", "timm_wrapper") == "timm_wrapper"
    ):
        return "timm"
    if isinstance(config, dict) and "model_type" in config:
        return "transformers"
    raise ModelError(f"{folder}/config.json names neither a timm `architecture` nor a transformers `model_type`.")


def _resized(module: nn.Module, image_size: int) -> nn.Module:
    adapter = adapt(module)
    check_patches(adapter, image_size)
    if adapter.library == "timm":
        from serpette.models.timm import resized_timm

        return resized_timm(module, image_size)
    from serpette.models.transformers import resized_preprocessing, resized_transformers

    resized: nn.Module = resized_transformers(sharing_copy(module), image_size)
    preprocessing = resized_preprocessing(adapter.preprocessing, image_size)
    resized.serpette_origin = adapter.origin._replace(preprocessing=preprocessing)  # type: ignore[assignment]
    return resized.train(module.training)
