"""The network between queue, workers and trainer goes wrong and comes back: nothing is lost, nothing restarts, every wait has a cause.

Usage: partition_test.py [test …]

Each job trains a tiny model at S = 0 with two workers; all of them, and the trainer, reach the queue through a proxy of their own (fault_proxy.py).
After the fault the history checker proves exactly-once, and the last checkpoint has the bytes of an undisturbed run.
"""

import contextlib
import functools
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fault_proxy  # noqa: E402
import history_checker  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import leeway_run as lw  # noqa: E402

GROUPS = 8
LEASE = 1.5  # seconds; a worker that is cut off for longer is lost
COMMON = ["checkpoint.every=10", "eval.every=0", "staleness.budget=0", "rollout.workers=2", f"queue.worker_lease={LEASE}", "weights.timeout=5"]
PACE = {"LEEWAY_FAILPOINTS_TRAINER": "trainer_before_optimizer=delay:50"}
CLIENTS = ("ROLLOUT_0", "ROLLOUT_1", "TRAINER")


class Network:
    """A job whose clients reach the queue through proxies; `proxies[name]` for a name of CLIENTS."""

    def __init__(self, folder, name, steps=30, weights=False):
        self.folder, self.name, self.steps = folder, name, steps
        self.histories = os.path.join(folder, f"{name}-histories")
        os.mkdir(self.histories)
        run = pathlib.Path(folder) / name
        environment = {**PACE, "LEEWAY_HISTORY_DIRECTORY": self.histories}
        self.proxies = {}
        self.stack = contextlib.ExitStack()
        for client in CLIENTS:
            self.proxies[client] = self.add(f"{client}.sock", f"{run}/sockets/queue.sock")
            environment[f"LEEWAY_QUEUE_VIA_{client}"] = self.proxies[client].listen
        if weights:
            self.proxies["WEIGHTS"] = self.add("WEIGHTS.sock", f"{run}/sockets/weights.sock")
            environment["LEEWAY_WEIGHTS_VIA_ROLLOUT"] = self.proxies["WEIGHTS"].listen
        self.job = lw.Job("tiny.toml", folder, name, [*COMMON, f"trainer.steps={steps}"], environment)

    def add(self, listen, target):
        return self.stack.enter_context(fault_proxy.FaultProxy(f"unix:{self.folder}/{self.name}-{listen}", f"unix:{target}"))

    def __enter__(self):
        self.job.start()
        return self

    def __exit__(self, *error):
        if self.job.process.poll() is None:
            self.job.process.terminate()
            self.job.process.wait(30)
        self.stack.close()

    def at_step(self, step):
        self.job.wait_for(lambda job: job.steps_done() >= step, 90, f"step {step}")

    def finish(self):
        """The job ends well, by itself; everything is proved. Returns the report of `leeway inspect`."""
        assert self.job.wait(120) == 0, self.job.tail()
        assert "restarted " not in self.job.output(), f"{self.name}: a process was restarted:\n{self.job.tail()}"
        history_checker.check_job(self.job, self.histories, self.steps, GROUPS, budget=0)
        assert lw.checkpoint_digests(self.job.checkpoint(self.steps)) == undisturbed(self.steps), f"{self.name}: the checkpoint differs from the undisturbed run's"
        for name, proxy in self.proxies.items():
            assert proxy.up.bytes > 1000 and proxy.down.bytes > 1000, f"{name} did not use its proxy"
        return lw.check_states_partition_time(self.job)


@functools.cache
def undisturbed(steps):
    with lw.Workspace("partition-undisturbed") as folder:
        return lw.checkpoint_digests(lw.Job("tiny.toml", folder, "undisturbed", [*COMMON, f"trainer.steps={steps}"]).run(timeout=120).checkpoint(steps))


def check_waited(report, role, causes, seconds):
    """The processes of the role waited so long in all, and said what for."""
    states = report["state_seconds"][role]
    waited = sum(states.get(f"wait:{cause}", 0) for cause in causes)
    assert waited >= seconds, f"{role} says that it waited {waited:.2f} s for {' or '.join(causes)}, expected {seconds} s: {states}"


def registrations(job, worker):
    return job.log(worker).count(f"registered as {worker} ")


def cut_off_worker(direction):
    """One worker is not heard for longer than its lease: it is lost, the other one does its work, and it comes back as somebody new."""
    def run():
        # At 50 ms a step at least, the job is still at work when the worker is back.
        with lw.Workspace(f"partition-worker-{direction}") as folder, Network(folder, "cut", steps=120) as network:
            network.at_step(5)
            network.proxies["ROLLOUT_0"].hold(direction)
            time.sleep(2 * LEASE)
            # The queue gave the lost worker's tickets to the other one.
            network.at_step(network.job.steps_done() + 3)
            network.proxies["ROLLOUT_0"].heal()
            network.finish()
            assert registrations(network.job, "rollout-0") == 2, f"{registrations(network.job, 'rollout-0')} registrations of rollout-0"
            assert registrations(network.job, "rollout-1") == 1
    return run


def worker_hears_nothing():
    """Its heartbeats arrive, so it keeps its tickets, and it gets again what it did not hear of: no new registration."""
    with lw.Workspace("partition-worker-deaf") as folder, Network(folder, "deaf") as network:
        network.at_step(5)
        network.proxies["ROLLOUT_0"].hold("down")
        time.sleep(2 * LEASE)
        network.proxies["ROLLOUT_0"].heal()
        network.finish()
        assert registrations(network.job, "rollout-0") == registrations(network.job, "rollout-1") == 1


def cut_off_for_a_moment():
    """Shorter than the lease: nobody is lost, nobody registers again."""
    with lw.Workspace("partition-moment") as folder, Network(folder, "moment") as network:
        for step in (4, 10, 16):
            network.at_step(step)
            for proxy in network.proxies.values():
                proxy.hold()
            time.sleep(LEASE / 4)
            for proxy in network.proxies.values():
                proxy.heal()
        network.finish()
        assert registrations(network.job, "rollout-0") == registrations(network.job, "rollout-1") == 1


def all_workers_cut_off():
    """The trainer waits, and says for whom; both workers come back."""
    with lw.Workspace("partition-workers") as folder, Network(folder, "workers") as network:
        network.at_step(5)
        for client in ("ROLLOUT_0", "ROLLOUT_1"):
            network.proxies[client].hold()
        time.sleep(3 * LEASE)
        stood_at = network.job.steps_done()
        for client in ("ROLLOUT_0", "ROLLOUT_1"):
            network.proxies[client].heal()
        report = network.finish()
        assert stood_at < network.steps, "the fault came too late"
        check_waited(report, "trainer", ("waiting_for_groups", "waiting_for_rollouts"), 2 * LEASE)
        check_waited(report, "trainer", ("waiting_for_rollouts",), 0.1)


def cut_off_trainer(direction):
    """No lease, no commit comes through; the workers have done their tickets and wait for a version, with that cause."""
    def run():
        with lw.Workspace(f"partition-trainer-{direction}") as folder, Network(folder, "trainer") as network:
            network.at_step(5)
            network.proxies["TRAINER"].hold(direction)
            time.sleep(2 * LEASE)
            stood_at = network.job.steps_done()
            network.proxies["TRAINER"].heal()
            report = network.finish()
            assert stood_at < network.steps, "the fault came too late"
            check_waited(report, "rollout", ("waiting_for_version",), 2 * LEASE)  # each of two workers
            check_waited(report, "trainer", ("queue_answer", "queue_unavailable", "waiting_for_groups"), 1.5 * LEASE)
    return run


def lost_bytes():
    """A firewall that drops everything, in one direction and then in the other, and forgets the connections."""
    with lw.Workspace("partition-drop") as folder, Network(folder, "drop") as network:
        for step, direction in ((4, "up"), (12, "down")):
            network.at_step(step)
            for proxy in network.proxies.values():
                proxy.drop(direction)
            time.sleep(LEASE / 2)
            for proxy in network.proxies.values():
                proxy.heal()
        network.finish()


def resets():
    """All connections end at once, again and again."""
    with lw.Workspace("partition-reset") as folder, Network(folder, "reset") as network:
        network.at_step(3)
        for _ in range(12):
            for proxy in network.proxies.values():
                proxy.reset()
            time.sleep(0.2)
        report = network.finish()
        assert network.proxies["TRAINER"].accepted >= 5, network.proxies["TRAINER"].accepted
        assert report["conservation_holds"]


def nobody_listens():
    """The queue's address refuses for a while."""
    with lw.Workspace("partition-refuse") as folder, Network(folder, "refuse") as network:
        network.at_step(5)
        for proxy in network.proxies.values():
            proxy.refuse()
            proxy.reset()
        time.sleep(2 * LEASE)
        for proxy in network.proxies.values():
            proxy.heal()
        report = network.finish()
        check_waited(report, "trainer", ("queue_answer", "queue_unavailable", "waiting_for_groups"), 1.5 * LEASE)


def half_open():
    """The queue's end of every connection is gone and nobody says so: keepalive finds out; no reset helps."""
    with lw.Workspace("partition-half-open") as folder, Network(folder, "half") as network:
        network.at_step(5)
        for proxy in network.proxies.values():
            proxy.half_open()
            proxy.heal(resets=False)
        began = time.monotonic()
        stood_at = network.job.steps_done()
        network.at_step(stood_at + 2)
        assert time.monotonic() - began < 20, f"half-open connections were noticed after {time.monotonic() - began:.1f} s"
        network.finish()


def slow_network():
    """200 ms each way, for the weights too: slow, but no deadline passes and nobody is fenced."""
    with lw.Workspace("partition-delay") as folder, Network(folder, "slow", steps=8, weights=True) as network:
        for proxy in network.proxies.values():
            proxy.delay(0.2)
        network.finish()
        assert registrations(network.job, "rollout-0") == registrations(network.job, "rollout-1") == 1
        assert sum(line.get("weights/fenced", 0) for line in network.job.metrics()) == 0


def duplicated_bytes():
    """A piece of the stream comes twice: HTTP/2 notices, or the queue sees a message again; in no case is it counted again."""
    with lw.Workspace("partition-duplicate") as folder, Network(folder, "duplicate") as network:
        for step in range(4, 24, 2):
            network.at_step(step)
            for client in ("ROLLOUT_0", "ROLLOUT_1"):
                network.proxies[client].duplicate("up")
        network.finish()


TESTS = {
    "worker_not_heard": cut_off_worker("up"), "worker_hears_nothing": worker_hears_nothing, "worker_cut_off": cut_off_worker("both"),
    "trainer_not_heard": cut_off_trainer("up"), "trainer_hears_nothing": cut_off_trainer("down"), "trainer_cut_off": cut_off_trainer("both"),
    "all_workers_cut_off": all_workers_cut_off, "cut_off_for_a_moment": cut_off_for_a_moment, "lost_bytes": lost_bytes, "resets": resets,
    "nobody_listens": nobody_listens, "half_open": half_open, "slow_network": slow_network, "duplicated_bytes": duplicated_bytes,
}
lw.main(TESTS)
