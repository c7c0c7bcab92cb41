"""A training and a script under a backend that is named by path."""

import hashlib
import importlib
import sys
from pathlib import Path

import pytest

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.errors import CodeNotAllowed
from breakeven.runner.worker.compiler.compile_with_backend import _loaded
from tests.helpers.loop import FAULTS, NET, experiment, of_kind, run
from tests.runner.worker.script import scripts

pytestmark = pytest.mark.heavy

CODE = """
class Compiler:
    graphs, made = [], 0

    def __init__(self):
        Compiler.made += 1

    def __call__(self, graph, inputs):
        self.graphs.append(graph)
        return graph.forward
"""


@pytest.fixture
def site(tmp_path: Path, fresh_torch: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages with `by_path`, of the distribution `by-path` 1.2."""
    site = tmp_path / "site"
    (site / "by_path").mkdir(parents=True)
    (site / "by_path" / "__init__.py").write_text("")
    (site / "by_path" / "core.py").write_text(CODE)
    about = site / "by_path-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: by-path\nVersion: 1.2\n")
    (about / "top_level.txt").write_text("by_path\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv(CODE_VARIABLE, f"{site}:{FAULTS}")
    for module in ("by_path", "by_path.core"):  # another test's, from another folder
        monkeypatch.delitem(sys.modules, module, raising=False)
    _loaded.cache_clear()
    return site


@pytest.mark.parametrize("scope", ["forward", "blocks"])
def test_a_training_compiles_with_one_instance_and_every_run_records_the_packages_version(
    site: Path, tmp_path: Path, scope: str
) -> None:
    spec = experiment(backends=(f"by_path.core:Compiler:scope={scope}",), **NET)
    plain = run(spec, tmp_path / "plain")
    compiled = run(spec, tmp_path / "compiled", f"by_path.core.Compiler-{scope}")
    compiler = importlib.import_module("by_path.core").Compiler
    assert compiler.graphs and compiler.made == 1
    losses = [[step["loss"] for step in of_kind(events, "step")] for events in (plain, compiled)]
    assert losses[1] == pytest.approx(losses[0], abs=1e-4) and len(losses[0]) == 12
    for events in (plain, compiled):
        assert of_kind(events, "environment")[0]["versions"]["by-path"] == "1.2"


def test_a_script_compiles_with_a_file_of_ones_own_which_the_run_keeps(
    site: Path, tmp_path: Path
) -> None:
    code = scripts.NET + (
        "model = breakeven.compile(model)\n"
        "for _ in range(6):\n    breakeven.step(made(torch.rand(8, 4)))\n"
    )
    own = tmp_path / "project" / "own.py"
    own.parent.mkdir()
    own.write_text(CODE)
    ran = scripts.run(tmp_path, code, "own.Compiler", backends=(f"{own}:Compiler",))
    assert len(ran.losses) == 6
    source = ran.of_kind("source")[-1]
    assert source["sha256"] == hashlib.sha256(CODE.encode()).hexdigest()
    assert (ran.folder.path / source["file"]).read_text() == CODE
    assert ran.of_kind("compile_metrics")


def test_what_a_copied_run_folder_names_is_not_executed_where_nobody_allowed_it(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "by_path" / "__init__.py").write_text("raise SystemExit('executed')")
    monkeypatch.setenv(CODE_VARIABLE, str(FAULTS))
    spec = experiment(backends=("by_path.core:Compiler",), **NET)
    with pytest.raises(CodeNotAllowed, match=r"by_path/__init__\.py may not run here"):
        run(spec, tmp_path / "foreign", "by_path.core.Compiler")
