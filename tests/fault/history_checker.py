"""Proves from what every process sent and was told that nothing was lost and nothing trained twice.

Usage: history_checker.py RUN HISTORIES [--memory]

RUN is a run directory whose job ended well, HISTORIES the folder that LEEWAY_HISTORY_DIRECTORY named (queue/history has the lines). `--memory`: the
queue keeps nothing beyond its death, so what it acknowledged may be lost with it and identities begin again. Prints every violation; exits 1 if
there is one.

What it knows of the system is DESIGN's words alone: a step's groups are trained when its Commit is acknowledged; a version of lineage l survives iff
it is at most one above the smallest step that a later lineage restored; the surviving commits are what the final weights were trained on.
"""

import argparse
import collections
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import leeway_run as lw  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import ledger_snapshot  # noqa: E402

ENDED = ("filtered", "stale", "failed", "cancelled", "closed")
ALIVE = ("issued", "running", "ready", "leased")


class Life:
    """The history of one life of a process: its lines, in order."""

    def __init__(self, name, lines):
        self.name = name
        self.lines = lines
        self.who = lines[0]["who"] if lines else name.split(".")[0]


class Evidence:
    """What is checked: lives, and what the run directory says. `ledger` is the last checkpoint's, `report` that of `leeway inspect --json`."""

    def __init__(self, lives, steps, groups_per_step, budget, metrics=(), ledger=None, report=None, durable=True):
        self.lives = lives
        self.steps = steps
        self.groups_per_step = groups_per_step
        self.budget = budget
        self.metrics = list(metrics)
        self.ledger = ledger
        self.report = report
        self.durable = durable

    def lines(self, *events):
        """Lines of these events of all lives, by time."""
        found = [line for life in self.lives for line in life.lines if line["event"] in events]
        return sorted(found, key=lambda line: line["t"])


def read_life(path):
    """Only the last line may be torn: its writer was killed. Any other damage is a violation by itself (see lines_are_complete)."""
    lines = []
    texts = path.read_text(errors="replace").split("\n")
    for number, text in enumerate(texts):
        if not text:
            continue
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            if number < len(texts) - 1:
                lines.append({"n": 0, "t": lines[-1]["t"] if lines else 0, "who": path.name, "event": "damaged"})
    return Life(path.name, lines)


def read_histories(folder):
    return [read_life(path) for path in sorted(pathlib.Path(folder).glob("*.jsonl"))]


# ---- the surviving line of weights -----------------------------------------------------------------------------------


class Line:
    """Which commits survive."""

    def __init__(self, evidence):
        restored, self.commits, self.maybe = {}, [], []
        pending = {}
        for life in evidence.lives:
            calls = {}
            for line in life.lines:
                if line["event"] in ("restore", "commit"):
                    calls[line["call"]] = line
                if line["event"] in ("restored", "committed"):
                    calls.pop(line["call"], None)
                    if "error" in line:
                        if line["event"] == "committed" and not is_refusal(line["error"]):
                            self.maybe.append(line)
                    elif line["event"] == "restored":
                        restored[line["lineage"]] = line["step"]
                    else:
                        self.commits.append(line)
            pending[life.name] = calls
        for calls in pending.values():
            self.maybe += [line for line in calls.values() if line["event"] == "commit"]
        self.restored = restored
        self.limit = {}
        limit = float("inf")
        for lineage in sorted(restored, reverse=True):
            self.limit[lineage] = limit
            limit = min(limit, restored[lineage] + 1)
        self.lowest = limit

    def survives(self, lineage, version):
        """A lineage that restored nothing has committed nothing."""
        return lineage in self.limit and version <= self.limit[lineage]

    def surviving(self):
        """Acknowledged commits that trained something and survive, one a (lineage, version)."""
        found = {}
        for line in self.commits:
            if not line["initial"] and self.survives(line["lineage"], line["version"]):
                found[line["lineage"], line["version"]] = line
        return list(found.values())


def is_refusal(error):
    """The queue said no; anything else leaves open whether it did what was asked."""
    return error.split(":")[0] in ("ABORTED", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "OUT_OF_RANGE", "NOT_FOUND", "PERMISSION_DENIED")


# ---- checks: each takes (evidence, line) and yields what is wrong ---------------------------------------------------------


def lines_are_complete(evidence, _):
    for life in evidence.lives:
        for number, line in enumerate(life.lines, 1):
            if line["n"] != number:
                yield f"{life.name}: line {number} of the history is missing or damaged"
                break


def identities_are_unique(evidence, _):
    if not evidence.durable:
        return
    owner, newest = {}, {}
    names = {}
    for life in evidence.lives:
        for line in life.lines:
            if line["event"] == "register":
                names[life.name] = line["name"]
    for life in evidence.lives:
        for line in life.lines:
            if line["event"] != "registered" or "error" in line:
                continue
            identity = tuple(line["id"])
            if identity in owner:
                yield f"identity {identity} was given to {owner[identity]} and again to {life.name}"
            owner[identity] = life.name
    given = [(line["t"], line["who"], tuple(line["id"])) for line in evidence.lines("registered") if "error" not in line]
    producer_of = {}
    for _, who, (producer, epoch) in given:
        if producer_of.setdefault(who, producer) != producer:
            yield f"{who} was producer {producer_of[who]} and became {producer}"
        if epoch <= newest.get(producer, 0):
            yield f"producer {producer} ({who}) got epoch {epoch} after epoch {newest[producer]}"
        newest[producer] = max(epoch, newest.get(producer, 0))


def lineages_never_repeat(evidence, _):
    newest = 0
    for line in evidence.lines("allocated"):
        if "error" in line:
            continue
        if line["lineage"] <= newest:
            yield f"lineage {line['lineage']} was allocated after lineage {newest}"
        newest = max(newest, line["lineage"])


def answers_are_in_order(evidence, _):
    """The n-th push of an identity is its sequence number n; the same number gets the same answer, verbatim, whoever is told it."""
    told = {}
    for life in evidence.lives:
        sent = collections.defaultdict(list)
        for line in life.lines:
            if line["event"] == "push":
                sent[tuple(line["id"])].append(line["call"])
            if line["event"] not in ("pushed", "queue_answer") or "error" in line:
                continue
            identity, answer = tuple(line["id"]), (line["result"], line["reason"])
            if line["result"] == "FULL":
                if line["event"] == "pushed":
                    yield f"{life.name}: a push was answered FULL for good"
                continue
            if line["event"] == "pushed":
                calls = sent[identity]
                if not 1 <= line["sequence"] <= len(calls) or calls[line["sequence"] - 1] != line["call"]:
                    yield f"{life.name}: push {line['call']} of {identity} was answered as number {line['sequence']}"
            before = told.setdefault((identity, line["sequence"]), answer)
            if before != answer:
                yield f"push {line['sequence']} of {identity} was answered {before}, and also {answer}"


def fenced_identities_stay_fenced(evidence, _):
    """A push that was sent after a newer epoch of its producer had been told is never accepted."""
    since = collections.defaultdict(list)
    for line in evidence.lines("registered"):
        if "error" not in line:
            since[line["id"][0]].append((line["t"], line["id"][1]))
    if not evidence.durable:
        return
    for life in evidence.lives:
        sent = {line["call"]: line["t"] for line in life.lines if line["event"] == "push"}
        for line in life.lines:
            if line["event"] != "pushed" or line.get("result") != "ACCEPTED":
                continue
            producer, epoch = line["id"]
            if any(t < sent[line["call"]] and newer > epoch for t, newer in since[producer]):
                yield f"{life.name}: push {line['call']} of the fenced identity {line['id']} was accepted"


def committed_never_goes_back(evidence, _):
    """Who asks after an answer was heard, anywhere, never hears of an older version."""
    asked = {}
    heard = []  # (time of the answer, time of the call, version, who)
    for life in evidence.lives:
        for line in life.lines:
            if line["event"] in ("acquire", "heartbeat", "allocate", "commit"):
                asked[life.name, line["call"]] = line["t"]
            if "error" in line or line["event"] not in ("acquired", "heard", "committed"):
                continue
            version = [line["lineage"], line["version"]] if line["event"] == "committed" else line["committed"]
            if version[1]:
                heard.append((line["t"], asked.get((life.name, line["call"]), 0), tuple(version), life.name))
    heard.sort()
    by_call = sorted(heard, key=lambda item: item[1])
    newest, newest_who, at = (0, 0), "", 0
    for _, called, version, who in by_call:
        while at < len(heard) and heard[at][0] < called:
            if heard[at][2] > newest:
                newest, newest_who = heard[at][2], heard[at][3]
            at += 1
        if version < newest:
            yield f"{who} was told version {version} after {newest_who} had been told {newest}"


def tickets_are_what_they_were(evidence, _):
    """One id is one seed and one position for ever; an issue is handed to one identity; tokens start on the ticket's version or later."""
    fixed, issued_to, version_of = {}, {}, {}
    for line in evidence.lines("acquired"):
        for ticket in line.get("tickets", ()):
            if ticket["evaluation"]:
                continue
            fate = (ticket["seed"], ticket["task_index"])
            if fixed.setdefault(ticket["id"], fate) != fate:
                yield f"ticket {ticket['id']} was handed out with (seed, position) {fixed[ticket['id']]} and with {fate}"
            issue = (ticket["id"], ticket["issue"])
            owner = issued_to.setdefault(issue, tuple(line["id"]))
            if owner != tuple(line["id"]) and evidence.durable:
                yield f"issue {issue[1]} of ticket {issue[0]} was given to {owner} and to {tuple(line['id'])}"
            version_of[issue] = tuple(ticket["version"])
    for line in evidence.lines("push"):
        if line["evaluation"] or not line["versions"]:
            continue
        started_at = version_of.get(tuple(line["key"][:2]))
        if started_at is None:
            yield f"{line['who']} pushed issue {line['key'][1]} of ticket {line['key'][0]}, which nobody was given"
        elif min(tuple(run[:2]) for run in line["versions"]) < started_at:
            yield f"{line['who']} pushed tokens of version {line['versions'][0][:2]} for ticket {line['key'][0]}, which starts at {started_at}"


def every_step_was_trained_once(evidence, line):
    trained_in, steps = {}, collections.Counter()
    digests = {}
    for commit in line.commits:
        key = (commit["lineage"], commit["version"])
        if digests.setdefault(key, commit["digest"]) != commit["digest"]:
            yield f"version {key} has two digests"
        if commit["initial"] and commit["tickets"]:
            yield f"the initial commit of lineage {key[0]} trained tickets {commit['tickets']}"
    acknowledged = {(commit["lineage"], commit["version"]) for commit in line.commits}
    for commit in line.maybe:
        key = (commit["lineage"], commit["version"])
        if not commit["initial"] and key not in acknowledged and line.survives(*key):
            yield f"the trainer went on after the commit of version {key}, of which nobody knows whether it happened"
    for commit in line.surviving():
        step = commit["version"] - 1
        steps[step] += 1
        if len(commit["tickets"]) != evidence.groups_per_step:
            yield f"step {step} trained {len(commit['tickets'])} groups, expected {evidence.groups_per_step}"
        for ticket in commit["tickets"]:
            if ticket in trained_in:
                yield f"ticket {ticket} was trained in step {trained_in[ticket]} and again in step {step}"
            trained_in[ticket] = step
    for step in range(1, evidence.steps + 1):
        if steps[step] != 1:
            yield f"step {step} was trained {steps[step]} times in the surviving line"
    for step in steps:
        if step > evidence.steps:
            yield f"step {step} was trained, the run has {evidence.steps}"


def leases_of(evidence):
    """(lineage, step) -> what the trainer was leased last before it committed, {ticket: group}; and every lease."""
    leases = {}
    for line in evidence.lines("leased"):
        if line.get("groups"):
            leases[line["lineage"], line["step"]] = {group["ticket"]: group for group in line["groups"]}
    return leases


def trained_what_was_leased(evidence, line):
    leases = leases_of(evidence)
    for commit in line.surviving():
        step = commit["version"] - 1
        lease = leases.get((commit["lineage"], step), {})
        if sorted(lease) != sorted(commit["tickets"]):
            yield f"step {step} of lineage {commit['lineage']} committed tickets {sorted(commit['tickets'])}, but was leased {sorted(lease)}"
        for ticket, group in lease.items():
            for member in group["members"]:
                for lineage, version, _ in member["versions"]:
                    if step - version > evidence.budget:
                        yield f"step {step} trained ticket {ticket} with tokens of version {version}: a lag of {step - version}, the budget is {evidence.budget}"
                    if version > step or not line.survives(lineage, version):
                        yield f"step {step} trained ticket {ticket} with tokens of version ({lineage}, {version}), which does not exist in this line"


def answers_tell_the_truth(evidence, line):
    """What was accepted was trained, verbatim, or its ticket ended with a reason, or a restore came between; what was refused was never trained."""
    leases = leases_of(evidence)
    trained = {}  # (ticket, member) -> digest
    for commit in line.surviving():
        for ticket, group in leases.get((commit["lineage"], commit["version"] - 1), {}).items():
            for member in group["members"]:
                trained[ticket, member["key"][2]] = member["digest"]
    restores = [entry["t"] for entry in evidence.lines("restore")]
    accepted, refused, sent = {}, collections.defaultdict(set), set()
    for life in evidence.lives:
        pushes = {entry["call"]: entry for entry in life.lines if entry["event"] == "push" and not entry["evaluation"]}
        answered = set()
        for entry in life.lines:
            push = pushes.get(entry.get("call")) if entry["event"] == "pushed" else None
            if push is None or "error" in entry:
                continue
            answered.add(entry["call"])
            place = (push["key"][0], push["key"][2])
            if entry["result"] == "ACCEPTED":
                accepted.setdefault(place, []).append((entry["t"], push["t"], push["digest"], push["outcome"], life.name))
            else:
                refused[place, push["digest"]].add(entry["result"])
        sent |= {(pushes[call]["key"][0], pushes[call]["key"][2], pushes[call]["digest"]) for call in pushes if call not in answered}
    sent |= {(*place, digest) for place, items in accepted.items() for _, _, digest, _, _ in items}
    for (ticket, member), digest in trained.items():
        if (ticket, member, digest) not in sent:
            answer = ", ".join(sorted(refused.get(((ticket, member), digest), ())))
            yield f"member {member} of ticket {ticket} was trained with bytes that " + (f"were answered {answer}" if answer else "nobody pushed")
    trained_tickets = {ticket for ticket, _ in trained}
    for (ticket, member), items in accepted.items():
        items.sort()
        for (first, *_), (_, second_sent, *_) in zip(items, items[1:]):
            if evidence.durable and not any(first <= t for t in restores) and second_sent >= first:
                yield f"member {member} of ticket {ticket} was accepted twice"
        heard, _, digest, outcome, who = items[-1]
        if outcome != "COMPLETED" or trained.get((ticket, member)) == digest:
            continue
        if ticket_state(evidence, ticket) in ENDED:
            continue
        if any(t >= heard for t in restores) or not evidence.durable:
            continue  # its tokens may be void; that the ticket itself came to an end is another check
        what = "with other bytes" if (ticket, member) in trained else "without it" if ticket in trained_tickets else "not at all"
        yield f"member {member} of ticket {ticket}, acknowledged to {who}, was trained {what}"


def ticket_state(evidence, ticket):
    return evidence.ledger.state_of.get(ticket) if evidence.ledger is not None else None


def every_ticket_came_to_an_end(evidence, line):
    trained = {ticket for commit in line.surviving() for ticket in commit["tickets"]}
    handed_out = {ticket["id"] for entry in evidence.lines("acquired") for ticket in entry.get("tickets", ()) if not ticket["evaluation"]}
    ledger = evidence.ledger
    if ledger is None:
        yield "the last checkpoint has no ledger"
        return
    may_be_rewound = len(line.restored) > 1
    for ticket in range(1, ledger.next_ticket):
        state = ledger.state_of.get(ticket)
        if state is None:
            yield f"ticket {ticket} is below the next one, {ledger.next_ticket}, and has neither a row nor a folded range"
        elif state in ("trained", "settled"):
            if ticket not in trained:
                yield f"ticket {ticket} is {state} in the ledger, but no surviving step trained it"
        elif ticket in trained:
            yield f"ticket {ticket} was trained, but the ledger says {state}"
        elif state in ALIVE or (state == "rewound" and not may_be_rewound):
            yield f"ticket {ticket} was left {state} at the end"
    for ticket in sorted(handed_out):
        if ticket >= ledger.next_ticket:
            yield f"ticket {ticket} was handed out, but the ledger ends before {ledger.next_ticket}"
    settled = [entry["step"] for entry in evidence.lines("settled") if "error" not in entry]
    if evidence.steps not in settled:
        yield f"the last step was not settled: {max(settled, default=0)} of {evidence.steps}"


def nothing_leaks(evidence, _):
    """The conservation law, in every line that states it."""
    for number, line in enumerate(evidence.metrics, 1):
        if "ledger/issued_total" not in line:
            continue
        total = sum(line[f"ledger/{state}"] for state in lw.LEDGER_STATES)
        if line["ledger/issued_total"] != total:
            yield f"metrics line {number} (step {line['step']}): issued_total {line['ledger/issued_total']}, its states sum to {total}"
    for line in evidence.lines("status", "committed", "restored", "settled"):
        counts = line.get("counts")
        if counts is None:
            continue
        total = sum(counts[state] for state in lw.LEDGER_STATES)
        if counts["issued_total"] != total or not line.get("conservation_holds", True):
            yield f"{line['who']}, {line['event']}: issued_total {counts['issued_total']}, its states sum to {total}"
    if evidence.report is not None and evidence.report.get("conservation_holds") is not True:
        yield f"leeway inspect: conservation does not hold: {evidence.report.get('conservation_breach')}"


CHECKS = (lines_are_complete, identities_are_unique, lineages_never_repeat, answers_are_in_order, fenced_identities_stay_fenced,
          committed_never_goes_back, tickets_are_what_they_were, every_step_was_trained_once, trained_what_was_leased,
          answers_tell_the_truth, every_ticket_came_to_an_end, nothing_leaks)


def violations(evidence, checks=CHECKS):
    line = Line(evidence)
    return [f"{check.__name__}: {what}" for check in checks for what in check(evidence, line)]


def evidence_of(job, histories, steps, groups_per_step, budget, durable=True):
    """Of a lw.Job that has ended."""
    return Evidence(read_histories(histories), steps, groups_per_step, budget, job.metrics(), ledger_snapshot.read(job.checkpoint(steps)),
                    lw.inspect(job), durable)


def check_job(job, histories, steps, groups_per_step, budget, durable=True):
    """Raises AssertionError with everything that is wrong; returns how many calls the proof rests on."""
    evidence = evidence_of(job, histories, steps, groups_per_step, budget, durable)
    found = violations(evidence)
    assert not found, f"{job.directory.name}: {len(found)} violations:\n" + "\n".join(found[:20])
    assert evidence.lines("acquired") and evidence.lines("pushed") and evidence.lines("committed"), "the histories are empty"
    return sum(len(life.lines) for life in evidence.lives)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("histories")
    parser.add_argument("--memory", action="store_true")
    arguments = parser.parse_args()
    job = lw.FinishedRun(arguments.run)
    config = job.config()
    evidence = evidence_of(job, arguments.histories, config["trainer"]["steps"], config["trainer"]["groups_per_step"],
                           config["staleness"]["budget"], not arguments.memory)
    found = violations(evidence)
    print("\n".join(found))
    print(f"{len(evidence.lives)} lives, {sum(len(life.lines) for life in evidence.lives)} lines, {len(found)} violations")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
