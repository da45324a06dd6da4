"""Writes that wait until the set has them, as clients meet it: without a thread each, and with an end of every kind.

The followers are held (SIGSTOP), so that nothing is decided while they are: whoever is answered before they go on was
answered too early.
"""

import contextlib
import os
import select
import signal
import struct
import time

import bson
from fernd import Raw, ReplicaSet, raw, run_tests, wait_until

CLIENTS = 500
# What may come to the threads that are there at rest, however many wait.
MORE_THREADS = 16
INTERRUPTED, INTERRUPTED_AT_SHUTDOWN, STATE_CHANGE = 11601, 11600, 11602
TIME_IS_OVER, CONCERN_TIME_IS_OVER = 50, 64
UNSATISFIABLE, NO_SUCH_MODE, MALFORMED = 278, 79, 9
MAJORITY = {"w": "majority", "wtimeout": 120_000}
OP_MSG, OP_QUERY, MORE_TO_COME = 2013, 2004, 2


class Patient(ReplicaSet):
    """Its primary stays one for a minute without hearing of anybody."""

    patience_ms = 60_000

    def config(self):
        return {**super().config(), "settings": {"electionTimeoutMillis": self.patience_ms}}


class Impatient(Patient):
    """As it is by default, or nearly: a primary that is left alone gives up soon."""

    patience_ms = 2_000


class Client(Raw):
    """Sends without waiting for the answer."""

    def __init__(self, server, number):
        super().__init__(server, timeout=60)
        self.number = number

    def send(self, database, command, flags=0):
        body = bson.encode({**command, "$db": database})
        self.socket.sendall(struct.pack("<iiiiiB", 21 + len(body), self.number, 0, OP_MSG, flags, 0) + body)

    def send_query(self, database, command):
        body = bson.encode(command)
        name = f"{database}.$cmd".encode() + b"\0"
        length = 16 + 4 + len(name) + 8 + len(body)
        head = struct.pack("<iiiii", length, self.number, 0, OP_QUERY, 0)
        self.socket.sendall(head + name + struct.pack("<ii", 0, -1) + body)

    def receive(self):
        length, _, to, opcode = struct.unpack("<iiii", self.replies.read(16))
        assert to == self.number, "the answer to another message"
        rest = self.replies.read(length - 16)
        return bson.decode(rest[5:] if opcode == OP_MSG else rest[20:])

    def is_answered(self):
        return bool(select.select([self.socket], [], [], 0)[0])


def insert(key, **concern):
    return {"insert": "a", "documents": [{"_id": key}], "writeConcern": {**MAJORITY, **concern}}


def is_still(pid):
    """Whether each thread of a process has stopped; a signal reaches one that runs a moment later."""
    tasks = f"/proc/{pid}/task"
    states = [open(f"{tasks}/{task}/stat").read().rsplit(")", 1)[1].split()[0] for task in os.listdir(tasks)]
    return set(states) == {"T"}


@contextlib.contextmanager
def held(members):
    """Members that stand still."""
    for member in members:
        os.kill(member.process.pid, signal.SIGSTOP)
    for member in members:
        wait_until(lambda member=member: is_still(member.process.pid), "a member does not stand still")
    try:
        yield
    finally:
        for member in members:
            if member.is_running():
                os.kill(member.process.pid, signal.SIGCONT)


@contextlib.contextmanager
def clients(server, count):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Client(server, number + 1)) for number in range(count)]


def waiting(server):
    """The operations that wait for their write concern."""
    found = raw(server, "admin", {"currentOp": 1, "waitingForWriteConcern": True})
    return found["inprog"]


def wait_for_waiting(server, count):
    return wait_until(lambda: len(waiting(server)) == count and waiting(server), f"{count} do not wait")


def check_answers(answers):
    for answer in answers:
        assert answer["ok"] == 1 and answer["n"] == 1 and "writeConcernError" not in answer, answer


def prepared(cluster):
    """The primary, which has written once, and its followers."""
    primary = cluster.wait_for_primary()
    check_answers([raw(primary, "test", insert("before"))])
    return primary, cluster.others(primary)


def many_clients_wait_without_a_thread_each():
    with Patient() as cluster:
        primary, followers = prepared(cluster)
        # Threads that had work before are gone after five seconds.
        time.sleep(6)
        at_rest = primary.threads()
        with clients(primary, CLIENTS) as all, held(followers):
            for client in all:
                client.send("test", insert(client.number))
            listed = wait_for_waiting(primary, CLIENTS)
            assert all_of(listed, "op", "insert") and all_of(listed, "active", True), listed[0]
            most = primary.threads()
            assert most <= at_rest + MORE_THREADS, f"{most} threads, {at_rest} at rest"
            for _ in range(100):
                # A connection each, beside those that wait.
                found = raw(primary, "test", {"find": "a", "filter": {}})
                assert found["cursor"]["firstBatch"] == [{"_id": "before"}], "seen, and not safe"
            early = [client.number for client in all if client.is_answered()]
            assert not early, f"acknowledged by one of three: {early}"
            most = max(most, primary.threads())
            print(f"  {CLIENTS} wait: {most} threads, {at_rest} at rest")


def all_of(listed, field, value):
    return all(operation[field] == value for operation in listed)


def all_are_acknowledged_once_the_followers_go_on():
    with Patient() as cluster:
        primary, followers = prepared(cluster)
        with clients(primary, CLIENTS) as all:
            with held(followers):
                for client in all:
                    client.send("test", insert(client.number))
                wait_for_waiting(primary, CLIENTS)
                time.sleep(1.5)
                early = [client.number for client in all if client.is_answered()]
                assert not early, f"acknowledged by one of three: {early}"
            began = time.monotonic()
            check_answers([client.receive() for client in all])
            print(f"  all were answered {time.monotonic() - began:.2f} s after the followers went on")
            assert not waiting(primary)
        for member in cluster.members:
            there = raw(member, "test", {"count": "a", "$readPreference": {"mode": "nearest"}})
            assert there["n"] > CLIENTS // 2, there


def requests_behind_one_that_waits_are_answered_in_their_order():
    with Patient() as cluster:
        primary, followers = prepared(cluster)
        with Client(primary, 1) as client, Client(primary, 2) as old, Client(primary, 3) as silent:
            with held(followers):
                client.send("test", insert("first"))
                client.send("test", {"ping": 1})
                client.send("test", insert("second"))
                client.send("test", {"find": "a", "filter": {"_id": {"$in": ["first", "second"]}}})
                old.send_query("test", insert("old"))
                silent.send("test", insert("silent", w=0), MORE_TO_COME)
                silent.send("test", {"find": "a", "filter": {"_id": "silent"}})
                wait_for_waiting(primary, 3)
                time.sleep(0.2)
                for one in (client, old, silent):
                    assert not one.is_answered(), "answered before the one in front of it"
            check_answers([client.receive()])
            assert "n" not in client.receive(), "the ping's answer comes second"
            check_answers([client.receive(), old.receive()])
            assert len(client.receive()["cursor"]["firstBatch"]) == 2
            assert len(silent.receive()["cursor"]["firstBatch"]) == 1


def wait_ends_by_a_kill_by_its_time_and_with_its_client():
    with Patient() as cluster:
        primary, followers = prepared(cluster)
        with clients(primary, 5) as all, held(followers):
            killed, timed, limited, leaver, other = all
            killed.send("test", insert("killed"))
            number = wait_for_waiting(primary, 1)[0]["opid"]
            assert raw(primary, "admin", {"killOp": 1, "op": number})["ok"] == 1
            answer = killed.receive()
            assert (answer["ok"], answer["code"]) == (0, INTERRUPTED), answer

            began = time.monotonic()
            timed.send("test", insert("timed", wtimeout=300))
            answer = timed.receive()
            error = answer["writeConcernError"]
            assert (answer["ok"], answer["n"], error["code"]) == (1, 1, CONCERN_TIME_IS_OVER), answer
            assert error["errInfo"]["wtimeout"] and error["errInfo"]["writeConcern"]["wtimeout"] == 300, answer
            assert time.monotonic() - began >= 0.3, time.monotonic() - began

            began = time.monotonic()
            limited.send("test", {**insert("limited"), "maxTimeMS": 300})
            answer = limited.receive()
            assert (answer["ok"], answer["code"]) == (0, TIME_IS_OVER), answer
            assert time.monotonic() - began >= 0.3, time.monotonic() - began

            other.send("test", insert("other"))
            leaver.send("test", insert("leaver"))
            wait_for_waiting(primary, 2)
            leaver.close()
            wait_for_waiting(primary, 1)
            assert not other.is_answered(), "the end of another one is not its own"
        wait_until(lambda: not waiting(primary), "somebody goes on waiting")
        # What was waited for in vain happens all the same.
        there = wait_until(lambda: raw(primary, "test", {"count": "a"})["n"] == 6, "a write is lost")
        assert there


def wait_ends_with_the_primarys_role():
    with Impatient() as cluster:
        primary, followers = prepared(cluster)
        with clients(primary, 20) as all:
            with held(followers):
                for client in all:
                    client.send("test", insert(client.number))
                answers = [client.receive() for client in all]
                assert {(a["ok"], a["code"]) for a in answers} == {(0, STATE_CHANGE)}, answers[0]
                assert all_of(answers, "codeName", "InterruptedDueToReplStateChange"), answers[0]
            cluster.wait_for_all()
        assert not any(waiting(member) for member in cluster.members)


def wait_ends_with_the_server():
    with Patient() as cluster:
        primary, followers = prepared(cluster)
        with clients(primary, 20) as all:
            with held(followers):
                for client in all:
                    client.send("test", insert(client.number))
                wait_for_waiting(primary, 20)
                primary.process.terminate()
                for client in all:
                    with contextlib.suppress(struct.error, ConnectionError):
                        answer = client.receive()
                        # A primary that ends gives its role up first.
                        assert answer["ok"] == 0 and answer["code"] in (INTERRUPTED_AT_SHUTDOWN, STATE_CHANGE), answer
                assert primary.process.wait(60) == 0


def all_three_are_waited_for_where_that_is_asked():
    with Patient() as cluster:
        primary, (one, two) = prepared(cluster)
        time.sleep(6)
        at_rest = primary.threads()
        with clients(primary, CLIENTS) as all:
            with held([two]):
                for client in all:
                    client.send("test", insert(client.number, w=3))
                wait_for_waiting(primary, CLIENTS)
                most = primary.threads()
                assert most <= at_rest + MORE_THREADS, f"{most} threads, {at_rest} at rest"
                began, used = time.monotonic(), primary.cpu_seconds()
                time.sleep(3)
                used = (primary.cpu_seconds() - used) / (time.monotonic() - began)
                early = [client.number for client in all if client.is_answered()]
                assert not early, f"acknowledged by two of three: {early}"
                check_answers([raw(primary, "test", insert("majority"))])
                print(f"  {CLIENTS} wait for all three: {most} threads, {used:.0%} of a processor")
            began = time.monotonic()
            check_answers([client.receive() for client in all])
            print(f"  all were answered {time.monotonic() - began:.2f} s after the third went on")


def an_index_is_committed_once_its_quorum_has_it():
    def create(name, **more):
        return {"createIndexes": "a", "indexes": [{"key": {name: 1}, "name": name}], **more}

    def names():
        return {index["name"] for index in raw(primary, "test", {"listIndexes": "a"})["cursor"]["firstBatch"]}

    with Patient() as cluster:
        primary, (_, two) = prepared(cluster)
        check_answers([raw(primary, "test", insert("one", w=3))])
        for quorum, code in ((4, UNSATISFIABLE), ("no mode", NO_SUCH_MODE), (-1, MALFORMED), (51, MALFORMED), ("", MALFORMED),
                             (True, MALFORMED)):
            answer = raw(primary, "test", create("refused", commitQuorum=quorum))
            assert (answer["ok"], answer["code"]) == (0, code), (quorum, answer)
        with Client(primary, 1) as client:
            with held([two]):
                for name, more in (("default", {}), ("majority", {"commitQuorum": "majority"}), ("two", {"commitQuorum": 2}),
                                   ("zero", {"commitQuorum": 0})):
                    answer = raw(primary, "test", create(name, **more))
                    assert answer["ok"] == 1, (name, answer)
                answer = raw(primary, "test", create("late", commitQuorum="votingMembers", maxTimeMS=700))
                assert (answer["ok"], answer["code"]) == (0, TIME_IS_OVER), answer
                client.send("test", create("all", commitQuorum=3))
                began = time.monotonic()
                while time.monotonic() - began < 1.5:
                    # Writers are not kept out while members are waited for.
                    check_answers([raw(primary, "test", insert(f"beside {time.monotonic()}"), timeout=5)])
                assert not client.is_answered(), "committed without the third"
                assert names() == {"_id_", "default", "majority", "two", "zero"}, names()
            answer = client.receive()
            assert answer["ok"] == 1 and "all" in names() and "late" not in names(), (answer, names())


TESTS = [
    many_clients_wait_without_a_thread_each,
    all_are_acknowledged_once_the_followers_go_on,
    requests_behind_one_that_waits_are_answered_in_their_order,
    wait_ends_by_a_kill_by_its_time_and_with_its_client,
    wait_ends_with_the_primarys_role,
    wait_ends_with_the_server,
    all_three_are_waited_for_where_that_is_asked,
    an_index_is_committed_once_its_quorum_has_it,
]


if __name__ == "__main__":
    run_tests("waits of a replica set", TESTS)
