#!/usr/bin/env python3
"""Put and get rates of TransferQueue and Reverb beside the queue's, one after the other on this machine.

    python3 benchmarks/queue_peers.py --directory DIR [--benchmark build/release/benchmarks/queue_benchmark]
                                      [--kib 1,1024] [--repeats 3] [--megabytes 128] [--batches 40]
                                      [--peers transferqueue,reverb]

DIR (several GB, not removed) gets one virtual environment a peer, made with pip on the first call. A peer runs in a
network namespace of its own, since both listen on all interfaces: that needs root, or `unshare` for users. Payloads are
random bytes of the size that our trajectories have; batches are 256 small or 16 large ones, as ours are. A peer gets
--batches of them: with more, TransferQueue's rates fall.
Exit code 1: a target is missed; 3: something is missing.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

PEERS = {
    "transferqueue": ["transferqueue==0.1.11", "ray==2.60.0"],
    "reverb": ["dm-reverb==0.14.0", "tensorflow-cpu~=2.15.0"],
}


def batch_of(kib):
    return 256 if kib <= 4 else 64 if kib <= 256 else 16


# ---- inside a peer's environment -------------------------------------------------------------------------------------


def run_transferqueue(kib, batches):
    import ray
    import torch
    import transfer_queue
    from tensordict import TensorDict

    ray.init(num_cpus=4, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    transfer_queue.init()
    client = transfer_queue.get_client()
    size = batch_of(kib)
    payload = torch.randint(0, 256, (size, kib << 10), dtype=torch.uint8)
    batch = TensorDict({"payload": payload}, batch_size=size)

    def put(partition):
        client.put(batch, partition_id=partition)

    def get(partition):
        meta = client.get_meta(data_fields=["payload"], batch_size=size, partition_id=partition, task_name="train")
        data = client.get_data(meta)
        if len(data) != size:
            raise RuntimeError(f"{len(data)} samples of {size}")

    put("warm")
    get("warm")
    client.clear_partition("warm")
    rates = []
    for what in (put, get):
        start = time.monotonic()
        for _ in range(batches):
            what("run")
        rates.append(batches * size / (time.monotonic() - start))
    transfer_queue.close()
    ray.shutdown()
    return rates


def serve_reverb(port, items):
    import reverb

    reverb.Server(tables=[reverb.Table.queue("queue", max_size=items)], port=port).wait()


def run_reverb(kib, batches):
    import numpy
    import reverb

    size = batch_of(kib)
    port = 12321
    server = subprocess.Popen([sys.executable, __file__, "--serve-reverb", str(port), str((batches + 1) * size)])
    try:
        client = reverb.Client(f"127.0.0.1:{port}")
        client.server_info(timeout=120)
        # Random bytes: Reverb compresses what it is given.
        payloads = [numpy.random.randint(0, 256, kib << 10, dtype=numpy.uint8) for _ in range(16)]

        def put(count):
            with client.trajectory_writer(num_keep_alive_refs=1) as writer:
                for i in range(count):
                    writer.append({"payload": payloads[i % len(payloads)]})
                    writer.create_item("queue", 1.0, {"payload": writer.history["payload"][-1:]})
                    if (i + 1) % size == 0:
                        writer.flush()

        def get(count):
            seen = sum(1 for _ in client.sample("queue", num_samples=count, emit_timesteps=False))
            if seen != count:
                raise RuntimeError(f"{seen} samples of {count}")

        put(size)
        get(size)
        rates = []
        for what in (put, get):
            start = time.monotonic()
            what(batches * size)
            rates.append(batches * size / (time.monotonic() - start))
        return rates
    finally:
        server.kill()
        server.wait()


# ---- outside ---------------------------------------------------------------------------------------------------------


def environment_of(peer, directory):
    """The Python of the peer's environment, made if it is missing."""
    path = os.path.join(directory, peer)
    python = os.path.join(path, "bin", "python")
    done = os.path.join(path, ".installed")
    if not os.path.exists(done):
        print(f"installing {', '.join(PEERS[peer])} below {path} (large downloads)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", path], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS[peer]], check=True)
        open(done, "w").close()
    return python


def measure_peer(peer, kib, arguments):
    """(put, get) of one run in a namespace without a network."""
    python = environment_of(peer, arguments.directory)
    inner = [python, os.path.abspath(__file__), "--run", peer, str(kib), str(arguments.batches)]
    namespace = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
    shell = 'ip link set lo up && exec "$@"'
    quiet = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", RAY_DEDUP_LOGS="1", RAY_USAGE_STATS_ENABLED="0")
    result = subprocess.run([*namespace, "sh", "-c", shell, "sh", *inner], env=quiet, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, timeout=900)
    lines = [line for line in result.stdout.splitlines() if line.startswith("RATES ")]
    if not lines:
        print(result.stderr[-4000:], file=sys.stderr)
        sys.exit(f"{peer} gave no figures")
    return [float(word) for word in lines[0].split()[1:]]


def measure_ours(kibs, arguments):
    """{kib: (put, get)}: medians of the benchmark's own repeats."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures")
        subprocess.run([arguments.benchmark, "--no-redis", "--kib", ",".join(map(str, kibs)), "--repeats",
                        str(arguments.repeats), "--megabytes", str(arguments.megabytes), "--json", path], check=True)
        with open(path) as figures:
            rows = [json.loads(line) for line in figures]
    return {row["kib"]: (row["put"], row["get"]) for row in rows}


def main():
    if sys.argv[1:2] == ["--run"]:
        rates = {"transferqueue": run_transferqueue, "reverb": run_reverb}[sys.argv[2]](int(sys.argv[3]), int(sys.argv[4]))
        print("RATES", *rates)
        return 0
    if sys.argv[1:2] == ["--serve-reverb"]:
        serve_reverb(int(sys.argv[2]), int(sys.argv[3]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--benchmark", default="build/release/benchmarks/queue_benchmark")
    parser.add_argument("--kib", default="1,1024")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=128, help="through our queue, in each phase")
    parser.add_argument("--batches", type=int, default=40, help="through a peer")
    parser.add_argument("--peers", default="transferqueue,reverb")
    arguments = parser.parse_args()
    if not os.access(arguments.benchmark, os.X_OK):
        print(f"no {arguments.benchmark}: build it with ./run bench queue_benchmark, or name it with --benchmark", file=sys.stderr)
        return 3
    arguments.directory = os.path.abspath(arguments.directory)
    kibs = [int(kib) for kib in arguments.kib.split(",")]
    missed = 0
    ours = measure_ours(kibs, arguments)
    for kib in kibs:
        print(f"{kib:5} KiB  {'leeway':14} put {ours[kib][0]:10.0f}/s                        get {ours[kib][1]:10.0f}/s", flush=True)
        for peer in arguments.peers.split(","):
            runs = [measure_peer(peer, kib, arguments) for _ in range(arguments.repeats)]
            target = 4.0 if kib <= 4 else 1.5
            line = f"{kib:5} KiB  {peer:14}"
            for index, name in enumerate(("put", "get")):
                values = sorted(run[index] for run in runs)
                median = statistics.median(values)
                ratio = ours[kib][index] / median
                missed += ratio < target
                line += f" {name} {median:10.0f}/s [{values[0]:.0f}-{values[-1]:.0f}] leeway is {ratio:.1f} x (target {target})"
            print(line, flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
