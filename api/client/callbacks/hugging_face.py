"""A callback of Hugging Face's Trainer.

trainer = Trainer(..., callbacks=[BenchCallback(experiment="muon against adamw", candidate="muon")])
trainer.train()
"""

from functools import partial
from typing import Any

from transformers.trainer_callback import TrainerCallback, TrainerControl, TrainerState
from transformers.training_args import TrainingArguments

from api.client.callbacks.late_run import LateRun


class BenchCallback(TrainerCallback):
    """Logs all that the Trainer logs; `eval_loss` is the run's validation loss.

    Learning rate, seed and configuration are those of the `TrainingArguments`, where none are given. Each `train` is a
    run of its own, unless an `id` is given. One that raises says nothing of its end, as one that is killed.
    """

    def __init__(self, *, experiment: str, candidate: str, **more: Any) -> None:
        """The arguments of `start_run`; raises `ValueError` for what could not be judged, as it does."""
        self._start = partial(LateRun, experiment=experiment, candidate=candidate, **more)
        self._late = self._start()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin a run."""
        if state.is_world_process_zero:
            self._late = self._start()
            self._late.add_settings(args.to_dict())  # type: ignore[no-untyped-call]  # of transformers
            self._late.begin()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Log at the Trainer's step, with the tokens that it counts (`include_num_input_tokens_seen`)."""
        if self._late.run is not None and logs:
            token_counts = {"tokens": state.num_input_tokens_seen} if state.num_input_tokens_seen else {}
            self._late.log({**logs, **token_counts}, state.global_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Say that the training ended; an evaluation after it still counts."""
        self._late.finish()
