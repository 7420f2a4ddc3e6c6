"""Whole jobs with a tiny model: does it learn, is synchronous equal to asynchronous at S = 0, does the staleness bound hold, does it resume, do
several trainer ranks do what one does, and what does an environment cost that hangs.

Usage: job_test.py [test …]
"""

import math
import os
import pathlib
import re
import signal
import subprocess
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
        lw.check_states_partition_time(job)


def synchronous_equals_asynchronous():
    """mode = sync, and async with S = 0 and two workers, one of them killed on the way: equal bytes after 50 steps."""
    with lw.Workspace("sync") as folder:
        common = ["trainer.steps=50", "checkpoint.every=50", "rollout.workers=2"]
        sync = lw.Job("tiny.toml", folder, "sync", [*common, "mode=sync", "staleness.budget=0"]).run()
        calm = lw.Job("tiny.toml", folder, "async", [*common, "mode=async", "staleness.budget=0"]).run()
        killed = lw.Job("tiny.toml", folder, "killed", [*common, "mode=async", "staleness.budget=0"], stops_at=(1, 50)).start_with(workers=2)
        killed.at_step(10)
        victim = next(pid for pid, role in killed.children() if role == "rollout")
        os.kill(victim, signal.SIGKILL)
        killed.wait_for(lambda job: "restarted rollout-" in job.output(), 60, "the worker's restart")
        killed.go_on()
        assert killed.wait(300) == 0, killed.tail()
        expected = lw.checkpoint_digests(sync.checkpoint(50))
        for job in (calm, killed):
            lw.check_conservation(job.metrics())
            assert lw.checkpoint_digests(job.checkpoint(50)) == expected, f"{job.directory.name} differs from sync"


def accepted_pushes(histories):
    lines = [line for path in histories.glob("rollout-*") for line in lw.read_jsonl(path)]
    return sum(line["event"] == "pushed" and line.get("result") == "ACCEPTED" for line in lines)


def staleness_bound():
    """Order ticket: the largest lag is the budget, for every budget, and nothing is dropped."""
    with lw.Workspace("staleness") as folder:
        for budget in (0, 1, 2, 4, 8):
            # The trainer stands in step 10 until rollout has run as far ahead as it may: to the groups of step 10 + S, played with version 10.
            histories = pathlib.Path(folder) / f"ticket-{budget}-histories"
            histories.mkdir()
            job = lw.Job("tiny.toml", folder, f"ticket-{budget}", ["trainer.steps=30", f"staleness.budget={budget}", "queue.max_groups=256", "eval.every=0"],
                         {"LEEWAY_HISTORY_DIRECTORY": str(histories)}, stops_at=(10,)).start()
            allowed = (10 + budget) * 8 * 4
            job.wait_for(lambda _, folder=histories, allowed=allowed: accepted_pushes(folder) >= allowed, 60, f"{allowed} episodes")
            job.go_on()
            assert job.wait(120) == 0, job.tail()
            lines = [line for line in job.metrics() if line["step"] >= 1]
            lw.check_conservation(lines)
            largest = max(line["staleness/max"] for line in lines)
            assert largest == budget, f"budget {budget}: the largest lag is {largest}"
            assert lines[-1]["ledger/stale"] == 0
        # Order ready: one group in five has an episode that is 30 times slower than the others, and is overtaken by many steps meanwhile.
        late = ["trainer.steps=25", "staleness.budget=1", "staleness.order=ready", "queue.max_groups=256", "trainer.groups_per_step=4",
                "trainer.group_size=4", "task.latency=lognormal(median=3ms, sigma=2)", "eval.every=0"]
        dropped = lw.Job("tiny.toml", folder, "drop", [*late, "staleness.breach=drop"]).run()
        lines = [line for line in dropped.metrics() if line["step"] >= 1]
        lw.check_conservation(lines)
        assert max(line["staleness/max"] for line in lines) <= 1
        last = lines[-1]
        assert last["ledger/stale"] > 0, "nothing was too late: this job shows nothing"
        # Every step trained its four groups all the same, and what was dropped was issued on top of them.
        assert last["ledger/trained"] + last["ledger/settled"] == 25 * 4
        assert last["ledger/issued_total"] == 25 * 4 + last["ledger/stale"]
        assert sum(line["tokens/masked"] for line in lines) == 0
        # Mask: nothing is dropped, and no token beyond the budget is trained.
        masked = lw.Job("tiny.toml", folder, "mask", [*late, "staleness.breach=mask"]).run()
        lines = [line for line in masked.metrics() if line["step"] >= 1]
        lw.check_conservation(lines)
        assert max(line["staleness/max"] for line in lines) <= 1, "a masked token was counted as trained"
        assert sum(line["tokens/masked"] for line in lines) > 0, "nothing was too late: this job shows nothing"
        assert lines[-1]["ledger/stale"] == 0
        assert lines[-1]["ledger/issued_total"] == 25 * 4
        for line in lines:
            assert sum(line["staleness/histogram"]) == line["tokens/trained"], f"step {line['step']}: {line['staleness/histogram']}"


def resumes():
    """Stopped by SIGTERM and started again, and stopped hard: the same bytes as an undisturbed run at S = 0."""
    with lw.Workspace("resumes") as folder:
        common = ["trainer.steps=40", "checkpoint.every=10", "staleness.budget=0"]
        calm = lw.Job("tiny.toml", folder, "calm", common).run()
        for name, stop in (("terminated", signal.SIGTERM), ("killed", signal.SIGKILL)):
            job = lw.Job("tiny.toml", folder, name, common, stops_at=(1, 35)).start_with(workers=1)
            job.at_step(15)
            children = job.identified_children()
            assert sorted(role for _, role, _ in children) == ["queue", "rollout", "trainer"], children
            job.process.send_signal(stop)
            if stop == signal.SIGTERM:
                job.wait_for(lambda job: "] ending: " in job.output(), 60, "the beginning of the end")
                job.go_on()
            job.process.wait(60)
            assert job.steps_done() < 40, f"{name}: the job was not stopped"
            # Nobody outlives the launcher, even one that could not say goodbye.
            left = lw.wait_until_gone(children, 10)
            assert not left, f"{name}: still running 10 s after the launcher's end: {left}"
            again = lw.Job("tiny.toml", folder, name, common).run()
            lw.check_conservation(again.metrics())
            assert lw.checkpoint_digests(again.checkpoint(40)) == lw.checkpoint_digests(calm.checkpoint(40)), f"{name} differs"


def stored_elements(path):
    """Of all tensors in a safetensors file of 32-bit values."""
    content = path.read_bytes()
    return (len(content) - 8 - int.from_bytes(content[:8], "little")) // 4


def ranks():
    """2 x 2 ranks: what the workers recorded is what the ranks compute, to the bit; the checkpoint is like one rank's, and evaluates like it."""
    with lw.Workspace("ranks") as folder:
        common = ["trainer.steps=20", "trainer.groups_per_step=16", "checkpoint.every=10", "eval.every=0", "staleness.budget=0"]
        one = lw.Job("sort5.toml", folder, "one", common).run(timeout=200)
        four = lw.Job("sort5.toml", folder, "four", [*common, "trainer.ranks=4", "trainer.tensor_parallel=2"]).run(timeout=200)
        lw.check_states_partition_time(four)
        lines, expected = four.metrics(), one.metrics()
        lw.check_conservation(lines)
        assert [line["step"] for line in lines if line["step"] >= 1] == list(range(1, 21))
        for line in lines:
            # At lag 0 every ratio of new to recorded probability is 1: the ranks' log-probabilities are the workers' one process's.
            if line["step"] >= 1:
                assert (line["staleness/max"], line["mismatch/ratio_max"], line["mismatch/k1"], line["mismatch/k3"]) == (0, 1, 0, 0), line
        # Both began from the same weights, so the first batch is the same.
        first = [next(line for line in run if line["step"] == 1) for run in (lines, expected)]
        for name in ("reward/mean", "tokens/trained", "length/trained_mean"):
            assert first[0][name] == first[1][name], (name, first)
        for name in ("policy/entropy", "optimizer/grad_norm"):
            assert math.isclose(first[0][name], first[1][name], rel_tol=1e-5), (name, first)
        # Every rank has written its part; together they are what one rank writes.
        parts = [{kind: sorted(job.checkpoint(20).glob(f"{kind}*.safetensors")) for kind in ("weights", "optimizer")} for job in (four, one)]
        for kind in ("weights", "optimizer"):
            assert [path.name for path in parts[0][kind]] == [f"{kind}-0000{rank}-of-00004.safetensors" for rank in (1, 2, 3, 4)], parts
            elements = [sum(stored_elements(path) for path in run[kind]) for run in parts]
            assert elements[0] == elements[1] > 0, (kind, elements)
        evaluated = subprocess.run([lw.program(), "eval", str(four.directory)], capture_output=True, text=True, timeout=120, check=False)
        assert evaluated.returncode == 0 and "step 20 of" in evaluated.stdout, evaluated


def ranks_by_hand():
    """Every process started by hand, the ranks with torchrun's variables and then with Slurm's: the run goes on where it was, and ends."""
    with lw.Workspace("by-hand") as folder:
        base = [str(lw.ROOT / "configs" / "tiny.toml"), f"run.directory={folder}", "run.name=run", "trainer.ranks=2", "trainer.zero_stage=3", "checkpoint.every=4",
                "eval.every=0", "trainer.rank_timeout=10"]
        for start, (steps, variables) in enumerate([(8, lambda rank: {"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}),
                                                    (12, lambda rank: {"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}),
                                                    (16, lambda rank: {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": str(rank), "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"})]):
            processes = {}
            for name, more in [("queue", {}), ("rollout", {}), ("trainer-0", variables(0)), ("trainer-1", variables(1))]:
                with open(f"{folder}/{name}-{start}.output", "wb") as output:
                    processes[name] = subprocess.Popen([lw.program(), name.split("-")[0], *base, f"trainer.steps={steps}"], env={**os.environ, **more},
                                                       stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
                lw.Job.started.append(processes[name])
            for rank in (0, 1):
                code = processes[f"trainer-{rank}"].wait(60)
                assert code == 0, f"start {start}, rank {rank}: exit code {code}\n" + pathlib.Path(f"{folder}/trainer-{rank}-{start}.output").read_text()
            for name in ("rollout", "queue"):
                processes[name].send_signal(signal.SIGTERM)
                assert processes[name].wait(30) == 0, pathlib.Path(f"{folder}/{name}-{start}.output").read_text()
            assert (pathlib.Path(folder) / "run" / "checkpoints" / f"step-{steps}").exists(), sorted((pathlib.Path(folder) / "run" / "checkpoints").iterdir())


HANG_NAMED = re.compile(r"sort5: (ticket|evaluation) (\d+) member (\d+) \(issue (\d+), attempt (\d+)\): (reset_timeout|step_timeout): (.*)")


def hung_environment():
    """Environments that never answer: each is named within its deadline, costs its own episode and nothing else, and the job goes on."""
    with lw.Workspace("hung") as folder:
        # `block` holds the environment's thread for ever, `hang` only its answer. One attempt, so that a hang is a failed episode.
        hangs = ["task.faults=faults(hang=0.01, block=0.01)", "rollout.reset_timeout=0.4", "rollout.step_timeout=0.4", "rollout.max_attempts=1"]
        steps, groups, size = 20, 8, 4
        for policy in ("train", "refill"):
            job = lw.Job("tiny.toml", folder, policy, [*hangs, f"queue.short_group={policy}"]).run(timeout=120)
            lines = [line for line in job.metrics() if line["step"] >= 1]
            lw.check_conservation(job.metrics())
            lw.check_states_partition_time(job)
            assert [line["step"] for line in lines] == list(range(1, steps + 1))
            # Named: which task, ticket, member and attempt, which call, and how long it was waited for.
            named = HANG_NAMED.findall(job.log("rollout-0"))
            hung = {(int(ticket), int(member)) for kind, ticket, member, *_ in named if kind == "ticket"}
            assert len(hung) == sum(kind == "ticket" for kind, *_ in named) and len(hung) >= 10, f"{policy}: {named}"
            for kind, ticket, member, _, attempt, code, message in named:
                assert attempt == "1" and "gave no answer within 400ms" in message, (kind, ticket, member, message)
                assert message.startswith("reset" if code == "reset_timeout" else "step of turn 1"), (code, message)
            assert job.summary()["restarts"] == 0
            # Paid for: a group that lacks members is trained without them, or another is played in its place.
            episodes = sum(round(line["tokens/trained"] / line["length/trained_mean"]) for line in lines)
            last = lines[-1]
            assert last["ledger/trained"] + last["ledger/settled"] == steps * groups
            if policy == "train":
                tickets = {ticket for ticket, _ in hung}
                too_short = {ticket for ticket in tickets if sum(other == ticket for other, _ in hung) > size - 2}
                assert last["ledger/failed"] == len(too_short), (last["ledger/failed"], too_short)
                lacking = sum(ticket not in too_short for ticket, _ in hung)
                assert episodes == steps * groups * size - lacking, f"{episodes} episodes were trained, {lacking} hung"
            else:
                assert last["ledger/failed"] == len({ticket for ticket, _ in hung}), (last["ledger/failed"], sorted(hung))
                assert episodes == steps * groups * size, f"{episodes} episodes were trained"
            assert last["ledger/issued_total"] == steps * groups + last["ledger/failed"]
            # No step and no evaluation waited longer than for one hang and one in the group that replaced it.
            assert last["time/wall_s"] < 2 * 0.4 * (steps + 3) + 5, f"{policy}: {last['time/wall_s']:.1f} s"
            # Evaluations report theirs as failed, never as a reward.
            for line in (line for line in job.metrics() if "eval/failed" in line):
                assert line["eval/complete"] == 1 and 0 < line["eval/failed"] < line["eval/episodes"], line


lw.main({
    "learns": learns,
    "synchronous_equals_asynchronous": synchronous_equals_asynchronous,
    "staleness_bound": staleness_bound,
    "resumes": resumes,
    "ranks": ranks,
    "ranks_by_hand": ranks_by_hand,
    "hung_environment": hung_environment,
})
