"""The lowest and the highest versions that the package asks for pass the fast tests.

    make test-slow WHAT=tests/package/test_ranges.py

uv makes both environments from its package index, with gigabytes for builds of torch with CUDA;
`UV_TORCH_BACKEND=cpu` chooses those without.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from breakeven.runner.machine.uv_environments import find_uv
from breakeven.runner.project import PROJECT_ROOT

pytestmark = [pytest.mark.heavy, pytest.mark.slow]


@pytest.fixture(params=["lowest-direct", "highest"])
def python(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A Python with the package's dependencies and what the tests need, and without the package."""
    made = tmp_path / "environment"
    lines = (PROJECT_ROOT / "requirements-dev.txt").read_text().splitlines()
    tests_need = tmp_path / "tests.txt"
    tests_need.write_text("\n".join(line for line in lines if not line.startswith("-r")))
    subprocess.run([find_uv(), "venv", "--quiet", "--python", sys.executable, made], check=True)
    install = [find_uv(), "pip", "install", "--quiet", "--python", made / "bin/python"]
    needed = ["--resolution", request.param, "--requirements", tests_need]
    extras = ["ui", "hf", "team"]
    options = [word for extra in extras for word in ("--extra", extra)]
    project = ["--requirements", PROJECT_ROOT / "pyproject.toml", *options]
    subprocess.run([*install, *needed, *project], check=True)
    return made / "bin/python"


def test_the_fast_tests_pass_at_both_ends_of_the_ranges(python: Path) -> None:
    command = [python, "-m", "pytest", "--fast", "--numprocesses", "2", "--dist", "loadfile"]
    # Older versions of numpy.testing, which SciPy imports, start a process when they are imported.
    once = ["-p", "scipy.special", "-p", "no:cacheprovider"]
    assert subprocess.run([*command, *once], cwd=PROJECT_ROOT).returncode == 0
