"""A primary that is told to step down, at moments at which that is awkward: each time the answer comes soon, and whoever
writes meanwhile waits no longer than a member takes that is ready.

What a set answers is measured by clients that send one command after the other and try again at once where the member is
no primary, so that no driver's patience hides a pause.
"""

import os
import signal
import struct
import threading
import time

from fernd import Raw, ReplicaSet, raw, run_tests, wait_until

NOT_PRIMARY, BUSY, TIME_IS_OVER = 10107, 117, 262
# What a client is told while the primary changes.
PASSING = (10107, 11600, 11602, 13435, 189, 91, 112, 251)
MAJORITY = {"w": "majority", "wtimeout": 20_000}


class Client(threading.Thread):
    """Inserts with a majority, one after the other, at whichever member takes it."""

    def __init__(self, cluster, number):
        super().__init__(daemon=True)
        self.cluster, self.number = cluster, number
        self.acknowledged, self.tried, self.pauses, self.error = [], 0, [], None
        self.ending = threading.Event()
        self.last = time.monotonic()

    def run(self):
        while not self.ending.is_set() and self.error is None:
            for member in self.cluster.members:
                try:
                    with Raw(member, timeout=20) as connection:
                        while not self.ending.is_set() and self.insert(connection):
                            pass
                except (OSError, struct.error):
                    pass
            time.sleep(0.005)

    def insert(self, connection):
        document = {"_id": f"{self.number}/{self.tried}"}
        self.tried += 1
        reply = connection.ask("test", {"insert": "writes", "documents": [document], "writeConcern": MAJORITY})
        errors = reply.get("writeErrors", []) + [reply.get("writeConcernError") or {}]
        codes = [reply.get("code")] + [error.get("code") for error in errors]
        codes = [code for code in codes if code]
        if not codes:
            now = time.monotonic()
            self.pauses.append((now - self.last, now))
            self.last = now
            self.acknowledged.append(document["_id"])
            return True
        if any(code not in PASSING for code in codes):
            self.error = reply
        return False

    def longest(self):
        return max(pause for pause, _ in self.pauses)


class Clients:
    """Some clients, as a context; at its end nothing that was acknowledged is missing."""

    def __init__(self, cluster, count=2):
        self.cluster, self.all = cluster, [Client(cluster, number) for number in range(count)]

    def __enter__(self):
        for client in self.all:
            client.start()
        self.progress()
        return self

    def __exit__(self, *error):
        for client in self.all:
            client.ending.set()
            client.join(60)
        if error[0] is None:
            self.check()

    def progress(self, steps=10):
        """They all get on. From here on pauses count."""
        for client in self.all:
            before = len(client.acknowledged)
            get_on = lambda: client.error or len(client.acknowledged) >= before + steps
            wait_until(get_on, "a client does not get on", self.cluster.tails)
            assert not client.error, client.error

    def count_pauses(self):
        for client in self.all:
            client.pauses = [(0, time.monotonic())]

    def longest(self):
        return max(client.longest() for client in self.all)

    def check(self):
        primary = self.cluster.wait_for_all()
        with primary.client() as client:
            there = {document["_id"] for document in client.test.writes.find()}
        for client in self.all:
            assert not client.error, client.error
            lost = [one for one in client.acknowledged if one not in there]
            assert not lost, f"acknowledged and lost: {lost[:20]}"


def timed(member, command):
    """The reply, and the seconds that it took."""
    begun = time.monotonic()
    reply = raw(member, "admin", command)
    return reply, time.monotonic() - begun


def a_primary_steps_down_as_soon_as_it_is_one():
    """Also where the one before it has not stepped aside for long: it must not be handed to."""
    with ReplicaSet() as cluster, Clients(cluster) as clients:
        done, ended = 0, time.monotonic() + 60
        clients.count_pauses()
        while done < 12:
            assert time.monotonic() < ended, cluster.tails()
            primary = cluster.primary()
            if not primary:
                continue
            reply, seconds = timed(primary, {"replSetStepDown": 1})
            if reply["ok"] == 1:
                done += 1
                assert seconds < 1.5, f"it took {seconds:.1f} s to step down"
            elif reply["code"] == NOT_PRIMARY:
                assert seconds < 0.5, f"it took {seconds:.1f} s to refuse"
            else:
                # The other two have stepped down within the last second.
                assert reply["code"] == TIME_IS_OVER, reply
        clients.progress()
        assert clients.longest() < 2.5, f"nobody could write for {clients.longest():.1f} s"


def a_halted_member_is_waited_for_no_longer_than_it_takes_to_notice():
    with ReplicaSet() as cluster:
        for _ in range(2):
            primary = cluster.wait_for_all()
            halted, other = cluster.secondaries()
            os.kill(halted.process.pid, signal.SIGSTOP)
            try:
                reply, seconds = timed(primary, {"replSetStepDown": 10})
                assert reply["ok"] == 1, reply
                assert seconds < 1.8, f"it took {seconds:.1f} s"
                leads = lambda: other.hello().get("isWritablePrimary")
                wait_until(leads, "the one that answers does not lead", other.tail)
            finally:
                os.kill(halted.process.pid, signal.SIGCONT)
            assert raw(primary, "admin", {"replSetFreeze": 0})["ok"] == 1


def clients_write_on_while_nobody_can_take_over():
    with ReplicaSet() as cluster, Clients(cluster) as clients:
        primary = cluster.wait_for_primary()
        for member in cluster.secondaries():
            assert raw(member, "admin", {"replSetFreeze": 60})["ok"] == 1
        clients.progress()
        clients.count_pauses()
        for force in (False, True):
            command = {"replSetStepDown": 60, "secondaryCatchUpPeriodSecs": 3, "force": force}
            reply, seconds = timed(primary, command)
            assert reply["code"] == TIME_IS_OVER and 2.5 < seconds < 4.5, (reply, seconds)
        clients.progress()
        assert clients.longest() < 1, f"nobody could write for {clients.longest():.1f} s"
        # Neither is this one kept from leading by that.
        assert cluster.wait_for_primary() is primary
        for member in cluster.secondaries():
            assert raw(member, "admin", {"replSetFreeze": 0})["ok"] == 1
        reply, _ = timed(primary, {"replSetStepDown": 5})
        assert reply["ok"] == 1, reply
        clients.progress()


def two_who_have_it_step_down_at_once_are_told_so():
    with ReplicaSet() as cluster:
        primary = cluster.wait_for_primary()
        for member in cluster.secondaries():
            assert raw(member, "admin", {"replSetFreeze": 60})["ok"] == 1
        replies = []
        command = {"replSetStepDown": 60, "secondaryCatchUpPeriodSecs": 3}
        first = threading.Thread(target=lambda: replies.append(raw(primary, "admin", command)))
        first.start()
        time.sleep(0.5)
        reply, seconds = timed(primary, command)
        assert reply["code"] == BUSY and seconds < 1, (reply, seconds)
        first.join()
        assert [reply["code"] for reply in replies] == [TIME_IS_OVER], replies


def an_idle_set_hands_over_behind_a_lost_link():
    """A link that was lost is probed with the next write, and there is none: the member has everything all the same."""
    with ReplicaSet() as cluster:
        primary = cluster.wait_for_all()
        for member in cluster.secondaries():
            assert member.stop() == 0
            member.start()
        cluster.wait_for_all()
        primary = cluster.wait_for_primary()
        reply, seconds = timed(primary, {"replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 4})
        assert reply["ok"] == 1 and seconds < 3, (reply, seconds)


if __name__ == "__main__":
    run_tests(
        "a replica set that hands over",
        [
            a_primary_steps_down_as_soon_as_it_is_one,
            a_halted_member_is_waited_for_no_longer_than_it_takes_to_notice,
            clients_write_on_while_nobody_can_take_over,
            two_who_have_it_step_down_at_once_are_told_so,
            an_idle_set_hands_over_behind_a_lost_link,
        ]
    )
