"""A proxy between two processes that misbehaves on command: for TCP and unix sockets, in userspace, on a thread of its own.

Usage: fault_proxy.py LISTEN TARGET      addresses as in a configuration: 127.0.0.1:7000 or unix:/path; commands on stdin, one a line:
  delay SECONDS [up|down]   hold [up|down]   drop [up|down]   throttle BYTES_PER_SECOND [up|down]   corrupt [up|down]   duplicate [up|down]
  reset   half_open   refuse   heal   count

`up` is from who connected to LISTEN towards TARGET; without a direction both.

| fault | what the two sides see |
|---|---|
| delay | bytes arrive that much later, in order |
| hold | a partition of the network: nothing arrives; after `heal` what was sent arrives, as after TCP's retransmissions |
| drop | bytes vanish for ever; the connection can not be used any more, so `heal` resets those that lost some |
| throttle | bandwidth |
| corrupt, duplicate | one bit of the next piece is flipped; the next piece comes twice |
| reset | all connections end at once, with an RST where there is TCP |
| half_open | TARGET's side of all connections is gone, the other side hears nothing of it; so are new ones; `heal` resets them |
| refuse | new connections end at once |
"""

import asyncio
import os
import socket
import struct
import sys
import threading
import time

PIECE = 1 << 16
PIECES_IN_FLIGHT = 256  # of a direction; then the sender meets back-pressure


class Direction:
    """The faults of one direction, of all connections; set from any thread."""

    def __init__(self):
        self.bytes = 0
        self.clear()

    def clear(self):
        self.delay = 0.0
        self.hold = False
        self.drop = False
        self.throttle = 0.0
        self.corrupt = 0
        self.duplicate = 0


class Connection:
    """One client, and the proxy's connection to the target for it."""

    def __init__(self, client, target):
        self.sides = [client, target]  # (reader, writer)
        self.is_spoiled = False  # bytes are lost, or one side is gone: of no use any more
        self.tasks = []

    def abort(self, writer):
        raw = writer.get_extra_info("socket")
        if raw is not None and raw.family != socket.AF_UNIX:
            try:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                pass  # ended already
        writer.transport.abort()

    def reset(self):
        for task in self.tasks:
            task.cancel()
        for _, writer in self.sides:
            self.abort(writer)

    def half_open(self):
        self.is_spoiled = True
        for task in self.tasks:
            task.cancel()
        self.abort(self.sides[1][1])


class FaultProxy:
    """Starts listening at once; every method may be called from any thread."""

    def __init__(self, listen, target):
        self.listen, self.target = listen, target
        self.up, self.down = Direction(), Direction()
        self.accepted = 0
        self.is_refusing = self.is_half_open = False
        self._connections = set()
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait()
        if self._error is not None:
            raise self._error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- faults ------------------------------------------------------------------------------------------------------

    def _directions(self, which):
        return {"up": [self.up], "down": [self.down], "both": [self.up, self.down]}[which]

    def delay(self, seconds, which="both"):
        for direction in self._directions(which):
            direction.delay = seconds

    def hold(self, which="both"):
        for direction in self._directions(which):
            direction.hold = True

    def drop(self, which="both"):
        for direction in self._directions(which):
            direction.drop = True

    def throttle(self, bytes_per_second, which="both"):
        for direction in self._directions(which):
            direction.throttle = bytes_per_second

    def corrupt(self, which="both"):
        for direction in self._directions(which):
            direction.corrupt += 1

    def duplicate(self, which="both"):
        for direction in self._directions(which):
            direction.duplicate += 1

    def reset(self):
        self._on_loop(lambda: [connection.reset() for connection in list(self._connections)])

    def half_open(self):
        self.is_half_open = True
        self._on_loop(lambda: [connection.half_open() for connection in list(self._connections)])

    def refuse(self):
        self.is_refusing = True

    def heal(self, resets=True):
        """No fault any more; connections that can not go on are reset, or stay silent for ever: their ends have to find out by themselves."""
        self.is_refusing = self.is_half_open = False
        for direction in (self.up, self.down):
            direction.clear()
        if resets:
            self._on_loop(lambda: [connection.reset() for connection in list(self._connections) if connection.is_spoiled])

    def open_connections(self):
        return len(self._connections)

    def close(self):
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)

    # ---- the loop's thread -------------------------------------------------------------------------------------------

    def _on_loop(self, action):
        done = threading.Event()

        def run():
            action()
            done.set()
        self._loop.call_soon_threadsafe(run)
        done.wait(10)

    def _run(self, started):
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve(started))
        except OSError as error:
            self._error = error
        finally:
            started.set()
            self._loop.close()

    async def _serve(self, started):
        self._stop = asyncio.Event()
        if self.listen.startswith("unix:"):
            path = self.listen.removeprefix("unix:")
            if os.path.exists(path):
                os.unlink(path)
            server = await asyncio.start_unix_server(self._accept, path)
        else:
            host, port = self.listen.rsplit(":", 1)
            server = await asyncio.start_server(self._accept, host, int(port))
            self.listen = f"{host}:{server.sockets[0].getsockname()[1]}"
        started.set()
        await self._stop.wait()
        server.close()
        for connection in list(self._connections):
            connection.reset()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self, reader, writer):
        self.accepted += 1
        if self.is_refusing:
            writer.transport.abort()
            return
        try:
            if self.target.startswith("unix:"):
                target = await asyncio.open_unix_connection(self.target.removeprefix("unix:"))
            else:
                host, port = self.target.rsplit(":", 1)
                target = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        connection = Connection((reader, writer), target)
        self._connections.add(connection)
        if self.is_half_open:
            connection.half_open()
        else:
            connection.tasks = [asyncio.create_task(self._pump(connection, reader, target[1], self.up)),
                                asyncio.create_task(self._pump(connection, target[0], writer, self.down))]
        try:
            while not writer.transport.is_closing() and (connection.is_spoiled or not all(task.done() for task in connection.tasks)):
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            pass  # the proxy closes; asyncio's stream server would report it
        finally:
            connection.reset()
            self._connections.discard(connection)

    async def _pump(self, connection, reader, writer, direction):
        pieces = asyncio.Queue(PIECES_IN_FLIGHT)
        sender = asyncio.create_task(self._send(connection, pieces, writer, direction))
        try:
            while not sender.done():
                try:
                    data = await reader.read(PIECE)
                except OSError:
                    connection.reset()
                    return
                await pieces.put((time.monotonic() + direction.delay, data))
                if not data:
                    break
            await sender
        finally:
            sender.cancel()

    async def _send(self, connection, pieces, writer, direction):
        while True:
            due, data = await pieces.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            while direction.hold:
                await asyncio.sleep(0.005)
            try:
                if direction.drop or connection.is_spoiled:
                    connection.is_spoiled = True  # also when the end is what was lost
                    continue
                if not data:
                    if writer.can_write_eof():
                        writer.write_eof()
                    return
                if direction.corrupt > 0:
                    direction.corrupt -= 1
                    data = bytes([data[0] ^ 0x10]) + data[1:]
                if direction.duplicate > 0:
                    direction.duplicate -= 1
                    data += data
                while data:
                    piece, data = (data, b"") if direction.throttle <= 0 else (data[:4096], data[4096:])
                    direction.bytes += len(piece)
                    writer.write(piece)
                    await writer.drain()
                    if direction.throttle > 0:
                        await asyncio.sleep(len(piece) / direction.throttle)
            except OSError:
                connection.reset()
                return


def main():
    if len(sys.argv) != 3 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        sys.exit(0 if len(sys.argv) > 1 and sys.argv[1] in ("-h", "--help") else 2)
    with FaultProxy(sys.argv[1], sys.argv[2]) as proxy:
        print(f"{proxy.listen} -> {proxy.target}", flush=True)
        for line in sys.stdin:
            words = line.split()
            if not words:
                continue
            name, arguments = words[0], [float(word) if word.replace(".", "").isdigit() else word for word in words[1:]]
            if name == "count":
                print(f"{proxy.accepted} accepted, {proxy.open_connections()} open, {proxy.up.bytes} bytes up, {proxy.down.bytes} down", flush=True)
            elif name in ("delay", "hold", "drop", "throttle", "corrupt", "duplicate", "reset", "half_open", "refuse", "heal"):
                getattr(proxy, name)(*arguments)
            else:
                print(f"unknown command {name}", flush=True)


if __name__ == "__main__":
    main()
