"""The models that PyTorch's `cachebench.py` uses to time cold and warm compilation."""

from breakeven.runner.suites import huggingface, torchbench
from breakeven.runner.suites.matrix import Suite

TORCHBENCH_MODELS = ("nanogpt", "BERT_pytorch", "resnet50", "moco", "llama")
HUGGINGFACE_MODELS = ("AllenaiLongformerBase", "BertForMaskedLM", "GPT2ForSequenceClassification")

SUITE = Suite(
    name="cachebench",
    text="Compile latency with empty and with filled caches, of eight models.",
    begin_with=("resnet50", "BertForMaskedLM"),
    models=(
        *torchbench.SUITE.choose(TORCHBENCH_MODELS),
        *huggingface.SUITE.choose(HUGGINGFACE_MODELS),
    ),
    scenarios=("cache",),
)
