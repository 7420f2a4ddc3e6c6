"""No stranger gets in: what a real queue refuses, in which words, and that nobody else notices. And whole jobs over TCP, with tokens and with TLS.

Usage: security_test.py [test …]
"""

import os
import pathlib
import resource
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import leeway_run as lw  # noqa: E402
import raw_http2 as raw  # noqa: E402

STATUS, PUSH, COMMIT, DRAIN = (f"/leeway.v1.Queue/{name}" for name in ("Status", "Push", "Commit", "Drain"))
HEALTH_CHECK, HEALTH_WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
CONFIG = str(lw.ROOT / "configs" / "tiny.toml")
OK, INVALID_ARGUMENT, PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAUTHENTICATED = 0, 3, 7, 8, 16


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def leeway(*arguments, name="leeway"):
    return subprocess.run([lw.program(name), *arguments], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)


def make_certificates(folder, *arguments):
    made = leeway("doctor", "--make-certificates", str(folder), *arguments)
    assert made.returncode == 0, made.stderr
    return pathlib.Path(folder)


def security_keys(folder, side="server", tokens="tokens"):
    return [f"security.certificate={folder}/{side}.pem", f"security.key={folder}/{side}.key", f"security.authority={folder}/authority.pem",
            f"security.token_file={folder}/{tokens}"]


def tls_context(folder, side="client", authority=None):
    context = ssl.create_default_context(cafile=str(authority or folder / "authority.pem"))
    context.set_alpn_protocols(["h2"])
    if side is not None:
        context.load_cert_chain(str(folder / f"{side}.pem"), str(folder / f"{side}.key"))
    return context


def read_tokens(path):
    return dict(line.split() for line in pathlib.Path(path).read_text().splitlines())


class Queue:
    """One `leeway-queue`, ended with the block."""

    def __init__(self, folder, name, *overrides, port=None):
        self.port = port or free_port()
        self.directory = pathlib.Path(folder) / name
        self.log_path = pathlib.Path(folder) / f"{name}.log"
        self.arguments = [lw.program("leeway-queue"), CONFIG, f"run.directory={folder}", f"run.name={name}", *overrides]

    def __enter__(self):
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(self.arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 30
        while "listens on" not in self.log():
            assert self.process.poll() is None, f"the queue ended: {self.log()}"
            assert time.monotonic() < deadline, f"the queue does not listen: {self.log()}"
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def expect_log(self, words, timeout=15):
        deadline = time.monotonic() + timeout
        while words not in self.log():
            assert time.monotonic() < deadline, f"the queue's log does not say {words!r}:\n{self.log()}"
            time.sleep(0.02)


def resident_mib(pid):
    return int(next(line for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def refused_at_start():
    """Addresses that others could reach, and secrets that others could read, are refused by the check and by the process itself."""
    with lw.Workspace("security-start") as folder:
        made = make_certificates(f"{folder}/certificates")
        port = free_port()
        open_to_all = [f"run.directory={folder}", f"queue.address=0.0.0.0:{port}"]
        keys = security_keys(made)
        (made / "tokens").chmod(0o640)
        readable_tokens = [f"run.directory={folder}", f"queue.address=127.0.0.1:{port}", keys[3]]
        (made / "copy.key").write_text((made / "server.key").read_text())
        (made / "copy.key").chmod(0o644)
        readable_key = [f"run.directory={folder}", f"queue.address=127.0.0.1:{port}", keys[0], f"security.key={made}/copy.key", keys[2]]
        cases = [
            (open_to_all, "queue.address", ["TLS is not configured", "security.certificate", "doctor --make-certificates"]),
            ([*open_to_all, *keys[:3]], "queue.address", ["no token of role push", "security.token_file"]),
            ([*open_to_all, f"security.certificate={made}/server.pem"], "security.key", ["certificate, key and authority are set together"]),
            (readable_tokens, "security.token_file", ["chmod 600", "mode 0640"]),
            (readable_key, "security.key", ["chmod 600", "mode 0644"]),
            ([*open_to_all, f"security.certificate={made}/client.pem", *keys[1:3]], "security.key", ["is not the key of the certificate"]),
        ]
        for overrides, key, words in cases:
            check = leeway("check", CONFIG, *overrides)
            assert check.returncode == 2, f"{overrides}: {check.returncode}\n{check.stdout}{check.stderr}"
            role = leeway(CONFIG, *overrides, name="leeway-queue")
            assert role.returncode in (2, 3), f"leeway-queue {overrides}: {role.returncode}\n{role.stdout}{role.stderr}"
            assert key in check.stdout + check.stderr, check.stdout + check.stderr
            for word in words:
                assert word in check.stdout + check.stderr, f"check does not say {word!r}:\n{check.stdout}{check.stderr}"
                assert word in role.stdout + role.stderr, f"leeway-queue does not say {word!r}:\n{role.stdout}{role.stderr}"
        again = leeway("doctor", "--make-certificates", str(made))
        assert again.returncode == 2 and "nothing is overwritten" in again.stderr, again.stderr
        for path in made.iterdir():
            if path.name not in ("copy.key", "tokens"):
                assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def tokens_decide():
    """TCP on loopback: tokens of the run, made without a word; a stranger and a wrong role are told what is missing."""
    with lw.Workspace("security-tokens") as folder:
        port = free_port()
        with Queue(folder, "tokens", f"queue.address=127.0.0.1:{port}", port=port) as queue:
            token_file = queue.directory / "tokens"
            assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
            tokens = read_tokens(token_file)
            assert set(tokens) == {"push", "train", "admin"} and len(set(tokens.values())) == 3

            def call(path, token=None, body=b""):
                connection = raw.Connection(port)
                try:
                    return connection.call(path, token, body)
                finally:
                    connection.close()

            for stranger in (None, "0" * 64, tokens["push"][:-1]):
                answer = call(STATUS, stranger)
                assert raw.status_of(answer) == UNAUTHENTICATED, answer
                assert b"token" in answer and tokens["push"].encode() not in answer, answer
            assert b"carries no token" in call(STATUS)
            # Nothing is said of the methods to somebody without a token.
            assert raw.status_of(call("/leeway.v1.Queue/NoSuch")) == UNAUTHENTICATED
            refused = call(COMMIT, tokens["push"])
            assert raw.status_of(refused) == PERMISSION_DENIED, refused
            assert b"/leeway.v1.Queue/Commit: needs a token of role train, the call's is of role push" in refused, refused
            assert raw.status_of(call(PUSH, tokens["train"])) == PERMISSION_DENIED
            assert raw.status_of(call(DRAIN, tokens["train"])) == PERMISSION_DENIED
            for role in tokens:
                connection = raw.Connection(port)
                answer = connection.call(HEALTH_CHECK, tokens[role])
                assert connection.data[1][5:] == b"\x08\x01", (answer, connection.data)  # SERVING
                connection.close()
            connection = raw.Connection(port)
            connection.call(HEALTH_CHECK, tokens["push"], b"\n\x0fleeway.v1.Queue")
            assert connection.data[1][5:] == b"\x08\x01", connection.data
            connection.close()
            # Other languages on this port.
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            try:
                context.wrap_socket(socket.create_connection(("127.0.0.1", port), 10))
                raise AssertionError("a TLS client got through to a plaintext port")
            except (ssl.SSLError, ConnectionError):
                queue.expect_log("it speaks TLS and this port does not")
            with socket.create_connection(("127.0.0.1", port), 20) as garbage:
                garbage.sendall(os.urandom(64) + b"\n" * 64)
                assert hangs_up(garbage)
            queue.expect_log("it speaks neither TLS nor HTTP/2")
        for path in [queue.log_path, *(path for path in queue.directory.rglob("*") if path.is_file() and path != token_file)]:
            text = path.read_bytes()
            assert not any(token.encode() in text for token in tokens.values()), f"{path} holds a token"


def hangs_up(connection):
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


def tls_port():
    """A port with TLS: plaintext is answered in plaintext, and certificates of other authorities get nowhere."""
    with lw.Workspace("security-tls") as folder:
        made = make_certificates(f"{folder}/certificates")
        other = make_certificates(f"{folder}/other")
        port = free_port()
        tokens = read_tokens(made / "tokens")
        assert read_tokens(made / "worker-tokens") == {"push": tokens["push"]}
        with Queue(folder, "tls", f"queue.address=0.0.0.0:{port}", *security_keys(made), port=port) as queue:
            connection = raw.Connection(port)
            answer = connection.call(STATUS, tokens["admin"])
            assert raw.status_of(answer) == UNAUTHENTICATED, answer
            assert b"this port speaks TLS and the call came in plaintext; set security.certificate" in answer, answer
            connection.close()
            queue.expect_log("it speaks plaintext and this port wants TLS")

            connection = raw.Connection(port, tls_context(made))
            connection.call(STATUS, tokens["push"])
            assert len(connection.data[1]) > 5
            connection.close()
            connection = raw.Connection(port, tls_context(made))
            assert raw.status_of(connection.call(STATUS)) == UNAUTHENTICATED
            connection.close()
            # The client does not know the server's authority.
            try:
                raw.Connection(port, tls_context(made, authority=other / "authority.pem"))
                raise AssertionError("a server of an unknown authority was believed")
            except ssl.SSLCertVerificationError:
                pass
            # The server does not know the client's, or sees no certificate at all. In TLS 1.3 a client learns it with the first answer.
            for context in (tls_context(other, authority=made / "authority.pem"), tls_context(made, side=None)):
                try:
                    connection = raw.Connection(port, context)
                    connection.call(STATUS, tokens["push"])
                    raise AssertionError("a client of no known authority was let in")
                except (ssl.SSLError, ConnectionError):
                    pass
            queue.expect_log("Handshake failed")


def unix_socket():
    """The socket and its folder are this user's; the kernel says who knocks."""
    with lw.Workspace("security-unix") as folder:
        os.chmod(folder, 0o711)
        with Queue(folder, "unix") as queue:
            path = queue.directory / "sockets" / "queue.sock"
            assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
            assert not (queue.directory / "tokens").exists()
            if os.geteuid() != 0:
                print("        (not root: nobody to knock as)")
                return
            # Doors wide open, so that only the credentials are left.
            for place in (queue.directory, path.parent):
                place.chmod(0o711)
            path.chmod(0o666)
            knock = ("import os, socket, sys; os.setgid(65534); os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.settimeout(20); "
                     "s.connect(sys.argv[1]); sys.exit(0 if s.recv(1) == b'' else 1)")
            result = subprocess.run([sys.executable, "-c", knock, str(path)], capture_output=True, text=True, timeout=60, check=False)
            assert result.returncode == 0, result.stderr
            queue.expect_log("of user 65534: only user 0 and root may use this socket")


# ---- hostile clients beside a job -----------------------------------------------------------------------------------


def nested(levels):
    return b"\xc3\x3e" * levels  # a group of field 1000 in a group in …


class Watcher(threading.Thread):
    """A well-behaved client: a stream that stays open, and calls on the same connection. Both must go on, whatever others do."""

    def __init__(self, port, token):
        super().__init__(daemon=True)
        self.port, self.token = port, token
        self.stopped = threading.Event()
        self.calls, self.slowest, self.fault = 0, 0.0, None

    def run(self):
        try:
            connection = raw.Connection(self.port, timeout=60)
            stream = connection.open(HEALTH_WATCH, self.token)
            connection.send(raw.frame(raw.DATA, raw.END_STREAM, stream, raw.message(b"")))
            while not self.stopped.is_set():
                started = time.monotonic()
                answer = connection.call(HEALTH_CHECK, self.token)
                assert b"reset" not in answer and connection.goaway is None, answer
                assert stream not in connection.ended, f"the stream ended: {connection.ended[stream]}"
                self.slowest = max(self.slowest, time.monotonic() - started)
                self.calls += 1
                self.stopped.wait(0.02)
        except (AssertionError, OSError) as error:
            self.fault = error


def attack_with_large_messages(port, pid, tokens):
    """A stranger's message is refused before it is there; a member's when it is there, and is then forgotten."""
    before = resident_mib(pid)
    stranger = raw.Connection(port)
    stream = stranger.open(PUSH)
    stranger.send_bytes_of_message(stream, 1 << 30, 1 << 30)
    stranger.wait(lambda: stream in stranger.ended)
    assert raw.status_of(stranger.ended[stream]) == UNAUTHENTICATED, stranger.ended
    assert resident_mib(pid) - before < 64, f"a stranger made the queue grow from {before:.0f} to {resident_mib(pid):.0f} MiB"
    stranger.close()
    member = raw.Connection(port, timeout=60)
    stream = member.open(PUSH, tokens["push"])
    member.send_bytes_of_message(stream, 1 << 30, (1 << 30) + 5)
    member.wait(lambda: stream in member.ended, 60)
    assert raw.status_of(member.ended[stream]) == RESOURCE_EXHAUSTED, member.ended
    assert b"larger than max" in member.ended[stream], member.ended
    member.close()


def attack_with_metadata(port, pid, tokens):
    before = resident_mib(pid)
    for token in (None, tokens["push"]):
        # A megabyte of headers in one call.
        bomb = raw.Connection(port)
        block = raw.headers(STATUS, token) + b"".join(raw.field(f"x-{i}", "x" * 4000) for i in range(256))
        answer = send_headers(bomb, block)
        assert answer is None or b"exceeds limit" in answer, answer
        bomb.close()
        # One header in the table of the connection, named twenty thousand times: 80 MB for 20 kB.
        bomb = raw.Connection(port)
        block = raw.headers(STATUS, token) + raw.field("x-bomb", "x" * 4000, first=b"\x40") + b"\xbe" * 20_000
        answer = send_headers(bomb, block)
        assert answer is None or b"exceeds limit" in answer, answer
        bomb.close()
    assert resident_mib(pid) - before < 64, f"the queue grew from {before:.0f} to {resident_mib(pid):.0f} MiB"


def send_headers(connection, block):
    """How a call with these headers ended; None: the server hung up."""
    pieces = [block[at:at + 16384] for at in range(0, len(block), 16384)]
    try:
        # The limit holds from the moment at which the client has acknowledged it; until then it is HTTP/2's own, 16 MiB.
        connection.call(HEALTH_CHECK)
        stream = connection.next_stream
        for i, piece in enumerate(pieces):
            last = raw.END_HEADERS if i == len(pieces) - 1 else 0
            kind, flags = (raw.HEADERS, last | raw.END_STREAM) if i == 0 else (raw.CONTINUATION, last)
            connection.send(raw.frame(kind, flags, stream, piece))
        connection.wait(lambda: stream in connection.ended)
        return connection.ended[stream]
    except ConnectionError:
        return None


def attack_with_nesting(port, tokens):
    for path, role in ((COMMIT, "train"), (PUSH, "push")):
        connection = raw.Connection(port)
        answer = connection.call(path, tokens[role], nested(5_000))
        assert raw.status_of(answer) == INVALID_ARGUMENT, (path, answer)
        assert b"nested more than 100 levels deep" in answer, (path, answer)
        connection.close()


def attack_with_connections(port, count):
    """Opens many connections and says nothing on them, or garbage, or half a greeting, and waits until the server has hung up on each."""
    held = []
    for i in range(count):
        try:
            connection = socket.create_connection(("127.0.0.1", port), 5)
            if i % 9 == 1:
                connection.sendall(os.urandom(100))
            if i % 9 == 2:
                connection.sendall(raw.PREFACE[:10])
            held.append(connection)
        except OSError:
            continue
    for connection in held:
        connection.settimeout(30)
        hangs_up(connection)
        connection.close()


def attack_with_resets(port, tokens):
    """Calls that are taken back at once."""
    connection = raw.Connection(port)
    try:
        for _ in range(2000):
            stream = connection.open(STATUS, tokens["push"])
            connection.send(raw.frame(raw.RST_STREAM, 0, stream, b"\0\0\0\x08"))
            connection.pump()
    except ConnectionError:
        pass
    connection.close()


def others_are_not_disturbed():
    """A job over TCP trains to the same bytes while everything is thrown at its queue; a client's open stream and its calls go on."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    with lw.Workspace("security-hostile") as folder:
        steps = 150
        settings = [f"trainer.steps={steps}", "staleness.budget=0", f"checkpoint.every={steps}", "eval.every=0"]
        calm = lw.Job("tiny.toml", folder, "calm", settings).run()
        port = free_port()
        job = lw.Job("tiny.toml", folder, "hostile", [*settings, f"queue.address=127.0.0.1:{port}"],
                     {"LEEWAY_FAILPOINTS_TRAINER": "trainer_before_optimizer=delay:100"}, stops_at=(1, steps)).start_with(workers=1)
        tokens = read_tokens(job.directory / "tokens")
        pid = next(pid for pid, role in job.children() if role == "queue")
        watcher = Watcher(port, tokens["admin"])
        watcher.start()
        timings = []
        for name, attack in [
            ("1 GiB messages", lambda: attack_with_large_messages(port, pid, tokens)),
            ("metadata bombs", lambda: attack_with_metadata(port, pid, tokens)),
            ("nesting bombs", lambda: attack_with_nesting(port, tokens)),
            ("connections", lambda: attack_with_connections(port, 900)),
            ("resets", lambda: attack_with_resets(port, tokens)),
        ]:
            started = time.monotonic()
            attack()
            timings.append(f"{name} {time.monotonic() - started:.1f} s")
            assert watcher.fault is None, f"after {name} the others were disturbed: {watcher.fault}"
            assert job.process.poll() is None, job.tail()
        calls_under_attack = watcher.calls
        watcher.stopped.set()
        watcher.join(30)
        assert watcher.fault is None, watcher.fault
        assert calls_under_attack > 20, f"only {calls_under_attack} calls: the server was held up"
        steps_under_attack = job.steps_done()
        job.go_on()
        assert job.wait(400) == 0, job.tail()
        lw.check_conservation(job.metrics())
        assert job.summary()["restarts"] in (0, {}, []), job.summary()["restarts"]
        assert lw.checkpoint_digests(job.checkpoint(steps)) == lw.checkpoint_digests(calm.checkpoint(steps))
        log = job.log("queue-0")
        assert "the limit is 640" in log, "900 connections of one address were taken"
        assert "is lost" not in log and "fenced" not in log, log[-3000:]
        print(f"        {', '.join(timings)}; {calls_under_attack} calls, the slowest took {watcher.slowest:.2f} s; {steps_under_attack} steps meanwhile")


def job_over_tls():
    """A job over TCP with mutual TLS and tokens, on all addresses of the machine, trains to the same bytes as over unix sockets."""
    with lw.Workspace("security-job") as folder:
        made = make_certificates(f"{folder}/certificates", "--host", "node-3.example.org")
        settings = ["staleness.budget=0", "weights.transport=grpc"]
        plain = lw.Job("tiny.toml", folder, "plain", settings).run()
        job = lw.Job("tiny.toml", folder, "tls", [*settings, f"queue.address=0.0.0.0:{free_port()}", f"weights.address=127.0.0.1:{free_port()}",
                                                  *security_keys(made)]).run()
        lw.check_conservation(job.metrics())
        assert lw.checkpoint_digests(job.checkpoint(20)) == lw.checkpoint_digests(plain.checkpoint(20))
        secrets = list(read_tokens(made / "tokens").values())
        for path in (path for path in job.directory.rglob("*") if path.is_file()):
            text = path.read_bytes()
            assert not any(secret.encode() in text for secret in secrets), f"{path} holds a token"
            assert b"PRIVATE KEY" not in text, f"{path} holds a key"
        assert not (job.directory / "tokens").exists()


if __name__ == "__main__":
    lw.main({test.__name__: test for test in (refused_at_start, tokens_decide, tls_port, unix_socket, job_over_tls, others_are_not_disturbed)})
