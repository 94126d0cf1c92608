"""`adapm-bench`: every verb registers itself here; none imports anything heavy before it is called."""

import typer

from api.cli import cancel, catalogs, demo, doctor, look, memory, plan, run, submit, up, watch

main = typer.Typer(
    name="adapm-bench",
    help="Compare memory-efficient LLM optimizers fairly: submit, watch, compare.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for verbs in (demo, up, submit, look, watch, cancel, run, catalogs, plan, memory, doctor):
    verbs.register(main)
