"""Write the plans of a dozen architectures to `tables/NAME.txt`, under the paper's first moments and Adam-mini's
second:

python -m tests.plans.write
"""

from pathlib import Path

from optim.plan import BlockPlan, plan_blocks
from optim.plan.blocks import ADAM_MINI_SECOND_MOMENTS
from tests.plans.architectures import outline

TABLES = {
    name: Path(__file__).parent / "tables" / f"{name}.txt"
    for name in (
        *("gpt2", "llama", "gemma3", "phi3", "mixtral", "gpt-oss"),
        *("deepseek-v3", "falcon-40b", "mamba", "bert", "t5", "vit"),
    )
}
"""The plans that people read: one of each kind of model."""


def plan_of(name: str) -> BlockPlan:
    """The plan of that architecture."""
    return plan_blocks(outline(name), second_moments=ADAM_MINI_SECOND_MOMENTS)


def main() -> None:
    """Write every table."""
    for name, table in TABLES.items():
        table.write_text(f"{plan_of(name)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
