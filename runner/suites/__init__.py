"""All suites by name (docs/suites.md).

The modules of suites have only names, sizes and tolerances. `runner/worker/model/` builds the
models. The suite `cachebench` has the models that PyTorch's `cachebench.py` uses to time cold and
warm compilation.
"""

from breakeven.runner.suites import huggingface, timm, torchbench
from breakeven.runner.suites.suite_matrix import Suite

TORCHBENCH_MODELS = ("nanogpt", "BERT_pytorch", "resnet50", "moco", "llama")
HUGGINGFACE_MODELS = ("AllenaiLongformerBase", "BertForMaskedLM", "GPT2ForSequenceClassification")

CACHEBENCH = Suite(
    name="cachebench",
    text="Compile latency with empty and with filled caches, of eight models.",
    begin_with=("resnet50", "BertForMaskedLM"),
    models=(
        *torchbench.SUITE.choose(TORCHBENCH_MODELS),
        *huggingface.SUITE.choose(HUGGINGFACE_MODELS),
    ),
    scenarios=("cache",),
)
SUITES = {
    suite.name: suite for suite in (huggingface.SUITE, timm.SUITE, torchbench.SUITE, CACHEBENCH)
}
