"""Reads a checkpoint's ledger.bin (proto/leeway/v1/queue_snapshot.proto) without protobuf: what became of every ticket id.

Usage: ledger_snapshot.py CHECKPOINT      prints it
"""

import pathlib
import sys

STATES = (None, "issued", "running", "ready", "leased", "trained", "settled", "filtered", "stale", "failed", "cancelled", "rewound")
DIGEST = 32  # hexadecimal digits before the message


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data):
    """(number, value) of every field of a message; length-delimited ones as bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        elif tag & 7 == 2:
            size, at = varint(data, at)
            if at + size > len(data):
                raise ValueError("a field ends beyond its message")
            value, at = data[at:at + size], at + size
        else:
            raise ValueError(f"wire type {tag & 7} is not expected in a ledger")
        yield tag >> 3, value


def numbers(message, field):
    """A packed repeated field of numbers."""
    found = []
    for number, value in fields(message):
        if number == field:
            at = 0
            while at < len(value):
                item, at = varint(value, at)
                found.append(item)
    return found


class Ledger:
    """state_of[id]: the state's name for an id with a row, "settled" or "closed" (filtered, stale, failed, cancelled) for a folded one."""

    def __init__(self, data):
        message = data[DIGEST:]
        single = dict(fields(message))
        self.next_ticket = single.get(9, 1)
        self.settled_step = single.get(10, 0)
        self.state_of = {}
        self.step_of = {}
        for number, value in fields(message):
            if number == 13:
                row = dict(fields(value))
                self.state_of[row[1]] = STATES[row[3]]
                self.step_of[row[1]] = row.get(5, 0)
        closed, last = set(), 0
        for difference in numbers(message, 15):
            last += difference
            closed.add(last)
        ranges, end = numbers(message, 14), 0
        for first, length in zip(ranges[::2], ranges[1::2]):
            first += end
            end = first + length
            for ticket in range(first, end):
                if ticket in self.state_of:
                    raise ValueError(f"ticket {ticket} has a row and is folded")
                self.state_of[ticket] = "closed" if ticket in closed else "settled"


def read(checkpoint):
    return Ledger((pathlib.Path(checkpoint) / "ledger.bin").read_bytes())


if __name__ == "__main__":
    ledger = read(sys.argv[1])
    print(f"next ticket {ledger.next_ticket}, settled to step {ledger.settled_step}")
    for ticket, state in sorted(ledger.state_of.items()):
        print(ticket, state, ledger.step_of.get(ticket, ""))
