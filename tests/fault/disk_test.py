"""The disk below the queue's store is full, answers with errors, or is slow, and gets well again: refused before anything is acknowledged, then on.

Usage: disk_test.py [test …]

Each job trains a tiny model. Whatever happened to the disk, the history checker proves exactly-once afterwards; at S = 0 the last checkpoint has the
bytes of an undisturbed run.
"""

import collections
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

STEPS, GROUPS, EPISODES = 30, 8, 4
# A fault at step 5 meets a job at work. It is not over before the fault is: the trainer stands in the last step until finish().
PACE = {"LEEWAY_FAILPOINTS_TRAINER": "trainer_before_optimizer=delay:20"}
FAULT = 1.2  # seconds; a refused push is tried again after one


def common(budget, steps):
    return [f"trainer.steps={steps}", "checkpoint.every=10", "eval.every=0", f"staleness.budget={budget}", "run.restart_backoff=0.05"]


@functools.cache
def undisturbed(steps):
    with lw.Workspace("disk-undisturbed") as folder:
        return lw.checkpoint_digests(lw.Job("tiny.toml", folder, "undisturbed", common(0, steps)).run(timeout=120).checkpoint(steps))


class DiskJob:
    def __init__(self, folder, name, faults="", switch=None, budget=0, steps=STEPS, stops=()):
        self.histories = os.path.join(folder, f"{name}-histories")
        os.mkdir(self.histories)
        self.budget, self.steps, self.switch = budget, steps, switch
        environment = {**PACE, "LEEWAY_HISTORY_DIRECTORY": self.histories}
        self.push_gates = [pathlib.Path(folder) / f"{name}.push-gate-{i}" for i in (1, 2)]
        if faults:
            environment["LEEWAY_STORE_FAULTS"] = faults
        if switch:
            # At S = 0 the first two pushes of step 6.
            environment["LEEWAY_FAILPOINTS_ROLLOUT"] = ",".join(
                f"rollout_before_push=wait_for:{gate}@{5 * GROUPS * EPISODES + i}" for i, gate in enumerate(self.push_gates, 1))
        self.job = lw.Job("tiny.toml", folder, name, common(budget, steps), environment, stops_at=(1, *stops, steps)).start_with(workers=1)

    def break_disk(self, words):
        """One push meets the fault, and the others a queue that knows of it."""
        # A disk that fails before step 5 is committed, which opens the tickets of step 6, would keep the worker from pushing.
        self.job.wait_for(lambda _: any(ticket["id"] > 5 * GROUPS for _, line in self.lines("acquired") for ticket in line.get("tickets", [])), 60, "tickets of step 6")
        self.job.wait_for(lambda _: len(self.lines("push")) >= 5 * GROUPS * EPISODES, 60, "the pushes of step 5")
        self.switch.touch()
        began, done = time.monotonic(), self.job.steps_done()
        self.push_gates[0].touch()
        self.queue_says(words)
        self.push_gates[1].touch()
        return began, done

    def queue_says(self, words):
        self.job.wait_for(lambda job: words in job.log("queue-0"), 60, f"'{words}' in the queue's log")

    def finish(self):
        if self.job.gates:
            self.job.go_on()
        assert self.job.wait(120) == 0, self.job.tail()
        history_checker.check_job(self.job, self.histories, self.steps, GROUPS, self.budget)
        if self.budget == 0:
            assert lw.checkpoint_digests(self.job.checkpoint(self.steps)) == undisturbed(self.steps), f"{self.job.directory.name}: other bytes than undisturbed"

    def lines(self, event):
        return [(life.name, line) for life in history_checker.read_histories(self.histories) for line in life.lines if line["event"] == event]

    def full_answers(self):
        return max((line["answers"].get("FULL", 0) for _, line in self.lines("status") if "answers" in line), default=0)

    def accepted(self):
        return sum(line.get("result") == "ACCEPTED" for _, line in self.lines("pushed"))

    def check_nothing_was_acknowledged(self, since, until):
        """Of what was pushed while the disk failed nothing was ACCEPTED before it was well again: what is acknowledged is on the disk."""
        pushed_at = {(life, line["call"]): line["t"] for life, line in self.lines("push")}
        heard = [line for life, line in self.lines("pushed")
                 if line.get("result") == "ACCEPTED" and line["t"] < until and pushed_at[life, line["call"]] > since]
        assert not heard, f"{len(heard)} pushes were acknowledged while the disk failed, the first {heard[0]['t'] - since:.2f} s after it had begun"


def failing_disk(kind, words, budget):
    """Pushes are refused, with the reason; nobody restarts; all goes on when the disk does."""
    def run():
        with lw.Workspace(f"disk-{kind}") as folder:
            switch = pathlib.Path(folder) / "disk-fails"
            job = DiskJob(folder, f"{kind}-{budget}", f"{kind}_file={switch}", switch, budget)
            began, before = job.break_disk(words)
            time.sleep(FAULT)
            assert job.job.process.poll() is None, job.job.tail()
            ended, during = time.monotonic(), job.job.steps_done() - before
            switch.unlink()
            job.queue_says("works again")
            job.finish()
            job.check_nothing_was_acknowledged(began, ended)
            assert "restarted " not in job.job.output(), job.job.tail()
            assert job.full_answers() > 0, "no push was answered FULL"
            print(f"  {kind}, S = {budget}: {during} steps while the disk failed, {job.full_answers()} pushes answered FULL")
    return run


def kill_queue(job):
    for pid, role in job.children():
        if role == "queue":
            os.kill(pid, 9)


def killed_while_the_disk_fails(kind, words):
    """A queue that dies while the disk fails is started again until it can be."""
    def run():
        with lw.Workspace(f"disk-killed-{kind}") as folder:
            switch = pathlib.Path(folder) / "disk-fails"
            job = DiskJob(folder, "killed", f"lose_unsynced,{kind}_file={switch}", switch)
            job.break_disk(words)
            kill_queue(job.job)
            job.job.wait_for(lambda job: job.output().count("queue-0 ended") >= 2, 60, "a queue that meets the failing disk")
            switch.unlink()
            job.finish()
    return run


def killed_on_a_disk_that_stays_full():
    """A queue that dies on a full disk can not start again on it: the job ends and says why; when space returns, the next start goes on."""
    with lw.Workspace("disk-stays-full") as folder:
        switch = pathlib.Path(folder) / "disk-fails"
        job = DiskJob(folder, "killed", f"lose_unsynced,enospc_file={switch}", switch)
        job.break_disk("disk full")
        kill_queue(job.job)
        assert job.job.wait(60) == 3, job.job.tail()
        assert "no space" in job.job.output().lower() or "no space" in job.job.log("queue-0").lower(), job.job.tail()
        switch.unlink()
        job.job.go_on()
        job.job.start()
        job.finish()


def slow_syncs():
    """Every sync takes 50 ms: slow, but right, and no deadline passes."""
    with lw.Workspace("disk-slow") as folder:
        job = DiskJob(folder, "slow", "sync_delay_ms=50", steps=10)
        job.finish()
        assert "restarted " not in job.job.output(), job.job.tail()


def unusable_store():
    """A store that the queue can not use ends the job at once: one error that names it, and a remedy that works."""
    with lw.Workspace("disk-unusable") as folder:
        job = DiskJob(folder, "unusable")
        job.job.at_step(12)  # beyond the checkpoint of step 10
        children = job.job.identified_children()
        job.job.process.kill()
        job.job.process.wait()
        assert not lw.wait_until_gone(children, 10), children
        store = job.job.directory / "queue"
        for manifest in (store / "records").glob("MANIFEST-*"):
            manifest.write_text("nonsense")
        job.job.go_on()
        written = len(job.job.output())
        job.job.start()
        assert job.job.wait(60) == 6, job.job.tail()
        output = job.job.output()[written:]
        closing = next(line for line in output.splitlines() if line.startswith("ended with exit code 6"))
        assert f"the queue's store in {store} cannot be used: " in closing and f"move {store} away" in closing, closing
        assert "restarted " not in output, output
        store.rename(store.parent / "queue.damaged")
        # With the store goes what the queue had acknowledged: tickets are issued anew from the checkpoint on, and the bytes are the same.
        job.job.run(timeout=120)
        assert lw.checkpoint_digests(job.job.checkpoint(STEPS)) == undisturbed(STEPS), "other bytes than undisturbed"


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


def fill(disk):
    """Somebody else's file takes every byte that is left; returns it."""
    filler = pathlib.Path(disk) / "somebody-elses-file"
    with open(filler, "wb", buffering=0) as file:
        for piece in (1 << 16, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(piece))
    return filler


def really_full_disk():
    """A real file system of 24 MiB below the store, filled to the last byte by somebody else, and freed again. What the queue holds is trained
    meanwhile: the store keeps room for the ledger's own records."""
    with lw.Workspace("disk-tmpfs") as folder, small_disk(os.path.join(folder, "full", "queue"), 24) as disk:
        job = DiskJob(folder, "full", budget=2, stops=(6,))
        # In step 6 the weights of version 6 allow for the episodes of step 8.
        job.job.wait_for(lambda _: job.accepted() >= 8 * GROUPS * EPISODES, 60, "all that may be held before step 6")
        filler = fill(disk)
        job.job.go_on()
        job.job.at_step(7)
        job.queue_says("disk full")
        time.sleep(FAULT)
        assert job.job.process.poll() is None, job.job.tail()
        during = job.job.steps_done() - 5
        filler.unlink()
        job.queue_says("works again")
        job.finish()
        assert job.full_answers() > 0, "no push was answered FULL"
        print(f"  tmpfs, S = 2: {during} steps without space, {job.full_answers()} pushes answered FULL")


def full_run_directory():
    """The trainer's own files meet a full disk: the job ends, names the file and what to do, and goes on to the same bytes when there is space."""
    with (lw.Workspace("disk-run") as folder, small_disk(os.path.join(folder, "run"), 8) as disk,
          small_disk(os.path.join(disk, "queue"), 256)):
        job = DiskJob(folder, "run", stops=(12,))
        job.job.at_step(11)  # beyond the checkpoint of step 10
        filler = fill(disk)
        job.job.go_on()
        assert job.job.wait(60) == 3, job.job.tail()
        closing = next(line for line in job.job.output().splitlines() if line.startswith("ended with exit code 3"))
        assert f"{disk}/" in closing and "No space left on device" in closing and "start the run again" in closing, closing
        assert "restarted " not in job.job.output(), job.job.tail()
        filler.unlink()
        job.job.go_on()
        job.job.start()
        job.finish()


lw.main({
    "disk_full": failing_disk("enospc", "disk full", 0), "disk_full_asynchronous": failing_disk("enospc", "disk full", 2),
    "disk_errors": failing_disk("eio", "disk error", 0), "killed_on_a_full_disk": killed_while_the_disk_fails("enospc", "disk full"),
    "killed_while_the_disk_fails": killed_while_the_disk_fails("eio", "disk error"), "killed_on_a_disk_that_stays_full": killed_on_a_disk_that_stays_full, "slow_syncs": slow_syncs,
    "unusable_store": unusable_store, "really_full_disk": really_full_disk, "full_run_directory": full_run_directory,
})
