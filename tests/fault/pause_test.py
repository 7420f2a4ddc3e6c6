"""A process of a running job stands still (SIGSTOP) for longer than its lease, and goes on: fenced where it has to be, nothing lost, nothing restarted.

Usage: pause_test.py [--seconds S] [--lease L] [test …]      default: a lease of 1 s and pauses of 1.5 leases; the real thing: --seconds 60 --lease 10
"""

import argparse
import functools
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import history_checker  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import leeway_run as lw  # noqa: E402

STEPS, GROUPS = 40, 8
# A pause at step 5 meets a job at work. It is not over before the pause is: the trainer stands in the last step until finish().
PACE = "trainer_before_optimizer=delay:20"


def common():
    return [f"trainer.steps={STEPS}", "checkpoint.every=10", "eval.every=0", "staleness.budget=0", "rollout.workers=2",
            # A silent worker is to be lost by its lease, not by the trainer's publish.
            f"queue.worker_lease={arguments.lease}", f"weights.timeout={2 * arguments.lease}"]


@functools.cache
def undisturbed():
    with lw.Workspace("pause-undisturbed") as folder:
        return lw.checkpoint_digests(lw.Job("tiny.toml", folder, "undisturbed", common()).run(timeout=120).checkpoint(STEPS))


class PausedJob:
    def __init__(self, folder, name):
        self.histories = os.path.join(folder, "histories")
        os.mkdir(self.histories)
        environment = {"LEEWAY_FAILPOINTS_TRAINER": PACE, "LEEWAY_HISTORY_DIRECTORY": self.histories}
        self.job = lw.Job("tiny.toml", folder, name, common(), environment, stops_at=(1, STEPS)).start_with(workers=2)

    def pause(self, names, step=5, until=None):
        """Stops the processes ("queue-0") at the step, for the time and until(job, steps at the beginning); returns how many steps were done meanwhile."""
        job = self.job
        job.at_step(step)
        pids = [pid for pid, role in job.children() if f"{role}-{lw.command_of(pid)[-1]}" in names]
        assert len(pids) == len(names), f"{names}: found {pids}"
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        before = job.steps_done()
        try:
            time.sleep(arguments.seconds)
            if until is not None:
                job.wait_for(lambda job: until(job, before), 60, f"what has to happen while {names} stand still")
            return job.steps_done() - before
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def wait_until_back(self, worker, lives=2):
        """It is somebody new: its name, the next epoch."""
        self.job.wait_for(lambda job: len(job.registrations(worker)) >= lives, 60, f"{worker}'s coming back")
        identities = self.job.registrations(worker)
        assert len({producer for producer, _ in identities}) == 1 and sorted(identities, key=lambda who: int(who[1])) == identities, identities

    def finish(self):
        job = self.job
        job.go_on()
        assert job.wait(120) == 0, job.tail()
        assert "restarted " not in job.output() and "killed by signal" not in job.output(), job.tail()
        history_checker.check_job(job, self.histories, STEPS, GROUPS, budget=0)
        assert lw.checkpoint_digests(job.checkpoint(STEPS)) == undisturbed(), f"{job.directory.name}: the checkpoint differs from the undisturbed run's"


def is_lost(job, worker):
    return f"worker {worker} lost: no sign of life" in job.log("queue-0")


def worker():
    """It is lost, the other one does its work; what it says when it comes back is refused, and it registers again with the next epoch."""
    with lw.Workspace("pause-worker") as folder:
        paused = PausedJob(folder, "worker")
        paused.pause(["rollout-0"], until=lambda job, before: is_lost(job, "rollout-0") and job.steps_done() > before)
        paused.wait_until_back("rollout-0")
        paused.finish()
        assert len(paused.job.registrations("rollout-1")) == 1


def all_workers():
    with lw.Workspace("pause-workers") as folder:
        paused = PausedJob(folder, "workers")
        paused.pause(["rollout-0", "rollout-1"], until=lambda job, _: is_lost(job, "rollout-0") and is_lost(job, "rollout-1"))
        paused.wait_until_back("rollout-0")
        paused.wait_until_back("rollout-1")
        paused.finish()


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
        assert [len(paused.job.registrations(f"rollout-{rank}")) for rank in (0, 1)] == [1, 1], paused.job.log("queue-0")[-2000:]


def one_after_the_other():
    """Each soon after the one before: what the last pause broke is still being mended."""
    with lw.Workspace("pause-turns") as folder:
        paused = PausedJob(folder, "turns")
        for step, name in ((3, "queue-0"), (6, "rollout-1"), (9, "trainer-0"), (12, "rollout-0")):
            paused.pause([name], step)
        paused.finish()


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--seconds", type=float)
parser.add_argument("--lease", type=float, default=1.0)
parser.add_argument("tests", nargs="*")
arguments = parser.parse_args()
arguments.seconds = arguments.seconds or 1.5 * arguments.lease
sys.argv = [sys.argv[0], *arguments.tests]
lw.main({"worker": worker, "all_workers": all_workers, "trainer": trainer, "queue": queue, "one_after_the_other": one_after_the_other})
