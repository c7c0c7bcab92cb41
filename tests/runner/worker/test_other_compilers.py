"""Compilers of other packages with which people train (docs/own-training.md), if installed."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from tests.helpers.loop import FAULTS, NET, experiment, of_kind, run

pytestmark = pytest.mark.heavy

COMPILERS = {"thunder.dynamo:ThunderCompiler": "lightning-thunder"}
"""Distributions by the path of their backend."""


@pytest.mark.parametrize(("path", "distribution"), COMPILERS.items())
@pytest.mark.parametrize("scope", ["iteration", "forward"])
def test_it_trains_as_without_a_compiler_and_its_version_is_recorded(
    tmp_path: Path,
    fresh_torch: None,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    distribution: str,
    scope: str,
) -> None:
    package = find_spec(path.partition(".")[0])
    if package is None or package.origin is None:
        pytest.skip(f"{distribution} is not installed")
    monkeypatch.setenv(CODE_VARIABLE, f"{Path(package.origin).parent}:{FAULTS}")
    model = replace(NET["model"], dropout="off")  # such a compiler draws numbers of its own
    spec = experiment(backends=(f"{path}:scope={scope}",), **NET | {"model": model})
    plain = run(spec, tmp_path / "plain")
    compiled = run(spec, tmp_path / "compiled", spec.arms[-1].label)
    losses = [[step["loss"] for step in of_kind(events, "step")] for events in (plain, compiled)]
    assert losses[1] == pytest.approx(losses[0], abs=1e-4) and len(losses[0]) == 12
    assert of_kind(compiled, "compile_metrics")
    assert of_kind(compiled, "environment")[0]["versions"][distribution]
