"""Compares answers of the same weights with and without a compiler.

Both see the same samples, so answers may differ only by rounding. A third pass measures the effect
of rounding: each of its operations rounds differently, as another correct compiler's might
(docs/parity.md, Answers). It neither changes the model nor draws the model's random numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from breakeven.runner.specs.training import Precision
from breakeven.runner.worker.context import ALONE, RankGroup
from breakeven.runner.worker.data.splits import IGNORE
from breakeven.runner.worker.model.loaded_workload import Align
from breakeven.runner.worker.step.inference import Answer, Question

CONTRACTIONS = ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "linear", "convolution")
"""Operations that add up many products."""
CONTRACTION_ULPS = 4
"""Difference of float32 sums of products in another order, in units in the last place. Results of
16 bits were also added up in float32."""
TF32_STEP = 2.0**-10
WHOLE_BELOW = 64
"""Whole numbers below this are masks, positions or zeros, and exact in any computation."""
FACTORS: dict[Precision, float] = {"float32": 10, "tf32": 10, "fp16": 10, "bf16": 4}
"""Largest allowed distance of a compiled answer from the answer without a compiler, in multiples of
the distance in the pass with perturbed rounding (docs/decisions.md)."""
MAX_DRAWS = 8
"""Most passes with perturbed rounding for a batch with an answer beyond that distance."""
MAX_DOUBTED = 4
"""Most batches of an evaluation that get these passes: more such batches are no coincidence."""
MAX_ERROR = 500
NUM_NAMED = 5
"""Number of wrong samples that are listed."""
NUMBERS_AT_ONCE = 2**25
"""Numbers that are compared at once."""
NEGLIGIBLE_DISTANCE = 100.0
"""Distance below the largest logit at which a class counts for nothing: its probability is less
than e^-100."""


class PerturbedRounding(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Moves each output of torch's operations by one unit in its last place, up, down or not at
    all; moves sums of products as far as another order of addition may."""

    def __init__(self, seed: int, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator(device).manual_seed(seed)
        self._is_tf32 = torch.get_float32_matmul_precision() != "highest"

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        outputs = func(*args, **(kwargs or {}))
        is_new = all(returned.alias_info is None for returned in func._schema.returns)
        if func.namespace != "aten" or not is_new or not any(map(_has_fraction, tree_leaves(args))):
            return outputs
        name = func.overloadpacket.__name__
        adds_up = name in CONTRACTIONS or name.startswith("_scaled_dot_product")
        return tree_map_only(Tensor, lambda output: self._moved(output, adds_up), outputs)

    def _moved(self, output: Tensor, adds_up: bool) -> Tensor:
        if not _has_fraction(output) or not output.numel():
            return output
        step = torch.finfo(output.dtype).eps
        if adds_up and output.element_size() >= 4:
            step = max(CONTRACTION_ULPS * step, TF32_STEP if self._is_tf32 else 0.0)
        way = torch.randint(-1, 2, output.shape, generator=self._generator, device=output.device)
        moved = output * (1 + step * way).to(output.dtype)
        is_exact = (output == output.round()) & (output.abs() < WHOLE_BELOW)
        return torch.where(is_exact | ~moved.isfinite(), output, moved)


def _has_fraction(value: Any) -> bool:
    """Whether it is a floating-point tensor; False for subclasses, such as distributed tensors."""
    return type(value) in (Tensor, torch.nn.Parameter) and value.is_floating_point()


class _Rows(NamedTuple):
    """One entry for each target, on the CPU."""

    difference: Tensor
    """Largest difference of a logit; infinite if only one of the two is not finite."""
    margin: Tensor
    """Distance, without a compiler, of the logit of the compiled model's class below the largest
    logit; 0 if both choose the same class."""
    differs: Tensor
    """Whether the compiled model chooses another class."""
    sample: Tensor
    """The sample's place in the split."""


@dataclass
class _Compared:
    """The comparison of all answers, in the journal's form."""

    compared: int = 0
    """Number of targets: samples, tokens or numbers."""
    differing: int = 0
    """Number of answers with another class; 0 for numbers."""
    wrong: int = 0
    """Number of answers that differ by more than rounding."""
    wrong_classes: int = 0
    """Number of wrong answers with another class."""
    margin: float = 0.0
    """Largest margin of an answer with another class."""
    difference: float = 0.0
    """Difference of logits of the worst answer, in proportion to its tolerance."""
    tolerance: float = 0.0
    """Tolerance of the worst answer."""
    ratio: float = 0.0
    """`difference` divided by `tolerance`."""
    samples: list[int] = field(default_factory=list)
    """Places of the first wrong samples in the split."""

    def join(self, other: "_Compared") -> None:
        """Adds the comparison of other answers."""
        for name in ("compared", "differing", "wrong", "wrong_classes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.margin = max(self.margin, other.margin)
        if other.ratio >= self.ratio:
            self.difference, self.tolerance = other.difference, other.tolerance
            self.ratio = other.ratio
        self.samples = list(dict.fromkeys(self.samples + other.samples))[:NUM_NAMED]


class PairedAnswers:
    """Compares a split's answers, batch by batch."""

    def __init__(self, align: Align, precision: Precision, group: RankGroup = ALONE) -> None:
        self._align = align
        self._factor = FACTORS[precision]
        self._group = group
        self._counts = _Compared()
        self._noise: float | None = None
        """Largest effect of rounding on an answer of the first batch."""
        self._doubts_left = MAX_DOUBTED
        self._error: str | None = None

    def add(self, question: Question, plain: Answer, compiled: Answer) -> None:
        """Compares two answers to the same question; an error ends only the comparison."""
        if self._error is not None:
            return
        try:
            self._add(question, plain, compiled)
        except Exception as error:
            if self._group.size > 1:  # other ranks wait for this rank
                raise
            self._error = f"{type(error).__name__}: {error}"[:MAX_ERROR]

    def fields(self) -> dict[str, Any]:
        """The field `answers` of the journal, for all ranks together."""
        if self._error is not None:
            return {"error": self._error}
        total = _Compared()
        for compared in self._group.gather(self._counts):
            total.join(compared)
        return asdict(total)

    def _add(self, question: Question, plain: Answer, compiled: Answer) -> None:
        rows = self._rows(question, plain, compiled)
        if self._noise is None:
            kind = torch.finfo(plain.logits.dtype)
            next_place = plain._replace(logits=plain.logits * (1 + kind.eps))
            least = max(kind.tiny, _largest(self._rows(question, plain, next_place).difference))
            largest = max(least, _largest(self._rounding(question, plain, 0)))
            self._noise = max(self._group.gather(largest))
        noise = torch.full_like(rows.difference, self._noise)
        draws = 0
        while self._doubts_left and draws < MAX_DRAWS and self._any_wrong(rows, noise):
            draws += 1
            noise = noise.maximum(self._rounding(question, plain, draws))
        self._doubts_left -= draws > 0
        self._counts.join(_counted(rows, self._factor * noise))

    def _any_wrong(self, rows: _Rows, noise: Tensor) -> bool:
        """Whether any rank has a wrong answer, since all ranks make the same passes."""
        return any(self._group.gather(bool((rows.difference > self._factor * noise).any())))

    def _rounding(self, question: Question, plain: Answer, seed: int) -> Tensor:
        """The effect of rounding on each answer."""
        with PerturbedRounding(seed, plain.logits.device):
            rounded = question.answer(compiled=False)
        moved = self._rows(question, plain, rounded).difference
        return moved.masked_fill(~moved.isfinite(), 0.0)

    def _rows(self, question: Question, plain: Answer, other: Answer) -> _Rows:
        labels, logits = plain.labels[: len(plain.logits)], other.logits
        if logits.shape != plain.logits.shape:  # All answers are wrong.
            logits = torch.full_like(plain.logits, math.nan)
        plain_rows, targets = self._align(plain.logits, labels)
        other_rows, _ = self._align(logits, labels)
        places = torch.arange(targets.numel(), device=targets.device)
        if targets.is_floating_point():
            plain_rows, other_rows = plain_rows.reshape(-1, 1), other_rows.reshape(-1, 1)
        else:
            places = places[targets.reshape(-1) != IGNORE]
        places_per_sample = max(1, targets.numel() // max(1, len(question.samples)))
        pieces = torch.split(places, max(1, NUMBERS_AT_ONCE // max(1, plain_rows.shape[-1])))
        columns_of_pieces = [_row_columns(plain_rows[piece], other_rows[piece]) for piece in pieces]
        columns = torch.cat(columns_of_pieces, 1).cpu()
        samples = question.samples[places // places_per_sample].cpu()
        return _Rows(columns[0], columns[1], columns[2].bool(), samples)


def _row_columns(plain: Tensor, other: Tensor) -> Tensor:
    """Difference, margin and whether the class differs (3, rows), for logits (rows, classes).
    Excludes logits that are NaN without a compiler. Logits that are too low to count are equal: the
    last place of a mask such as -1e9 is larger than all differences of other logits."""
    kind = torch.promote_types(plain.dtype, torch.float32)
    plain, other = plain.to(kind), other.to(kind)
    least = torch.full_like(plain[:, :1], -math.inf)
    if plain.shape[-1] > 1:
        least = (
            plain.masked_fill(~plain.isfinite(), -math.inf).amax(-1, keepdim=True)
            - NEGLIGIBLE_DISTANCE
        )
    differences = (plain.maximum(least) - other.maximum(least)).abs()
    differences = differences.nan_to_num(nan=math.inf, posinf=math.inf)
    differences[(plain == other) | plain.isnan()] = 0.0
    best, chosen = plain.argmax(-1, keepdim=True), other.argmax(-1, keepdim=True)
    differs = (best != chosen).squeeze(-1) & ~plain.isnan().any(-1)
    margin = (plain.gather(-1, best) - plain.gather(-1, chosen)).squeeze(-1)
    return torch.stack([differences.amax(-1), torch.where(differs, margin, 0.0), differs.to(kind)])


def _counted(rows: _Rows, tolerance: Tensor) -> _Compared:
    wrong = rows.difference > tolerance
    ratio = rows.difference / tolerance
    compared = _Compared(
        compared=len(wrong),
        differing=int(rows.differs.sum()),
        wrong=int(wrong.sum()),
        wrong_classes=int((wrong & rows.differs).sum()),
        margin=_largest(rows.margin),
        samples=torch.unique(rows.sample[wrong])[:NUM_NAMED].tolist(),
    )
    if len(ratio):
        worst = int(ratio.argmax())
        compared.difference, compared.tolerance = (
            rows.difference[worst].item(),
            tolerance[worst].item(),
        )
        compared.ratio = ratio[worst].item()
    return compared


def _largest(values: Tensor) -> float:
    """The largest finite value; 0 without any."""
    finite = values[values.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0
