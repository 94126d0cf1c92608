"""`adapm-bench sweep show|compare ID`: what a sweep found, and its best trials over fresh seeds."""

from pathlib import Path
from typing import Annotated

import typer

from api.cli.console import console, plain, print_json
from api.cli.experiments.show import Id
from api.cli.service import Json, Url, open_client

Seeds = Annotated[int, typer.Option("--seeds", min=1, max=256, help="How many fresh seeds each optimizer gets.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write the comparison into this YAML file instead of submitting it."),
]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    verbs = typer.Typer(help="Look at a sweep, and compare the best of it.", no_args_is_help=True)
    verbs.command()(show)
    verbs.command()(compare)
    app.add_typer(verbs, name="sweep")


def show(id: Id, url: Url = None, json: Json = False) -> None:
    """Show the best trial of each optimizer, which hyperparameters mattered, and every trial."""
    from api.cli.tables.sweep import sweep_view

    with open_client(url) as client:
        report = client.sweep(id)
    print_json(report) if json else console().print(sweep_view(report))


def compare(id: Id, seeds: Seeds = 3, output: Output = None, url: Url = None, json: Json = False) -> None:
    """Submit a comparison of each optimizer's best trial over fresh seeds; again, and it is the same comparison."""
    with open_client(url) as client:
        spec = client.sweep_comparison(id, seeds=seeds)
        if output is not None:
            _write(output, spec.model_dump(mode="json"))
            if json:
                print_json({"kind": "comparison", "file": output})
            else:
                print(f"wrote {output}; next: adapm-bench submit {output}")
            return
        # The key holds the specification: once a better trial has ended, this is another comparison.
        submission = client.submit(spec, key=f"sweep-{id}-{spec.content_hash()[:32]}")
        base = client.url
    if json:
        print_json(submission)
        return
    experiment = submission.experiment
    verb = "submitted" if submission.created else "was already submitted:"
    print(f"{verb} {experiment.id}: {plain(experiment.name)}, {experiment.counts.total} runs")
    print(f"dashboard: {base}/experiments/{experiment.id}")
    print(f"next:      adapm-bench watch {experiment.id}")


def _write(path: Path, spec: dict[str, object]) -> None:
    import yaml

    from api.cli.experiments.specs import refuse

    try:
        path.write_text(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True), encoding="utf-8")
    except OSError as error:
        refuse(f"cannot write {path}: {error.strerror}")
