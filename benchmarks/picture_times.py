"""How long pictures take: with a browser for each, as kaleido does by itself, and with a kept one.

    python -m benchmarks.picture_times [TIMES]

Both draw the same figures of the recorded example, one way after the other in each repeat, so that
what else the machine does hits both. It prints the seconds of every picture, the median of each
way and their ratio.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from runner.folders.data_dir import DataDir
from storage.index.store import Store
from views.parts.drawing import browser
from views.parts.exports import Origin
from views.parts.pictures import picture, to_image
from views.report.content import content
from views.shared.inert import inert_figure
from views.shared.resources import EXAMPLES

CHARTS = ("break-even", "loss", "step-times", "peak-memory")


def main(times: int = 5) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.in_memory(DataDir(Path(folder)), EXAMPLES) as store,
    ):
        (experiment_id,) = store.query("SELECT DISTINCT experiment_id FROM runs")["experiment_id"]
        cards = {card.name: card for card in content(store, experiment_id).told.cards}
        figures = {name: next(iter(cards[name].figures.values()))() for name in CHARTS}
    about = Origin()
    seconds: dict[str, list[float]] = {"a browser each": [], "kept": [], "kept, first": []}
    started = time.perf_counter()
    to_image(figures[CHARTS[0]], "first", about)
    seconds["kept, first"].append(time.perf_counter() - started)
    for _ in range(times):
        for name, figure in figures.items():
            started = time.perf_counter()
            to_image(figure, name, about)
            seconds["kept"].append(time.perf_counter() - started)
            copy = picture(figure, name, about)
            started = time.perf_counter()
            inert_figure(copy).to_image(
                format="png", width=1000, height=copy.layout.height, scale=2
            )
            seconds["a browser each"].append(time.perf_counter() - started)
    browser.close()
    for way, taken in seconds.items():
        listed = " ".join(f"{one:.2f}" for one in sorted(taken))
        print(f"{way}: median {median(taken):.2f} s of {listed}")  # noqa: T201
    ratio = median(seconds["a browser each"]) / median(seconds["kept"])
    print(f"ratio of the medians: {ratio:.1f}")  # noqa: T201


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
