"""Experiments to start from: plain specifications, adjusted to this machine."""

from dataclasses import dataclass, replace

from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, TrainingSpec
from breakeven.runner.specs.variants import parse_backend
from breakeven.runner.specs.workload import SCRIPT_DATA, SCRIPT_PREFIX, SCRIPT_TASK

SCRIPT_TO_BE_NAMED = "/my-script.py"
TO_BE_NAMED = "my-data.csv"
"""Placeholder for data that the user has to name; the form shows an empty field."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A starting point; `spec` is complete and could be submitted unchanged."""

    title: str
    text: str
    spec: ExperimentSpec


REVIEWS = DataSpec(source="builtin:reviews", num_train_samples=960, num_eval_samples=200,
                   sequence_length=64)  # fmt: skip
PRESETS = {
    "quick": Preset(
        title="Quick race",
        text="A tiny BERT on generated star reviews. A minute or two on a CPU, less on a GPU.",
        spec=ExperimentSpec(
            name="Quick race",
            model=ModelSpec(source="builtin:bert-tiny"),
            data=REVIEWS,
            training=TrainingSpec(learning_rate=1e-3, batch_size=8),
            backends=("aot_eager", "inductor"),
        ),
    ),
    "digits": Preset(
        title="Digits",
        text="A small vision transformer on 1,797 real scans of handwritten digits.",
        spec=ExperimentSpec(
            name="Digits",
            task="image_classification",
            model=ModelSpec(source="builtin:vit-small"),
            data=DataSpec(source="builtin:digits", num_train_samples=1440, num_eval_samples=357),
            training=TrainingSpec(learning_rate=3e-4, batch_size=32, epochs=4),
            backends=("aot_eager", "inductor"),
        ),
    ),
    "language-model": Preset(
        title="Language model",
        text="A tiny GPT-2 learns to continue generated star reviews, word by word.",
        spec=ExperimentSpec(
            name="Language model",
            task="causal_lm",
            model=ModelSpec(source="builtin:gpt2-tiny"),
            data=REVIEWS,
            training=TrainingSpec(learning_rate=1e-3, batch_size=8),
            backends=("aot_eager", "inductor"),
        ),
    ),
    "masked-words": Preset(
        title="Masked words",
        text="A tiny BERT learns to restore hidden words of the same reviews.",
        spec=ExperimentSpec(
            name="Masked words",
            task="masked_lm",
            model=ModelSpec(source="builtin:bert-tiny"),
            data=REVIEWS,
            training=TrainingSpec(learning_rate=1e-3, batch_size=8),
            backends=("aot_eager", "inductor"),
        ),
    ),
    "bert-base": Preset(
        title="BERT-base on reviews",
        text="The full-size model, for a GPU: 12 layers of 768 on generated star reviews.",
        spec=ExperimentSpec(
            name="BERT-base on reviews",
            model=ModelSpec(source="builtin:bert-base"),
            data=DataSpec(source="builtin:reviews", num_train_samples=3200, num_eval_samples=500),
            training=TrainingSpec(learning_rate=5e-5, batch_size=16),
            backends=("eager", "aot_eager", "inductor", "cudagraphs"),
        ),
    ),
    "own": Preset(
        title="Your own data",
        text="A CSV, JSONL or Parquet file with a text and a label column, or a hub data set.",
        spec=ExperimentSpec(
            name="My data",
            model=ModelSpec(source="builtin:bert-tiny"),
            # Enough steps to learn real texts, so that parity can be judged: four topics of news
            # reach 86 % of 400 samples.
            data=DataSpec(
                source=TO_BE_NAMED, num_train_samples=7680, num_eval_samples=400,
                sequence_length=64,
            ),
            training=TrainingSpec(learning_rate=5e-4, batch_size=32, max_steps=240),
            backends=("aot_eager", "inductor"),
        ),
    ),
    "script": Preset(
        title="Your own script",
        text="Your training script, run once under each backend. Three lines mark where its "
        "steps end; scripts with transformers.Trainer, accelerate or lightning need no change.",
        spec=ExperimentSpec(
            name="My script",
            task=SCRIPT_TASK,
            model=ModelSpec(source=f"{SCRIPT_PREFIX}{SCRIPT_TO_BE_NAMED}"),
            data=DataSpec(source=SCRIPT_DATA),
            backends=("aot_eager", "inductor"),
        ),
    ),
}  # fmt: skip


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
