"""The fault proxy does what it is told, over TCP and over unix sockets.

Usage: fault_proxy_test.py [test …]
"""

import os
import pathlib
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fault_proxy  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import leeway_run as lw  # noqa: E402


class Echo:
    """A server that sends back what it gets."""

    def __init__(self, address):
        if address.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.bind(address.removeprefix("unix:"))
            self.address = address
        else:
            self.socket = socket.socket()
            self.socket.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"
        self.socket.listen()
        self.received = b""
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.echo, args=(peer,), daemon=True).start()

    def echo(self, peer):
        with peer:
            while True:
                try:
                    data = peer.recv(65536)
                    if not data:
                        return
                    self.received += data
                    peer.sendall(data)
                except OSError:
                    return


def connect(address):
    if address.startswith("unix:"):
        client = socket.socket(socket.AF_UNIX)
        client.connect(address.removeprefix("unix:"))
    else:
        host, port = address.rsplit(":", 1)
        client = socket.create_connection((host, int(port)))
    client.settimeout(5)
    return client


def ask(client, data):
    client.sendall(data)
    got = b""
    while len(got) < len(data):
        piece = client.recv(65536)
        if not piece:
            raise ConnectionResetError("closed")
        got += piece
    return got


def is_silent(client, seconds=0.15):
    client.settimeout(seconds)
    try:
        return client.recv(1) == b"never"
    except TimeoutError:
        return True
    finally:
        client.settimeout(5)


def is_gone(client):
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def over_both(test):
    """Runs the test over TCP and over a unix socket."""
    def run():
        with tempfile.TemporaryDirectory() as folder:
            for kind in ("tcp", "unix"):
                echo = Echo("127.0.0.1:0" if kind == "tcp" else f"unix:{folder}/echo.sock")
                listen = "127.0.0.1:0" if kind == "tcp" else f"unix:{folder}/proxy.sock"
                with fault_proxy.FaultProxy(listen, echo.address) as proxy:
                    test(proxy, echo)
                echo.socket.close()
    return run


def passes_bytes(proxy, _):
    client = connect(proxy.listen)
    data = os.urandom(3 << 20)
    got = []
    reader = threading.Thread(target=lambda: got.append(receive(client, len(data))))
    reader.start()
    client.sendall(data)
    reader.join(10)
    assert got and got[0] == data
    assert proxy.up.bytes == proxy.down.bytes == len(data)
    client.close()
    wait_until(lambda: proxy.open_connections() == 0, "the connection is forgotten")


def receive(client, size):
    got = bytearray()
    while len(got) < size:
        got += client.recv(1 << 20)
    return bytes(got)


def wait_until(condition, what):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


def delays(proxy, _):
    client = connect(proxy.listen)
    ask(client, b"warm")
    proxy.delay(0.2)
    started = time.monotonic()
    assert ask(client, b"slow") == b"slow"
    assert 0.4 <= time.monotonic() - started < 1.5, time.monotonic() - started
    proxy.heal()
    started = time.monotonic()
    ask(client, b"fast")
    assert time.monotonic() - started < 0.2


def holds_and_delivers_after_healing(proxy, echo):
    client = connect(proxy.listen)
    ask(client, b"warm")
    proxy.hold("up")
    client.sendall(b"later")
    assert is_silent(client) and not echo.received.endswith(b"later")
    proxy.heal()
    assert client.recv(16) == b"later"
    proxy.hold("down")  # one way: the server hears, the client does not
    client.sendall(b"heard")
    wait_until(lambda: echo.received.endswith(b"heard"), "the server hears")
    assert is_silent(client)
    proxy.heal()
    assert client.recv(16) == b"heard"


def drops_for_ever(proxy, echo):
    client = connect(proxy.listen)
    ask(client, b"warm")
    proxy.drop("down")
    client.sendall(b"lost")
    wait_until(lambda: echo.received.endswith(b"lost"), "the server hears")
    assert is_silent(client)
    proxy.heal()
    assert is_gone(client)
    assert ask(connect(proxy.listen), b"new") == b"new"


def resets(proxy, _):
    client = connect(proxy.listen)
    ask(client, b"warm")
    proxy.reset()
    assert is_gone(client)
    assert ask(connect(proxy.listen), b"again") == b"again"


def half_opens(proxy, _):
    client = connect(proxy.listen)
    ask(client, b"warm")
    proxy.half_open()
    client.sendall(b"to nobody")
    assert is_silent(client)
    late = connect(proxy.listen)
    late.sendall(b"to nobody")
    assert is_silent(late)
    proxy.heal()
    assert is_gone(client) and is_gone(late)
    assert ask(connect(proxy.listen), b"again") == b"again"


def refuses(proxy, _):
    proxy.refuse()
    assert is_gone(connect(proxy.listen))
    proxy.heal()
    assert ask(connect(proxy.listen), b"again") == b"again"


def corrupts_and_duplicates(proxy, _):
    client = connect(proxy.listen)
    proxy.corrupt("up")
    assert ask(client, b"abc") == bytes([ord("a") ^ 0x10]) + b"bc"
    assert ask(client, b"abc") == b"abc"
    proxy.duplicate("down")
    client.sendall(b"xy")
    assert receive(client, 4) == b"xyxy"


def throttles(proxy, _):
    client = connect(proxy.listen)
    proxy.throttle(50_000, "up")
    started = time.monotonic()
    ask(client, bytes(20_000))
    assert 0.3 <= time.monotonic() - started < 3, time.monotonic() - started


def no_target_ends_the_connection():
    with tempfile.TemporaryDirectory() as folder, fault_proxy.FaultProxy(f"unix:{folder}/proxy.sock", f"unix:{folder}/nobody.sock") as proxy:
        assert is_gone(connect(proxy.listen))


TESTS = (passes_bytes, delays, holds_and_delivers_after_healing, drops_for_ever, resets, half_opens, refuses, corrupts_and_duplicates, throttles)
lw.main({**{test.__name__: over_both(test) for test in TESTS}, "no_target_ends_the_connection": no_target_ends_the_connection})
