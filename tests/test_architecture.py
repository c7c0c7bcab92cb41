"""Who may import whom, as ARCHITECTURE.md says."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from runner.queue import PROJECT_ROOT

FORBIDDEN = {
    "runner": {"torch", "transformers", "datasets", "duckdb", "streamlit", "plotly", "pandas",
               "numpy", "scipy", "pyarrow", "storage", "views", "dashboard"},
    "runner/worker": {"duckdb", "streamlit", "plotly", "storage", "views", "dashboard"},
    "storage": {"torch", "transformers", "datasets", "streamlit", "plotly", "views", "dashboard"},
    "views": {"torch", "transformers", "datasets", "duckdb", "dashboard"},
}  # fmt: skip


def sources(part: str) -> list[Path]:
    files = sorted((PROJECT_ROOT / part).rglob("*.py"))
    if part == "runner":
        files = [file for file in files if "worker" not in file.parts]
    return files


def imported_modules(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            names.add(node.module or "")
    return names


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in answer.stdout.split()}


@pytest.mark.parametrize("part", FORBIDDEN)
def test_imports_point_one_way(part: str) -> None:
    files = sources(part)
    assert files
    for file in files:
        tops = {name.partition(".")[0] for name in imported_modules(file)}
        assert not tops & FORBIDDEN[part], file


def test_the_light_half_of_the_runner_uses_the_standard_library_alone() -> None:
    for file in sources("runner"):
        tops = {name.partition(".")[0] for name in imported_modules(file)} - {"runner"}
        assert tops <= sys.stdlib_module_names, file


def test_nobody_imports_the_worker() -> None:
    for part in ("runner", "storage", "views"):
        for file in sources(part):
            assert not any(n.startswith("runner.worker") for n in imported_modules(file)), file


@pytest.mark.parametrize(
    "statement",
    ["import runner.cli", "import storage.comparison, storage.store", "import views.resources"],
)
def test_importing_a_part_does_not_load_torch(statement: str) -> None:
    assert not modules_after(statement) & {"torch", "transformers", "datasets"}


def test_opening_the_first_page_does_not_load_torch(tmp_path: Path) -> None:
    statement = (
        f"import os; os.environ['BREAKEVEN_DATA'] = {str(tmp_path)!r}; "
        "from streamlit.testing.v1 import AppTest; "
        "at = AppTest.from_file('dashboard.py', default_timeout=60).run(); "
        "assert not at.exception, at.exception"
    )
    assert not modules_after(statement) & {"torch", "transformers", "datasets"}
