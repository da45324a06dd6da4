"""Clients of a replica set that remember what they asked and what was answered, and what must be true of all of it.

Appends to lists and reads of them at `linearizable`, and registers that are replaced, are a history for the project's
checker (`isolation check`, `crates/isolation/src/bin/isolation/recorded.rs`). What members show at `majority` and at
`local` is held against what is there at the end.
"""

import os
import random
import subprocess
import tempfile
import threading
import time
from collections import Counter

import bson
from bson import Int64
from pymongo.errors import DuplicateKeyError, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.write_concern import WriteConcern

# What clients may meet while members come and go, beside connections that break (no code): the time is up, the write is
# on no majority in time, the primary's end, a full disk, and a lock of a write that waits for room there.
EXPECTED = {None, 24, 50, 64, 91, 189, 10107, 11600, 11602, 13435, 13436, 14031, 251}
TIMES = {"serverSelectionTimeoutMS": 3000, "connectTimeoutMS": 2000, "socketTimeoutMS": 5000}
MAJORITY = WriteConcern("majority", wtimeout=3000)
# Lists and registers in use at a time, and after how many changes others are used: histories stay quick to check.
KEYS, GENERATION = 3, 150
LISTS, REGISTERS = "lists", "registers"


class History:
    """What all clients saw. Values are unique, times are microseconds of one clock."""

    def __init__(self, seed):
        self.lock, self.began = threading.Lock(), time.monotonic()
        self.random = random.Random(seed)
        self.values, self.changes = 0, 0
        self.recorded, self.acknowledged, self.shown = [], {}, []
        self.met, self.done = Counter(), Counter()

    def now(self):
        return Int64((time.monotonic() - self.began) * 1e6)

    def key(self):
        with self.lock:
            return self.changes // GENERATION * KEYS + self.random.randrange(KEYS)

    def value(self):
        with self.lock:
            self.values, self.changes = self.values + 1, self.changes + 1
            return self.values

    def record(self, client, begin, outcome, *ops):
        txn = {"client": client, "begin": begin, "end": self.now(), "outcome": outcome, "ops": list(ops)}
        with self.lock:
            self.recorded.append(txn)
            if outcome == "committed":
                for op in ops:
                    self.done[next(iter(op))] += 1
                    if "append" in op:
                        self.acknowledged.setdefault(op["append"], []).append(op["value"])

    def show(self, member, level, key, seen):
        with self.lock:
            self.shown.append((member, level, key, seen))
            self.done[level] += 1

    def keys(self):
        return sorted({op["append"] for txn in self.recorded for op in txn["ops"] if "append" in op})


class Client(threading.Thread):
    """One client, which does one thing at a time."""

    def __init__(self, history, number, cluster, member=None):
        super().__init__(daemon=True)
        self.history, self.number, self.cluster, self.member = history, number, cluster, member
        self.random = random.Random(number)
        self.error, self.ending = None, threading.Event()

    def connection(self):
        """To the set, or to one member whatever that is."""
        if self.member is None:
            return self.cluster.client(**TIMES, heartbeatFrequencyMS=1000)
        return self.member.client(**TIMES, retryWrites=False, retryReads=False)

    def run(self):
        try:
            with self.connection() as client:
                while not self.ending.is_set():
                    try:
                        self.step(client.test)
                    except PyMongoError as error:
                        self.note(error)
                        self.ending.wait(0.1)
        except Exception as error:
            self.error = error

    def note(self, error):
        code = getattr(error, "code", None)
        if code not in EXPECTED:
            raise error
        with self.history.lock:
            self.history.met[f"{type(error).__name__} {code}"] += 1


class Changer(Client):
    """Appends to lists, replaces registers, and reads both at `linearizable`. A client of one member tries it there in
    any case: one that led before, and has not heard of it, must not say that it is done."""

    def step(self, test):
        key = self.history.key()
        self.random.choice([self.append, self.append, self.replace, self.read_list])(test, key)
        # A member that says no at once would be asked a thousand times a second.
        self.ending.wait(0.02)

    def append(self, test, key):
        value, begin = self.history.value(), self.history.now()
        op, outcome = {"append": key, "value": value}, "unknown"
        lists = test.get_collection(LISTS, write_concern=MAJORITY)
        try:
            lists.update_one({"_id": key}, {"$push": {"values": value}}, upsert=True)
            outcome = "committed"
        except DuplicateKeyError:
            # Two upserts at once: this one was not done.
            outcome = "aborted"
        finally:
            self.history.record(self.number, begin, outcome, op)

    def replace(self, test, key):
        value, begin = self.history.value(), self.history.now()
        registers = test.get_collection(REGISTERS, write_concern=MAJORITY)
        ops, outcome = [{"write": key, "value": value}], "unknown"
        try:
            before = registers.find_one_and_update({"_id": key}, {"$set": {"value": value}}, upsert=True)
            ops.insert(0, {"register": key, "seen": before and before["value"]})
            outcome = "committed"
        except DuplicateKeyError:
            outcome = "aborted"
        finally:
            self.history.record(self.number, begin, outcome, *ops)

    def read_list(self, test, key):
        begin = self.history.now()
        seen = values(test.get_collection(LISTS, read_concern=ReadConcern("linearizable")), key)
        self.history.record(self.number, begin, "committed", {"list": key, "seen": seen})


class Observer(Client):
    """Reads at one member, at `majority` and at `local`."""

    def step(self, test):
        level = self.random.choice(["majority", "local"])
        options = {"read_concern": ReadConcern(level), "read_preference": ReadPreference.SECONDARY_PREFERRED}
        key = self.history.key()
        seen = values(test.get_collection(LISTS, **options), key)
        self.history.show(self.cluster.number(self.member), level, key, seen)
        self.ending.wait(0.01)


class Causal(Changer):
    """Appends, and sees it at a secondary in the same session."""

    def step(self, test):
        key = self.history.key()
        options = {"read_concern": ReadConcern("majority"), "read_preference": ReadPreference.SECONDARY_PREFERRED}
        with test.client.start_session(causal_consistency=True) as session:
            value, begin = self.history.value(), self.history.now()
            outcome = "unknown"
            try:
                lists = test.get_collection(LISTS, write_concern=MAJORITY)
                lists.update_one({"_id": key}, {"$push": {"values": value}}, upsert=True, session=session)
                outcome = "committed"
            except DuplicateKeyError:
                outcome = "aborted"
            finally:
                self.history.record(self.number, begin, outcome, {"append": key, "value": value})
            if outcome == "committed":
                seen = values(test.get_collection(LISTS, **options), key, session)
                assert value in seen, f"{value} is not seen in its session: list {key} is {seen}"
                self.history.show("a session", "causal", key, seen)
        self.ending.wait(0.05)


def values(collection, key, session=None):
    # The filter finds one document; what there is not yet is empty.
    found = list(collection.find({"_id": key}, max_time_ms=2000, session=session))
    return found[0]["values"] if found else []


def linearizable(history):
    """Whether the project's checker takes the history for one; what it says."""
    program = os.path.join(os.path.dirname(os.environ["FERND"]), "isolation")
    with tempfile.NamedTemporaryFile(prefix="history-", suffix=".bson") as file:
        for txn in history:
            file.write(bson.encode(txn))
        file.flush()
        words = [program, "check", file.name, "--level", "serializable"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    said = done.stdout + done.stderr
    assert done.returncode in (0, 1) and "transactions (" in said, said
    return done.returncode == 0, said


def what_is_wrong_with_lists(acknowledged, shown, last):
    """Nothing acknowledged is lost or done twice, and nothing was shown that is not there at the end in its place."""
    for key, there in last.items():
        twice = [value for value, count in Counter(there).items() if count > 1]
        if twice:
            return f"list {key} has {twice} twice"
    for key, all_acknowledged in acknowledged.items():
        lost = set(all_acknowledged) - set(last.get(key, []))
        if lost:
            return f"list {key} has lost what was acknowledged: {sorted(lost)}"
    before = {}
    for member, level, key, seen in shown:
        there = last.get(key, [])
        if there[:len(seen)] != seen:
            return f"member {member} has shown at {level} what was taken back: list {key} {seen}, at the end {there}"
        if isinstance(member, int):
            if len(seen) < before.get((member, level, key), 0):
                return f"member {member} has shown list {key} at {level} and then less of it: {seen}"
            before[member, level, key] = len(seen)
    return None
