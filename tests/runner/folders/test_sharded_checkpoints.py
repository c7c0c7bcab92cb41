"""Checkpoints that several ranks wrote are folders: one counts only when it is whole."""

from pathlib import Path

from breakeven.runner.folders.run_dir import RunDir


def test_a_folder_that_was_not_written_to_its_end_is_no_checkpoint_and_is_removed(
    tmp_path: Path,
) -> None:
    run = RunDir(tmp_path / "x.baseline")
    partial = run.checkpoints / "step-00000020.tmp"
    partial.mkdir(parents=True)
    (partial / "__0_0.distcp").write_bytes(b"half")
    assert not run.has_checkpoint
    whole = run.checkpoints / "step-00000010.sharded"
    whole.mkdir()
    run.drop_leftovers()
    assert run.has_checkpoint and list(run.checkpoints.iterdir()) == [whole]
