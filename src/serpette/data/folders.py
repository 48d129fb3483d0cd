"""Folders as datasets: `train/cat/1.jpg`, or `cat/1.jpg` without splits. Folder names are class names."""

from collections.abc import Sequence
from pathlib import Path

from serpette.data.listing import UNSPLIT, Entry, Listing
from serpette.data.sources import FileSource
from serpette.data.splits import canonical
from serpette.data.tree import Tree, walk
from serpette.errors import DataError

Names = tuple[str, ...]  # of folders, and of the file at the end


def read_folder(root: Path, class_level: int | None) -> Listing:
    """List a folder of class folders, or of train/val/test folders that hold class folders.

    Args:
        root: the folder.
        class_level: which folder names the class, counted from 1 below `root` or below the split's folder; None takes
            the first if every class folder holds images itself.

    Raises:
        DataError: no images, no class folders, no training images, or two ways to read the folders.
    """
    tree = walk(root)
    if not tree.images:
        raise DataError(f"{root} holds no images; expected a folder per class, such as {root / 'cat' / '1.jpg'}.")
    bases = _split_folders(root, tree) or {UNSPLIT: ()}
    level = class_level or _only_reading(root, tree, list(bases.values()))
    listing = Listing(
        name=root.resolve().name or str(root),
        layout="class folders" if UNSPLIT in bases else f"folder with {'/'.join(bases)}",
        source=FileSource(root),
        splits={
            split: [
                Entry("/".join(names), names[len(base) + level - 1]) for names in _labelled(tree.images, base, level)
            ]
            for split, base in bases.items()
        },
        classes={
            names[-1]
            for split, base in bases.items()
            if split in (UNSPLIT, "train")
            for names in tree.folders
            if _is_below(names, base) and len(names) == len(base) + level
        },
    )
    used = {entry.path for entries in listing.splits.values() for entry in entries}
    if not used:
        raise DataError(_no_class_folders(root, tree))
    unused = ["/".join(names) for names in tree.images if "/".join(names) not in used]
    listing.notes += _count(unused, "image outside the class folders", "images outside the class folders")
    others = ["/".join(names) for names in tree.others]
    listing.notes += _count(others, "file that is not an image", "files that are not images")
    return listing


def _split_folders(root: Path, tree: Tree) -> dict[str, Names]:
    """The folders of the splits by canonical name; empty if the folders of `root` are classes.

    A class may be called "train" too. Its folder is a split's if it holds class folders or lies beside another split's.
    """
    top = [names for names in tree.folders if len(names) == 1]
    named = [(split, names) for names in top if (split := canonical(names[0]))]
    holds_classes = {names[:1] for names in tree.images if len(names) > 2}
    holds_train = any(split == "train" and (names in holds_classes or len(named) > 1) for split, names in named)
    if not holds_train and len(named) < len(top):
        return {}
    bases: dict[str, Names] = {}
    for split, names in named:
        if split in bases:
            raise DataError(f"{root} holds both {bases[split][0]} and {names[0]}; expected one folder for {split}.")
        bases[split] = names
    if bases and "train" not in bases:
        raise DataError(f"{root} holds {', '.join(sorted(bases))} but no train folder; expected train and its classes.")
    return {split: bases[split] for split in ("train", "val", "test") if split in bases}


def _labelled(images: Sequence[Names], base: Names, level: int) -> list[Names]:
    found = [names for names in images if _is_below(names, base) and len(names) > len(base) + level]
    return sorted(found, key=lambda names: (names[len(base) + level - 1], names))


def _is_below(names: Names, base: Names) -> bool:
    return names[: len(base)] == base


def _only_reading(root: Path, tree: Tree, bases: Sequence[Names]) -> int:
    below = [names[len(base) :] for base in bases for names in tree.images if _is_below(names, base)]
    holding_images = {names[0] for names in below if len(names) == 2}
    nested = [names for names in below if len(names) > 2 and names[0] not in holding_images]
    if nested:
        outer = _some({names[0] for names in below if len(names) > 1})
        inner = _some({names[1] for names in below if len(names) > 2})
        raise DataError(
            f"the class folders of {root} can be read in two ways: the classes are {outer} (pass --class-level 1), "
            f"or they are {inner} (pass --class-level 2)."
        )
    return 1


def _no_class_folders(root: Path, tree: Tree) -> str:
    tables = [names[-1] for names in tree.others if names[-1].lower().endswith((".csv", ".parquet"))]
    hint = f" Or pass {tables[0]}, if it lists path and label." if tables else ""
    return f"{root} holds images but no folders that name their classes; expected {root / 'cat' / '1.jpg'}.{hint}"


def _some(names: set[str], most: int = 4) -> str:
    shown = sorted(names)[:most]
    return ", ".join(shown) + (", ..." if len(names) > most else "")


def _count(paths: Sequence[str], one: str, many: str) -> list[str]:
    if not paths:
        return []
    shown = ", ".join(paths[:3]) + (", ..." if len(paths) > 3 else "")
    return [f"{len(paths)} {one if len(paths) == 1 else many} ignored: {shown}"]
