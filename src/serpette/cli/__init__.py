"""The command line: every command parses, calls one public function and prints."""

import sys

import typer

from serpette.cli import bench, evaluate, measure, plan, predict, prune, scan, select
from serpette.cli.terminal import fail
from serpette.errors import SerpetteError

app = typer.Typer(
    name="serpette",
    help="Make a pretrained vision transformer faster by removing the layers it does not need, without retraining it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("scan")(scan.command)
app.command("measure")(measure.command)
app.command("plan")(plan.command)
app.command("prune")(prune.command)
app.command("eval")(evaluate.command)
app.command("bench")(bench.command)
app.command("select")(select.command)
app.command("predict")(predict.command)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("serpette"))
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main() -> None:
    """Run a command; bad input gives one line and exit code 2, an interrupt exit code 130."""
    try:
        app()
    except SerpetteError as error:
        fail(str(error))
        sys.exit(2)
    except OSError as error:
        fail(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
        sys.exit(2)
    except KeyboardInterrupt:
        fail("interrupted; run the same command again to continue.")
        sys.exit(130)
