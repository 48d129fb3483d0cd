"""The command line: every command parses, calls one public function and prints."""

import os
import sys
from typing import Any

import typer

from serpette.cli import bench, evaluate, measure, plan, predict, prune, scan, select
from serpette.cli.terminal import fail
from serpette.errors import SerpetteError

app = typer.Typer(
    name="serpette",
    help="Make a pretrained vision transformer faster by removing the layers it does not need, without retraining it.",
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


# What typer raises on bad arguments, whether it brings its own click or imports click.
UsageError: Any = typer.BadParameter.__base__


def main() -> None:
    """Run a command; bad input gives one line and exit code 2, an interrupt exit code 130."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("serpette", sys.argv[1:] or ["--help"]) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except UsageError as error:
        asked = error.ctx.command_path if error.ctx else "serpette"
        said = error.format_message().replace("Value error, ", "").rstrip(".")
        fail(f"{said}. See {asked} --help.")
        sys.exit(2)
    except SerpetteError as error:
        fail(str(error))
        sys.exit(2)
    except BrokenPipeError:  # whoever reads the output has seen enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        fail(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
        sys.exit(2)
    except KeyboardInterrupt:
        fail("interrupted; run the same command again to continue.")
        sys.exit(130)
    except Exception as error:
        if os.environ.get("SERPETTE_DEBUG"):
            raise
        fail(f"{type(error).__name__}: {error}. This is a bug in serpette; SERPETTE_DEBUG=1 shows where.")
        sys.exit(1)
