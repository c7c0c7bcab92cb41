"""The real worker for experiments whose name says so, and for all others the one without torch."""

import sys
from pathlib import Path

from breakeven.runner.protocol.fork_requests import FORK_OPTION
from breakeven.runner.protocol.run_dir import RunDir
from tests.helpers import fake_worker

REAL = "a real training"

if __name__ == "__main__":
    folder = sys.argv[3] if sys.argv[1] == FORK_OPTION else sys.argv[1]
    if RunDir(Path(folder)).read_spec().experiment.name == REAL:
        from breakeven.runner.worker.process import main

        sys.exit(main())
    sys.exit(fake_worker.main())
