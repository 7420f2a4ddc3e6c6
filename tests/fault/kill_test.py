"""Kills processes of running jobs, again and again: at named points, at random moments, one by one and all at once. Nothing may be lost or doubled.

Usage: kill_test.py [--kills N] [--seed S] [--kind KIND ...] [--lives L] [--store rocksdb|memory]

| kind | who dies |
|---|---|
| queue, trainer, worker | the process, at a named failpoint of its first life, at another one of its second, and so on |
| random | one process of the job at a time, by its id, at random moments |
| together | queue, trainer and workers at the same moment; the launcher lives and starts them again |
| launcher | the launcher; its children have to go with it, and a second `leeway train` goes on |
| everything | launcher and children at the same moment; a second `leeway train` goes on |

A queue that is killed also loses every write that was not synced (LEEWAY_STORE_FAULTS=lose_unsynced). Each job trains a tiny model at S = 0. After
it: the history checker proves exactly-once from what all processes wrote down, the conservation law holds in every line, and the last checkpoint has
the bytes of the undisturbed run. Kinds take turns until N kills were made in all.
"""

import argparse
import itertools
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import history_checker  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import leeway_run as lw  # noqa: E402

STEPS, GROUPS = 24, 8
COMMON = [f"trainer.steps={STEPS}", "checkpoint.every=6", "staleness.budget=0", "rollout.workers=2", "run.restart_backoff=0.05",
          "run.max_restarts=100", "queue.poison_losses=1000"]

# Point -> at which passage a life of the process dies: ranges that every life in such a job reaches.
POINTS = {
    "queue": {
        "queue_before_write": (3, 150), "queue_after_write": (3, 150), "queue_before_answer": (3, 150), "queue_after_answer": (3, 150),
        "queue_after_register": (1, 2), "queue_after_issue": (1, 12), "queue_after_lease": (1, 6), "queue_after_allocate": (1, 1),
        "queue_after_commit": (1, 6), "queue_after_settle": (1, 1), "queue_after_recovery": (1, 1), "queue_in_recovery": (1, 8),
    },
    "trainer": {
        "trainer_before_optimizer": (1, 5), "trainer_after_optimizer": (1, 5), "trainer_in_publish": (1, 5), "trainer_before_commit": (1, 5),
        "trainer_after_commit": (1, 5), "trainer_in_share": (1, 2), "trainer_in_checkpoint": (1, 2), "trainer_after_checkpoint": (1, 2),
        "weights_publisher_before_announce": (1, 5), "weights_publisher_after_commit": (1, 5),
    },
    "rollout": {
        "rollout_idle": (2, 8), "rollout_generating": (20, 120), "rollout_before_push": (3, 20), "rollout_after_push": (3, 20),
        "rollout_receiving_weights": (2, 4), "weights_receiver_mid_transfer": (2, 6), "weights_receiver_after_verify": (2, 4),
    },
}
# A first life has nothing to recover, and allocates and registers only once.
LATER_LIVES_ONLY = ("queue_in_recovery",)
# Only in the first life of the queue: a later one meets trainers and workers that have what they need.
FIRST_LIFE_ONLY = ("queue_after_allocate", "queue_after_register")


class Points:
    """Deals the named points of a role in turn, so that few kills reach many."""

    def __init__(self, role, chooser):
        self.role, self.chooser = role, chooser
        self.left = []

    def draw(self, life):
        def suits(point):
            return not (life == 0 and point in LATER_LIVES_ONLY) and not (life > 0 and point in FIRST_LIFE_ONLY)
        if not any(suits(point) for point in self.left):
            self.left += self.chooser.sample(list(POINTS[self.role]), len(POINTS[self.role]))
        point = next(point for point in self.left if suits(point))
        self.left.remove(point)
        return f"{point}=kill@{self.chooser.randint(*POINTS[self.role][point])}"

    def lives(self, count):
        return [self.draw(life) for life in range(count)]


class KilledJob:
    """One job to be disturbed."""

    def __init__(self, folder, name, store, failpoints):
        self.histories = os.path.join(folder, f"{name}-histories")
        os.mkdir(self.histories)
        environment = {f"LEEWAY_FAILPOINTS_{process}": ";".join(parts) for process, parts in failpoints.items()}
        environment |= {"LEEWAY_HISTORY_DIRECTORY": self.histories, "LEEWAY_STORE_FAULTS": "lose_unsynced"}
        self.failpoints = failpoints
        self.job = lw.Job("tiny.toml", folder, name, [*COMMON, f"queue.store={store}"], environment)
        self.pid_kills = 0

    def kill(self, processes):
        """SIGKILL to (pid, role, start), if it is still that process."""
        for pid, _, start in processes:
            if start is not None and lw.start_of(pid) == start:
                os.kill(pid, signal.SIGKILL)
                self.pid_kills += 1

    def kills_at_points(self):
        """{point: kills}: the n-th death by SIGKILL of a process was that of its n-th life."""
        found = {}
        for process, parts in self.failpoints.items():
            name = process.lower().replace("_", "-")
            name = name if name[-1].isdigit() else f"{name}-0"
            deaths = re.findall(rf"{name} ended: killed by signal 9", self.job.output())
            for part in parts[:len(deaths)]:
                point = part.split("=")[0]
                found[point] = found.get(point, 0) + 1
        return found

    def prove(self, expected, durable):
        calls = history_checker.check_job(self.job, self.histories, STEPS, GROUPS, budget=0, durable=durable)
        lw.check_conservation(self.job.metrics())
        lw.check_inspect(self.job)
        assert lw.checkpoint_digests(self.job.checkpoint(STEPS)) == expected, f"{self.job.directory.name}: the checkpoint differs from the undisturbed run's"
        return calls


def wait_for_step(job, step):
    job.wait_for(lambda job: job.steps_done() >= step or job.process.poll() is not None, 120, f"step {step}")


def disturb_at_points(killed, **_):
    killed.job.run(timeout=240)


def disturb_at_random(killed, chooser, lives):
    job = killed.job.start()
    for _ in range(lives):
        time.sleep(chooser.uniform(0.1, 0.6))
        if job.process.poll() is not None:
            break
        children = job.identified_children()
        if children:
            killed.kill([chooser.choice(children)])
    assert job.wait(240) == 0, job.tail()


def disturb_together(killed, chooser, lives):
    job = killed.job.start()
    for _ in range(max(1, lives - 1)):
        time.sleep(chooser.uniform(0.3, 0.9))
        if job.process.poll() is not None:
            break
        killed.kill(job.identified_children())
    assert job.wait(240) == 0, job.tail()


def end_launcher(killed, chooser, with_children):
    job = killed.job.start()
    time.sleep(chooser.uniform(0.3, 0.9))
    children = job.identified_children()
    if job.process.poll() is None:
        launcher = (job.process.pid, "leeway", lw.start_of(job.process.pid))
        killed.kill([launcher, *children] if with_children else [launcher])
        job.process.wait(10)
        left = lw.wait_until_gone(children, 10)
        assert not left, f"{job.directory.name}: children outlived the launcher: {left}"
    else:
        assert job.process.returncode == 0, job.tail()


def disturb_launcher(killed, chooser, lives, with_children=False):
    for _ in range(max(1, lives - 1)):
        end_launcher(killed, chooser, with_children)
    killed.job.run(timeout=240)


def disturb_everything(killed, chooser, lives):
    disturb_launcher(killed, chooser, lives, with_children=True)


KINDS = {"queue": disturb_at_points, "worker": disturb_at_points, "trainer": disturb_at_points, "random": disturb_at_random,
         "together": disturb_together, "launcher": disturb_launcher, "everything": disturb_everything}
# The memory store's death ends the job, and what it acknowledged is gone.
NEEDS_DURABLE = ("queue", "random", "together")


def failpoints_of(kind, points, lives):
    if kind == "queue":
        return {"QUEUE": points["queue"].lives(lives)}
    if kind == "trainer":
        return {"TRAINER": points["trainer"].lives(lives)}
    if kind == "worker":
        return {"ROLLOUT_0": points["rollout"].lives(lives), "ROLLOUT_1": points["rollout"].lives(lives)}
    return {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="how many kills in all (default 20)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=tuple(KINDS), nargs="*", help="only these kinds")
    parser.add_argument("--lives", type=int, default=3, help="how often a process is killed in one job at most (default 3)")
    parser.add_argument("--store", choices=("rocksdb", "memory"), default="rocksdb")
    arguments = parser.parse_args()
    durable = arguments.store != "memory"
    kinds = [kind for kind in arguments.kind or KINDS if durable or kind not in NEEDS_DURABLE]
    chooser = random.Random(arguments.seed)
    points = {role: Points(role, chooser) for role in POINTS}
    at_points, by_kind, calls, started = {}, {}, 0, time.monotonic()
    with lw.Workspace("kills") as folder:
        calm = lw.Job("tiny.toml", folder, "calm", [*COMMON, f"queue.store={arguments.store}"]).run()
        expected = lw.checkpoint_digests(calm.checkpoint(STEPS))
        idle = 0
        for number, kind in enumerate(itertools.cycle(kinds)):
            total = sum(by_kind.values())
            if total >= arguments.kills:
                break
            killed = KilledJob(folder, f"{kind}-{number}", arguments.store, failpoints_of(kind, points, arguments.lives))
            KINDS[kind](killed, chooser=chooser, lives=arguments.lives)
            calls += killed.prove(expected, durable)
            found = killed.kills_at_points()
            for point, count in found.items():
                at_points[point] = at_points.get(point, 0) + count
            kills = sum(found.values()) + killed.pid_kills
            by_kind[kind] = by_kind.get(kind, 0) + kills
            idle = 0 if kills else idle + 1
            assert idle < 2 * len(kinds), "nobody is killed any more"
            what = ", ".join(" ".join(parts) for parts in killed.failpoints.values())
            print(f"{kind:11s}{kills} kills{': ' + what if what else ''}; proved; {total + kills} of {arguments.kills} after {time.monotonic() - started:.0f} s", flush=True)
            shutil.rmtree(killed.job.directory)
            shutil.rmtree(killed.histories)
    for kind, count in by_kind.items():
        print(f"{kind:36s}{count:5d} kills")
    for point, count in sorted(at_points.items()):
        print(f"  at {point:33s}{count:5d}")
    print(f"{sum(by_kind.values())} kills, {sum(at_points.values())} of them at {len(at_points)} named points; {calls} lines of history checked")
    if arguments.kills >= 300 and set(kinds) == set(KINDS):
        assert len(at_points) >= 15, f"only {len(at_points)} named points were reached"
    print(f"{sum(by_kind.values())} passed, 0 failed")


if __name__ == "__main__":
    main()
