"""Generates the built-in reviews, so that labelled text needs no network.

Most sentences have phrases whose sentiment is near the review's stars; some are neutral or
misleading. So a model can learn the stars, but not at once.
"""

import random

NUM_STARS = 5

_SUBJECTS = (
    "the soup",
    "our waiter",
    "the room",
    "this phone",
    "the battery",
    "the view",
    "my haircut",
    "the delivery",
    "the second season",
    "the breakfast",
    "the sound",
    "their support line",
)

_FILLERS = (
    "we came on a Tuesday",
    "my sister had recommended it",
    "it rained the whole time",
    "parking was around the corner",
    "I had read about it before",
    "there were four of us",
)
_VERDICTS: tuple[tuple[str, ...], ...] = (
    ("was an insult", "fell apart within a day", "made me ill", "was the worst in years"),
    ("disappointed me", "was rather poor", "took far too long", "cost more than it gave"),
    ("was all right", "did its job", "was neither good nor bad", "matched the price"),
    ("was a pleasant surprise", "worked very well", "was good value", "made us smile"),
    ("was flawless", "exceeded every hope", "was the best in years", "deserves an award"),
)
_CLOSINGS: tuple[tuple[str, ...], ...] = (
    ("never again", "I want my money back"),
    ("I would not return", "look elsewhere first"),
    ("I might come back", "it is fine for once"),
    ("I will come again", "worth a try"),
    ("I cannot praise it enough", "go, at once"),
)


def generate_reviews(num_reviews: int, seed: int) -> tuple[list[str], list[str]]:
    """Texts and their labels ("1" to "5" stars), the same for the same seed."""
    rng = random.Random(seed)
    stars = [rng.randrange(NUM_STARS) for _ in range(num_reviews)]
    return [_review(rng, star) for star in stars], [str(star + 1) for star in stars]


def _review(rng: random.Random, star: int) -> str:
    sentences = []
    for _ in range(rng.randint(2, 6)):
        if rng.random() < 0.3:
            sentences.append(rng.choice(_FILLERS))
        else:
            sentences.append(f"{rng.choice(_SUBJECTS)} {rng.choice(_VERDICTS[_near(rng, star)])}")
    sentences.append(rng.choice(_CLOSINGS[_near(rng, star)]))
    return ". ".join(sentence[0].upper() + sentence[1:] for sentence in sentences) + "."


def _near(rng: random.Random, star: int) -> int:
    """Usually the star itself, sometimes a neighbour."""
    shift = rng.choices((0, -1, 1), weights=(8, 1, 1))[0]
    return min(max(star + shift, 0), NUM_STARS - 1)
