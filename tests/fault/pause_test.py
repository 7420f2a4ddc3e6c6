"""A process of a running job stands still (SIGSTOP) for longer than its lease, and goes on: fenced where it has to be, nothing lost, nothing restarted.

Usage: pause_test.py [--seconds S] [--lease L] [test …]      default: a lease of 1 s and pauses of three leases; the real thing: --seconds 60 --lease 10
"""

import argparse
import functools
import os
import pathlib
import re
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import history_checker  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import leeway_run as lw  # noqa: E402

STEPS, GROUPS = 60, 8


def common():
    return [f"trainer.steps={STEPS}", "checkpoint.every=10", "eval.every=0", "staleness.budget=0", "rollout.workers=2",
            f"queue.worker_lease={arguments.lease}", "weights.timeout=2"]


@functools.cache
def undisturbed():
    with lw.Workspace("pause-undisturbed") as folder:
        return lw.checkpoint_digests(lw.Job("tiny.toml", folder, "undisturbed", common()).run(timeout=120).checkpoint(STEPS))


class PausedJob:
    def __init__(self, folder, name):
        self.histories = os.path.join(folder, "histories")
        os.mkdir(self.histories)
        # About twenty steps fit into a pause in which the others can go on.
        pace = f"trainer_before_optimizer=delay:{int(1000 * arguments.seconds / 20)}"
        self.job = lw.Job("tiny.toml", folder, name, common(), {"LEEWAY_FAILPOINTS_TRAINER": pace, "LEEWAY_HISTORY_DIRECTORY": self.histories})

    def pause(self, names, step=5):
        """Stops the processes ("queue-0") at the step, for the time; returns how many steps were done meanwhile."""
        job = self.job
        if job.process is None:
            job.start()
        job.wait_for(lambda job: job.steps_done() >= step, 60 + 5 * arguments.seconds, f"step {step}")
        pids = [pid for pid, role in job.children() if f"{role}-{lw.command_of(pid)[-1]}" in names]
        assert len(pids) == len(names), f"{names}: found {pids}"
        before = job.steps_done()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(arguments.seconds)
            return job.steps_done() - before
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def finish(self):
        job = self.job
        assert job.wait(60 + 5 * arguments.seconds) == 0, job.tail()
        assert "restarted " not in job.output() and "killed by signal" not in job.output(), job.tail()
        history_checker.check_job(job, self.histories, STEPS, GROUPS, budget=0)
        assert lw.checkpoint_digests(job.checkpoint(STEPS)) == undisturbed(), f"{job.directory.name}: the checkpoint differs from the undisturbed run's"

    def identities(self, worker):
        return re.findall(rf"registered as {worker} \(producer (\d+), epoch (\d+)\)", self.job.log(worker))


def worker():
    """It is lost, the other one does its work; what it says when it comes back is refused, and it registers again with the next epoch."""
    with lw.Workspace("pause-worker") as folder:
        paused = PausedJob(folder, "worker")
        steps = paused.pause(["rollout-0"])
        paused.finish()
        assert steps > 0, "nobody did the stopped worker's work"
        identities = paused.identities("rollout-0")
        assert len(identities) >= 2 and identities[0][0] == identities[1][0] and int(identities[0][1]) < int(identities[1][1]), identities
        assert len(paused.identities("rollout-1")) == 1


def all_workers():
    with lw.Workspace("pause-workers") as folder:
        paused = PausedJob(folder, "workers")
        paused.pause(["rollout-0", "rollout-1"])
        paused.finish()
        assert len(paused.identities("rollout-0")) >= 2 and len(paused.identities("rollout-1")) >= 2


def trainer():
    """Its leases last as long as its session: it goes on with the step that it was in, and nobody is fenced."""
    with lw.Workspace("pause-trainer") as folder:
        paused = PausedJob(folder, "trainer")
        assert paused.pause(["trainer-0"]) <= 1
        paused.finish()
        assert {line["lineage"] for line in paused.job.metrics()} == {1}


def queue():
    """It did not run, so nobody was silent: no worker is lost for that, whatever its clock says."""
    with lw.Workspace("pause-queue") as folder:
        paused = PausedJob(folder, "queue")
        assert paused.pause(["queue-0"]) <= 1
        paused.finish()
        assert len(paused.identities("rollout-0")) == len(paused.identities("rollout-1")) == 1, paused.job.log("queue-0")[-2000:]


def one_after_the_other():
    with lw.Workspace("pause-turns") as folder:
        paused = PausedJob(folder, "turns")
        for step, name in ((3, "queue-0"), (6, "rollout-1"), (30, "trainer-0"), (33, "rollout-0")):
            paused.pause([name], step)
        paused.finish()


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--seconds", type=float)
parser.add_argument("--lease", type=float, default=1.0)
parser.add_argument("tests", nargs="*")
arguments = parser.parse_args()
arguments.seconds = arguments.seconds or 3 * arguments.lease
sys.argv = [sys.argv[0], *arguments.tests]
lw.main({"worker": worker, "all_workers": all_workers, "trainer": trainer, "queue": queue, "one_after_the_other": one_after_the_other})
