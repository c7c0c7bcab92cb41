"""What runs kept of generated code is compared, whatever is in it."""

import signal
from pathlib import Path

from breakeven.runner.folders.run_dir import RunDir
from breakeven.storage.compiling.difference import MAX_COMPARED_LINES, KeptFile, code_difference


def kept(folder: Path, content: str) -> KeptFile:
    folder.mkdir()
    (folder / "code.py").write_text(content)
    return KeptFile(folder=RunDir(folder), what="code", compile_id=None, file="code.py",
                    num_bytes=len(content))  # fmt: skip


def test_where_a_cache_lay_is_no_difference(tmp_path: Path) -> None:
    one = kept(
        tmp_path / "a", "x = '/runs/a/compile_cache/k1.py'\ny=/tmp/torchinductor_me/z/k.py\n"
    )
    two = kept(tmp_path / "b", "x = '/else/compile_cache/k2.py'\ny=/tmp/torchinductor_you/k.py\n")
    three = kept(tmp_path / "c", "x = '/else/compile_cache/k2.py'\nz=/tmp/torchinductor_you/k.py\n")
    assert code_difference([one], [two]) == []
    ((name, difference),) = code_difference([one], [three])
    assert name == "code.py" and "-y=<cache>" in difference and "+z=<cache>" in difference


def test_a_long_path_and_many_lines_hold_nobody_up(tmp_path: Path) -> None:
    """A path of two megabytes was looked at anew from each of its strokes: for days."""
    one = kept(tmp_path / "a", "/a" * 1_000_000)
    two = kept(tmp_path / "b", "x\n" * 1_000_000)
    signal.signal(signal.SIGPROF, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_PROF, 60)  # seconds of this process, however busy others are
    try:
        ((_, difference),) = code_difference([one], [two])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
    assert difference.count("\n+x") == MAX_COMPARED_LINES
