"""Weights as files and as fingerprints; only safetensors, never a pickle."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

WEIGHTS_FILE = "model.safetensors"
WRAPPERS = ("_orig_mod.", "module.")  # torch.compile, DataParallel


def write_weights(model: nn.Module, folder: Path) -> None:
    """Write every parameter and buffer of `model`; tensors that share memory are written once each."""
    save_file(own_tensors(model), folder / WEIGHTS_FILE, metadata={"format": "pt"})


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The state dict of `model` with a copy of every tensor that is not alone and contiguous in its memory.

    safetensors refuses the others: modules that are used twice, tied weights, transposed views.
    """
    seen: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict().items():
        own = tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes
        if own and tensor.data_ptr() not in seen:
            tensors[name] = tensor
        else:
            tensors[name] = tensor.clone(memory_format=torch.contiguous_format)
        seen.add(tensor.data_ptr())
    return tensors


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder's weights file, without the prefixes that wrappers put before the names."""
    return without_wrappers(load_file(folder / WEIGHTS_FILE))


def without_wrappers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict with `module.` and `_orig_mod.` taken off wherever every key carries them."""
    cleaned = dict(state)
    while cleaned and (prefix := next((w for w in WRAPPERS if all(key.startswith(w) for key in cleaned)), None)):
        cleaned = {key.removeprefix(prefix): tensor for key, tensor in cleaned.items()}
    return cleaned


def weights_hash(model: nn.Module) -> str:
    """SHA-256 over the names, shapes, types and bytes of all parameters and buffers, first 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        if not tensor.is_meta:
            raw = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
            digest.update(raw.numpy().data)
    return digest.hexdigest()[:16]
