"""Whole jobs with a tiny model: does it learn, is synchronous equal to asynchronous at S = 0, does the staleness bound hold.

Usage: job_test.py [test …]
"""

import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import leeway_run as lw  # noqa: E402

FIXED_NAMES = """step version lineage time/wall_s reward/mean reward/std staleness/mean staleness/p50 staleness/p95 staleness/max
staleness/histogram queue/groups queue/bytes policy/loss policy/entropy policy/clip_fraction policy/kl_old mismatch/k1 mismatch/k3
mismatch/ratio_max mismatch/ess optimizer/grad_norm optimizer/lr tokens/trained tokens/generated throughput/train_tokens_per_s
throughput/generate_tokens_per_s weights/publish_s weights/bytes weights/members length/generated_mean length/trained_mean
ledger/issued_total""".split() + [f"ledger/{state}" for state in lw.LEDGER_STATES]


def learns():
    """150 steps of sort5: reward rises well above chance, and the run directory holds what users rely on."""
    with lw.Workspace("learns") as folder:
        job = lw.Job("sort5.toml", folder, "learns", ["trainer.steps=150", "optimizer.schedule=constant", "eval.every=75", "eval.episodes=256",
                                                      "checkpoint.every=50"]).run(timeout=400)
        lines = job.metrics()
        lw.check_conservation(lines)
        trained = [line for line in lines if line["step"] >= 1]
        assert [line["step"] for line in trained] == list(range(1, 151)), [line["step"] for line in trained]
        for line in trained:
            missing = [name for name in FIXED_NAMES if name not in line]
            assert not missing, f"step {line['step']} lacks {missing}"
            assert line["version"] == line["step"] + 1
            assert line["staleness/max"] <= 2
        first = sum(line["reward/mean"] for line in trained[:5]) / 5
        last = sum(line["reward/mean"] for line in trained[-5:]) / 5
        assert first < 0.06, f"reward starts at {first:.3f}: chance is about 0.02"
        assert last > first + 0.2, f"reward went from {first:.3f} to {last:.3f} in 150 steps"
        evaluated = {line["version"] for line in lines if "eval/reward" in line}
        assert {1, 76, 151} <= evaluated, evaluated
        for name in ("config.toml", "summary.json", "schedule.jsonl", "trajectories", "checkpoints/latest", "logs", "tensorboard", "trace.json"):
            assert (job.directory / name).exists(), f"no {name} in the run directory"
        report = lw.check_inspect(job)
        for role, share in report["unaccounted_share"].items():
            assert abs(share) <= 0.02, f"{role}: states cover all but {share:.3f} of its wall time"


def synchronous_equals_asynchronous():
    """mode = sync, and async with S = 0 and two workers, one of them killed on the way: equal bytes after 50 steps."""
    with lw.Workspace("sync") as folder:
        common = ["trainer.steps=50", "checkpoint.every=50", "rollout.workers=2"]
        sync = lw.Job("tiny.toml", folder, "sync", [*common, "mode=sync", "staleness.budget=0"]).run()
        calm = lw.Job("tiny.toml", folder, "async", [*common, "mode=async", "staleness.budget=0"]).run()
        killed = lw.Job("tiny.toml", folder, "killed", [*common, "mode=async", "staleness.budget=0"]).start()
        killed.wait_for(lambda job: job.steps_done() >= 10, 120, "step 10")
        victim = next(pid for pid, role in killed.children() if role == "rollout")
        os.kill(victim, signal.SIGKILL)
        assert killed.wait(300) == 0, killed.tail()
        expected = lw.checkpoint_digests(sync.checkpoint(50))
        for job in (calm, killed):
            lw.check_conservation(job.metrics())
            assert lw.checkpoint_digests(job.checkpoint(50)) == expected, f"{job.directory.name} differs from sync"


def staleness_bound():
    """Order ticket: the largest lag is the budget, for every budget, and nothing is dropped."""
    with lw.Workspace("staleness") as folder:
        for budget in (0, 1, 2, 4, 8):
            # The trainer is made the slower side, so that rollout runs as far ahead as it may.
            job = lw.Job("tiny.toml", folder, f"ticket-{budget}",
                         ["trainer.steps=30", f"staleness.budget={budget}", "queue.max_groups=256"],
                         {"LEEWAY_FAILPOINTS_TRAINER": "trainer_before_optimizer=delay:30"}).run()
            lines = [line for line in job.metrics() if line["step"] >= 1]
            lw.check_conservation(lines)
            largest = max(line["staleness/max"] for line in lines)
            assert largest == budget, f"budget {budget}: the largest lag is {largest}"
            assert lines[-1]["ledger/stale"] == 0
        # Order ready with dropping: the bound holds and drops are counted.
        job = lw.Job("lake4x4.toml", folder, "ready",
                     ["trainer.steps=25", "staleness.budget=1", "staleness.order=ready", "staleness.breach=drop", "queue.max_groups=256",
                      "trainer.groups_per_step=4", "trainer.group_size=4", "task.latency=lognormal(median=20ms, sigma=1.5)", "eval.every=0"]).run()
        lines = [line for line in job.metrics() if line["step"] >= 1]
        lw.check_conservation(lines)
        assert max(line["staleness/max"] for line in lines) <= 1
        # Mask: no token beyond the budget is trained.
        job = lw.Job("lake4x4.toml", folder, "mask",
                     ["trainer.steps=25", "staleness.budget=1", "staleness.order=ready", "staleness.breach=mask", "queue.max_groups=256",
                      "trainer.groups_per_step=4", "trainer.group_size=4", "task.latency=lognormal(median=20ms, sigma=1.5)", "eval.every=0"]).run()
        lines = [line for line in job.metrics() if line["step"] >= 1]
        lw.check_conservation(lines)
        assert max(line["staleness/max"] for line in lines) <= 1, "a masked token was counted as trained"


def resumes():
    """Stopped by SIGTERM and started again, and stopped hard: the same bytes as an undisturbed run at S = 0."""
    with lw.Workspace("resumes") as folder:
        common = ["trainer.steps=40", "checkpoint.every=10", "staleness.budget=0"]
        calm = lw.Job("tiny.toml", folder, "calm", common).run()
        for name, stop in (("terminated", signal.SIGTERM), ("killed", signal.SIGKILL)):
            job = lw.Job("tiny.toml", folder, name, common).start()
            job.wait_for(lambda job: job.steps_done() >= 15, 120, "step 15")
            job.process.send_signal(stop)
            job.process.wait(60)
            # A killed launcher leaves no orphans.
            leftover = [pid for pid, _ in job.children()]
            assert not leftover, leftover
            again = lw.Job("tiny.toml", folder, name, common).run()
            lw.check_conservation(again.metrics())
            assert lw.checkpoint_digests(again.checkpoint(40)) == lw.checkpoint_digests(calm.checkpoint(40)), f"{name} differs"


lw.main({
    "learns": learns,
    "synchronous_equals_asynchronous": synchronous_equals_asynchronous,
    "staleness_bound": staleness_bound,
    "resumes": resumes,
})
