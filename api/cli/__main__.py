"""`python -m api.cli` is `adapm-bench`: how the supervisor starts its processes, whatever is on the PATH."""

from api.cli import main

main(prog_name="adapm-bench")
