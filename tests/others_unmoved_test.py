"""Point operations go on while other clients stop: some that never read what they are sent, some that wait for a lock.

The fault lasts until the others are done, so none of their operations can have waited for its end. Nothing here fails by
the time that it takes, but for an answer that does not come at all. What a page read costs the others that takes very
long is tested in `crates/server/tests/slow_disk.rs`, where the disk can be told to stop.

With `--times` nothing is checked: it prints how long the others' operations take alone and beside each fault, in turns.
"""

import contextlib
import select
import socket
import statistics
import struct
import sys
import threading
import time

import bson
from fernd import Fernd, Raw, raw, run_tests, wait_until

# The others: so many connections, each with so many rounds of a find and an update.
OTHERS, ROUNDS = 4, 300
ROUNDS_OF_TIMES = 15
DOCUMENTS = 1000
# A client that waits so long for an answer has found the fault.
LONGEST_WAIT_S = 60
# What may come to the threads that are there at rest, beside those that the fault takes by its nature.
MORE_THREADS = 12
SILENT, WAITERS, HOLDERS = 20, 100, 4
# An answer: more than the two kernels keep of what is not read, 4 MiB and some.
LARGE, LARGE_BYTES = 8, 1 << 20
OP_MSG, EXHAUST_ALLOWED = 2013, 1 << 16


class Client(Raw):
    """Sends without waiting for the answer."""

    def __init__(self, server):
        super().__init__(server, timeout=LONGEST_WAIT_S)

    def send(self, database, command, flags=0):
        body = bson.encode({**command, "$db": database})
        self.socket.sendall(struct.pack("<iiiiiB", 21 + len(body), 1, 0, OP_MSG, flags, 0) + body)

    def receive(self):
        length = struct.unpack("<i", self.replies.read(4))[0]
        return bson.decode(self.replies.read(length - 4)[17:])

    def has_news(self):
        return bool(select.select([self.socket], [], [], 0)[0])


class Others:
    """Clients of point operations: each answer is looked at, and the time until it came is kept."""

    def __init__(self, server):
        self.server, self.times, self.failures = server, [], []

    def work(self, number):
        try:
            with Client(self.server) as client:
                for turn in range(ROUNDS):
                    key = (turn * 131 + number * 7919) % DOCUMENTS
                    self.timed(client, {"find": "a", "filter": {"_id": key}}, self.check_found)
                    change = {"q": {"_id": key}, "u": {"$inc": {"n": 1}}}
                    self.timed(client, {"update": "a", "updates": [change]}, self.check_changed)
        except Exception as error:  # noqa: BLE001: whatever fails is what is looked for
            self.failures.append(repr(error))

    def timed(self, client, command, check):
        began = time.monotonic()
        answer = client.ask("test", command)
        self.times.append(time.monotonic() - began)
        check(answer)

    @staticmethod
    def check_found(answer):
        assert len(answer["cursor"]["firstBatch"]) == 1, answer

    @staticmethod
    def check_changed(answer):
        assert answer["ok"] == 1 and answer["n"] == answer["nModified"] == 1, answer

    def run(self):
        threads = [threading.Thread(target=self.work, args=(number,)) for number in range(OTHERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not self.failures, f"{len(self.times)} were answered, then: {self.failures}"
        assert len(self.times) == OTHERS * ROUNDS * 2
        return self

    def shares(self):
        """The median and what 1 in 100 takes longer than, in milliseconds."""
        ordered = sorted(self.times)
        return statistics.median(ordered) * 1e3, ordered[len(ordered) * 99 // 100] * 1e3


@contextlib.contextmanager
def prepared(*options):
    """A server with documents for the others, for those that hold locks, and large ones."""
    with Fernd("--lockTimeout", str(LONGEST_WAIT_S * 2000), *options) as server:
        with server.client() as client:
            client.test.a.insert_many([{"_id": key, "n": 0, "filler": "x" * 100} for key in range(DOCUMENTS)])
            client.test.held.insert_many([{"_id": key, "n": 0} for key in range(HOLDERS)])
            client.test.large.insert_one({"_id": -1, "filler": "small"})
            client.test.large.insert_many([{"_id": key, "filler": "x" * LARGE_BYTES} for key in range(LARGE)])
        yield server


def check_unmoved(server, at_rest, taken_by_the_fault=0):
    """The others are answered, and threads are few."""
    others = Others(server).run()
    print(f"  {len(others.times)} operations beside it, {server.threads()} threads, {at_rest} at rest")
    # Those that were wanted for a moment end after five seconds.
    most = at_rest + taken_by_the_fault + MORE_THREADS
    wait_until(lambda: server.threads() <= most, f"more than {most} threads, {at_rest} at rest")


def changed_documents(server):
    """What all the updates have added up to."""
    documents = raw(server, "test", {"find": "a", "projection": {"n": 1}, "batchSize": DOCUMENTS})
    return sum(document["n"] for document in documents["cursor"]["firstBatch"])


@contextlib.contextmanager
def silent_clients(server, count):
    """Clients that ask for several large answers and read nothing: every other one as a stream of answers."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(server)) for _ in range(count)]
        for number, client in enumerate(clients):
            if number % 2:
                cursor = client.ask("test", {"find": "large", "batchSize": 1})["cursor"]["id"]
                client.send("test", {"getMore": cursor, "collection": "large"}, EXHAUST_ALLOWED)
            else:
                for _ in range(3):
                    client.send("test", {"find": "large"})
        yield clients


def clients_that_never_read():
    # Room for all their answers.
    with prepared("--cacheSize", "2G") as server:
        Others(server).run()
        at_rest = server.threads()
        with silent_clients(server, SILENT) as clients:
            wait_until(lambda: all(client.has_news() for client in clients), "an answer does not begin")
            check_unmoved(server, at_rest)
            for number, client in enumerate(clients):
                # It has been kept for them.
                answer = client.receive()["cursor"]
                found = answer.get("firstBatch") or answer["nextBatch"]
                assert len(found) == LARGE + (number % 2 == 0), len(found)
        assert changed_documents(server) == 2 * OTHERS * ROUNDS


def clients_that_never_read_and_fill_the_memory():
    """Their answers are many times what clients may hold together."""
    with prepared("--cacheSize", "64M") as server:
        Others(server).run()
        at_rest = server.threads()
        with silent_clients(server, SILENT) as clients:
            wait_until(lambda: sum(client.has_news() for client in clients) > 2, "no answer begins")
            # Who waits for room does so on a thread.
            check_unmoved(server, at_rest, SILENT)
        assert changed_documents(server) == 2 * OTHERS * ROUNDS


@contextlib.contextmanager
def holders(server):
    """Transactions, one for each document, that have changed it and go on."""
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(server.client())
        sessions = [stack.enter_context(client.start_session()) for _ in range(HOLDERS)]
        for key, session in enumerate(sessions):
            session.start_transaction()
            client.test.held.update_one({"_id": key}, {"$inc": {"n": 1}}, session=session)
        yield
        for session in sessions:
            session.commit_transaction()


@contextlib.contextmanager
def lock_waiters(server):
    """Clients that wait for the documents of the transactions; on the way out they have got them."""
    with contextlib.ExitStack() as stack:
        waiters = [stack.enter_context(Client(server)) for _ in range(WAITERS)]
        with holders(server):
            for number, client in enumerate(waiters):
                change = {"q": {"_id": number % HOLDERS}, "u": {"$inc": {"n": 1}}}
                client.send("test", {"update": "held", "updates": [change]})
            wait_until(lambda: pending(server) == WAITERS, f"not all of {WAITERS} wait")
            yield waiters
            assert not any(client.has_news() for client in waiters), "answered while another has the document"
        for client in waiters:
            Others.check_changed(client.receive())


def pending(server):
    return len(raw(server, "test", {"showPendingLockRequests": 1})["requests"])


def clients_that_wait_for_a_lock():
    with prepared() as server:
        Others(server).run()
        at_rest = server.threads()
        with lock_waiters(server):
            check_unmoved(server, at_rest)
            assert pending(server) == WAITERS
        found = raw(server, "test", {"find": "held"})["cursor"]["firstBatch"]
        assert sum(document["n"] for document in found) == HOLDERS + WAITERS, found
        assert changed_documents(server) == 2 * OTHERS * ROUNDS


def operations(server):
    """By their comments, the numbers of those that run."""
    found = raw(server, "admin", {"currentOp": 1})["inprog"]
    return {op["command"]["comment"]: op["opid"] for op in found if "comment" in op.get("command", {})}


def clients_that_wait_for_a_lock_end_as_others_do():
    """One is killed, the connection of one ends, the time of one is over, and of one the time for locks."""
    with prepared() as server, contextlib.ExitStack() as stack:
        killed, left, patient, late, short = (stack.enter_context(Client(server)) for _ in range(5))

        def send(client, name, **more):
            change = {"q": {"_id": 0}, "u": {"$inc": {"n": 1}}}
            client.send("test", {"update": "held", "updates": [change], "comment": name, **more})

        with holders(server):
            send(killed, "killed")
            send(left, "left")
            send(patient, "patient")
            wait_until(lambda: pending(server) == 3, "they do not wait")
            waiting = operations(server)
            assert sorted(waiting) == ["killed", "left", "patient"], waiting
            assert raw(server, "admin", {"killOp": 1, "op": waiting["killed"]})["ok"] == 1
            assert killed.receive()["code"] == 11601
            left.socket.shutdown(socket.SHUT_RDWR)
            wait_until(lambda: pending(server) == 1, "who has left waits on")
            send(late, "late", maxTimeMS=100)
            assert late.receive()["code"] == 50
            assert short.ask("admin", {"setClientLockTimeout": 100})["ok"] == 1
            send(short, "short")
            answer = short.receive()
            assert answer["code"] == 24, answer
            assert operations(server) == {"patient": waiting["patient"]}
        Others.check_changed(patient.receive())
        for client in (killed, late, short):
            send(client, "again")
            Others.check_changed(client.receive())
        found = raw(server, "test", {"find": "held"})["cursor"]["firstBatch"]
        assert [document["n"] for document in found] == [5, 1, 1, 1], found


def times():
    """How long the others take beside each fault, and alone, in turns."""
    with prepared("--cacheSize", "2G") as server:
        Others(server).run()
        faults = {
            "alone": contextlib.nullcontext,
            f"{SILENT} that never read": lambda: silent_clients(server, SILENT),
            f"{WAITERS} that wait for a lock": lambda: lock_waiters(server),
        }
        found = {name: [] for name in faults}
        for _ in range(ROUNDS_OF_TIMES):
            for name, fault in faults.items():
                with fault():
                    time.sleep(0.5)
                    found[name].append(Others(server).run().shares())
        for name, shares in found.items():
            median, late = (statistics.median(share) for share in zip(*shares))
            print(f"{name}: median {median:.2f} ms, p99 {late:.2f} ms (medians of {ROUNDS_OF_TIMES} rounds in turns)")


TESTS = [
    clients_that_never_read,
    clients_that_never_read_and_fill_the_memory,
    clients_that_wait_for_a_lock,
    clients_that_wait_for_a_lock_end_as_others_do,
]


if __name__ == "__main__":
    times() if sys.argv[1:] == ["--times"] else run_tests("others unmoved", TESTS)
