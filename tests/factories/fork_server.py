"""Fresh processes that have imported what trainings need: each is forked from one that did so once."""

import multiprocessing
from multiprocessing.context import ForkServerContext


def fork_server() -> ForkServerContext:
    """Return the context that starts such processes. A test process has one server, which keeps what was imported for
    the first."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.factories.training_imports"])
    return context
