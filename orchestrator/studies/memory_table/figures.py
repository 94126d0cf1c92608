"""`memory-table`: table 2's optimizer states, counted over the real optimizers' tensors on `meta`."""

from orchestrator.studies.result import Figure, StudyResult
from orchestrator.studies.study import Numbers, Study, StudyFigures

MODELS = ("llama-340m", "gpt2-1.5b")
"""The paper gives its Llama no sizes; `llama-340m` has the parameters that its AdamW figure means."""
OPTIMIZERS = {"float32": ("adamw", "adam-mini", "adapm", "adapm-mini"), "bfloat16": ("adapm", "adapm-mini")}


def compute() -> Numbers:
    """Return bytes by `model/optimizer/dtype`."""
    from worker.footprint.count import footprint  # loads torch

    counted: Numbers = {}
    for model in MODELS:
        for dtype, optimizers in OPTIMIZERS.items():
            options = {} if dtype == "float32" else {"state_dtype": dtype}
            for optimizer in footprint(model, optimizers, options).optimizers:
                if optimizer.state_bytes is not None:
                    counted[f"{model}/{optimizer.optimizer}/{dtype}"] = float(optimizer.state_bytes)
    return counted


def measure(study: Study, result: StudyResult) -> list[Figure]:
    """Return every state in GB (1e9 bytes), and its share of AdamW's on the same model."""
    figures = []
    for name, count in result.computed.items():
        model, optimizer, dtype = name.split("/")
        state = f"{model} {optimizer}{'' if dtype == 'float32' else ', bf16 state'}"
        figures.append(Figure(metric="optimizer state, GB", candidate=state, value=count / 1e9))
        if adamw := result.computed.get(f"{model}/adamw/float32"):
            figures.append(Figure(metric="share of AdamW's state", candidate=state, value=count / adamw))
    return figures


FIGURES = StudyFigures(compute=compute, version="1", measure=measure)
