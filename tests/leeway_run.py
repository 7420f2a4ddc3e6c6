"""Starts leeway jobs and reads their run directories. Shared by the end-to-end tests, the fault tests and the measuring scripts.

Every wait has a deadline. Only processes that a Job started are ever signalled.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEDGER_STATES = ("issued", "running", "ready", "leased", "trained", "settled", "filtered", "stale", "failed", "cancelled", "rewound")


def program(name="leeway"):
    folder = pathlib.Path(os.environ.get("LEEWAY_BIN", ROOT / "build" / "release" / "bin"))
    path = folder / name
    if not path.exists():
        sys.exit(f"{path} is not built; set LEEWAY_BIN or run ./run setup")
    return str(path)


def start_of(pid):
    """When the process started, in the kernel's ticks; None once it is gone (a zombie is). With the pid it names one process for ever."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def command_of(pid):
    """The words of the process's command line; none once it is gone."""
    try:
        return [word.decode(errors="replace") for word in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]
    except OSError:
        return []


def wait_until_gone(processes, timeout):
    """Waits for the end of processes given as (pid, role, start); returns those that are left."""
    deadline = time.monotonic() + timeout
    while True:
        # Without a start it was gone when it was asked for.
        left = [process for process in processes if process[2] is not None and start_of(process[0]) == process[2]]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(0.02)


class Job:
    """One `leeway train`, in a run directory of its own below `parent`.

    stops_at: the trainer's first life stands still in each of these steps until go_on(). A test that disturbs a job "while it trains" says so by
    them: however fast or slow the machine is, all workers take part, and the job is not over before.
    """

    started = []  # what main() ends, should a test fail

    def __init__(self, config, parent, name, overrides=(), environment=None, stops_at=()):
        self.directory = pathlib.Path(parent) / name
        self.arguments = [
            program(), "train", str(ROOT / "configs" / config),
            f"run.directory={parent}", f"run.name={name}", *overrides,
        ]
        self.environment = {**os.environ, **(environment or {})}
        self.gates = [(step, pathlib.Path(parent) / f"{name}.gate-{step}") for step in stops_at]
        armed = [f"trainer_after_optimizer=wait_for:{gate}@{step}" for step, gate in self.gates]
        if armed:
            self.environment["LEEWAY_FAILPOINTS_TRAINER"] = ",".join([*filter(None, [self.environment.get("LEEWAY_FAILPOINTS_TRAINER")]), *armed])
        self.output_path = pathlib.Path(parent) / f"{name}.output"
        self.process = None

    def start(self):
        with open(self.output_path, "ab") as output:
            self.process = subprocess.Popen(
                self.arguments, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        Job.started.append(self.process)
        return self

    def go_on(self):
        """The trainer does not stop in the next one of `stops_at` any more."""
        self.gates.pop(0)[1].touch()

    def start_with(self, workers):
        """Starts, and goes on from the first stop when so many workers are registered: a slow start is no part of the test."""
        self.start()
        self.wait_for(lambda job: all(job.registrations(f"rollout-{rank}") for rank in range(workers)), 60, "the start of all workers")
        self.go_on()
        return self

    def wait(self, timeout):
        """Exit code; a job that runs longer is ended and reported as an error."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            raise AssertionError(f"{self.directory.name}: still running after {timeout} s; its output ends:\n{self.tail()}") from None

    def run(self, timeout=600, expect=0):
        code = self.start().wait(timeout)
        assert code == expect, f"{self.directory.name}: exit code {code}, expected {expect}; output ends:\n{self.tail()}"
        return self

    def tail(self, characters=3000):
        return self.output_path.read_text(errors="replace")[-characters:] if self.output_path.exists() else ""

    def output(self):
        return self.output_path.read_text(errors="replace")

    def metrics(self):
        return read_jsonl(self.directory / "metrics.jsonl")

    def summary(self):
        return json.loads((self.directory / "summary.json").read_text())

    def children(self):
        """(pid, role) of the job's processes, from /proc."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                status = (entry / "stat").read_text()
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if int(status.rsplit(")", 1)[1].split()[1]) == self.process.pid and status.rsplit(")", 1)[1].split()[0] != "Z":
                role = os.path.basename(command[0].decode()).removeprefix("leeway-")
                found.append((int(entry.name), role))
        return found

    def identified_children(self):
        """(pid, role, start) of the job's processes: asked for before the launcher ends, good for looking after them afterwards."""
        return [(pid, role, start_of(pid)) for pid, role in self.children()]

    def log(self, process):
        """What the process ("rollout-1") logged so far, in all its lives."""
        path = self.directory / "logs" / f"{process}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def registrations(self, worker):
        """(producer, epoch) of each time that the worker ("rollout-1") registered."""
        return re.findall(rf"registered as {worker} \(producer (\d+), epoch (\d+)\)", self.log(worker))

    def wait_for(self, condition, timeout, what):
        """Polls until condition(self) holds; fails when the job ends or time runs out before. Returns what condition returned."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if found := condition(self):
                return found
            if self.process.poll() is not None and not condition(self):
                raise AssertionError(f"{self.directory.name}: ended (code {self.process.returncode}) before {what}; output ends:\n{self.tail()}")
            time.sleep(0.02)
        raise AssertionError(f"{self.directory.name}: {what} did not happen in {timeout} s; output ends:\n{self.tail()}")

    def at_step(self, step, timeout=90):
        """Waits for the end of the step, or of the one before the next stop."""
        step = min([step, *(stop - 1 for stop, _ in self.gates[:1])])
        self.wait_for(lambda job: job.steps_done() >= step, timeout, f"step {step}")

    def steps_done(self):
        path = self.directory / "metrics.jsonl"
        return max((line["step"] for line in read_jsonl(path)), default=0) if path.exists() else 0

    def checkpoint(self, step):
        return self.directory / "checkpoints" / f"step-{step}"


class FinishedRun(Job):
    """A run directory that somebody else's job left behind."""

    def __init__(self, directory):
        path = pathlib.Path(directory).resolve()
        super().__init__("tiny.toml", path.parent, path.name)

    def config(self):
        return tomllib.loads((self.directory / "config.toml").read_text())


def read_jsonl(path):
    lines = []
    for line in pathlib.Path(path).read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:  # the last line of a killed writer
            continue
    return lines


# What DESIGN 3.6 claims byte equality for, on the same layout of ranks: weights, optimizer, RNG, step and consumed ids. Not lineage, times,
# configuration, ledger rows. One file of each kind, or one of every rank that writes.
EQUAL_FILES = ("weights*.safetensors", "optimizer*.safetensors", "state.json")


def checkpoint_digests(folder):
    digests = {}
    for pattern in EQUAL_FILES:
        paths = sorted(folder.glob(pattern))
        assert paths, f"{folder} has no {pattern}"
        digests.update({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths})
    return digests


def check_conservation(lines):
    """issued_total equals the sum of the states in every line; steps are in order, none twice."""
    assert lines, "no metrics"
    last = -1
    for line in lines:
        if "ledger/issued_total" in line:
            total = sum(line[f"ledger/{state}"] for state in LEDGER_STATES)
            assert line["ledger/issued_total"] == total, f"step {line['step']}: issued_total {line['ledger/issued_total']}, states sum to {total}"
        assert line["step"] > last, f"step {line['step']} stands after step {last}"
        last = line["step"]


def inspect(job):
    """The report of `leeway inspect --json`."""
    result = subprocess.run([program(), "inspect", str(job.directory), "--json"], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def check_inspect(job):
    """The same, from `leeway inspect --json`."""
    report = inspect(job)
    assert report["conservation_holds"] is True, report
    return report


def check_states_partition_time(job, tolerance=0.02):
    """`leeway inspect`: the states of each role cover its wall time; returns the report."""
    report = check_inspect(job)
    assert set(report["unaccounted_share"]) == {"queue", "rollout", "trainer"}, report["unaccounted_share"]
    for role, share in report["unaccounted_share"].items():
        assert abs(share) <= tolerance, f"{role}: states cover all but {share:.3f} of its wall time"
    return report


class Workspace:
    """A temporary folder that is kept when the test fails, and named."""

    def __init__(self, name):
        self.path = tempfile.mkdtemp(prefix=f"leeway-{name}-")

    def __enter__(self):
        return self.path

    def __exit__(self, kind, value, trace):
        if kind is None:
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            print(f"kept for inspection: {self.path}", file=sys.stderr)


class Skipped(Exception):
    """A test that this machine does not allow; says why."""


def end_started_jobs():
    """What a failed test left running. Children go with their launcher."""
    for process in Job.started:
        if process.poll() is None:
            process.kill()
            process.wait()
    Job.started.clear()


def main(tests):
    """Runs the named tests (all without arguments); prints one line each and a closing line."""
    chosen = sys.argv[1:] or list(tests)
    failed = skipped = 0
    for name in chosen:
        started = time.monotonic()
        try:
            tests[name]()
            print(f"ok      {name} ({time.monotonic() - started:.1f} s)", flush=True)
        except Skipped as reason:
            skipped += 1
            print(f"skipped {name}: {reason}", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"FAILED  {name} ({time.monotonic() - started:.1f} s)\n{str(error) or traceback.format_exc()}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED  {name} ({time.monotonic() - started:.1f} s)\n{traceback.format_exc()}", flush=True)
        end_started_jobs()
    print(f"{len(chosen) - failed - skipped} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed else 0)
