"""Three `fernd`s whose network fails in every way, under clients that write and read on each side of it.

Each test makes one kind of trouble and looks at what members do. The last one makes all kinds in an order that follows
from a seed: ways of the network that hold everything back, in one direction or in both, slow and breaking connections,
members that are halted, killed and told to step down, members that are removed and added again, other priorities, disks
that are full to the last byte. What is asked of it:

- appends and reads at `linearizable`, and registers that are replaced, are linearizable: the project's history checker
  says so (`isolation check`);
- each acknowledged append is there at the end, once; no read at `majority` or `local`, of any member, showed anything
  that is not there at the end in the same place; and what a member shows never falls back;
- healed, the set takes writes again within a bound and few elections, and at the end all members have the same.

`--seconds N` makes trouble for so long, `--seed S` in that order. Each member has a small file system of its own, so it needs
to mount: root, or user namespaces, in one of which it then starts itself.
"""

import argparse
import contextlib
import os
import random
import signal
import struct
import sys
import time

from faulty_network import NetworkedSet
from fernd import host, raw, run_tests, wait_until
from full_disk import FileSystem, start_where_mounts_are_allowed
from histories import LISTS, Causal, Changer, History, Observer, linearizable, values, what_is_wrong_with_lists
from pymongo.errors import OperationFailure, PyMongoError, WTimeoutError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern
from replica_set_test import Writer, agreed, begin, code_of, end, progress, status_of

BAD_VALUE, UNKNOWN_FIELD = 2, 40415
# Of a change of the configuration: no majority in time, another one is under way, whoever was asked leads no more, a
# member does not answer.
REFUSALS = {50, 74, 109, 189, 262, 10107, 11600, 11602, 13435, 14031}
# Healed, a set takes writes again within so many seconds and elections.
RECOVERS, ELECTIONS = 20, 5
SETTINGS = {"seed": 1, "seconds": 20.0}
# The disk of each member, in MiB.
DISK = 256


def says_it_leads(member):
    with contextlib.suppress(PyMongoError, OSError):
        return raw(member, "admin", {"hello": 1}, timeout=2).get("isWritablePrimary", False)
    return False


def term_of(member):
    return status_of(member)["term"]


def insert(member, document, wtimeout=1000):
    """A write at `majority` on that member."""
    concern = {"w": "majority", "wtimeout": wtimeout}
    return raw(member, "test", {"insert": "a", "documents": [document], "writeConcern": concern}, timeout=20)


def is_acknowledged(reply):
    return reply["ok"] == 1 and "writeConcernError" not in reply and "writeErrors" not in reply


def takes_writes(member, document):
    return lambda: is_acknowledged(insert(member, document))


def members_reach_each_other_through_the_proxies_only():
    with NetworkedSet() as cluster:
        network = cluster.network
        assert all(carried > 500 for carried in network.carried().values()), network.carried()
        writers = begin(Writer(cluster, 0), Writer(cluster, 1))
        network.hold(network.pairs)
        nobody = lambda: not any(says_it_leads(member) for member in cluster.members)
        wait_until(nobody, "one leads though it hears of nobody", cluster.tails)
        before = [writer.acknowledged for writer in writers]
        time.sleep(2)
        assert nobody() and before == [writer.acknowledged for writer in writers]
        network.heal()
        cluster.wait_for_all()
        progress(writers)
        end(cluster, writers)


def an_isolated_primary(kind):
    """What it does while it is apart: it acknowledges nothing, reads nothing that could be old, and steps down."""
    with NetworkedSet() as cluster:
        writers = begin(Writer(cluster, 0), Writer(cluster, 1))
        old = cluster.wait_for_primary()
        others = cluster.others(old)
        apart = {cluster.number(old)}
        said, heard = kind in ("both", "mute"), kind in ("both", "deaf")
        insert(old, {"_id": "before"})
        cluster.network.hold(cluster.network.ways_of(apart, said=said, heard=heard))
        read = {"find": "a", "filter": {"_id": "before"}, "readConcern": {"level": "linearizable"}, "maxTimeMS": 500}
        reply = raw(old, "test", read, timeout=20)
        assert reply["ok"] == 0 or kind == "mute", f"whom did it ask? {reply}"
        reply = insert(old, {"_id": "apart"})
        assert not is_acknowledged(reply), reply
        led = lambda: any(says_it_leads(member) for member in others)
        wait_until(led, "nobody takes over", cluster.tails)
        wait_until(lambda: not says_it_leads(old), "it leads on", cluster.tails)
        progress(writers)
        cluster.network.heal(resets=kind == "both")
        cluster.wait_for_all()
        progress(writers)
        documents = end(cluster, writers)
        there = {document["_id"] for document in documents["a"]}
        # Nobody was told of what it wrote while it was apart: it may be there or not.
        assert there - {"apart"} == {"before"}, there


def an_isolated_primary_acknowledges_nothing_and_is_replaced():
    an_isolated_primary("both")


def a_primary_that_hears_nothing_is_replaced():
    an_isolated_primary("deaf")


def a_primary_that_is_not_heard_is_replaced():
    an_isolated_primary("mute")


def a_member_that_hears_only_one_other_disturbs_nobody():
    with NetworkedSet() as cluster:
        writers = begin(Writer(cluster, 0), Writer(cluster, 1))
        primary = cluster.wait_for_primary()
        away, other = cluster.others(primary)
        a, b = cluster.number(primary), cluster.number(away)
        term = term_of(primary)
        cluster.network.hold([(a, b), (b, a)])
        for _ in range(3):
            time.sleep(1.5)
            progress(writers)
        assert says_it_leads(primary) and term_of(other) == term, cluster.tails()
        cluster.network.heal()
        progress(writers)
        assert says_it_leads(primary) and term_of(primary) == term, cluster.tails()
        end(cluster, writers)


def slow_links_elect_nobody():
    with NetworkedSet() as cluster:
        writers = begin(Writer(cluster, 0), Writer(cluster, 1))
        primary = cluster.wait_for_primary()
        term = term_of(primary)
        cluster.network.slow(cluster.network.pairs, delay=0.1, jitter=0.2)
        began = time.monotonic()
        assert is_acknowledged(insert(primary, {"_id": "slow"}, wtimeout=10000))
        took = time.monotonic() - began
        assert took > 0.2, f"acknowledged in {took} s, which is no way there and back"
        time.sleep(3)
        progress(writers, 5)
        assert says_it_leads(primary) and term_of(primary) == term, cluster.tails()
        cluster.network.heal()
        end(cluster, writers)


def large_documents_over_a_narrow_link_elect_nobody():
    with NetworkedSet() as cluster:
        primary = cluster.wait_for_primary()
        term = term_of(primary)
        cluster.network.slow(cluster.network.pairs, bytes_a_second=2 << 20)
        with cluster.client() as client:
            a = client.test.get_collection("a", write_concern=WriteConcern("majority", wtimeout=60000))
            # Seconds of such a link, and more of them than an election takes.
            a.insert_one({"_id": 1, "bytes": os.urandom(10 << 20)})
        assert says_it_leads(primary) and term_of(primary) == term, cluster.tails()
        cluster.network.heal()
        assert len(agreed(cluster)["a"]) == 1


def connections_that_break_lose_nothing():
    with NetworkedSet() as cluster:
        writers = begin(Writer(cluster, 0), Writer(cluster, 1))
        cluster.network.reset_now_and_then(cluster.network.pairs, 0.02)
        for _ in range(3):
            time.sleep(1)
            progress(writers, 10)
        cluster.network.heal()
        cluster.wait_for_all()
        end(cluster, writers)


def a_member_that_takes_no_entries_holds_back_who_waits_for_it():
    """The fail point `stopReplProducer`, as drivers' suites use it."""
    with NetworkedSet() as cluster, cluster.client() as client:
        client.test.a.insert_one({"_id": "before"})
        agreed(cluster)
        primary = cluster.wait_for_primary()
        secondaries = cluster.others(primary)
        term = term_of(primary)

        def producer(member, mode, **more):
            return raw(member, "admin", {"configureFailPoint": "stopReplProducer", "mode": mode, **more})

        assert code_of(producer(primary, {"times": 1})) == (0, BAD_VALUE)
        assert code_of(producer(primary, "alwaysOn", data={"failCommands": []})) == (0, UNKNOWN_FIELD)
        at = lambda w: client.test.get_collection("a", write_concern=WriteConcern(w, wtimeout=300))

        def waits_in_vain(w, document):
            try:
                at(w).insert_one(document)
            except WTimeoutError:
                return
            raise AssertionError(f"w: {w} is satisfied")

        assert producer(secondaries[0], "alwaysOn")["ok"] == 1
        waits_in_vain(3, {"_id": "on two"})
        at("majority").insert_one({"_id": "on a majority"})
        assert producer(secondaries[1], "alwaysOn")["ok"] == 1
        waits_in_vain(2, {"_id": "on one"})
        waits_in_vain("majority", {"_id": "on one too"})
        # They go on answering: nobody is elected, and the primary stays what it is.
        time.sleep(6)
        assert says_it_leads(primary) and term_of(primary) == term, cluster.tails()
        assert client.test.a.count_documents({}) == 3, "what is on no majority is shown"
        assert producer(secondaries[1], "off")["ok"] == 1
        wait_until(takes_writes(primary, {}), "it does not go on", cluster.tails)
        waits_in_vain(3, {"_id": "on two again"})
        assert producer(secondaries[0], "off")["ok"] == 1
        client.test.get_collection("a", write_concern=WriteConcern(3, wtimeout=20000)).insert_one({"_id": "on three"})
        there = {document["_id"] for document in agreed(cluster)["a"]}
        assert {"before", "on two", "on a majority", "on one", "on one too", "on two again", "on three"} <= there, there


@contextlib.contextmanager
def set_with_small_disks(*options, seed=0):
    """A set whose members' directories are on file systems of their own; them."""
    cluster, disks = NetworkedSet("--cacheSize", "64M", *options, seed=seed), []
    try:
        for member in cluster.members:
            disks.append(FileSystem(DISK, "tmpfs"))
            member.dbpath = os.path.join(disks[-1].path, "db")
        with cluster:
            yield cluster, disks
    finally:
        for disk in disks:
            disk.remove()


def write_noise(member, name, count):
    """Inserts some hundred KB each; how many of them were acknowledged, and what the last one was answered."""
    for n in range(count):
        document = {"_id": f"{name} {n}", "noise": os.urandom(300_000)}
        concern = {"w": "majority", "wtimeout": 20000}
        reply = raw(member, "test", {"insert": "a", "documents": [document], "writeConcern": concern}, timeout=30)
        if not is_acknowledged(reply):
            return n, reply
    return count, reply


def a_secondary_whose_disk_is_full_goes_on_when_there_is_room():
    with set_with_small_disks() as (cluster, disks):
        primary = cluster.wait_for_primary()
        secondary, other = cluster.others(primary)
        disk = disks[cluster.number(secondary)]
        for restarts in (False, True):
            disk.fill()
            written, reply = write_noise(primary, f"full {restarts}", 60)
            assert written == 60, f"the others have room: {reply}"
            if restarts:
                secondary.kill()
                disk.fill()
                secondary.start()
            position = lambda member: raw(member, "admin", {"hello": 1})["lastWrite"]["opTime"]["ts"]
            assert position(secondary) < position(primary), "its disk was not full"
            disk.empty()
            wait_until(lambda: position(secondary) >= position(primary), "it does not catch up", cluster.tails)
        agreed(cluster)
        # It counts again.
        other.kill()
        wait_until(takes_writes(primary, {}), "it counts for nothing", cluster.tails)
        other.start()
        cluster.wait_for_all()


def a_primary_whose_disk_is_full_loses_nothing():
    with set_with_small_disks() as (cluster, disks):
        primary = cluster.wait_for_primary()
        disk = disks[cluster.number(primary)]
        disk.fill()
        written, reply = write_noise(primary, "full", 60)
        assert written < 60 and "14031" in str(reply), (written, reply)
        assert says_it_leads(primary), reply
        disk.empty()
        wait_until(takes_writes(primary, {"_id": "room"}), "it takes no writes", cluster.tails)
        there = {document["_id"] for document in agreed(cluster)["a"]}
        assert {"room", *(f"full {n}" for n in range(written))} <= there


class Trouble:
    """Everything that can fail, in an order that follows from a seed. What is done lasts until `heal`."""

    def __init__(self, cluster, seed, disks):
        self.cluster, self.network, self.random = cluster, cluster.network, random.Random(seed)
        self.disks = dict(zip(cluster.members, disks))
        # Who stands still, and who is no member just now.
        self.halted, self.gone, self.done = set(), set(), []
        self.actions = [
            self.isolate_the_primary, self.deafen_the_primary, self.mute_the_primary, self.part_one_member,
            self.part_one_pair, self.lose_one_way, self.part_all, self.slow_down, self.narrow, self.break_connections,
            self.halt_a_member, self.halt_the_primary, self.kill_a_member, self.kill_the_primary, self.kill_and_part,
            self.step_down, self.stop_taking_entries, self.refuse_a_pair, self.remove_a_member,
            self.remove_a_member_that_is_apart, self.remove_a_member_and_kill_it, self.change_priorities,
            self.change_priorities_of_a_parted_set, self.fill_a_disk, self.fill_the_primarys_disk, self.fill_most_disks,
            self.fill_a_disk_and_kill, self.fill_a_disk_and_change_priorities,
        ]

    def primary(self):
        """Who says that it leads, and where two do, the one of the later election."""
        leading = [(term_of(member), self.cluster.number(member)) for member in self.running() if says_it_leads(member)]
        return self.cluster.members[max(leading)[1]] if leading else self.random.choice(self.running())

    def running(self):
        return [m for m in self.cluster.members if m.is_running() and m not in self.halted]

    def any_member(self):
        return self.random.choice(self.cluster.members)

    def apart(self, member, **how):
        return self.network.ways_of({self.cluster.number(member)}, **how)

    def isolate_the_primary(self):
        self.network.hold(self.apart(self.primary()))

    def deafen_the_primary(self):
        self.network.hold(self.apart(self.primary(), said=False))

    def mute_the_primary(self):
        self.network.hold(self.apart(self.primary(), heard=False))

    def part_one_member(self):
        self.network.hold(self.apart(self.any_member()))

    def part_one_pair(self):
        a, b = self.random.choice(self.network.pairs)
        self.network.hold([(a, b), (b, a)])

    def lose_one_way(self):
        self.network.hold([self.random.choice(self.network.pairs)])

    def part_all(self):
        self.network.hold(self.network.pairs)

    def slow_down(self):
        self.network.slow(self.network.pairs, delay=0.05 + self.random.random() * 0.2, jitter=self.random.random() * 0.2)

    def narrow(self):
        self.network.slow(self.network.pairs, bytes_a_second=self.random.choice([32, 256]) << 10)

    def break_connections(self):
        self.network.reset_now_and_then(self.network.pairs, self.random.choice([0.01, 0.1]))

    def halt(self, member):
        self.halted.add(member)
        os.kill(member.process.pid, signal.SIGSTOP)

    def halt_a_member(self):
        self.halt(self.any_member())

    def halt_the_primary(self):
        self.halt(self.primary())

    def kill_a_member(self):
        self.cluster.kill(self.any_member())

    def kill_the_primary(self):
        self.cluster.kill(self.primary())

    def kill_and_part(self):
        killed, parted = self.random.sample(self.cluster.members, 2)
        self.network.hold(self.apart(parted))
        self.cluster.kill(killed)

    def step_down(self):
        with contextlib.suppress(OSError):
            raw(self.primary(), "admin", {"replSetStepDown": 2, "force": self.random.random() < 0.5}, timeout=15)

    def stop_taking_entries(self):
        members = self.random.sample(self.cluster.members, self.random.choice([1, 2]))
        for member in members:
            raw(member, "admin", {"configureFailPoint": "stopReplProducer", "mode": "alwaysOn"}, timeout=5)

    def refuse_a_pair(self):
        a, b = self.random.choice(self.network.pairs)
        self.network.refuse([(a, b), (b, a)])

    def ask_for(self, change):
        """Asks whoever leads for another configuration; says what it answers. `change` says whether there is anything to do."""
        primary = self.primary()
        configuration = raw(primary, "admin", {"replSetGetConfig": 1}, timeout=5)["config"]
        if not change(configuration["members"]):
            return {"ok": 1}
        configuration["version"] += 1
        reply = raw(primary, "admin", {"replSetReconfig": configuration, "maxTimeMS": 4000}, timeout=10)
        assert reply["ok"] == 1 or reply["code"] in REFUSALS, (self.done, reply)
        return reply

    def removed(self, member):
        """What takes a member out, and has it come back when all is healed."""
        self.gone.add(member)

        def change(members):
            before = len(members)
            members[:] = [listed for listed in members if listed["host"] != host(member)]
            return len(members) < before

        return change

    def added(self, member):
        def change(members):
            if any(listed["host"] == host(member) for listed in members):
                return False
            members.append({"_id": self.cluster.number(member), "host": host(member)})
            return True

        return change

    def remove_a_member(self):
        self.ask_for(self.removed(self.random.choice(self.cluster.others(self.primary()))))

    def remove_a_member_that_is_apart(self):
        member = self.random.choice(self.cluster.others(self.primary()))
        self.network.hold(self.apart(member))
        self.ask_for(self.removed(member))

    def remove_a_member_and_kill_it(self):
        member = self.random.choice(self.cluster.others(self.primary()))
        self.ask_for(self.removed(member))
        self.cluster.kill(member)

    def other_priorities(self, members):
        for listed in members:
            listed["priority"] = self.random.choice([1, 1, 2, 5])
        self.random.choice(members)["priority"] = self.random.choice([0, 1])
        return any(listed["priority"] > 0 for listed in members)

    def change_priorities(self):
        self.ask_for(self.other_priorities)

    def change_priorities_of_a_parted_set(self):
        self.network.hold(self.apart(self.any_member()))
        self.ask_for(self.other_priorities)

    def fill(self, members):
        for member in members:
            self.disks[member].fill()

    def fill_a_disk(self):
        self.fill([self.any_member()])

    def fill_the_primarys_disk(self):
        self.fill([self.primary()])

    def fill_most_disks(self):
        self.fill(self.random.sample(self.cluster.members, 2))

    def fill_a_disk_and_kill(self):
        """It starts with a disk that is still full."""
        member = self.any_member()
        self.fill([member])
        self.cluster.kill(member)
        self.fill([member])
        time.sleep(self.random.random())
        self.cluster.revive(member)

    def fill_a_disk_and_change_priorities(self):
        self.fill([self.any_member()])
        self.ask_for(self.other_priorities)

    def add_again(self, member):
        """The set has the member again, with the data that it had."""
        replies = []

        def is_there():
            replies[:] = [self.ask_for(self.added(member))]
            return replies[0]["ok"] == 1

        try:
            wait_until(is_there, f"{host(member)} is not added again", self.cluster.tails, wait=RECOVERS)
        except AssertionError:
            print(f"  {replies}")
            raise
        self.gone.discard(member)

    def heal(self):
        for disk in self.disks.values():
            disk.empty()
        self.network.heal(resets=self.random.random() < 0.5)
        for member in list(self.halted):
            os.kill(member.process.pid, signal.SIGCONT)
            self.halted.discard(member)
        for member in self.cluster.members:
            if not member.is_running():
                self.cluster.revive(member)
            raw(member, "admin", {"configureFailPoint": "stopReplProducer", "mode": "off"}, timeout=10)
        self.network.open(self.network.pairs)
        for member in list(self.gone):
            self.add_again(member)

    def highest_term(self):
        terms = []
        for member in self.cluster.members:
            # One that was removed, and has not heard yet that it is a member again, tells none.
            with contextlib.suppress(OperationFailure):
                terms.append(term_of(member))
        return max(terms)

    def recovers(self):
        """Healed, the set takes writes again in time, and after few elections."""
        began, term = time.monotonic(), self.highest_term()

        def is_there():
            leading = [member for member in self.running() if says_it_leads(member)]
            return any(is_acknowledged(insert(member, {"healed": len(self.done)})) for member in leading)

        wait_until(is_there, f"the set takes no writes after {self.done[-1]}", self.cluster.tails, wait=RECOVERS)
        versions = lambda: {member.hello().get("setVersion") for member in self.cluster.members}
        wait_until(lambda: len(versions()) == 1, f"members have other configurations after {self.done[-1]}",
                   lambda: f"{versions()}\n{self.cluster.tails()}", wait=RECOVERS)
        elections = self.highest_term() - term
        assert elections <= ELECTIONS, f"{elections} elections after {self.done[-1]}\n{self.cluster.tails()}"
        return time.monotonic() - began

    def make(self, seconds):
        """Returns the longest time that the set took to recover."""
        ending, slowest, order = time.monotonic() + seconds, (0, "nothing"), []
        while time.monotonic() < ending:
            # Each kind once, in an order that is another one each time.
            order = order or self.random.sample(self.actions, len(self.actions))
            action = order.pop()
            self.done.append(action.__name__)
            with contextlib.suppress(PyMongoError, OSError, struct.error):
                # Whoever is asked may have lost its role or its connection just now.
                action()
            time.sleep(self.random.choice([0.5, 2.5, 4]))
            self.heal()
            slowest = max(slowest, (self.recovers(), self.done[-1]))
            time.sleep(self.random.random())
        return slowest


def clients_of(cluster, history):
    """Some of the set, some of one member each: those go on with a member that is apart."""
    through_the_driver = [Changer(history, n, cluster) for n in range(3)] + [Causal(history, 3, cluster)]
    of_one = [Changer(history, 10 + n, cluster, member) for n, member in enumerate(cluster.members)]
    observers = [Observer(history, 20 + n, cluster, member) for n, member in enumerate(cluster.members)]
    return [*through_the_driver, *of_one, *observers]


def last_lists(cluster, history):
    """What is there at the end, read as the last thing."""
    with cluster.client() as client:
        lists = client.test.get_collection(LISTS, read_concern=ReadConcern("linearizable"))
        last = {}
        for key in history.keys():
            begin = history.now()
            last[key] = values(lists, key)
            history.record(99, begin, "committed", {"list": key, "seen": last[key]})
        return last


def everything_fails_and_nothing_is_lost():
    seed, seconds = SETTINGS["seed"], SETTINGS["seconds"]
    history = History(seed)
    with set_with_small_disks("--checkpointPeriod", "2", seed=seed) as (cluster, disks):
        trouble = Trouble(cluster, seed, disks)
        clients = clients_of(cluster, history)
        try:
            for client in clients:
                client.start()
            slowest, after = trouble.make(seconds)
            for client in clients:
                client.ending.set()
            for client in clients:
                client.join(60)
                assert not client.is_alive(), f"client {client.number} waits for ever"
                assert client.error is None, f"client {client.number} met {client.error!r}"
            cluster.wait_for_all()
            last = last_lists(cluster, history)
            agreed(cluster)
            wrong = what_is_wrong_with_lists(history.acknowledged, history.shown, last)
            assert wrong is None, wrong
            is_good, said = linearizable(history.recorded)
            assert is_good, said
        except BaseException:
            for member in trouble.halted:
                os.kill(member.process.pid, signal.SIGCONT)
            print(f"  seed {seed}: {' '.join(trouble.done)}\n  met: {dict(history.met)}", flush=True)
            raise
    print(f"  seed {seed}: {len(trouble.done)} troubles, the slowest to recover from took {slowest:.1f} s ({after}); "
          f"done {dict(history.done)}; met {dict(history.met)}", flush=True)
    assert all(history.done[kind] > 50 for kind in ("append", "list", "register", "majority", "local")), history.done
    what_is_planted_is_found(history, last)


def what_is_planted_is_found(history, last):
    """The checks are not blind: of the history that was just found to be good, each kind of lie is found."""
    key = max(history.acknowledged, key=lambda key: len(history.acknowledged[key]))
    value, there = history.acknowledged[key][0], last[key]
    check = lambda shown, last: what_is_wrong_with_lists(history.acknowledged, shown, last)
    assert "lost" in check([], {**last, key: [v for v in there if v != value]})
    assert "twice" in check([], {**last, key: [*there, value]})
    assert "taken back" in check([(0, "majority", key, [*there[:2], 0])], last)
    assert "less of it" in check([(0, "local", key, there[:2]), (0, "local", key, there[:1])], last)
    # A read that begins when all is done and does not show it; two that see different orders; an update that is lost.
    late = history.now()
    read = lambda seen: {"client": 77, "begin": late, "end": late + 1, "outcome": "committed",
                         "ops": [{"list": key, "seen": seen}]}
    registers = [t for t in history.recorded if t["outcome"] == "committed" and "register" in t["ops"][0]]
    again = {**registers[-1], "client": 78, "begin": late, "end": late + 1,
             "ops": [registers[-1]["ops"][0], {"write": registers[-1]["ops"][1]["write"], "value": history.value()}]}
    for lie in ([read(there[:-1])], [read(there[1:])], [again]):
        is_good, said = linearizable([*history.recorded, *lie])
        assert not is_good, f"{lie} is not found: {said}"


def what_a_secondary_shows_is_found_to_be_old():
    """The checker objects where reads are not what they are said to be: `local` ones of a member that is apart."""
    history = History(1)
    with NetworkedSet() as cluster:
        primary = cluster.wait_for_primary()
        secondary = cluster.others(primary)[0]
        with cluster.client() as client, secondary.client(readPreference="secondaryPreferred") as apart:
            changer = Changer(history, 1, cluster)
            changer.append(client.test, 0)
            agreed(cluster)
            cluster.network.hold(cluster.network.ways_of({cluster.number(secondary)}))
            changer.append(client.test, 0)
            assert linearizable(history.recorded)[0]
            begin = history.now()
            history.record(2, begin, "committed", {"list": 0, "seen": values(apart.test[LISTS], 0)})
        is_good, said = linearizable(history.recorded)
        assert not is_good and "1 forbidden" in said, said
        cluster.network.heal()
        cluster.wait_for_all()


TESTS = [
    members_reach_each_other_through_the_proxies_only,
    an_isolated_primary_acknowledges_nothing_and_is_replaced,
    a_primary_that_hears_nothing_is_replaced,
    a_primary_that_is_not_heard_is_replaced,
    a_member_that_hears_only_one_other_disturbs_nobody,
    slow_links_elect_nobody,
    large_documents_over_a_narrow_link_elect_nobody,
    connections_that_break_lose_nothing,
    a_member_that_takes_no_entries_holds_back_who_waits_for_it,
    a_secondary_whose_disk_is_full_goes_on_when_there_is_room,
    a_primary_whose_disk_is_full_loses_nothing,
    what_a_secondary_shows_is_found_to_be_old,
    everything_fails_and_nothing_is_lost,
]


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=SETTINGS["seconds"])
    arguments.add_argument("--seed", type=int, default=SETTINGS["seed"])
    arguments.add_argument("tests", nargs="*")
    options = arguments.parse_args()
    start_where_mounts_are_allowed()
    SETTINGS.update(seconds=options.seconds, seed=options.seed)
    sys.argv[1:] = options.tests
    run_tests("replica set faults", TESTS)
