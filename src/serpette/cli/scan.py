"""`serpette scan`: what is in a dataset."""

from typing import Annotated

import typer

from serpette.cli.options import AsJson, Bad, ClassLevel, Limit, OnBad, OnUnknown, Seed, Unknown, out_file
from serpette.cli.terminal import check_out, phases, say, show


def command(
    data: Annotated[str, typer.Argument(help="demo, an image folder, a CSV or Parquet manifest, or an HDF5 file.")],
    out: out_file("Write the JSON record here.") = None,  # type: ignore[valid-type]
    class_level: ClassLevel = None,
    on_unknown: Unknown = OnUnknown.drop,
    on_bad: Bad = OnBad.skip,
    limit: Limit = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Count images, classes, sizes, bad files and duplicates across splits."""
    import serpette
    from serpette.report.tables import scan_table

    check_out(out)
    with phases() as phase:
        result = serpette.scan(
            data,
            seed=seed,
            class_level=class_level,
            on_unknown=on_unknown.value,
            on_bad=on_bad.value,
            limit=limit,
            progress=phase("decode"),
        )
    if out:
        result.save(out)
    if json:
        say(result.to_json())
    else:
        show(scan_table(result))
