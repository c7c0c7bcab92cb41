"""PyTorch's own Dynamo harness and Breakeven beside each other on one GPU.

    python -m benchmarks.harness_figures record CHECKOUT [--parts training] [--models A,B] ...
    python -m benchmarks.harness_figures write

`record` needs the packages of the harness (pandas, scipy, psutil, tabulate, tqdm, PyYAML; timm and
torchvision for the suite timm) and CHECKOUT, a folder with the harness: `benchmarks/dynamo` of
pytorch/pytorch, or `userbenchmark/dynamo/dynamobench` of pytorch/benchmark with timm_models.yaml of
the former. It appends a record per model to FILE, and leaves out what FILE has already, so that it
can be called until all is there. `write` makes docs/harness-figures.md of FILE.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from benchmarks.harness_figures.cells import USUAL, Cell
from benchmarks.harness_figures.checkout import Checkout
from benchmarks.harness_figures.recording import Recording, append_to, pairs_in, read
from benchmarks.harness_figures.table import page
from runner.specs.options import split_at_commas
from runner.suites.spec import PARTS

FOLDER = Path(__file__).parent
DOCUMENT = FOLDER.parents[1] / "docs" / "harness-figures.md"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.harness_figures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--file", type=Path, default=FOLDER / "h100.jsonl")
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("checkout", type=Path)
    recording.add_argument("--called", default="", help="what CHECKOUT is: repository and commit")
    recording.add_argument("--folder", type=Path, help="where both tools work (default: a new one)")
    recording.add_argument("--device", default="cuda:0")
    recording.add_argument("--suites", type=split_at_commas, default=list(USUAL))
    recording.add_argument("--models", type=split_at_commas, default=[])
    recording.add_argument("--parts", type=split_at_commas, default=list(PARTS))
    recording.add_argument("--accuracy", action="store_true", help="statuses instead of times")
    recording.add_argument(
        "--apart", action="store_true", help="take the harness's step apart: what its order costs"
    )
    recording.add_argument("--at-once", type=int, default=1, help="cells that are prepared at once")
    recording.add_argument("--training-at-once", type=int, default=1, help="trainings among them")
    recording.add_argument("--repeats", type=int, default=30, help="steps that the harness times")
    recording.add_argument("--batch-size", type=int, help="for trials on small machines")
    recording.add_argument("--seconds", type=float, default=36_000.0, help="how long at most")
    commands.add_parser("write")
    options = parser.parse_args()
    if options.command == "write":
        DOCUMENT.write_text(page(read(options.file)))
    else:
        _record(options)


def _record(options: argparse.Namespace) -> None:
    cells = [
        Cell(
            suite=suite,
            model=model,
            part=part,
            checks=options.accuracy,
            batch_size=options.batch_size,
            repeats=options.repeats,
        )
        for part in options.parts
        for suite in options.suites
        for model in USUAL[suite]
        if not options.models or model in options.models
    ]
    done = {(one["suite"], one["model"], one["part"], one["checks"])
            for one in read(options.file) if "lost" not in one}  # fmt: skip
    # Whoever ends this ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = options.folder or Path(tempfile.mkdtemp(prefix="harness-figures-"))
    checkout = Checkout(options.checkout, folder / "checkout", options.called)
    Recording(
        [cell for cell in cells if cell.key not in done],
        pairs_in(folder, checkout, options.device, apart=options.apart),
        append_to(options.file),
        lambda text: print(text, flush=True),  # noqa: T201
        at_once=options.at_once,
        training_at_once=options.training_at_once,
    ).run(options.seconds)


if __name__ == "__main__":
    main()
