"""Where a second measurement should come out, if nothing but chance lies between it and the first.

Both measurements err. An interval around the first says where the truth lies, and holds another
measurement less often than it claims: with equal normal errors one of 95 % holds it in 83 %. And
what two processes of the same program differ by is in no interval of rounds alone
(`docs/decisions/processes-differ.md`). So the scale is what equal processes were seen to differ by.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from breakeven.storage.statistics.resampling import CONFIDENCE


@dataclass(frozen=True)
class Spread:
    """What equal things differ by, as far as a few of them tell."""

    variance: float
    freedom: int
    """Degrees of freedom of the estimate, at least 1."""

    @classmethod
    def pooled(cls, groups: Iterable[Sequence[float]]) -> Self | None:
        """From several groups, each of things that are equal but for chance: the sum of squares
        about their means over as many as there are values less groups. None if no group has two."""
        told = [np.asarray(group, dtype=float) for group in groups if len(group) > 1]
        freedom = sum(len(group) - 1 for group in told)
        if not freedom:
            return None
        squares = sum(float(((group - group.mean()) ** 2).sum()) for group in told)
        return cls(squares / freedom, freedom)

    def half_width(self, variances: float) -> float:
        """How far from 0, in 95 % of cases, lies a normal value with a mean of 0 and so many times
        the variance: a prediction interval (Hahn and Meeker 1991, section 4.7), with Student's t
        because the variance itself is an estimate."""
        from scipy.special import stdtrit  # here, because it takes time that no list of runs needs

        quantile = float(stdtrit(self.freedom, (1 + CONFIDENCE) / 2))
        return quantile * math.sqrt(variances * self.variance)
