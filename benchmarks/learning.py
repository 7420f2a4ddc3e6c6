"""Do the built-in tasks learn as far as they should? Runs the shipped configurations and compares with the targets below.

Usage: learning.py [--tasks sort5,reverse5,…] [--seeds 3] [--keep FOLDER]

Prints a line a run and a verdict a task. The value of a run is its best evaluation (at least 1,024 held-out, sampled episodes).
"""

import argparse
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
import leeway_run as lw  # noqa: E402

# task -> (what is judged, how over the seeds, target)
TARGETS = {
    "sort5": ("best", min, 0.93),
    "reverse5": ("best", min, 0.98),
    "lake4x4": ("best", statistics.median, 0.45),
    "guess20": ("best", statistics.median, 0.38),
    "add2": ("best", min, 0.99),
    "question_file": ("gain", min, 0.3),
}


def evaluations(job):
    return [(line["version"], line["eval/reward"]) for line in job.metrics() if "eval/reward" in line]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(TARGETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], help="key=value passed on to every run")
    arguments = parser.parse_args()
    failed = 0
    with lw.Workspace("learning") as folder:
        for task in arguments.tasks.split(","):
            kind, over_seeds, target = TARGETS[task]
            values = []
            for seed in range(1, arguments.seeds + 1):
                started = time.monotonic()
                job = lw.Job(f"{task}.toml", folder, f"{task}-{seed}", [f"seed={seed}", *arguments.set]).run(timeout=3000)
                curve = evaluations(job)
                first, best = curve[0][1], max(value for _, value in curve)
                lowest = min(value for _, value in curve)
                value = best - first if kind == "gain" else best
                values.append(value)
                print(f"{task:14s}seed {seed}  first {first:.3f}  best {best:.3f}  last {curve[-1][1]:.3f}  lowest {lowest:.3f}  "
                      f"{job.steps_done()} steps in {time.monotonic() - started:.0f} s", flush=True)
                if task == "add2" and lowest < first - 0.03:
                    print(f"{task}: fell to {lowest:.3f}, more than 0.03 below its warm start {first:.3f}")
                    failed += 1
            verdict = over_seeds(values)
            failed += verdict < target
            print(f"{task:14s}{kind} {verdict:.3f}, target {target}: {'holds' if verdict >= target else 'DOES NOT HOLD'}", flush=True)
    sys.exit(1 if failed else 0)


main()
