"""The cost of a call of `run.log` to the training that makes it, with and without a thread that sends, and by
callbacks.

    python -m benchmarks.own_runs [--calls 20000]

Median and 99th percentile of single calls, timed one by one; the disk is that of the temporary folder. The service of
the third line does not answer; that of the second is `python -m api.cli up` somewhere, by `--url`.
"""

import argparse
import logging
import tempfile
import time
from statistics import median, quantiles

from api.client import start_run
from api.client.callbacks.late_run import LateRun


def timed_calls(calls: int, url: str | None) -> list[float]:
    """Microseconds of each call, as a loop makes them: three metrics at a step."""
    with tempfile.TemporaryDirectory() as folder:
        run = start_run(experiment="cost of a call", candidate="none", lr=1.0, seed=0, folder=folder, url=url)
        times = []
        for step in range(calls):
            begin = time.perf_counter()
            run.log(step=step, train_loss=3.25, grad_norm=1.5, lr=0.001)
            times.append(1e6 * (time.perf_counter() - begin))
        run.finish()
        assert run.left_out == 0
    return times


def timed_callback_calls(calls: int) -> list[float]:
    """The same as the callbacks of frameworks make them."""
    with tempfile.TemporaryDirectory() as folder:
        run, times = LateRun(experiment="cost of a call", candidate="none", lr=1.0, seed=0, folder=folder), []
        run.begin()
        for step in range(calls):
            begin = time.perf_counter()
            run.log({"train_loss": 3.25, "eval_loss": 1.5, "lr": 0.001}, step)
            times.append(1e6 * (time.perf_counter() - begin))
        run.finish()
    return times


def main() -> None:
    """Print a line for each way to log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--url", help="a service that answers")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    ways = {"offline": None, **({"sending": options.url} if options.url else {}), "service away": "http://127.0.0.1:9"}
    timed = {name: timed_calls(options.calls, url) for name, url in ways.items()}
    for name, times in (timed | {"callback": timed_callback_calls(options.calls)}).items():
        slow = quantiles(times, n=100)[98]
        print(f"{name:>13}: median {median(times):.1f} us, p99 {slow:.1f} us of {len(times):,} calls")


if __name__ == "__main__":
    main()
