from dataclasses import replace

import pytest

from breakeven.runner.errors import ProbeFailed
from breakeven.runner.experiments.queue import find_experiment, submit
from breakeven.runner.machine import capabilities, occupancy
from breakeven.runner.machine.capabilities import VisibleHardware, read_capabilities
from breakeven.runner.machine.occupancy import learn_devices, waiting_words
from breakeven.runner.machine.placement import ResourceRequest
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec
from tests.helpers.machine import MACHINE, WITH_GPU, keep

ONE_GPU: VisibleHardware = ("gpu proc/driver/nvidia/gpus/0000:01:00.0",)
FOR_CPU = ResourceRequest(key="1", devices=("cpu",))
FOR_GPU = ResourceRequest(key="2", devices=("cuda:0",))


class Torch:
    """Answers, or does not, and counts the questions."""

    def __init__(self) -> None:
        self.num_asked = 0
        self.sight: VisibleHardware = ()
        self.answers = True

    def probe(self, data_dir: DataDir) -> None:
        self.num_asked += 1
        if not self.answers:
            raise ProbeFailed("no")
        keep(data_dir, replace(WITH_GPU, seen=self.sight))

    def see(self) -> VisibleHardware:
        return self.sight


@pytest.fixture
def torch(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> Torch:
    data_dir.make()
    fake = Torch()
    monkeypatch.setattr(occupancy, "probe", fake.probe)
    for module in (occupancy, capabilities):
        monkeypatch.setattr(module, "visible_hardware", fake.see)
    return fake


def test_an_answer_from_before_a_gpu_was_added_is_not_believed(
    data_dir: DataDir, torch: Torch
) -> None:
    keep(data_dir, replace(MACHINE, seen=()))
    assert learn_devices(data_dir, [FOR_GPU]) is None and torch.num_asked == 0
    torch.sight = ONE_GPU
    assert read_capabilities(data_dir) is None
    assert learn_devices(data_dir, [FOR_GPU]) is None and torch.num_asked == 1
    assert [device.id for device in capabilities.known_devices(data_dir)] == ["cpu", "cuda:0"]
    assert learn_devices(data_dir, [FOR_GPU]) is None and torch.num_asked == 1


def test_a_torch_that_gives_no_answer_is_asked_again_once_the_machine_looks_otherwise(
    data_dir: DataDir, torch: Torch
) -> None:
    torch.answers = False
    in_vain = learn_devices(data_dir, [FOR_GPU])
    assert learn_devices(data_dir, [FOR_GPU], in_vain) == () and torch.num_asked == 1
    torch.sight, torch.answers = ONE_GPU, True
    assert learn_devices(data_dir, [FOR_GPU], in_vain) is None and torch.num_asked == 2


def test_a_gpu_is_asked_for_before_an_experiment_that_leaves_it_free_and_not_beside_it(
    data_dir: DataDir, torch: Torch
) -> None:
    """One that is queued for the GPU meanwhile would wait for it."""
    learn_devices(data_dir, [FOR_CPU])
    assert torch.num_asked == 0, "nobody asks for a device, and there is none"
    torch.sight = ONE_GPU
    learn_devices(data_dir, [FOR_CPU])
    assert torch.num_asked == 1


def test_an_experiment_that_waits_for_unknown_devices_says_why(
    data_dir: DataDir, torch: Torch
) -> None:
    spec = ExperimentSpec(name="gpu", backends=(), controls=0, devices=("cuda:0",))
    on_gpu = find_experiment(data_dir, submit(data_dir, spec))
    on_cpu = find_experiment(data_dir, submit(data_dir, replace(spec, devices=("cpu",))))
    assert waiting_words(on_gpu, "A", devices_known=True) == "waits for A"
    assert waiting_words(on_cpu, "A", devices_known=False) == "waits for A"
    said = "waits for A; torch lists the devices as soon as nothing is measured"
    assert waiting_words(on_gpu, "A", devices_known=False) == said
