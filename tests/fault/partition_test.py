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

STEPS, GROUPS = 40, 8
LEASE = 1.5  # seconds; a worker that is cut off for longer is lost
BEYOND_THE_LEASE = 1.3 * LEASE
COMMON = ["checkpoint.every=10", "eval.every=0", "staleness.budget=0", "rollout.workers=2", f"queue.worker_lease={LEASE}", "weights.timeout=5"]
# A fault at step 5 meets a job at work. It is not over before the fault is: the trainer stands in the last step until finish().
PACE = {"LEEWAY_FAILPOINTS_TRAINER": "trainer_before_optimizer=delay:20"}
CLIENTS = ("ROLLOUT_0", "ROLLOUT_1", "TRAINER")


class Network:
    """A job whose clients reach the queue through proxies; `proxies[name]` for a name of CLIENTS."""

    def __init__(self, folder, name, steps=STEPS, weights=False, delay=0.0):
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
        for proxy in self.proxies.values():
            proxy.delay(delay)
        self.job = lw.Job("tiny.toml", folder, name, [*COMMON, f"trainer.steps={steps}"], environment, stops_at=(1, steps))

    def add(self, listen, target):
        return self.stack.enter_context(fault_proxy.FaultProxy(f"unix:{self.folder}/{self.name}-{listen}", f"unix:{target}"))

    def __enter__(self):
        self.job.start_with(workers=2)
        return self

    def __exit__(self, *error):
        lw.end_started_jobs()
        self.stack.close()

    def finish(self):
        """The job ends well, by itself; everything is proved. Returns the report of `leeway inspect`."""
        self.job.go_on()
        assert self.job.wait(120) == 0, self.job.tail()
        assert "restarted " not in self.job.output(), f"{self.name}: a process was restarted:\n{self.job.tail()}"
        history_checker.check_job(self.job, self.histories, self.steps, GROUPS, budget=0)
        assert lw.checkpoint_digests(self.job.checkpoint(self.steps)) == undisturbed(self.steps), f"{self.name}: the checkpoint differs from the undisturbed run's"
        for name, proxy in self.proxies.items():
            assert proxy.up.bytes > 1000 and proxy.down.bytes > 1000, f"{name} did not use its proxy"
        return lw.check_states_partition_time(self.job)


    def lines(self):
        return [line for life in history_checker.read_histories(self.histories) for line in life.lines]

    def check_registrations(self, *expected):
        found = [self.job.registrations(f"rollout-{rank}") for rank in range(len(expected))]
        assert [len(lives) for lives in found] == list(expected), f"expected {expected} registrations: {found}"


@functools.cache
def undisturbed(steps):
    with lw.Workspace("partition-undisturbed") as folder:
        return lw.checkpoint_digests(lw.Job("tiny.toml", folder, "undisturbed", [*COMMON, f"trainer.steps={steps}"]).run(timeout=120).checkpoint(steps))


def check_waited(report, role, causes, seconds):
    """The processes of the role waited so long in all, and said what for."""
    states = report["state_seconds"][role]
    waited = sum(states.get(f"wait:{cause}", 0) for cause in causes)
    assert waited >= seconds, f"{role} says that it waited {waited:.2f} s for {' or '.join(causes)}, expected {seconds:.2f} s: {states}"


def wait_until_lost(network, worker):
    network.job.wait_for(lambda job: f"worker {worker} lost: no sign of life" in job.log("queue-0"), 60, f"the loss of {worker}")


def wait_until_back(network, worker):
    network.job.wait_for(lambda job: len(job.registrations(worker)) == 2, 60, f"{worker}'s coming back")


def cut_off_worker(direction):
    """One worker is not heard for longer than its lease: it is lost, the other one does its work, and it comes back as somebody new."""
    def run():
        with lw.Workspace(f"partition-worker-{direction}") as folder, Network(folder, "cut") as network:
            network.job.at_step(5)
            network.proxies["ROLLOUT_0"].hold(direction)
            wait_until_lost(network, "rollout-0")
            # The queue gave the lost worker's tickets to the other one.
            network.job.at_step(network.job.steps_done() + 3)
            network.proxies["ROLLOUT_0"].heal()
            wait_until_back(network, "rollout-0")
            network.finish()
            network.check_registrations(2, 1)
    return run


def worker_hears_nothing():
    """Its heartbeats arrive, so it keeps its tickets, and it gets again what it did not hear of: no new registration."""
    with lw.Workspace("partition-worker-deaf") as folder, Network(folder, "deaf") as network:
        network.job.at_step(5)
        network.proxies["ROLLOUT_0"].hold("down")
        time.sleep(BEYOND_THE_LEASE)
        network.proxies["ROLLOUT_0"].heal()
        network.finish()
        network.check_registrations(1, 1)


def cut_off_for_a_moment():
    """Shorter than the lease: nobody is lost, nobody registers again."""
    with lw.Workspace("partition-moment") as folder, Network(folder, "moment") as network:
        for step in (4, 10, 16):
            network.job.at_step(step)
            for proxy in network.proxies.values():
                proxy.hold()
            time.sleep(LEASE / 4)
            for proxy in network.proxies.values():
                proxy.heal()
        network.finish()
        network.check_registrations(1, 1)


def all_workers_cut_off():
    """The trainer waits, and says for whom; both workers come back."""
    with lw.Workspace("partition-workers") as folder, Network(folder, "workers") as network:
        network.job.at_step(5)
        began = time.monotonic()
        for worker in (0, 1):
            network.proxies[f"ROLLOUT_{worker}"].hold()
        for worker in (0, 1):
            wait_until_lost(network, f"rollout-{worker}")
        network.job.wait_for(lambda _: any(line["event"] == "leased" and line.get("cause") == "waiting_for_rollouts" for line in network.lines()), 60,
                             "the trainer's hearing of it")
        heard = time.monotonic()
        time.sleep(0.3)
        ended = time.monotonic()
        for worker in (0, 1):
            network.proxies[f"ROLLOUT_{worker}"].heal()
        for worker in (0, 1):
            wait_until_back(network, f"rollout-{worker}")
        report = network.finish()
        check_waited(report, "trainer", ("waiting_for_groups", "waiting_for_rollouts"), (ended - began) / 2)
        check_waited(report, "trainer", ("waiting_for_rollouts",), (ended - heard) / 2)


def cut_off_trainer(direction):
    """No lease, no commit comes through; the workers have done their tickets and wait for a version, with that cause."""
    def run():
        with lw.Workspace(f"partition-trainer-{direction}") as folder, Network(folder, "trainer") as network:
            network.job.at_step(5)
            began = time.monotonic()
            network.proxies["TRAINER"].hold(direction)
            time.sleep(BEYOND_THE_LEASE)
            held = time.monotonic() - began
            network.proxies["TRAINER"].heal()
            report = network.finish()
            check_waited(report, "rollout", ("waiting_for_version",), held)  # each of two workers, but for the rest of a step
            check_waited(report, "trainer", ("queue_answer", "queue_unavailable", "waiting_for_groups"), held / 2)
    return run


def lost_bytes():
    """A firewall that drops everything, in one direction and then in the other, and forgets the connections."""
    with lw.Workspace("partition-drop") as folder, Network(folder, "drop") as network:
        for step, direction in ((4, "up"), (12, "down")):
            network.job.at_step(step)
            for proxy in network.proxies.values():
                proxy.drop(direction)
            time.sleep(LEASE / 2)
            for proxy in network.proxies.values():
                proxy.heal()
        network.finish()


def resets():
    """All connections end at once, again and again."""
    with lw.Workspace("partition-reset") as folder, Network(folder, "reset", steps=60) as network:
        network.job.at_step(3)
        for _ in range(8):
            for proxy in network.proxies.values():
                proxy.reset()
            # Not without new connections.
            network.job.at_step(network.job.steps_done() + 3)
        report = network.finish()
        assert network.proxies["TRAINER"].accepted >= 5, network.proxies["TRAINER"].accepted
        assert report["conservation_holds"]


def nobody_listens():
    """The queue's address refuses for a while."""
    with lw.Workspace("partition-refuse") as folder, Network(folder, "refuse") as network:
        network.job.at_step(5)
        began = time.monotonic()
        for proxy in network.proxies.values():
            proxy.refuse()
            proxy.reset()
        time.sleep(BEYOND_THE_LEASE)
        refused = time.monotonic() - began
        for proxy in network.proxies.values():
            proxy.heal()
        report = network.finish()
        check_waited(report, "trainer", ("queue_answer", "queue_unavailable", "waiting_for_groups"), refused / 2)


def half_open():
    """The queue's end of every connection is gone and nobody says so: keepalive finds out; no reset helps."""
    with lw.Workspace("partition-half-open") as folder, Network(folder, "half") as network:
        network.job.at_step(5)
        for proxy in network.proxies.values():
            proxy.half_open()
            proxy.heal(resets=False)
        began = time.monotonic()
        stood_at = network.job.steps_done()
        network.job.at_step(stood_at + 2)
        assert time.monotonic() - began < 20, f"half-open connections were noticed after {time.monotonic() - began:.1f} s"
        network.finish()


def slow_network():
    """200 ms each way from the start, for the weights too: slow, but no deadline passes and nobody is fenced."""
    with lw.Workspace("partition-delay") as folder, Network(folder, "slow", steps=3, weights=True, delay=0.2) as network:
        network.finish()
        network.check_registrations(1, 1)
        assert sum(line.get("weights/fenced", 0) for line in network.job.metrics()) == 0


def duplicated_bytes():
    """A piece of the stream comes twice: HTTP/2 notices, or the queue sees a message again; in no case is it counted again."""
    with lw.Workspace("partition-duplicate") as folder, Network(folder, "duplicate") as network:
        for step in range(4, 24, 2):
            network.job.at_step(step)
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
