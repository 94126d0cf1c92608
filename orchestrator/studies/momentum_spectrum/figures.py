"""`momentum-spectrum`: the share of a momentum's energy in the top 5 % of its singular values."""

from orchestrator.studies.probes import first_by_role, means_over_runs
from orchestrator.studies.study import StudyFigures

FIGURES = StudyFigures(
    observe=lambda observations: first_by_role(
        observations, "momentum-spectrum", lambda values: values["energy_top_5_percent"]
    ),
    measure=lambda _, result: means_over_runs(result, "energy in the top 5 % of singular values", is_share=True),
)
