"""Which files a folder holds, hidden ones left out and links followed without going round in circles."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from serpette.data.opening import image_extensions
from serpette.errors import DataError

_CLUTTER = {"__macosx", "thumbs.db", "desktop.ini", "@eadir"}  # left behind by operating systems; lower case


@dataclass
class Tree:
    """Everything below a folder, as tuples of names from that folder downwards, sorted by code point."""

    images: list[tuple[str, ...]] = field(default_factory=list)
    others: list[tuple[str, ...]] = field(default_factory=list)
    folders: list[tuple[str, ...]] = field(default_factory=list)


def walk(root: Path) -> Tree:
    """List the images, the other files and the folders below `root`.

    Raises:
        DataError: a folder cannot be read, or a name is not Unicode.
    """
    tree = Tree()
    _walk(str(root), (), frozenset(), tree)
    return tree


def _walk(folder: str, names: tuple[str, ...], above: frozenset[tuple[int, int]], tree: Tree) -> None:
    try:
        status = os.stat(folder)
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"cannot read the folder {folder} ({error.strerror}); check its permissions.") from error
    here = (status.st_dev, status.st_ino)
    if here in above:  # a link to a folder that contains it
        return
    for entry in entries:
        name = entry.name
        if name.startswith(".") or name.lower() in _CLUTTER:
            continue
        if not _is_unicode(name):  # it could not be written into a record
            raise DataError(f"the name of {entry.path!a} is not UTF-8; rename it.")
        path = (*names, name)
        if os.path.isdir(entry.path):
            tree.folders.append(path)
            _walk(entry.path, path, above | {here}, tree)
        elif _extension(name) in image_extensions() and (os.path.isfile(entry.path) or entry.is_symlink()):
            tree.images.append(path)  # a broken link too: it is reported when it cannot be read
        else:
            tree.others.append(path)


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _extension(name: str) -> str:
    return os.path.splitext(name)[1].lower()
