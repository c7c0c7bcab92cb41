"""What the logs of a data folder tell that should not be there."""

import json

from runner.folders.data_dir import DataDir

BAD = ("WARNING", "ERROR", "CRITICAL")


def errors_in(data_dir: DataDir) -> list[str]:
    """Messages of the structured logs, and tracebacks of what a dashboard printed."""
    found = []
    for file in sorted((data_dir.path / "logs").glob("*.jsonl*")):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        found += [str(line["message"]) for line in lines if str(line["level"]).upper() in BAD]
    for file in sorted(data_dir.path.glob("*.log")):
        text = file.read_text(errors="replace")
        found += [line for line in text.splitlines() if line.startswith(("Traceback", "ERROR"))]
    return found
