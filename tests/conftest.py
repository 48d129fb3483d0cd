"""Shapes and types are checked while tests run; the assets are found or their tests skipped."""

import os
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

# Not records, whose annotations pydantic checks, and not cli, whose annotations typer reads.
PACKAGES = ["benchmark", "data", "evaluation", "export", "files", "models", "planning"]
PACKAGES += ["redundancy", "report", "selection", "surgery"]
install_import_hook([f"serpette.{name}" for name in PACKAGES], "beartype.beartype")


@pytest.fixture(scope="session")
def assets() -> Path:
    """The folder with the real DINOv2-small and the real datasets."""
    named = os.environ.get("SERPETTE_ASSETS")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "assets"
    if not folder.is_dir():
        pytest.skip("no assets: set SERPETTE_ASSETS to the folder with dinov2-small and datasets")
    return folder
