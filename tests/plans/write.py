"""Write the plan of every architecture to `tables/NAME.txt`, under the paper's first moments and Adam-mini's second:

python -m tests.plans.write
"""

from pathlib import Path

from optim.plan import BlockPlan, plan_blocks
from optim.plan.blocks import ADAM_MINI_SECOND_MOMENTS
from tests.plans.architectures import ARCHITECTURES, outline

TABLES = Path(__file__).parent / "tables"


def plan_of(name: str) -> BlockPlan:
    """The plan of that architecture."""
    return plan_blocks(outline(name), second_moments=ADAM_MINI_SECOND_MOMENTS)


def main() -> None:
    """Write every table, and remove those of architectures that are gone."""
    for table in TABLES.glob("*.txt"):
        if table.stem not in ARCHITECTURES:
            table.unlink()
    for name in ARCHITECTURES:
        (TABLES / f"{name}.txt").write_text(f"{plan_of(name)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
