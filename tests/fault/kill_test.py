"""Kills processes of a running job at named points, again and again; conservation and exactly-once must hold afterwards.

Usage: kill_test.py [--kills N] [--seed S] [--kind worker|trainer|all] [--lives L]

Worker kills are spread over idle, generating, before and after a push, and receiving weights; trainer kills over before and after the optimizer
step, in the publish, before and after the commit, in the checkpoint. Each job runs a tiny model at S = 0 and is killed several times; at its end its
checkpoint is compared byte for byte with the undisturbed run's.
"""

import argparse
import pathlib
import random
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import leeway_run as lw  # noqa: E402

WORKER_POINTS = ("rollout_idle", "rollout_generating", "rollout_before_push", "rollout_after_push", "rollout_receiving_weights")
TRAINER_POINTS = ("trainer_before_optimizer", "trainer_after_optimizer", "trainer_in_publish", "trainer_before_commit",
                  "trainer_after_commit", "trainer_in_checkpoint", "trainer_after_checkpoint")
COMMON = ["trainer.steps=24", "checkpoint.every=6", "staleness.budget=0", "rollout.workers=2"]


def count_kills(job):
    log = job.output()
    return log.count("killed by signal 9")


def choose_hit(point, chooser):
    """At which passage of the point the process dies; ranges that every life of a process in this job reaches."""
    low, high = {
        "rollout_generating": (20, 120), "rollout_before_push": (3, 20), "rollout_after_push": (3, 20), "rollout_idle": (2, 8),
        "rollout_receiving_weights": (2, 4), "trainer_in_checkpoint": (1, 2), "trainer_after_checkpoint": (1, 2),
    }.get(point, (2, 5))
    return chooser.randint(low, high)


def run_killed_job(folder, name, kind, point, hits):
    """One job in which every process of `kind` dies in its n-th life at the hits[n]-th passage of `point`, if it comes so far."""
    variable = "LEEWAY_FAILPOINTS_TRAINER" if kind == "trainer" else "LEEWAY_FAILPOINTS_ROLLOUT"
    overrides = [*COMMON, "run.restart_backoff=0.05", "run.max_restarts=100"]
    return lw.Job("tiny.toml", folder, name, overrides, {variable: ";".join(f"{point}=kill@{hit}" for hit in hits)}).run(timeout=240)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="how many kills of each kind (default 20)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=("worker", "trainer", "all"), default="all")
    parser.add_argument("--lives", type=int, default=3, help="how often a process is killed in one job at most (default 3)")
    arguments = parser.parse_args()
    chooser = random.Random(arguments.seed)
    totals = {}
    started = time.monotonic()
    with lw.Workspace("kills") as folder:
        calm = lw.Job("tiny.toml", folder, "calm", COMMON).run()
        expected = lw.checkpoint_digests(calm.checkpoint(24))
        for kind, points in (("worker", WORKER_POINTS), ("trainer", TRAINER_POINTS)):
            if arguments.kind not in (kind, "all"):
                continue
            kills, jobs = 0, 0
            while kills < arguments.kills:
                point = points[jobs % len(points)]
                hits = [choose_hit(point, chooser) for _ in range(arguments.lives)]
                job = run_killed_job(folder, f"{kind}-{jobs}", kind, point, hits)
                killed = count_kills(job)
                assert killed > 0, f"{point}@{hits}: nobody was killed"
                lw.check_conservation(job.metrics())
                lw.check_inspect(job)
                got = lw.checkpoint_digests(job.checkpoint(24))
                assert got == expected, f"{point}@{hits}: the checkpoint differs from the undisturbed run's"
                kills += killed
                jobs += 1
                totals[point] = totals.get(point, 0) + killed
                print(f"{kind:8s}{point}@{hits}: {killed} kills, equal; {kills} of {arguments.kills} after {time.monotonic() - started:.0f} s", flush=True)
                shutil.rmtree(job.directory)
    for point, count in totals.items():
        print(f"{point:28s}{count:5d} kills")
    print(f"{sum(totals.values())} passed, 0 failed")


main()
