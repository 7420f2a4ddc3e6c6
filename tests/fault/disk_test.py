"""The disk below the queue's store is full, answers with errors, or is slow, and gets well again: refused before anything is acknowledged, then on.

Usage: disk_test.py [test …]

Each job trains a tiny model. Whatever happened to the disk, the history checker proves exactly-once afterwards; at S = 0 the last checkpoint has the
bytes of an undisturbed run.
"""

import contextlib
import functools
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import history_checker  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import leeway_run as lw  # noqa: E402

STEPS, GROUPS = 30, 8
# Pushes come all the time.
PACE = {"LEEWAY_FAILPOINTS_TRAINER": "trainer_before_optimizer=delay:50", "LEEWAY_FAILPOINTS_ROLLOUT": "rollout_before_push=delay:15"}
FAULT = 3.0  # seconds


def common(budget):
    return [f"trainer.steps={STEPS}", "checkpoint.every=10", "eval.every=0", f"staleness.budget={budget}", "rollout.workers=2", "run.restart_backoff=0.05"]


@functools.cache
def undisturbed():
    with lw.Workspace("disk-undisturbed") as folder:
        return lw.checkpoint_digests(lw.Job("tiny.toml", folder, "undisturbed", common(0)).run(timeout=120).checkpoint(STEPS))


class DiskJob:
    def __init__(self, folder, name, faults="", budget=0, pace=PACE):
        self.histories = os.path.join(folder, f"{name}-histories")
        os.mkdir(self.histories)
        self.budget = budget
        environment = {**pace, "LEEWAY_HISTORY_DIRECTORY": self.histories}
        if faults:
            environment["LEEWAY_STORE_FAULTS"] = faults
        self.job = lw.Job("tiny.toml", folder, name, common(budget), environment)

    def at_step(self, step):
        self.job.wait_for(lambda job: job.steps_done() >= step, 90, f"step {step}")

    def finish(self):
        assert self.job.wait(120) == 0, self.job.tail()
        history_checker.check_job(self.job, self.histories, STEPS, GROUPS, self.budget)
        if self.budget == 0:
            assert lw.checkpoint_digests(self.job.checkpoint(STEPS)) == undisturbed(), f"{self.job.directory.name}: other bytes than the undisturbed run"

    def statuses(self):
        return [line for life in history_checker.read_histories(self.histories) for line in life.lines if line["event"] == "status" and "answers" in line]

    def full_answers(self):
        return max((line["answers"].get("FULL", 0) for line in self.statuses()), default=0)

    def check_nothing_was_acknowledged(self, since, until, slack=0.5):
        """No worker heard ACCEPTED while the disk failed: what is acknowledged is on the disk."""
        heard = [line for life in history_checker.read_histories(self.histories) for line in life.lines
                 if line["event"] == "pushed" and line.get("result") == "ACCEPTED" and since + slack < line["t"] < until]
        assert not heard, f"{len(heard)} pushes were acknowledged while the disk failed, the first {heard[0]['t'] - since:.2f} s after it had begun"


def failing_disk(kind, words, budget):
    """Pushes are refused, with the reason; nobody restarts; all goes on when the disk does."""
    def run():
        with lw.Workspace(f"disk-{kind}") as folder:
            switch = pathlib.Path(folder) / "disk-fails"
            job = DiskJob(folder, f"{kind}-{budget}", f"{kind}_file={switch}", budget)
            job.job.start()
            job.at_step(5)
            switch.touch()
            began, before = time.monotonic(), job.job.steps_done()
            time.sleep(FAULT)
            assert job.job.process.poll() is None, job.job.tail()
            assert job.job.steps_done() < STEPS, "the fault came too late"
            ended, during = time.monotonic(), job.job.steps_done() - before
            switch.unlink()
            job.finish()
            job.check_nothing_was_acknowledged(began, ended)
            assert "restarted " not in job.job.output(), job.job.tail()
            assert job.full_answers() > 0, "no push was answered FULL"
            assert words in job.job.log("queue-0") and "works again" in job.job.log("queue-0"), f"the queue's log does not say why:\n{job.job.log('queue-0')[-2000:]}"
            print(f"  {kind}, S = {budget}: {during} steps while the disk failed, {job.full_answers()} pushes answered FULL")
    return run


def killed_while_the_disk_fails():
    """A queue that dies on a full disk can not start again on it: the job ends and says why; when space returns, the next start goes on."""
    with lw.Workspace("disk-killed") as folder:
        switch = pathlib.Path(folder) / "disk-fails"
        job = DiskJob(folder, "killed", f"lose_unsynced,enospc_file={switch}")
        job.job.start()
        job.at_step(5)
        switch.touch()
        time.sleep(FAULT / 3)
        for pid, role in job.job.children():
            if role == "queue":
                os.kill(pid, 9)
        assert job.job.wait(60) == 3, job.job.tail()
        assert "no space" in job.job.output().lower() or "no space" in job.job.log("queue-0").lower(), job.job.tail()
        switch.unlink()
        job.job.start()
        job.finish()


def slow_syncs():
    """Every sync takes 50 ms: slow, but right, and no deadline passes."""
    with lw.Workspace("disk-slow") as folder:
        job = DiskJob(folder, "slow", "sync_delay_ms=50")
        job.job.start()
        job.finish()
        assert "restarted " not in job.job.output(), job.job.tail()


@contextlib.contextmanager
def small_disk(path, megabytes):
    """A tmpfs; skips the test, by name, where mounting is not allowed."""
    os.makedirs(path)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", path], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        raise lw.Skipped(f"mounting a tmpfs is not allowed here: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def really_full_disk():
    """A real file system of 24 MiB below the store, filled to the last byte by somebody else, and freed again. What the queue holds is trained
    meanwhile: the store keeps room for the ledger's own records."""
    pace = {"LEEWAY_FAILPOINTS_TRAINER": "trainer_before_optimizer=delay:150"}
    with lw.Workspace("disk-tmpfs") as folder, small_disk(os.path.join(folder, "full", "queue"), 24) as disk:
        job = DiskJob(folder, "full", budget=2, pace=pace)
        job.job.start()
        job.at_step(5)
        before = job.job.steps_done()
        filler = pathlib.Path(disk) / "somebody-elses-file"
        with open(filler, "wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(1 << 16))
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(1))
        time.sleep(FAULT)
        assert job.job.process.poll() is None, job.job.tail()
        during = job.job.steps_done() - before
        filler.unlink()
        job.finish()
        assert job.full_answers() > 0, "no push was answered FULL"
        assert during > 0, "nothing was trained of what the queue held"
        print(f"  tmpfs, S = 2: {during} steps without space, {job.full_answers()} pushes answered FULL")


lw.main({
    "disk_full": failing_disk("enospc", "disk full", 0), "disk_full_asynchronous": failing_disk("enospc", "disk full", 2),
    "disk_errors": failing_disk("eio", "disk error", 0), "killed_while_the_disk_fails": killed_while_the_disk_fails, "slow_syncs": slow_syncs,
    "really_full_disk": really_full_disk,
})
