"""The suites that there are, by name; each in a module of its own (docs/suites.md).

Only what to run: names, sizes, tolerances. `runner/worker/model/` builds the models.
"""

from breakeven.runner.suites import cachebench, huggingface, timm, torchbench
from breakeven.runner.suites.matrix import Suite

SUITES: dict[str, Suite] = {
    module.SUITE.name: module.SUITE for module in (huggingface, timm, torchbench, cachebench)
}
