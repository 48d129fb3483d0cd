"""The identity of images: hashes of what is stored, so that equal numbers mean equal images wherever they lie."""

import hashlib
from collections.abc import Iterable

import numpy as np
from jaxtyping import Shaped

from serpette.data.opening import Raw


def content_hash(raw: Raw) -> str:
    """SHA-256 of stored bytes, or of an array's type, shape and values, as hexadecimal digits."""
    if isinstance(raw, np.ndarray):
        return array_hash(raw)
    return hashlib.sha256(raw).hexdigest()


def array_hash(array: Shaped[np.ndarray, "..."]) -> str:
    """SHA-256 of an array's type, shape and values, as hexadecimal digits."""
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def fingerprint(images: Iterable[tuple[str, str]]) -> str:
    """One hash over (content hash, name of the class) in order: SHA-256, first 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for content, label in images:
        digest.update(f"{content} {label}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]
