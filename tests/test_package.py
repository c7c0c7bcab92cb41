"""The wheel, installed outside of the checkout, and scripts next to modules with our names."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import breakeven
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from tests.helpers.machine import MACHINE, keep
from tests.helpers.serving import served

pytestmark = pytest.mark.heavy
EXAMPLE = "bert-base-reviews-h200"
"""The one of the wheel."""
SCRIPT = """
import runner, storage, views.colours
import torch, breakeven
assert (runner.MINE, storage.MINE, views.colours.MINE) == ("runner", "storage", "views")
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
compiled = breakeven.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    x = torch.randn(8, 4)
    loss = (compiled(x) - x[:, :2]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    breakeven.step(loss, samples=8)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel, made from the sdist, and the sdist, made from a copy of the
    checkout."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    for name in ("breakeven", "runner", "storage", "views", "examples", "docs", ".streamlit"):
        shutil.copytree(PROJECT_ROOT / name, source / name, symlinks=True)
    for file in PROJECT_ROOT.glob("*.*"):
        if file.suffix in (".py", ".txt", ".toml", ".md"):
            shutil.copy(file, source)
    shutil.copy(PROJECT_ROOT / "LICENSE", source)
    before = files_of(source)
    # With the backend of this environment: another one would be requested from the index.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder]
    subprocess.run([*command, source], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    assert files_of(source) == before, "building leaves files in the checkout"
    return folder


def files_of(folder: Path) -> set[Path]:
    return {file for file in folder.rglob("*") if "__pycache__" not in file.parts}


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (file,) = built.glob("breakeven-*.whl")
    return file


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`breakeven` of an environment with the wheel and the libraries of the tests' environment."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    scheme = sysconfig.get_paths("venv", {"base": str(folder), "platbase": str(folder)})
    site = Path(scheme["purelib"])
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    command = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install"]
    quietly = ("--quiet", "--no-deps", "--no-compile")
    subprocess.run([*command, *quietly, wheel], check=True, cwd=folder)
    return folder / "bin" / "breakeven"


def test_the_wheel_has_the_code_one_example_and_the_licence_and_nothing_beside_breakeven(
    wheel: Path,
) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    (info,) = {name.partition("/")[0] for name in names} - {"breakeven"}
    assert info == f"breakeven-{breakeven.__version__}.dist-info"
    assert f"{info}/licenses/LICENSE" in names
    for needed in ("dashboard.py", "serve.py", "py.typed", "docs/metrics.md"):
        assert f"breakeven/{needed}" in names, needed
    files = {
        f"breakeven/{file.relative_to(PROJECT_ROOT)}"
        for part in ("runner", "storage", "views", f"examples/{EXAMPLE}", ".streamlit")
        for file in (PROJECT_ROOT / part).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert len(files) > 300 and not files - set(names)
    examples = {name.split("/")[2] for name in names if name.startswith("breakeven/examples/")}
    assert examples == {EXAMPLE}
    assert wheel.stat().st_size < 5_000_000


def test_an_editable_installation_imports_from_the_checkout(tmp_path: Path) -> None:
    code = f"from hatchling.build import build_editable; build_editable({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT)
    assert done.returncode == 0
    (file,) = tmp_path.glob("*.whl")
    made = zipfile.ZipFile(file)
    (path,) = (name for name in made.namelist() if name.endswith(".pth"))
    assert Path(made.read(path).decode().strip()).samefile(PROJECT_ROOT)


def test_an_index_would_take_wheel_and_sdist_and_shows_the_readme(built: Path) -> None:
    files = sorted(map(str, [*built.glob("*.whl"), *built.glob("*.tar.gz")]))
    assert len(files) == 2
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)
    check = [sys.executable, "-m", "check_wheel_contents", *built.glob("*.whl")]
    subprocess.run(check, check=True)
    (archive,) = built.glob("*.whl")
    name = f"breakeven-{breakeven.__version__}.dist-info/METADATA"
    shown = zipfile.ZipFile(archive).read(name).decode()
    targets = re.findall(r"\]\(([^)]+)\)", shown)
    assert len(targets) > 20
    assert not [link for link in targets if not link.startswith(("https://", "#"))]


@pytest.mark.slow
def test_the_installed_command_serves_the_example(
    program: Path, tmp_path: Path, browser: Browser
) -> None:
    data_dir = DataDir(tmp_path / "data")
    data_dir.make()
    with served(data_dir, supervised=False, program=[str(program)], cwd=tmp_path) as (address, _):
        page = browser.new_page()
        page.goto(address)
        expect(page.locator(".backend-card").first).to_be_visible(timeout=60_000)
        expect(page.get_by_text("inductor-blocks").first).to_be_visible()
        expect(page.get_by_text("could not be read")).to_have_count(0)
        page.close()


@pytest.mark.slow
def test_a_script_beside_modules_that_are_named_like_breakevens_own_runs(
    program: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    (project / "storage").mkdir(parents=True)
    (project / "views").mkdir()
    (project / "train.py").write_text(SCRIPT)
    (project / "runner.py").write_text("MINE = 'runner'")
    (project / "storage" / "__init__.py").write_text("MINE = 'storage'")
    (project / "views" / "colours.py").write_text("MINE = 'views'")
    data_dir = DataDir(tmp_path / "data")
    data_dir.make()
    keep(data_dir, replace(MACHINE, python=str(program.with_name("python"))))
    command = [
        program,
        "run",
        "--backends=",
        "--controls=0",
        f"--data-folder={data_dir.path}",
        "train.py",
    ]
    done = subprocess.run(
        command, cwd=project, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""}
    )
    assert "baseline [####################]    60/60  finished" in done.stdout, done.stderr
    assert "failed" not in done.stdout


@pytest.mark.parametrize(
    ("module", "words", "said"),
    [
        ("duckdb", ["show", "x"], "`breakeven show` needs duckdb, which is not installed here"),
        ("streamlit", [], "`breakeven` needs streamlit, which is not installed here"),
    ],
)
def test_a_command_without_its_packages_says_what_to_install(
    module: str, words: list[str], said: str
) -> None:
    code = (
        "import sys\n"
        f"sys.modules[{module!r}] = None\n"
        f"sys.argv = {['breakeven', *words]}\n"
        "import runpy; runpy.run_module('breakeven', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.startswith(said), done.stderr
