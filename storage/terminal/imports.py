"""What `breakeven import` prints."""

from collections.abc import Sequence

from breakeven.runner.texts import printable
from breakeven.storage.exchange.imports import Imported, ImportedRow
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.terminal.layout import aligned_table


def import_text(imported: Imported) -> str:
    """The result of an import: its rows, or a line for each experiment, run and omitted file."""
    if imported.rows:
        return _imported_table(imported.rows)
    taken = imported.runs
    lines = [f"experiment {experiment_id}" for experiment_id in taken.experiments]
    lines += [f"  new run {run_id}" for run_id in taken.new_runs]
    lines += [f"  run {run_id} was there already, the same" for run_id in taken.known_runs]
    lines += [f"  left out: {printable(name)}" for name in taken.left_out]
    return "\n".join(lines)


def _imported_table(imported: Sequence[ImportedRow]) -> str:
    """The imported rows of a benchmark's file; a failed row has no numbers."""
    titles = ["imported", "outcome", "dev", "batch", "speedup", "step (ms)", "compile (s)"]
    cells = [
        [
            *(row[name] for name in ("name", "outcome", "dev")),
            *(
                DASH if row[name] is None else f"{row[name]:.4g}"
                for name in ("batch_size", "speedup", "abs_latency", "compilation_latency")
            ),
        ]
        for row in imported
    ]
    return "\n".join(aligned_table([titles, *cells], 2))
