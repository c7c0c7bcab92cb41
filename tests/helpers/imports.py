"""Files of PyTorch's own benchmarks, and functions that import them into a data folder."""

from breakeven.runner.protocol.data_dir import DataDir

HARNESS = """\
dev,name,batch_size,speedup,abs_latency,compilation_latency,compression_ratio
cuda,BertForMaskedLM,32,1.5,41.25,18.72,1.11
cuda,OPTForCausalLM,4,0.0,0.0,0,0
"""


def bring(data_dir: DataDir, content: str, name: str = "inductor.csv") -> None:
    folder = data_dir.path / "imports"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(content)
