"""The command line, `adapm-bench`; one verb, or a few that belong together, a file."""

from api.cli.app import main as main
