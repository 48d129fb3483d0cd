"""Writing files so that an interrupted run leaves either the old file or the new one, never half of it."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serpette.errors import SerpetteError


def write_text(path: Path, text: str) -> Path:
    """Write `text` in UTF-8; see `write_bytes`."""
    return write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> Path:
    """Write `content` to a temporary file beside `path`, then rename it.

    Raises:
        SerpetteError: the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SerpetteError(f"cannot write {path} ({error.strerror}); choose another place.") from error
    return path


def check_writable(folder: Path) -> None:
    """Make `folder` if it is not there, and make sure that files can be written to it.

    Raises:
        SerpetteError: they cannot; better now than after an hour of work.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SerpetteError(f"cannot write to {folder} ({error.strerror}); choose another folder.") from error


@contextmanager
def new_folder(path: Path, marker: str) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` when the block ends without an error.

    An old folder at `path` is replaced only if it is empty or holds `marker`, the sign that serpette wrote it.

    Raises:
        SerpetteError: `path` is a file or somebody else's folder, or cannot be written.
    """
    try:
        path = path.resolve()  # a link stays, and what it leads to is replaced
        check_replaceable(path, marker)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            os.chmod(temporary, 0o777 & ~_umask())
            yield temporary
            for file in temporary.iterdir():
                os.chmod(file, 0o666 & ~_umask())  # safetensors writes for the owner alone
            _put_in_place(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise SerpetteError(f"cannot write {path} ({error.strerror or error}); choose another place.") from error


def _put_in_place(new: Path, path: Path) -> None:
    """Rename `new` to `path`; the folder that is there moves aside first, and back if that fails."""
    if not path.exists():
        new.rename(path)
        return
    old = path.rename(new.with_name(f"{new.name}.old"))
    try:
        new.rename(path)
    except BaseException:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def check_replaceable(path: Path, marker: str) -> None:
    """Make sure that `path` is free, empty, or holds `marker` and the `files` that this JSON file lists, and no others.

    Raises:
        SerpetteError: it is a file, or somebody else's folder.
    """
    if path.exists() and not path.is_dir():
        raise SerpetteError(f"{path} is a file; expected the name of a folder to write.")
    others = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    if not others:
        return
    try:
        ours = {marker, *json.loads((path / marker).read_bytes())["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        raise SerpetteError(f"{path} is not empty and was not written by serpette; choose another folder.") from None
    if others - ours:
        raise SerpetteError(f"{path} also holds {min(others - ours)}, which is not serpette's; choose another folder.")


def hash_of(file: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
