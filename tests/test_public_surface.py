"""The public surface is what `__all__` says, and everything in it is documented."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import serpette

README = Path(__file__).parents[1] / "README.md"
VERBS = ["bench", "evaluate", "load", "measure", "plan", "predict", "prune", "save", "scan", "select"]


def test_the_surface_is_the_ten_verbs_in_order() -> None:
    assert serpette.__all__ == VERBS
    assert sorted(serpette.__all__) == serpette.__all__
    assert dir(serpette) == sorted([*VERBS, "__version__"])


@pytest.mark.parametrize("name", serpette.__all__)
def test_every_verb_is_a_documented_function_with_typed_arguments(name: str) -> None:
    verb = getattr(serpette, name)
    assert callable(verb)
    assert inspect.getdoc(verb)
    parameters = inspect.signature(verb).parameters
    assert all(parameter.annotation is not inspect.Parameter.empty for parameter in parameters.values())
    documentation = inspect.getdoc(verb) or ""
    listed = [p for p in parameters if f"{p}:" not in documentation and f"`{p}`" not in documentation]
    assert not listed, f"{name} does not say what {listed} are"


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'prun'"):
        serpette.prun  # noqa: B018


def test_importing_serpette_imports_no_heavy_library() -> None:
    code = "import sys, serpette; print(*{m.partition('.')[0] for m in sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "torchvision", "timm", "transformers", "numpy", "PIL", "matplotlib", "pydantic", "typer"}
    assert heavy.isdisjoint(found.stdout.split())


def test_the_readme_uses_only_the_public_surface() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text() if README.exists() else "", re.DOTALL)
    if not blocks:
        pytest.skip("the README has no code yet")
    for block in blocks:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "serpette":
                assert node.attr in serpette.__all__
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("serpette"):
                assert node.module == "serpette"
                assert {alias.name for alias in node.names} <= set(serpette.__all__)
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith("serpette.") for alias in node.names)
