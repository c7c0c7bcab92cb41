"""What a machine is seen to have; what it has no backend for is refused with what mends it."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.machine import capabilities
from breakeven.runner.machine.capabilities import Capabilities, fits_this_machine
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


def test_a_backend_that_torch_lists_without_its_package_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for backend, package in (("openxla", "torch_xla"), ("tvm", "tvm")):
        answer = {**asdict(MACHINE), "backends": ["inductor", backend]}
        listed = Capabilities.from_dict(answer)
        assert listed.backends == ("inductor",)
        assert refusal(backend, listed).startswith(f"needs the package {package}, which is not ")
    monkeypatch.setitem(capabilities.PROVIDERS, "tvm", "json")
    assert Capabilities.from_dict(answer).backends == ("inductor", "tvm"), (
        "its package is installed"
    )


def test_a_backend_that_was_installed_since_has_torch_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fits_this_machine(MACHINE)
    package = tmp_path / "plugin-0.1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 0.1\n")
    (package / "entry_points.txt").write_text("[torch_dynamo_backends]\nthunder = plugin:compile\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert not fits_this_machine(MACHINE)
    assert fits_this_machine(replace(MACHINE, backends=("inductor", "thunder")))


def test_what_is_seen_is_devices_their_driver_and_what_hides_some_of_them(tmp_path: Path) -> None:
    assert capabilities.visible_hardware({"HOME": "/root"}, tmp_path) == ()
    driver = tmp_path / "proc/driver/nvidia"
    for address in ("0000:81:00.0", "0000:01:00.0"):
        (driver / "gpus" / address).mkdir(parents=True)
    (driver / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
        "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
    )
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidiactl"):
        (tmp_path / "dev" / name).touch()
    assert capabilities.visible_hardware(
        {"CUDA_VISIBLE_DEVICES": "", "HOME": "/root"}, tmp_path
    ) == (
        "gpu proc/driver/nvidia/gpus/0000:01:00.0",
        "gpu proc/driver/nvidia/gpus/0000:81:00.0",
        "device file dev/nvidia0",
        "driver 580.159.04",
        "CUDA_VISIBLE_DEVICES=",
    )


def test_a_gpu_is_there_whether_its_driver_or_its_device_file_shows_it() -> None:
    assert capabilities.shows_gpu(("gpu proc/driver/nvidia/gpus/0000:01:00.0",))
    assert capabilities.shows_gpu(("device file dev/nvidia0",))
    assert not capabilities.shows_gpu(("driver 580.159.04", "CUDA_VISIBLE_DEVICES=0"))
