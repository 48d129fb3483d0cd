"""`serpette bench`: what a model costs to run, alone or against another."""

from pathlib import Path
from typing import Annotated

import typer

from serpette.cli.options import AsJson, Device, Dtype, ImageSize, Model, Precision, RandomWeights, Seed, out_file
from serpette.cli.terminal import check_out, phases, say, show


def command(
    model: Model,
    against: Annotated[str | None, typer.Option("--against", help="Model to compare with, in the same run.")] = None,
    out: out_file("Write the JSON record here.") = None,  # type: ignore[valid-type]
    csv: Annotated[
        Path | None,
        typer.Option("--csv", help="Write rows in the columns of timm's benchmark.py here.", dir_okay=False),
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", "-b", min=1, help="Halved if memory runs out.")] = 32,
    repeats: Annotated[int, typer.Option("--repeats", min=2, help="Rounds.")] = 10,
    energy: Annotated[bool, typer.Option("--energy/--no-energy", help="Measure energy where there is a meter.")] = True,
    image_size: ImageSize = None,
    random_weights: RandomWeights = False,
    device: Device = "auto",
    dtype: Precision = Dtype.fp32,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Measure throughput, latency, FLOPs, memory and energy."""
    import serpette
    from serpette.benchmark.table import write_csv
    from serpette.report.tables import cost_table

    check_out(out)
    with phases() as phase:

        def announce(line: str) -> None:
            phase(line)

        result = serpette.bench(
            model,
            against=against,
            batch_size=batch_size,
            repeats=repeats,
            image_size=image_size,
            device=device,
            dtype=dtype.value,
            random_weights=random_weights,
            seed=seed,
            energy=energy,
            progress=announce,
        )
    if out:
        result.save(out)
    if csv:
        write_csv(csv, [result, *([result.baseline] if result.baseline else [])])
    if json:
        say(result.to_json())
    else:
        show(cost_table(result))
