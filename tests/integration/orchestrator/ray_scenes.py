"""The end of an attempt whose machine, or Ray on it, is lost: on a real cluster of two nodes, and an embedded Ray.

Each scene in a process of its own (`test_ray_scenes.py`): one has Ray's token, the other has not.
"""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from orchestrator.dispatch.dispatcher import EndedAttempt
from orchestrator.dispatch.ray_process import NAMESPACE, start_embedded_ray, stop_embedded_ray
from orchestrator.errors import ClusterError
from orchestrator.jobs import Lease, RunId, Token
from orchestrator.store.queue.capacity import NodeId
from tests.factories.specification import made_spec
from tests.factories.waiting import until

pytestmark = pytest.mark.timeout(300)

LEASE = Lease(run_id=RunId("r1"), attempt=1, token=Token("t"), spec=made_spec())


def test_on_a_cluster_an_attempt_that_ends_with_its_node_is_not_the_runs_doing(silent: str) -> None:
    import ray
    from ray.cluster_utils import Cluster

    from orchestrator.dispatch.ray_runner import NODE_DIED, RayRunner

    soon = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 300, "health_check_failure_threshold": 2}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": soon})
    try:
        lost = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
        runner = RayRunner(silent, detached=True)
        (node,) = (node for node in runner.nodes() if node.cpus)
        runner.start(LEASE, node.id)
        ray.get(runner._started[LEASE.run_id, 1].process_id)
        cluster.remove_node(lost, allow_graceful=False)
        (end,) = until(runner.collect_ended, "the attempt has ended")
        assert (end.run_id, end.interrupted, end.node_died, end.message) == ("r1", True, True, NODE_DIED)
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_embedded_ray_ends_an_actor_once_it_is_created_and_a_killed_raylet_is_not_the_runs_doing(
    silent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One Ray for both scenes, of which the second ends it."""
    start_embedded_ray(tmp_path, 1)
    import ray  # it reads its settings when it is imported

    from orchestrator.dispatch import ray_runner

    class Slow:
        def __init__(self, marker: Path) -> None:
            time.sleep(0.3)
            marker.touch()

        def process_id(self) -> int:
            return 0

    monkeypatch.setattr(ray_runner, "CREATION_SECONDS", 60.0)
    try:
        # Ray's order to end passes over a worker that is just creating its actor: its CPU would never be free again.
        slow = ray.remote(num_cpus=1)(Slow).remote(tmp_path / "created")
        ray_runner.end_actor(slow, slow.process_id.remote())
        assert (tmp_path / "created").exists()
        until(lambda: ray.available_resources().get("CPU") == 1.0, "the CPU is free again")

        runner = ray_runner.RayRunner(silent)
        runner.start(LEASE, NodeId(runner.nodes()[0].id))
        ray.get(runner._started[LEASE.run_id, 1].process_id)
        children = psutil.Process().children(recursive=True)
        (raylet,) = (process for process in children if process.name() == "raylet")
        os.kill(raylet.pid, signal.SIGKILL)
        ended: list[EndedAttempt] = []

        def has_ended() -> bool:
            """Either Ray says that its node has died, or the runner that it must start anew: then all are
            interrupted."""
            ended.extend(runner.collect_ended())
            try:
                runner.nodes()
            except ClusterError:
                ended.extend(runner.close(0.0))
                return True
            return bool(ended)

        until(has_ended, "Ray knows that its node has died")
        (end,) = ended
        assert (end.run_id, end.interrupted) == ("r1", True)
    finally:
        stop_embedded_ray(tmp_path)
