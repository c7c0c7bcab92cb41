"""The quick race: what the page starts by one click, and `compare` without a model, data or a task.

Its model has random weights, so its learning rate is far above that of a fine-tuning, the default
of the field: a training that learns nothing cannot show whether a backend learns the same.
"""

from dataclasses import replace

from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, TrainingSpec

REVIEWS = DataSpec(
    source="builtin:reviews", num_train_samples=960, num_eval_samples=200, sequence_length=64
)
TINY = TrainingSpec(learning_rate=1e-3, batch_size=8)
QUICK_RACE = ExperimentSpec(
    name="Quick race",
    model=ModelSpec(source="builtin:bert-tiny"),
    data=REVIEWS,
    training=TINY,
    backends=("inductor:scope=blocks",),
)


def adjusted(spec: ExperimentSpec, machine: Capabilities) -> ExperimentSpec:
    """The same experiment on this machine: on its GPU if it has one, with backends that can run."""
    device = machine.usual_device
    known = {*machine.backends, *machine.debug_backends}
    backends = [text for text in spec.backends if _backend(text) in known]
    if device == "cpu" and machine.cpp_compiler is None:
        # Without a C++ compiler Inductor cannot run on the CPU; `eager` still shows Dynamo's cost.
        backends = [text for text in backends if _backend(text) != "inductor"]
        backends = backends if "eager" in backends else ["eager", *backends]
    if not device.startswith("cuda"):
        backends = [text for text in backends if _backend(text) != "cudagraphs"]
    return replace(spec, devices=(device,), backends=tuple(backends))


def _backend(text: str) -> str | None:
    """The backend's name without settings."""
    return parse_backend(text).backend
