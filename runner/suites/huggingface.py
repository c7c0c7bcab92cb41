"""Models of transformers, in the sizes of the Dynamo harness's `huggingface.py`."""

from breakeven.runner.specs.training import NO_OPTIMIZER
from breakeven.runner.suites.suite_matrix import Suite, SuiteModel

BATCH_SIZES = {
    "AlbertForMaskedLM": 8 // 2,
    "AlbertForQuestionAnswering": 8,
    "AllenaiLongformerBase": 8 // 2,
    "BartForCausalLM": 8 // 2,
    "BartForConditionalGeneration": 4,
    "BertForMaskedLM": 32 // 2,
    "BertForQuestionAnswering": 32,
    "BlenderbotForCausalLM": 32 // 8,
    "BlenderbotForConditionalGeneration": 16,
    "BlenderbotSmallForCausalLM": 256,
    "BlenderbotSmallForConditionalGeneration": 128,
    "CamemBert": 32,
    "DebertaV2ForMaskedLM": 8 // 4,
    "DebertaV2ForQuestionAnswering": 8,
    "DistilBertForMaskedLM": 256 // 2,
    "DistilBertForQuestionAnswering": 512,
    "DistillGPT2": 32 // 2,
    "ElectraForCausalLM": 64 // 2,
    "ElectraForQuestionAnswering": 128,
    "GPT2ForSequenceClassification": 8 // 2,
    "GPTJForCausalLM": 1,
    "GPTJForQuestionAnswering": 1,
    "GPTNeoForCausalLM": 32,
    "GPTNeoForSequenceClassification": 32,
    "GoogleFnet": 32 // 2,
    "LayoutLMForMaskedLM": 32 // 2,
    "LayoutLMForSequenceClassification": 32,
    "M2M100ForConditionalGeneration": 64 // 4,
    "MBartForCausalLM": 8 // 2,
    "MBartForConditionalGeneration": 4,
    "MT5ForConditionalGeneration": 32 // 2,
    "MegatronBertForCausalLM": 16 // 4,
    "MegatronBertForQuestionAnswering": 16,
    "MobileBertForMaskedLM": 256 // 2,
    "MobileBertForQuestionAnswering": 256,
    "OPTForCausalLM": 4 // 2,
    "PLBartForCausalLM": 16 // 2,
    "PLBartForConditionalGeneration": 8,
    "PegasusForCausalLM": 128 // 4,
    "PegasusForConditionalGeneration": 64,
    "RobertaForCausalLM": 32 // 2,
    "RobertaForQuestionAnswering": 32,
    "T5ForConditionalGeneration": 8 // 2,
    "T5Small": 8 // 2,
    "TrOCRForCausalLM": 64 // 2,
    "XGLMForCausalLM": 32 // 4,
    "XLNetLMHeadModel": 16 // 2,
    "YituTechConvBert": 32 // 2,
}
"""The largest batch sizes that fit a GPU of 40 GB, by the harness's divisors: backends fit, too."""
OPTIMIZERS = {
    "MobileBertForMaskedLM": NO_OPTIMIZER,
    **dict.fromkeys(
        (
            "AlbertForMaskedLM",
            "BartForCausalLM",
            "ElectraForCausalLM",
            "M2M100ForConditionalGeneration",
            "MBartForCausalLM",
            "OPTForCausalLM",
            "PLBartForCausalLM",
            "PegasusForCausalLM",
            "TrOCRForCausalLM",
            "XGLMForCausalLM",
        ),
        "SGD",
    ),
}
"""Optimizers other than Adam: `CI_SKIP_OPTIMIZER` and `BENCHMARK_USE_SGD` of the harness."""
ACCURACY_BATCH_SIZE = 1
TOLERANCES = {
    "BertForMaskedLM": {"training": 2e-2},
    "GPT2ForSequenceClassification": {"inference": 4e-3, "cpu inference": 5e-3},
    "MT5ForConditionalGeneration": {"training": 2e-2},
}
SKIPPED = {
    "BlenderbotForConditionalGeneration": "the harness cannot copy it",
    "GPTJForCausalLM": "too large: 6 billion parameters do not fit a GPU of 40 GB",
    "GPTJForQuestionAnswering": "too large: 6 billion parameters do not fit a GPU of 40 GB",
    "GPTNeoForCausalLM": "the harness cannot copy it",
    "GPTNeoForSequenceClassification": "the harness cannot copy it",
}
_GENERATES = "it generates text with weights of the hub, which a configuration cannot replace"
LEFT_OUT = {
    "Reformer": "the harness skips it, and transformers trains it at one length only",
    "BigBird": "the harness took it out of its list",
    **dict.fromkeys(
        (
            "meta-llama/Llama-3.2-1B",
            "google/gemma-2-2b",
            "google/gemma-3-4b-it",
            "openai/whisper-tiny",
            "Qwen/Qwen3-0.6B",
            "mistralai/Mistral-7B-Instruct-v0.3",
            "openai/gpt-oss-20b",
        ),
        _GENERATES,
    ),
}
_LENGTHS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (1024, ("GPT2", "Bart", "T5", "PLBart", "MBart", "AllenaiLongformerBase")),
    (2048, ("OPT",)),
    (
        512,
        (
            "Albert",
            "Deberta",
            "Layout",
            "Electra",
            "XLNet",
            "MegatronBert",
            "Bert",
            "Roberta",
            "CamemBert",
            "DistillGPT2",
            "GoogleFnet",
            "YituTechConvBert",
        ),
    ),
    (256, ("TrOCR",)),
)
"""Tokens per sample, by the beginning of a model's name; all others have `USUAL_LENGTH`."""
USUAL_LENGTH = 128


def sequence_length(name: str) -> int:
    """Tokens per sample, by the harness's rule."""
    for length, beginnings in _LENGTHS:
        if name.startswith(beginnings):
            return length
    return USUAL_LENGTH


SUITE = Suite(
    name="huggingface",
    text="Models of transformers from their default configurations, with random weights.",
    begin_with=("BertForMaskedLM", "DistillGPT2"),
    models=tuple(
        SuiteModel(
            source=f"huggingface:{name}",
            batch_size=batch_size,
            accuracy_batch_size=ACCURACY_BATCH_SIZE,
            sequence_length=sequence_length(name),
            tolerances=TOLERANCES.get(name, {}),
            optimizer=OPTIMIZERS.get(name),
            skipped=SKIPPED.get(name),
        )
        for name, batch_size in BATCH_SIZES.items()
    ),
    left_out=LEFT_OUT,
)
