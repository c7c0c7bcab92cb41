"""A test of paired times that may be looked at after every pair.

If the median ratio of two runs is at most r, it exceeds r in at most half of the pairs, and a bet
on "above r" multiplies its stake by 1 or less on average. So the stake reaches 1/a with probability
at most a, in any number of pairs (Ville 1939; bets mixed evenly over all odds: Robbins 1970).
"""

import math
from functools import cache


@cache
def stake(wins: int, rounds: int) -> float:
    """The current stake of bets on winning that began with 1, mixed evenly over all odds above
    even: twice the integral of (2p)^wins (2 (1 - p))^losses over p from 1/2 to 1. This incomplete
    beta function is a sum of binomial coefficients."""
    tail = sum(math.comb(rounds + 1, k) for k in range(wins + 1))
    return tail / ((rounds + 1) * math.comb(rounds, wins))
