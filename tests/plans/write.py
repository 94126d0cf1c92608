"""Write the plans of a dozen architectures to `tables/NAME.txt`, under the paper's first moments and Adam-mini's
second, and the table of roles into `docs/roles.md`:

python -m tests.plans.write
"""

from pathlib import Path

from optim.plan import BlockPlan, Role, plan_blocks
from optim.plan.blocks import ADAM_MINI_SECOND_MOMENTS
from optim.plan.role_table import SHIPPED
from tests.architecture.tree import REPOSITORY
from tests.plans.architectures import outline

TABLES = {
    name: Path(__file__).parent / "tables" / f"{name}.txt"
    for name in (
        *("gpt2", "llama", "gemma3", "phi3", "mixtral", "gpt-oss"),
        *("deepseek-v3", "falcon-40b", "mamba", "bert", "t5", "vit"),
    )
}
"""The plans that people read: one of each kind of model."""
DOCUMENT = REPOSITORY / "docs" / "roles.md"
HEADING = "## The table\n\n"


def plan_of(name: str) -> BlockPlan:
    """The plan of that architecture."""
    return plan_blocks(outline(name), second_moments=ADAM_MINI_SECOND_MOMENTS)


def document_of_roles(text: str) -> str:
    """The document with the table of today's rows as its last section."""
    head, _, _ = text.partition(HEADING)
    rows = ["| module | weight | is |", "|---|---|---|", *map(_row, SHIPPED)]
    return head + HEADING + "\n".join(rows) + "\n"


def _row(role: Role) -> str:
    kinds = ", ".join(role.sequence)
    often = f", for each {role.repeats}" if isinstance(role.repeats, str) else f", {role.repeats} times"
    return f"| `{role.module}` | `{role.weight}` | {kinds}{'' if role.repeats == 1 else often}{_stacked(role)} |"


def _stacked(role: Role) -> str:
    return ", for each expert" if role.is_stack else ""


def main() -> None:
    """Write every table, and the table of roles."""
    for name, table in TABLES.items():
        table.write_text(f"{plan_of(name)}\n", encoding="utf-8")
    DOCUMENT.write_text(document_of_roles(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
