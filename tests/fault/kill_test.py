"""Kills processes of a running job at named points, again and again; conservation and exactly-once must hold afterwards.

Usage: kill_test.py [--kills N] [--seed S] [--kind worker|trainer|all]

Worker kills are spread over idle, generating, before and after a push, and receiving weights; trainer kills over before and after the optimizer
step, in the publish, before and after the commit, in the checkpoint. Each job runs a tiny model at S = 0 and is killed several times; at its end its
checkpoint is compared byte for byte with the undisturbed run's.
"""

import argparse
import shutil
import pathlib
import random
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


def run_killed_job(folder, name, kind, point, hit):
    """One job in which every process of `kind` dies at its hit-th passage of `point`, until the launcher's patience or the job ends."""
    variable = "LEEWAY_FAILPOINTS_TRAINER" if kind == "trainer" else "LEEWAY_FAILPOINTS_ROLLOUT"
    job = lw.Job("tiny.toml", folder, name, COMMON, {variable: f"{point}=kill@{hit}"})
    return job.run(timeout=240)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="how many kills of each kind (default 20)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=("worker", "trainer", "all"), default="all")
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
                hit = {"rollout_generating": chooser.randint(20, 200), "rollout_before_push": chooser.randint(5, 60),
                       "rollout_after_push": chooser.randint(5, 60), "rollout_idle": chooser.randint(2, 20),
                       "rollout_receiving_weights": chooser.randint(2, 8)}.get(point, chooser.randint(2, 6))
                if point in ("trainer_in_checkpoint", "trainer_after_checkpoint"):
                    hit = chooser.randint(1, 3)
                job = run_killed_job(folder, f"{kind}-{jobs}", kind, point, hit)
                killed = count_kills(job)
                assert killed > 0, f"{point}@{hit}: nobody was killed"
                lw.check_conservation(job.metrics())
                lw.check_inspect(job)
                got = lw.checkpoint_digests(job.checkpoint(24))
                assert got == expected, f"{point}@{hit}: the checkpoint differs from the undisturbed run's"
                kills += killed
                jobs += 1
                totals[point] = totals.get(point, 0) + killed
                print(f"{kind:8s}{point}@{hit}: {killed} kills, equal; {kills} of {arguments.kills} after {time.monotonic() - started:.0f} s", flush=True)
                shutil.rmtree(job.directory)
    for point, count in totals.items():
        print(f"{point:28s}{count:5d} kills")
    print(f"{sum(totals.values())} passed, 0 failed")


main()
