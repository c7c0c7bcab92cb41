"""Removes from the index what a run did between its last checkpoint and its resumption.

A resumed run goes on at the checkpoint's step and does again what it had done after it. Of the rows
that stand above the line `resumed` in the journal, those with a later place then count no more. The
order of the lines decides, not when they were read: a row and the resumption that takes it back may
arrive together or ticks apart.
"""

from collections.abc import Sequence

import duckdb

TAKEN_BACK = {
    "steps": "step >= resumed_step",
    "inputs": "step >= resumed_step",
    "blocks": "first_step >= resumed_step",
    "device_samples": "first_step >= resumed_step",
    "gradient_statistics": "step >= resumed_step",
    # What came after so many steps came before the checkpoint that was made there.
    "evaluations": "step > resumed_step",
    "checkpoints": "step > resumed_step",
    "own_values": "step > resumed_step",
    "graph_breaks": "step > resumed_step",
    # In training a compilation belongs to the step that follows, in evaluating to those before.
    **dict.fromkeys(
        ("compile_ends", "compile_metrics", "compile_spans"),
        "step >= resumed_step + (phase IS NOT DISTINCT FROM 'evaluating')::INTEGER",
    ),
    # Ends that turned out to be none, and what the process was in the middle of.
    **dict.fromkeys(("stops", "predictions", "errors", "compile_starts"), "true"),
    **dict.fromkeys(("random_numbers", "redraws", "rehearsals", "dropouts"), "true"),
}
"""Table to which of its rows a resumption takes back, among those above it in the journal."""


def take_back(cursor: duckdb.DuckDBPyConnection, run_ids: Sequence[str]) -> None:
    """Applies all resumptions of these runs; doing so again changes nothing."""
    if not run_ids:
        return
    for table, condition in TAKEN_BACK.items():
        cursor.execute(
            f"""DELETE FROM {table} USING (
                SELECT run_id AS resumed_run, seq AS resumed_seq, step AS resumed_step
                FROM resumptions WHERE run_id IN (SELECT unnest(?)))
            WHERE run_id = resumed_run AND seq < resumed_seq AND {condition}""",
            [list(run_ids)],
        )
