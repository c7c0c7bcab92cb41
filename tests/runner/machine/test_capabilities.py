"""What a machine has no backend for is refused with what it has, and what mends it."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.machine.capabilities import PROVIDERS, Capabilities, is_of_this_machine
from breakeven.runner.specs.experiment import ExperimentSpec
from tests.helpers.machine import MACHINE


def refusal(backend: str, machine: Capabilities = MACHINE) -> str:
    with pytest.raises(InvalidSpec) as caught:
        machine.check(ExperimentSpec(name="trial", backends=(backend,)))
    return caught.value.rule


def test_of_an_unknown_backend_the_nearest_is_named_and_those_listed_that_train() -> None:
    machine = replace(MACHINE, debug_backends=("aot_eager", "eager", "error_TESTING_ONLY", "ts"))
    has = "this machine has cudagraphs, inductor, eager, aot_eager"
    assert refusal("indcutor", machine) == f"is not there; {has}; did you mean 'inductor'?"
    assert refusal("aot-eager", machine) == f"is not there; {has}; did you mean 'aot_eager'?"
    assert refusal("zzz", machine) == f"is not there; {has}"
    machine.check(ExperimentSpec(name="trial", backends=("ts", "error_TESTING_ONLY")))


@pytest.mark.parametrize(("backend", "package"), [("openxla", "torch_xla"), ("tvm", "tvm")])
def test_a_backend_that_torch_lists_without_its_package_is_not_there(
    backend: str, package: str
) -> None:
    told = asdict(MACHINE)
    listed = Capabilities.from_dict({**told, "backends": ["inductor", backend]})
    assert listed.backends == ("inductor",)
    assert refusal(backend, listed).startswith(f"needs the package {package}, which is not ")


def test_a_backend_whose_package_is_installed_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROVIDERS, "tvm", "json")
    told = asdict(MACHINE)
    assert Capabilities.from_dict({**told, "backends": ["inductor", "tvm"]}).backends[1] == "tvm"


def test_a_backend_that_was_installed_since_has_torch_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_of_this_machine(MACHINE)
    package = tmp_path / "plugin-0.1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 0.1\n")
    (package / "entry_points.txt").write_text("[torch_dynamo_backends]\nthunder = plugin:compile\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_of_this_machine(MACHINE)
    assert is_of_this_machine(replace(MACHINE, backends=("inductor", "thunder")))
