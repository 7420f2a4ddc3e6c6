"""Publishes that go wrong at one of three receivers: it dies, stalls, stops, hangs for ever, or holds a damaged bucket.

Usage: publish_fault_test.py [test …]

Each job trains a tiny model at S = 0 with three rollout workers, of which rollout-1 meets the fault in the middle of a publish. The others must
reach the version in time; the bad one is fenced, by name and with the cause, and comes back by a full, verified load only. That nobody generated
from other bytes than the published ones shows in every line of metrics: at lag 0 the trainer's recomputed log-probabilities equal the recorded
ones, and the last checkpoint has the bytes of the undisturbed run.
"""

import functools
import os
import pathlib
import re
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import history_checker  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import leeway_run as lw  # noqa: E402

STEPS = 40
DEADLINE = 2.0  # weights.timeout, in seconds
COMMON = [f"trainer.steps={STEPS}", f"checkpoint.every={STEPS // 2}", "eval.every=0", "staleness.budget=0", "rollout.workers=3",
          "weights.bucket_bytes=4096", f"weights.timeout={DEADLINE}"]
# The trainer stands still until all three hold weights, and again in the last step until rollout-1 is back.
STOPS = (5, STEPS)
# The model has five buckets: the load of joining is hits 1 to 5, and the 63rd lies in the middle of the publish of a later version, after the first stop.
HIT = 63


class PublishJob(lw.Job):
    """Under way, with all three receivers; `failpoint` is rollout-1's alone, in its first life."""

    def __init__(self, folder, name, failpoint=None, overrides=()):
        self.histories = os.path.join(folder, f"{name}-histories")
        os.mkdir(self.histories)
        environment = {"LEEWAY_HISTORY_DIRECTORY": self.histories}
        if failpoint:
            environment["LEEWAY_FAILPOINTS_ROLLOUT_1"] = failpoint
        super().__init__("tiny.toml", folder, name, [*COMMON, *overrides], environment, stops_at=STOPS)
        self.start()
        self.wait_for_receivers()
        self.go_on()

    def holds(self, worker):
        """The version that the worker's newest identity asked for tickets with; 0 before it has loaded any."""
        version = 0
        lines = [line for life in history_checker.read_histories(self.histories) for line in life.lines if line["who"] == worker]
        for line in sorted(lines, key=lambda line: line["t"]):
            version = 0 if line["event"] == "registered" else line["holds"][1] if line["event"] == "acquire" else version
        return version

    def wait_for_receivers(self):
        self.wait_for(lambda job: all(job.holds(f"rollout-{rank}") for rank in range(3)), 60, "three receivers")

    def finish(self):
        """Ends the job when rollout-1 is back."""
        self.wait_for(lambda job: len(job.registrations("rollout-1")) >= 2, 60, "rollout-1's coming back")
        self.wait_for_receivers()
        self.go_on()
        assert self.wait(120) == 0, self.tail()
        return self


def check_weights_were_right(job, expected):
    """Every token of every step came from the published bytes of its version, and the run ended with the undisturbed run's bytes."""
    lines = [line for line in job.metrics() if line["step"] >= 1]
    lw.check_conservation(job.metrics())
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1)), [line["step"] for line in lines]
    for line in lines:
        assert line["mismatch/ratio_max"] == 1, f"step {line['step']}: a recorded probability differs from the recomputed one: {line['mismatch/ratio_max']}"
        assert line["groups/refused"] == 0, f"step {line['step']}: {line['groups/refused']} groups were refused"
        assert line["staleness/max"] == 0
        assert line["weights/publish_s"] <= DEADLINE + 0.5, f"step {line['step']}: the publish took {line['weights/publish_s']:.2f} s"
    if expected is not None:
        assert lw.checkpoint_digests(job.checkpoint(STEPS)) == expected, f"{job.directory.name} differs from the undisturbed run"


def check_fenced(job, cause):
    """rollout-1 alone was fenced, once, in one publish that the two others finished, with this cause. Returns that publish's line."""
    lines = job.metrics()
    fenced = [line for line in lines if line.get("weights/fenced", 0) > 0]
    assert len(fenced) == 1 and fenced[0]["weights/fenced"] == 1, [(line["step"], line["weights/fenced"]) for line in fenced]
    assert fenced[0]["weights/members"] == 2, f"{fenced[0]['weights/members']} receivers reached version {fenced[0]['version']}"
    named = re.findall(r"receiver (\S+) failed in the publish of version (\d+): (.*)", job.log("trainer-0"))
    assert len(named) == 1, named
    who, version, why = named[0]
    assert (who, int(version)) == ("rollout-1", fenced[0]["version"]), named
    assert re.search(cause, why), f"expected the cause '{cause}', the log says '{why}'"
    return fenced[0]


def check_came_back(job, fenced):
    """In the last publish all three are members again, rollout-1 with a new identity."""
    lines = [line for line in job.metrics() if line["step"] > fenced["step"]]
    assert lines[-1]["weights/members"] == 3, f"{lines[-1]['weights/members']} members at the end"
    identities = job.registrations("rollout-1")
    assert len(identities) == 2 and identities[0] != identities[1], identities


@functools.cache
def undisturbed():
    """What the others are compared with, run once: nobody is fenced, and all three are members at the end."""
    with lw.Workspace("publish-undisturbed") as folder:
        job = PublishJob(folder, "undisturbed")
        job.go_on()
        assert job.wait(120) == 0, job.tail()
        check_weights_were_right(job, None)
        lines = job.metrics()
        assert sum(line.get("weights/fenced", 0) for line in lines) == 0
        assert lines[-1]["weights/members"] == 3, lines[-1]["weights/members"]
        return lw.checkpoint_digests(job.checkpoint(STEPS))


def killed():
    """Killed in the middle of the transfer: noticed at once, restarted by the launcher."""
    with lw.Workspace("publish-killed") as folder:
        expected = undisturbed()
        job = PublishJob(folder, "killed", f"weights_receiver_mid_transfer=kill@{HIT}").finish()
        fenced = check_fenced(job, "connection lost")
        assert fenced["weights/publish_s"] < DEADLINE / 2, "a dead receiver was waited for"
        assert job.output().count("killed by signal 9") == 1, job.tail()
        assert "restarted rollout-1" in job.output(), job.tail()
        check_came_back(job, fenced)
        check_weights_were_right(job, expected)


def stalled():
    """A transfer that stands still is waited for until the deadline, no longer; one that goes on later is a full load under a new identity."""
    with lw.Workspace("publish-stalled") as folder:
        expected = undisturbed()
        job = PublishJob(folder, "stalled", f"weights_receiver_mid_transfer=delay:{int(1500 * DEADLINE)}@{HIT}").finish()
        fenced = check_fenced(job, "deadline: .*bytes.* verified in time")
        assert DEADLINE - 0.1 <= fenced["weights/publish_s"], f"given up after {fenced['weights/publish_s']:.2f} s"
        assert "fenced by the weights publisher" in job.log("rollout-1")
        assert "killed by signal" not in job.output(), job.tail()
        check_came_back(job, fenced)
        check_weights_were_right(job, expected)


def hung():
    """A transfer that never goes on is waited for in one publish, not in every one: the process gives itself up and is started again."""
    with lw.Workspace("publish-hung") as folder:
        expected = undisturbed()
        job = PublishJob(folder, "hung", f"weights_receiver_mid_transfer=hang@{HIT}").finish()
        fenced = check_fenced(job, "deadline: .*bytes.* verified in time")
        assert DEADLINE - 0.1 <= fenced["weights/publish_s"]
        assert "the loader has not come back from a load of weights that was given up" in job.log("rollout-1")
        assert "restarted rollout-1" in job.output(), job.tail()
        check_came_back(job, fenced)
        check_weights_were_right(job, expected)


def stopped():
    """A whole process that stands still (a debugger, a suspended machine): fenced when it does not answer, and back when it goes on."""
    with lw.Workspace("publish-stopped") as folder:
        expected = undisturbed()
        job = PublishJob(folder, "stopped", overrides=["queue.worker_lease=1.5"])
        victim = next(pid for pid, role in job.children() if role == "rollout" and lw.command_of(pid)[-1] == "1")
        os.kill(victim, signal.SIGSTOP)
        try:
            job.wait_for(lambda job: any(line.get("weights/fenced", 0) > 0 for line in job.metrics()), 30, "the fencing")
        finally:
            os.kill(victim, signal.SIGCONT)
        job.finish()
        fenced = check_fenced(job, "deadline: |no sign of life")
        assert "killed by signal" not in job.output(), job.tail()
        check_came_back(job, fenced)
        check_weights_were_right(job, expected)


def corrupted():
    """One bit of one bucket is wrong: the digest tells, at once, and the receiver loads everything again."""
    with lw.Workspace("publish-corrupted") as folder:
        expected = undisturbed()
        job = PublishJob(folder, "corrupted", f"weights_receiver_corrupted_bucket=error@{HIT}").finish()
        fenced = check_fenced(job, "the held bytes do not have the announced digest; wrong tensors: ")
        assert fenced["weights/publish_s"] < DEADLINE / 2, "a receiver that had failed was waited for"
        assert "fenced by the weights publisher" in job.log("rollout-1")
        assert "killed by signal" not in job.output(), job.tail()
        check_came_back(job, fenced)
        check_weights_were_right(job, expected)


lw.main({"killed": killed, "stalled": stalled, "stopped": stopped, "hung": hung, "corrupted": corrupted})
