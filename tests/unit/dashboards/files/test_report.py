"""A report of an experiment as one file."""

from dashboards.data.reader import Reader
from dashboards.files.figures import FigureFiles
from dashboards.files.report import report
from orchestrator.kinds.comparison import Candidate
from tests.factories.playing import DEMO


def test_the_answer_is_about_the_candidate_that_is_compared_where_the_baseline_leads(services, player) -> None:
    candidates = tuple(Candidate(optimizer=name, learning_rates=(4e-3,)) for name in ("adamw", "lion"))
    spec = DEMO.model_copy(update={"candidates": candidates, "seeds": (1, 2, 3)})
    experiment = services.experiments.submit(spec).experiment
    player.finish()
    reader = Reader(services)
    assert reader.snapshot(experiment.id).comparison.rows[0].is_baseline, "else there is nothing to show"
    text = report(FigureFiles(reader), experiment.id, "0.1.0")
    assert "Lion: " in text and "higher than AdamW" in text
    assert "AdamW: " not in text.partition("<table")[0]
