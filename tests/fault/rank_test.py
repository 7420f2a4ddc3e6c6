"""Ranks of a trainer die or stand still. All of them start again together from the newest checkpoint, and nobody else notices.

Usage: rank_test.py [--all] [--soak SECONDS [--every SECONDS]] [--seed S] [test …]

| test | what happens |
|---|---|
| kills | a rank dies at a named point of joining, of a step, of a checkpoint, of the end; --all: every rank at every point |
| hangs | a rank stands still (SIGSTOP) in a step and between two; the others find out within trainer.rank_timeout and name it |
| beside | steps are committed while a checkpoint is still being written; a rank that dies meanwhile costs that checkpoint and nothing else |
| layouts | the job is interrupted, and goes on with other numbers of ranks |
| soak | a rank dies every few seconds (--every), for --soak seconds |

Jobs train a tiny model on 2 x 2 ranks at S = 0. After kills and hangs: the last checkpoint has the bytes of the undisturbed run, the history checker
proves exactly-once, the conservation law holds in every line, and queue and rollout workers have lived through it all.
"""

import argparse
import contextlib
import functools
import os
import pathlib
import random
import re
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import history_checker  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import leeway_run as lw  # noqa: E402

STEPS, GROUPS, RANKS, WORKERS = 12, 8, 4, 2
RANK_TIMEOUT = 6.0
# From a rank's failure until those are killed that have not noticed, and what a busy machine needs besides.
RANK_GRACE, SLACK = 5.0, 10.0
COMMON = [f"trainer.steps={STEPS}", "checkpoint.every=3", "eval.every=0", "staleness.budget=0", f"rollout.workers={WORKERS}",
          "run.restart_backoff=0.05", "run.max_restarts=100"]
TWO_BY_TWO = [f"trainer.ranks={RANKS}", "trainer.tensor_parallel=2", f"trainer.rank_timeout={RANK_TIMEOUT}"]

# Point -> at which passage in a life. A life before the first checkpoint reaches all of them.
POINTS = {
    "trainer_before_join": 1, "trainer_after_join": 1, "trainer_at_restore": 1, "trainer_before_command": 3, "trainer_after_command": 3,
    "trainer_after_score": 2, "trainer_before_reduction": 2, "trainer_after_reduction": 2, "trainer_before_optimizer": 2, "trainer_after_optimizer": 2,
    "trainer_at_save": 1, "trainer_in_share": 1, "trainer_after_share": 1,
}
# So that later lives have a checkpoint to begin from.
FIRST_KILL = ("trainer_after_share", 2)
# Where the others do not know each other yet, or no more.
NOBODY_KNOWS = ("trainer_before_join", "trainer_at_stop")


@functools.cache
def undisturbed():
    with lw.Workspace("ranks-undisturbed") as folder:
        return lw.checkpoint_digests(lw.Job("tiny.toml", folder, "undisturbed", [*COMMON, *TWO_BY_TWO]).run(timeout=120).checkpoint(STEPS))


class RankJob:
    """A job whose trainer is disturbed. failpoints: by rank, or None for all ranks, those of each life."""

    def __init__(self, folder, name, failpoints, layout=TWO_BY_TWO):
        self.histories = pathlib.Path(folder) / f"{name}-histories"
        self.histories.mkdir(exist_ok=True)
        environment = {"LEEWAY_FAILPOINTS_TRAINER" + ("" if rank is None else f"_{rank}"): ";".join(lives) for rank, lives in failpoints.items()}
        environment["LEEWAY_HISTORY_DIRECTORY"] = str(self.histories)
        self.job = lw.Job("tiny.toml", folder, name, [*COMMON, *layout], environment)

    def pid(self, rank):
        return next(pid for pid, role in self.job.children() if role == "trainer" and lw.command_of(pid)[-1] == str(rank))

    def lives(self):
        """The launcher's output during each life of the trainer."""
        return re.split(r"(?m)^\[.*\] restarted trainer-0 .*$", self.job.output())

    def finish(self, dies_at_stop=False):
        job = self.job
        assert job.wait(240) == 0, job.tail()
        # Workers may have been told by then that the run is complete, and have ended; they come back beside the trainer.
        for role in ("queue",) if dies_at_stop else ("queue", "rollout"):
            assert f"restarted {role}-" not in job.output(), f"{job.directory.name}: {role} was restarted\n{job.tail()}"
        for worker in range(0 if dies_at_stop else WORKERS):
            assert len(job.registrations(f"rollout-{worker}")) == 1, f"{job.directory.name}: {job.registrations(f'rollout-{worker}')}"
        self.prove()
        assert lw.checkpoint_digests(job.checkpoint(STEPS)) == undisturbed(), f"{job.directory.name}: the checkpoint differs from the undisturbed run's"

    def prove(self):
        history_checker.check_job(self.job, self.histories, STEPS, GROUPS, budget=0)
        lw.check_conservation(self.job.metrics())
        lw.check_inspect(self.job)
        # What ranks tell each other in order to meet is of no use once they have; the last ones may have lost one of them afterwards.
        left = sorted(path.name for path in (self.job.directory / "rendezvous").glob("*"))
        assert not left or [name.endswith("failure") for name in left] == [True], f"{self.job.directory.name}: {left}"


def named_by_others(life, rank):
    """Every other rank that had something to say named the rank."""
    for other in range(RANKS):
        words = re.findall(rf"trainer-{other} ends: (.*)", life)
        if other != rank and words and f"trainer-{other} ended: killed" not in life:
            # Perhaps beside one that only waited: who is late cannot be told from who waits, if they are so by little.
            assert re.search(rf"\branks? (\d, |\d and )*{rank}\b", words[-1]), f"trainer-{other} says of the loss of rank {rank}: {words[-1]}"


def killed_job(folder, name, kills):
    """One job; kills: (point, passage, rank) of each life."""
    failpoints = {rank: [f"{point}=kill@{passage}" if victim == rank else "" for point, passage, victim in kills] for rank in range(RANKS)}
    ranks = RankJob(folder, name, failpoints)
    ranks.job.start()
    ranks.finish(dies_at_stop=kills[-1][0] == "trainer_at_stop")
    lives = ranks.lives()
    at_stop = kills[-1][0] == "trainer_at_stop" and kills[-1][2] > 0
    assert len(lives) == len(kills) + (0 if at_stop else 1), f"{name}: {len(lives)} lives, {len(kills)} kills\n{ranks.job.tail()}"
    for (point, _, rank), life in zip(kills, lives):
        died = re.findall(r"trainer-(\d) ended: killed by signal 9", life)
        assert died[:1] == [str(rank)] or point == "trainer_at_stop", f"{name}: {point} of rank {rank}: {died} died\n{life[-2000:]}"
        if point not in NOBODY_KNOWS:
            named_by_others(life, rank)
    print(f"  {name}: " + ", ".join(f"{point.removeprefix('trainer_')} {rank}" for point, _, rank in kills), flush=True)
    return len(kills)


def kills():
    """Any rank at any point."""
    chooser = random.Random(arguments.seed)
    chosen = [(point, passage, rank) for point, passage in POINTS.items() for rank in range(RANKS)]
    last = list(range(RANKS))
    chooser.shuffle(chosen)
    if not arguments.all:
        # As many points as there is time for, all ranks.
        chosen = [(point, passage, number % RANKS) for number, (point, passage) in enumerate(chooser.sample(list(POINTS.items()), 6))]
        last = [0, chooser.randint(1, RANKS - 1)]
    count = 0
    with lw.Workspace("ranks-kills") as folder:
        for number, begin in enumerate(range(0, len(chosen), 7)):
            count += killed_job(folder, f"kills-{number}", [(*FIRST_KILL, number % RANKS), *chosen[begin:begin + 7]])
        for rank in last:
            count += killed_job(folder, f"stop-{rank}", [("trainer_at_stop", 1, rank)])
    print(f"  {count} kills", flush=True)


def hang(folder, rank, point):
    """The rank stands still from the point in step 5 on."""
    gate = pathlib.Path(folder) / f"gate-{rank}-{point}"
    ranks = RankJob(folder, f"{point}-{rank}", {None: [f"{point}=wait_for:{gate}@5"]})
    job = ranks.job.start()
    # The first publish commits too.
    job.at_step(3 if point == "trainer_before_commit" else 4)
    time.sleep(0.3)  # all stand at the gate; were one still on its way, it would stop there
    pid = ranks.pid(rank)
    os.kill(pid, signal.SIGSTOP)
    gate.touch()
    begun = time.monotonic()
    others = [other for other in range(RANKS) if other != rank]
    job.wait_for(lambda job: all(f"trainer-{other} ended: " in job.output() for other in others), 60, "the end of the other ranks")
    noticed = time.monotonic() - begun
    # The leader sends the next command within a quarter of the timeout.
    assert noticed < 1.25 * RANK_TIMEOUT + SLACK, f"rank {rank} stood still for {noticed:.1f} s before the others ended"
    job.wait_for(lambda job: "restarted trainer-" in job.output(), RANK_GRACE + SLACK + 10, "the restart")
    restarted = time.monotonic() - begun
    ranks.finish()
    named_by_others(ranks.lives()[0], rank)
    said = [words for other in others for words in re.findall(rf"trainer-{other} ends: (.*)", ranks.lives()[0])]
    assert said, f"nobody said why it ended\n{ranks.lives()[0][-2000:]}"
    assert len(ranks.lives()) == 2, f"{len(ranks.lives())} lives"
    print(f"  rank {rank} at {point.removeprefix('trainer_')}: noticed after {noticed:.1f} s, restarted after {restarted:.1f} s: {said[0]}", flush=True)


def hangs():
    """SIGSTOP in a step, and while the leader has other things to do."""
    cases = [(rank, "trainer_before_reduction") for rank in range(RANKS)] + [(rank, "trainer_after_optimizer") for rank in range(1, RANKS)]
    cases.append((0, "trainer_before_commit"))
    with lw.Workspace("ranks-hangs") as folder:
        for rank, point in cases if arguments.all else [(2, "trainer_before_reduction"), (1, "trainer_after_optimizer"), (0, "trainer_before_commit")]:
            hang(folder, rank, point)


def beside():
    """A disk that takes longer than steps do: the second checkpoint is held up between two files of each rank. And one that fails a rank."""
    with lw.Workspace("ranks-beside") as folder:
        for name, victim in [("slow", None), ("killed", 2)]:
            gate = pathlib.Path(folder) / f"gate-{name}"
            # Two passages a checkpoint; only in the first life.
            ranks = RankJob(folder, name, {None: [f"trainer_in_share=wait_for:{gate}@3"]})
            job = ranks.job.start()
            job.at_step(8)
            assert job.checkpoint(3).exists() and not job.checkpoint(6).exists(), sorted((job.directory / "checkpoints").iterdir())
            begun = job.directory / "checkpoints" / ".tmp-step-6-lineage-1"
            written = sorted(path.name for path in begun.iterdir())
            assert written == [f"weights-0000{rank}-of-00004.safetensors" for rank in (1, 2, 3, 4)], written
            if victim is None:
                # The checkpoint of step 9 has to wait for that of step 6.
                job.at_step(9)
                gate.touch()
            else:
                os.kill(ranks.pid(victim), signal.SIGKILL)
            ranks.finish()
            assert len(ranks.lives()) == (1 if victim is None else 2), job.tail()
            if victim is not None:
                assert re.search(r"lineage 2 starts from the end of step 3\b", job.log("trainer-0")), job.log("trainer-0")
                assert not begun.exists(), "what was half-written is still there"
            line = next(line for line in job.metrics() if line["step"] == 10)
            print(f"  {name}: step 8 committed before the checkpoint of step 6; checkpoints of the step before: training stood still for "
                  f"{line['checkpoint/wait_s']:.3f} s", flush=True)
        ranks = RankJob(folder, "failed", {2: ["trainer_in_share=error@3"]})
        ranks.job.start()
        ranks.finish()
        assert len(ranks.lives()) == 1, ranks.job.tail()
        assert "the checkpoint of step 6 could not be written: INTERNAL: rank 2: failpoint trainer_in_share" in ranks.job.log("trainer-0"), ranks.job.log("trainer-0")
        assert sorted(path.name for path in (ranks.job.directory / "checkpoints").iterdir()) == ["latest", "step-12", "step-9"]


TWO_BY_TWO_SHARDED = [*TWO_BY_TWO, "trainer.zero_stage=3"]
ONE = ["trainer.ranks=1", "trainer.tensor_parallel=1"]
LAYOUTS = [
    TWO_BY_TWO_SHARDED,
    ONE,
    TWO_BY_TWO_SHARDED,
    ["trainer.ranks=4", "trainer.tensor_parallel=1", "trainer.zero_stage=3"],
    ["trainer.ranks=2", "trainer.tensor_parallel=2", "trainer.sequence_parallel=true", "trainer.zero_stage=0"],
    ["trainer.ranks=3", "trainer.tensor_parallel=1", "trainer.zero_stage=2"],
]


def layouts():
    """Interrupted in the second step, each time continued by other ranks: a checkpoint every time, and a good end."""
    with lw.Workspace("ranks-layouts") as folder:
        done = 0
        for number, layout in enumerate(LAYOUTS):
            is_last = number + 1 == len(LAYOUTS)
            gate = pathlib.Path(folder) / f"gate-{number}"
            ranks = RankJob(folder, "layouts", {} if is_last else {None: [f"trainer_after_optimizer=wait_for:{gate}@2"]}, layout)
            job = ranks.job.start()
            if is_last:
                break
            job.at_step(done + 1)
            time.sleep(0.3)  # all stand at the gate; were one still on its way, the job would end a step earlier
            job.process.send_signal(signal.SIGTERM)
            job.wait_for(lambda job: job.output().count("] ending: ") == number + 1, 60, "the beginning of the end")
            children = job.identified_children()
            gate.touch()
            begun = time.monotonic()
            assert job.process.wait(60) == 1, job.tail()
            took = time.monotonic() - begun
            assert took < 2 + SLACK, f"{layout}: {took:.1f} s from the step's end to the job's"
            assert not lw.wait_until_gone(children, 5), "a process outlived its launcher"
            assert job.steps_done() > done and job.checkpoint(job.steps_done()).exists(), f"{layout}: no checkpoint of step {job.steps_done()}\n{job.tail()}"
            done = job.steps_done()
            print(f"  {' '.join(layout)}: stopped after step {done}, gone {took:.1f} s later", flush=True)
        assert job.wait(120) == 0, job.tail()
        ranks.prove()
        assert job.summary()["restarts"] == 0


def soak():
    """Progress between the kills, and a ledger that adds up after the last one."""
    chooser = random.Random(arguments.seed)
    with lw.Workspace("ranks-soak") as folder:
        job = lw.Job("tiny.toml", folder, "soak", [*COMMON, *TWO_BY_TWO, "trainer.steps=1000000", "trajectories.every=0", "run.max_restarts=5"]).start()
        job.at_step(3)
        begun, kills_made, steps = time.monotonic(), 0, [job.steps_done()]
        while time.monotonic() - begun < arguments.soak:
            time.sleep(arguments.every)
            steps.append(job.steps_done())
            trainers = [pid for pid, role in job.children() if role == "trainer"]
            if not trainers:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(chooser.choice(trainers), signal.SIGKILL)
                kills_made += 1
        job.wait_for(lambda job: job.steps_done() > steps[-1], 60, "a step after the last kill")
        job.process.send_signal(signal.SIGTERM)
        assert job.process.wait(60) == 1, job.tail()
        lw.check_conservation(job.metrics())
        lw.check_inspect(job)
        assert kills_made >= 2 and steps[-1] > steps[0], f"{kills_made} kills, steps {steps}"
        for role in ("queue", "rollout"):
            assert f"restarted {role}-" not in job.output(), job.tail()
        for worker in range(WORKERS):
            assert len(job.registrations(f"rollout-{worker}")) == 1
        last = job.metrics()[-1]
        print(f"  {arguments.soak:.0f} s, {kills_made} kills, {job.steps_done()} steps, lineage {last['lineage']}, "
              f"{last['ledger/issued_total']} groups issued", flush=True)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--all", action="store_true", help="every rank at every point")
parser.add_argument("--soak", type=float, default=12, help="seconds (default 12)")
parser.add_argument("--every", type=float, default=3, help="seconds between two kills of the soak (default 3)")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("tests", nargs="*")
arguments = parser.parse_args()
sys.argv = [sys.argv[0], *arguments.tests]
lw.main({"kills": kills, "hangs": hangs, "beside": beside, "layouts": layouts, "soak": soak})
