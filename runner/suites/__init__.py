"""All suites by name; each has its own module (docs/suites.md).

The modules have only names, sizes and tolerances. `runner/worker/model/` builds the models.
"""

from breakeven.runner.suites import cachebench, huggingface, timm, torchbench
from breakeven.runner.suites.matrix import Suite

SUITES: dict[str, Suite] = {
    module.SUITE.name: module.SUITE for module in (huggingface, timm, torchbench, cachebench)
}
