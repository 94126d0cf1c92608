"""`adapm-bench sweep show|compare ID`: what a sweep found, and its best trials over fresh seeds."""

from pathlib import Path
from typing import Annotated

import typer
import yaml

from api.cli.console import Json, console, print_json, refuse
from api.cli.experiments.show import Id
from api.cli.experiments.submit import print_submission
from api.cli.service import Url, open_client
from api.cli.tables.listings import sweep_view

Seeds = Annotated[int, typer.Option("--seeds", min=1, max=256, help="How many fresh seeds each optimizer gets.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write the comparison into this YAML file instead of submitting it."),
]


verbs = typer.Typer(help="Show a sweep, and compare its best trials.", no_args_is_help=True)


@verbs.command()
def show(id: Id, url: Url = None, json: Json = False) -> None:
    """Show the best trial of each optimizer, which hyperparameters mattered, and every trial."""
    with open_client(url) as client:
        report = client.sweep(id)
    print_json(report) if json else console().print(sweep_view(report))


@verbs.command()
def compare(id: Id, seeds: Seeds = 3, output: Output = None, url: Url = None, json: Json = False) -> None:
    """Submit a comparison of each optimizer's best trial over fresh seeds; repeating it changes nothing."""
    with open_client(url) as client:
        spec = client.sweep_comparison(id, seeds=seeds)
        if output is not None:
            try:
                fields = spec.model_dump(mode="json")
                output.write_text(yaml.safe_dump(fields, sort_keys=False, allow_unicode=True), encoding="utf-8")
            except OSError as error:
                refuse(f"cannot write {output}: {error.strerror}; choose another file with -o")
            if json:
                print_json({"kind": "comparison", "file": output})
            else:
                print(f"wrote {output}; next: adapm-bench submit {output}")
            return
        # The key holds the specification: once a better trial has ended, this is another comparison.
        submission = client.submit(spec, key=f"sweep-{id}-{spec.content_hash()[:32]}")
        print_json(submission) if json else print_submission(submission, client.url)
