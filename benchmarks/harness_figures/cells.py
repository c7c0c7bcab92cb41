"""What both tools are asked for: one model in training or inference, timed or checked."""

from dataclasses import dataclass
from typing import Any

from benchmarks.harness_figures.checkout import Checkout
from runner.specs.accuracy import Part
from runner.specs.experiment import ExperimentSpec
from runner.suites import SUITES
from runner.suites.spec import Matrix

SCRIPTS = {"huggingface": "huggingface.py", "timm": "timm_models.py"}
USUAL = {
    "huggingface": (
        "PLBartForCausalLM", "OPTForCausalLM", "T5Small", "TrOCRForCausalLM",
        "GPT2ForSequenceClassification", "DistillGPT2", "BartForCausalLM", "PegasusForCausalLM",
        "MBartForCausalLM", "DistilBertForMaskedLM", "ElectraForCausalLM", "BertForMaskedLM",
    ),
    "timm": (
        "deit_tiny_patch16_224.fb_in1k", "deit_base_distilled_patch16_224", "visformer_small",
        "repvgg_a2", "mobilenetv2_100", "beit_base_patch16_224",
    ),
}  # fmt: skip
"""Models that compile in about a minute and fit a GPU several at a time, by suite."""
BLOCK_STEPS, ROUNDS = 5, 6


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One comparison."""

    suite: str
    model: str
    part: Part
    checks: bool = False
    """Whether it is the accuracy status that is compared, and not how long a step takes."""
    batch_size: int | None = None
    """For trials on small machines; None for the harness's own."""
    repeats: int = 30
    """Timed steps of each kind in a run of the harness."""

    @property
    def name(self) -> str:
        return f"{self.model}, {self.part}, {'accuracy' if self.checks else 'speed'}"

    @property
    def key(self) -> tuple[str, str, str, bool]:
        return self.suite, self.model, self.part, self.checks

    def harness_arguments(self, device: str, output: str) -> list[str]:
        """Command line of the harness's script; it writes a CSV file and, of times, the raw ones
        beside it."""
        work = ["--accuracy"] if self.checks else [
            "--performance", "--dump-raw-metrics", "--repeat", str(self.repeats)
        ]  # fmt: skip
        if self.batch_size is not None:
            work += ["--batch-size", str(self.batch_size)]
        return [
            *work, f"--{self.part}", "--amp", "--amp-dtype", "bfloat16", "--backend", "inductor",
            "--devices", device.partition(":")[0], "--only", self.model, "--output", output,
        ]  # fmt: skip

    def experiment(self, device: str, checkout: Checkout) -> ExperimentSpec:
        """The same for Breakeven: a cell of a suite under the harness's settings."""
        suite = SUITES[self.suite]
        matrix = Matrix(
            suite=suite,
            models=suite.choose((self.model,)),
            precisions=("bf16",),
            parts=(self.part,),
            scenarios=("accuracy" if self.checks else "speed",),
        )
        asked: dict[str, Any] = {
            "backends": ("inductor",),
            "devices": (device,),
            "controls": 0,
            "block_steps": BLOCK_STEPS,
            "profile_steps": 1,
        }
        training: dict[str, Any] = {}
        if self.batch_size is not None:
            training["batch_size"] = self.batch_size
        if not self.checks:
            asked["speed"] = {"batches": 1, "warm_up_blocks": 1, "min_rounds": ROUNDS,
                              "max_rounds": ROUNDS}  # fmt: skip
            # Its rate, too: a step takes as long with any other, but where losses overflow.
            training |= {"optimizer": checkout.optimizer(self.model), "learning_rate": 0.01}
        asked["training"] = training
        return next(matrix.cells(asked, "harness-figures"))
