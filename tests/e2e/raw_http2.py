"""Just enough HTTP/2 and gRPC over a socket to be a stranger, or a bad client: no library would send what these tests send."""

import socket
import ssl
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def hpack_string(text):
    """Without Huffman code, its length in a prefix of 7 bits."""
    data = text.encode() if isinstance(text, str) else text
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest, out = len(data) - 127, b"\x7f"
    while rest >= 128:
        out += bytes([rest % 128 + 128])
        rest //= 128
    return out + bytes([rest]) + data


def field(name, value, first=b"\x00"):
    return first + hpack_string(name) + hpack_string(value)


def headers(path, token=None, extra=()):
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"), ("content-type", "application/grpc"), ("te", "trailers")]
    if token is not None:
        fields.append(("authorization", f"Bearer {token}"))
    return b"".join(field(name, value) for name, value in [*fields, *extra])


def message(body):
    return b"\0" + struct.pack(">I", len(body)) + body


class Connection:
    """One connection; blocking, every wait with a deadline. `ended[stream]` says how a stream ended: the bytes of its header blocks, or of its reset."""

    def __init__(self, port, tls=None, timeout=20):
        self.timeout = timeout
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.buffer = b""
        self.next_stream = 1
        self.window = self.initial = 65535
        self.stream_window = {}
        self.heard = {}  # header blocks by stream
        self.data = {}
        self.ended = {}
        self.goaway = None
        self.is_closed = False
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.settimeout(self.timeout)
        self.socket.sendall(data)

    def open(self, path, token=None, extra=()):
        """A call without its request."""
        stream = self.next_stream
        self.next_stream += 2
        self.send(frame(HEADERS, END_HEADERS, stream, headers(path, token, extra)))
        return stream

    def pump(self, timeout=0.0):
        """Takes what has arrived; False when there was nothing in time."""
        self.socket.settimeout(max(timeout, 0.0001))
        try:
            received = self.socket.recv(1 << 16)
        except (TimeoutError, ssl.SSLWantReadError, BlockingIOError):
            return False
        except ConnectionError:
            received = b""
        if not received:
            self.is_closed = True
            raise ConnectionError("the server hung up")
        self.buffer += received
        while len(self.buffer) >= 9:
            size = int.from_bytes(self.buffer[:3], "big")
            if len(self.buffer) < 9 + size:
                break
            kind, flags, stream = self.buffer[3], self.buffer[4], int.from_bytes(self.buffer[5:9], "big")
            payload = self.buffer[9:9 + size]
            self.buffer = self.buffer[9 + size:]
            self.take(kind, flags, stream, payload)
        return True

    def take(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                key, value = struct.unpack(">HI", payload[at:at + 6])
                if key == 4:
                    self.initial = value
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            if stream == 0:
                self.window += int.from_bytes(payload, "big")
            else:
                self.stream_window[stream] = self.stream_window.get(stream, 0) + int.from_bytes(payload, "big")
        elif kind == DATA:
            self.data[stream] = self.data.get(stream, b"") + payload
        elif kind == HEADERS:
            self.heard[stream] = self.heard.get(stream, b"") + payload
            if flags & END_STREAM:
                self.ended.setdefault(stream, self.heard[stream])
        elif kind == RST_STREAM:
            self.ended.setdefault(stream, self.heard.get(stream, b"") + b"reset " + str(int.from_bytes(payload, "big")).encode())
        elif kind == GOAWAY:
            self.goaway = payload

    def wait(self, condition, timeout=None):
        deadline = time.monotonic() + (timeout or self.timeout)
        while not condition():
            assert time.monotonic() < deadline, "the server did not answer in time"
            self.pump(0.2)

    def call(self, path, token=None, body=b"", extra=()):
        """A whole call, of a request that fits into one frame (16 KiB): how it ended, as bytes."""
        stream = self.open(path, token, extra)
        self.send(frame(DATA, END_STREAM, stream, message(body)))
        self.wait(lambda: stream in self.ended)
        return self.ended[stream]

    def send_bytes_of_message(self, stream, announced, total):
        """Announces a message of `announced` bytes and sends up to `total` of them, as fast as flow control lets it; returns how many."""
        sent = 0
        head = b"\0" + struct.pack(">I", announced)
        while sent < total and stream not in self.ended:
            room = min(16384, total - sent, self.window, self.initial + self.stream_window.get(stream, 0))
            if room <= len(head):
                if not self.pump(1.0):
                    break  # the server takes no more
                continue
            piece = head + bytes(room - len(head)) if sent == 0 else bytes(room)
            self.send(frame(DATA, 0, stream, piece))
            sent += room
            self.window -= room
            self.stream_window[stream] = self.stream_window.get(stream, 0) - room
            if sent % (1 << 20) < 16384:
                self.pump()
        return sent


def status_of(ended):
    """The number in grpc-status, as a literal without Huffman code: gRPC writes it so on a fresh connection."""
    at = ended.find(b"grpc-status")
    if at < 0:
        return None
    size = ended[at + 11]
    return int(ended[at + 12:at + 12 + size])
