"""What asynchrony is worth when rollout is the slower side: lake4x4 with log-normal environment latency, S = 4 against synchronous.

Usage: asynchrony.py [--steps 600] [--seeds 3] [--latency "lognormal(median=4ms, sigma=1.0)"]

Both modes do the same number of steps with the same workers. Prints wall time and final reward (mean of the last tenth of the steps) of each run, and
the ratio of the wall times. Must hold: ratio <= 0.6, and mean final rewards within 0.1 of each other.
"""

import argparse
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
import leeway_run as lw  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--latency", default="lognormal(median=4ms, sigma=1.0)")
    parser.add_argument("--set", action="append", default=[], help="key=value passed on to every run")
    arguments = parser.parse_args()
    seconds, rewards = {"sync": [], "async": []}, {"sync": [], "async": []}
    with lw.Workspace("asynchrony") as folder:
        for seed in range(1, arguments.seeds + 1):
            for mode, extra in (("sync", ["mode=sync", "staleness.budget=0"]), ("async", ["mode=async", "staleness.budget=4"])):
                job = lw.Job("lake4x4.toml", folder, f"{mode}-{seed}",
                             [f"seed={seed}", f"trainer.steps={arguments.steps}", f"task.latency={arguments.latency}", "eval.every=0",
                              "checkpoint.every=1000", *extra, *arguments.set]).run(timeout=3000)
                lines = [line for line in job.metrics() if line["step"] >= 1]
                tail = lines[-max(1, len(lines) // 10):]
                # From the first step's end: start-up is the same for both and says nothing about asynchrony.
                seconds[mode].append(lines[-1]["time/wall_s"] - lines[0]["time/wall_s"])
                rewards[mode].append(statistics.mean(line["reward/mean"] for line in tail))
                print(f"seed {seed} {mode:5s} {seconds[mode][-1]:7.1f} s, final reward {rewards[mode][-1]:.3f}, "
                      f"largest lag {max(line['staleness/max'] for line in lines)}", flush=True)
    ratio = sum(seconds["async"]) / sum(seconds["sync"])
    difference = statistics.mean(rewards["async"]) - statistics.mean(rewards["sync"])
    print(f"wall time asynchronous / synchronous: {ratio:.3f} (must be <= 0.6)")
    print(f"final reward asynchronous - synchronous, mean over seeds: {difference:+.3f} (must be within 0.1)")
    sys.exit(0 if ratio <= 0.6 and abs(difference) <= 0.1 else 1)


main()
