"""Libraries that train on a script's behalf, whose scripts need no change.

Each is a module beside this one with a function `attach`, which is called with the library's module
once a script has imported it. A new one is such a module and an entry here.
"""

from breakeven.runner.worker.script import for_accelerate, for_lightning, for_transformers
from breakeven.runner.worker.script.importing import Attach

TRAINERS: dict[str, Attach] = {
    "transformers.trainer": for_transformers.attach,
    "accelerate.accelerator": for_accelerate.attach,
    "lightning.pytorch.trainer.trainer": for_lightning.attach,
    "pytorch_lightning.trainer.trainer": for_lightning.attach,
}
