"""Tables as datasets: a CSV or Parquet file with the columns path, label and, if the split is given, split."""

import csv
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from serpette.data.listing import UNSPLIT, Entry, Listing
from serpette.data.sources import FileSource
from serpette.data.splits import SPLITS, canonical
from serpette.errors import DataError
from serpette.files import write_text

COLUMNS = ("path", "label", "split")


def read_manifest(path: Path) -> Listing:
    """List the images of a `.csv` or `.parquet` table; their paths are absolute or relative to the table's folder.

    Raises:
        DataError: not such a table, a column or a value is missing, a path occurs twice, an unknown split, or no
            training images.
    """
    columns = _parquet_columns(path) if path.suffix.lower() != ".csv" else _csv_columns(path)
    for name in ("path", "label"):
        if name not in columns:
            found = ", ".join(columns) or "none"
            raise DataError(f"{path} has no column {name!r} (found: {found}); expected path, label and maybe split.")
    splits: dict[str, list[Entry]] = {}
    first_row: dict[str, int] = {}
    names = columns.get("split", [UNSPLIT] * len(columns["path"]))
    for row, (image, label, name) in enumerate(zip(columns["path"], columns["label"], names, strict=True), start=1):
        if not image or not label:
            raise DataError(f"{path}, row {row}: the {'label' if image else 'path'} is empty; fill it in.")
        if image in first_row:
            raise DataError(f"{path}, row {row}: {image} is already in row {first_row[image]}; list each image once.")
        split = canonical(name) if "split" in columns else UNSPLIT
        if split is None:
            raise DataError(f"{path}, row {row}: unknown split {name!r}; expected one of {', '.join(SPLITS)}.")
        first_row[image] = row
        splits.setdefault(split, []).append(Entry(image, label))
    if not splits:
        raise DataError(f"{path} has no rows; expected one per image.")
    if UNSPLIT not in splits and "train" not in splits:
        raise DataError(f"{path} has no images in the split 'train' (found: {', '.join(splits)}); add some.")
    return Listing(path.stem, "manifest", FileSource(path.parent), splits)


def write_manifest(path: Path, rows: Iterable[tuple[str, str, str]]) -> Path:
    """Write (path, label, split) rows as CSV; files below the CSV's folder by relative paths, so that both can move.

    Raises:
        SerpetteError: `path` cannot be written.
    """
    folder = str(path.parent.absolute()) + os.sep
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows((image.removeprefix(folder), label, split) for image, label, split in rows)
    return write_text(path, text.getvalue())


def _csv_columns(path: Path) -> dict[str, list[str]]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            table = [row for row in csv.reader(file, strict=True) if row]
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}); check its permissions.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8 ({error}); save it as one.") from error
    header, rows = (table[0], table[1:]) if table else ([], [])
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise DataError(f"{path}, row {number}: {len(row)} values, expected {len(header)} as in the header.")
    return _columns(header, [[row[i] for row in rows] for i in range(len(header))])


def _parquet_columns(path: Path) -> dict[str, list[str]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"reading {path.name} needs pyarrow; run pip install 'serpette[parquet]'.") from None
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} is not a Parquet file that can be read ({reason}); write it again.") from error
    wanted = [name for name in table.column_names if name.strip().lower() in COLUMNS]
    return _columns(wanted, [["" if v is None else str(v) for v in table[name].to_pylist()] for name in wanted])


def _columns(header: Sequence[str], columns: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    return {
        name.strip().lower(): [value.strip() for value in values] for name, values in zip(header, columns, strict=True)
    }
