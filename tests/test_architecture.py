"""Who may import whom, and how much a room may hold, as ARCHITECTURE.md says."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import get_args

import pytest

from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.scenarios.base import Compared, ScenarioName
from breakeven.runner.specs.workload import SCRIPT_TASK
from tests.helpers.syntax import nodes

pytestmark = pytest.mark.heavy

FORBIDDEN = {
    "runner": {
        "torch",
        "transformers",
        "datasets",
        "duckdb",
        "streamlit",
        "plotly",
        "pandas",
        "numpy",
        "scipy",
        "pyarrow",
        "storage",
        "views",
        "dashboard",
    },
    "runner/worker": {"duckdb", "streamlit", "plotly", "storage", "views", "dashboard"},
    "storage": {"torch", "transformers", "datasets", "streamlit", "plotly", "views", "dashboard"},
    "views": {"torch", "transformers", "datasets", "duckdb", "dashboard"},
}
HOUSES = ("runner", "runner.specs", "runner.worker", "storage", "views")
"""Packages of rooms: what lies in them directly stands for itself."""
MAX_MODULES = 20
PAGES = {"all_experiments", "definitions", "experiment", "launch", "machine"}


OWN_PACKAGES = {
    "cluster/ray_engine.py": "ray",
    "cluster/submitit_engine.py": "submitit",
    "doctor/machine_checks.py": "packaging",
    "runner/notifications.py": "apprise",
}
"""Modules of the runner that need a package of their own, which nobody else imports."""


PREFIX = "breakeven."


def sources(part: str) -> list[Path]:
    files = sorted((PROJECT_ROOT / part).rglob("*.py"))
    if part == "runner":
        files = [file for file in files if PROJECT_ROOT / "runner/worker" not in file.parents]
    return files


def module_name(file: Path) -> str:
    parts = file.relative_to(PROJECT_ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_name(file): file
    for house in ("runner", "storage", "views")
    for file in (PROJECT_ROOT / house).rglob("*.py")
}


@cache
def imported_modules(file: Path) -> set[str]:
    """Names of modules; of Breakeven's own without `breakeven.`."""
    names: set[str] = set()
    for node in nodes(file):
        if isinstance(node, ast.Import):
            names.update(alias.name.removeprefix(PREFIX) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            module = (node.module or "").removeprefix(PREFIX)
            parts = {f"{module}.{alias.name}" for alias in node.names}
            names |= (parts & MODULES.keys()) or {module}
    return names


def file_bytes(module: str) -> str:
    """The package that a module lies in; of what lies in none but a house, itself."""
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    return module if package in HOUSES else package


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
        own = OWN_PACKAGES.get(f"{file.parent.name}/{file.name}")
        assert tops - {own} <= sys.stdlib_module_names, file


@pytest.mark.parametrize("part", ["storage", "views"])
def test_of_scipy_nothing_is_imported_but_the_special_functions(part: str) -> None:
    """`scipy.stats` alone takes 60 MB of a server's memory, and half a second of its start."""
    for file in sources(part):
        imported = {name for name in imported_modules(file) if name.partition(".")[0] == "scipy"}
        assert imported <= {"scipy.special"}, f"{file} imports {imported}"


def test_everything_is_imported_from_breakeven() -> None:
    """A person's script may have modules called `runner`, `storage` and `views`."""
    bare = re.compile(r"^\s*(import|from) (runner|storage|views|serve|dashboard)\b", re.M)
    for part in ("runner", "storage", "views", "breakeven", "benchmarks", "tests"):
        for file in (PROJECT_ROOT / part).rglob("*.py"):
            # Text of a test may have such a line.
            for node in nodes(file) if bare.search(file.read_text()) else ():
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    assert not bare.match(ast.unparse(node)), file


def test_nobody_imports_the_worker() -> None:
    for part in ("runner", "storage", "views"):
        for file in sources(part):
            assert not any(n.startswith("runner.worker") for n in imported_modules(file)), file


ENTRIES = {"storage.__main__", "views.report.__main__"}
"""Modules that start a command."""


@pytest.mark.parametrize(
    ("room", "users"),
    [
        (
            "runner.supervision",
            ("runner.supervision", "runner.cluster", "runner.commands", "runner.doctor"),
        ),
        ("runner.commands", ("runner.commands",)),
    ],
)
def test_types_and_constants_are_shared_in_rooms_below(room: str, users: tuple[str, ...]) -> None:
    """Whoever needs a turn, a state or a condition imports no process and no command with it."""
    for name, file in MODULES.items():
        imported = {module for module in imported_modules(file) if module.startswith(f"{room}.")}
        assert not imported or name.startswith(users) or name in ENTRIES, (
            f"{file} imports {imported}"
        )


NAMED_MODULE = re.compile(r"(?<![\w/.])(?:runner|storage|views)(?:/\w+)+\.py\b")


def test_modules_that_docstrings_and_documents_name_exist() -> None:
    sources_and_documents = [
        *MODULES.values(),
        *(PROJECT_ROOT / "benchmarks").rglob("*.py"),
        *PROJECT_ROOT.glob("*.md"),
        *(PROJECT_ROOT / "docs").glob("*.md"),
    ]
    for file in sources_and_documents:
        for path in NAMED_MODULE.findall(file.read_text()):
            assert (PROJECT_ROOT / path).exists(), f"{file} names {path}"


def names_a_device_type(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        parts = ast.unparse(node).split(".")
        return parts[0] == "torch" and parts[-1] in ("cuda", "mps", "hip")
    types = {"cpu", "cuda", "rocm", "mps"}
    return isinstance(node, ast.Compare) and any(
        isinstance(part, ast.Constant) and part.value in types for part in ast.walk(node)
    )


def test_the_worker_asks_the_device_instead_of_its_type() -> None:
    """Only `runner/worker/device/` knows what devices of each type can do, and how to ask them."""
    knows = PROJECT_ROOT / "runner/worker/device"
    offenders = [
        f"{file.relative_to(PROJECT_ROOT)}:{node.lineno}"
        for file in sources("runner/worker")
        if knows not in file.parents
        for node in nodes(file)
        if isinstance(node, (ast.Attribute, ast.Compare)) and names_a_device_type(node)
    ]
    assert not offenders
    assert any(map(names_a_device_type, nodes(knows / "device_kinds.py")))


def circle(edges: dict[str, set[str]]) -> None:
    """Raises `CycleError`, which names the circle, if there is one."""
    TopologicalSorter(edges).prepare()


def test_no_modules_import_each_other_in_a_circle() -> None:
    circle({name: imported_modules(file) & MODULES.keys() for name, file in MODULES.items()})


def test_no_rooms_import_each_other_in_a_circle() -> None:
    edges: dict[str, set[str]] = defaultdict(set)
    for name, file in MODULES.items():
        for imported in imported_modules(file) & MODULES.keys():
            if file_bytes(imported) != file_bytes(name):
                edges[file_bytes(name)].add(file_bytes(imported))
    assert len(edges) > 40
    circle(edges)


DECIDES = re.compile(r"\b(scenario|compares|task|workload)\b")
"""Names of values that say what an experiment does and who decides it."""
OWN_NAMES = {*get_args(ScenarioName), *get_args(Compared), SCRIPT_TASK}


def tells_by_name(node: ast.Compare | ast.Match) -> bool:
    """Whether it compares the name of a scenario or of a comparison, or the task of scripts."""
    sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [node.subject]
    if not any(DECIDES.search(ast.unparse(side)) for side in sides):
        return False
    parts = [part for side in sides for part in ast.walk(side)]
    parts += [] if isinstance(node, ast.Compare) else ast.walk(node)
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    texts = {part.value for part in parts if isinstance(part, ast.Constant)}
    return "SCRIPT_TASK" in names or bool(texts & OWN_NAMES)


@pytest.mark.parametrize("part", ["runner", "runner/worker", "storage", "views", "benchmarks"])
def test_a_scenario_and_a_workload_are_asked_and_never_told_by_their_names(part: str) -> None:
    knows = [PROJECT_ROOT / "runner/specs" / name for name in ("workload.py", "experiment.py")]
    offenders = [
        f"{file.relative_to(PROJECT_ROOT)}:{node.lineno}"
        for file in sources(part)
        if file not in knows
        for node in nodes(file)
        if isinstance(node, ast.Compare | ast.Match) and tells_by_name(node)
    ]
    assert not offenders


@pytest.mark.parametrize(
    "text",
    [
        "spec.scenario == 'tune'",
        "row['scenario'] in ('train', 'speed')",
        "spec.kind.compares != 'runs'",
        "spec.task == SCRIPT_TASK",
    ],
)
def test_such_a_comparison_would_be_found(text: str) -> None:
    (node,) = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Compare)]
    assert tells_by_name(node)


@pytest.mark.parametrize("part", ["runner", "storage", "views", "tests", "benchmarks"])
def test_no_folder_is_a_heap(part: str) -> None:
    folders = [folder for folder in (PROJECT_ROOT / part).rglob("*") if folder.is_dir()]
    for folder in [PROJECT_ROOT / part, *folders]:
        modules = [file.name for file in folder.glob("*.py") if file.name != "__init__.py"]
        assert len(modules) <= MAX_MODULES, f"{folder} has {len(modules)} modules"


@pytest.mark.parametrize("part", ["runner", "runner/worker"])
def test_runs_can_execute_python_3_10(part: str) -> None:
    """No syntax, import or possessive pattern of a newer Python when a module is loaded."""
    newer = {
        "tomllib",
        "Self",
        "Never",
        "LiteralString",
        "Required",
        "NotRequired",
        "assert_never",
        "reveal_type",
        "override",
        "StrEnum",
        "ReprEnum",
        "UTC",
        "batched",
        "file_digest",
        "ExceptionGroup",
        "TaskGroup",
    }
    for file in sources(part):
        tree = ast.parse(file.read_text(), feature_version=(3, 10))
        loaded = [
            statement
            for statement in tree.body
            if isinstance(statement, ast.Import | ast.ImportFrom)
        ]
        names = {
            alias.name
            for statement in loaded
            for alias in statement.names
            if getattr(statement, "module", None) != "breakeven.runner.python310"
        }
        assert not names & newer, file
        texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        assert not any(
            isinstance(text, str) and re.search(r"\]([*+?]|\{\d+,\d*\})\+", text) for text in texts
        ), file


def test_views_holds_the_pages_and_nothing_else() -> None:
    assert {file.stem for file in (PROJECT_ROOT / "views").glob("*.py")} == PAGES | {"__init__"}


def test_importing_a_part_loads_neither_torch_nor_packages_of_single_modules() -> None:
    parts = (
        "runner.commands.cli",
        "runner.cluster.driver",
        "storage.comparison.comparison",
        "storage.index.store",
        "views.shared.resources",
    )
    code = f"import sys, {', '.join(PREFIX + part for part in parts)}; print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in answer.stdout.split()}
    others = {*OWN_PACKAGES.values()} - {"packaging"}  # which Streamlit imports
    assert not loaded & {"torch", "transformers", "datasets", *others}


COLLECT = """
import sys
import pytest
status = pytest.main(["--fast", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"])
sys.exit(status or "torch" in sys.modules)
"""


def test_the_fast_tests_load_no_torch() -> None:
    done = subprocess.run([sys.executable, "-c", COLLECT], cwd=PROJECT_ROOT, capture_output=True)
    assert done.returncode == 0, done.stdout[-2000:]
