"""Three `fernd`s whose network fails in every way, under clients that write and read on each side of it.

Each test makes one kind of trouble and looks at what members do. The last one makes all kinds in an order that follows
from a seed: ways of the network that hold everything back, in one direction or in both, slow and breaking connections,
members that are halted, killed and told to step down. What is asked of it:

- appends and reads at `linearizable`, and registers that are replaced, are linearizable: the project's history checker
  says so (`isolation check`);
- each acknowledged append is there at the end, once; no read at `majority` or `local`, of any member, showed anything
  that is not there at the end in the same place; and what a member shows never falls back;
- healed, the set takes writes again within a bound and few elections, and at the end all members have the same.

`--seconds N` makes trouble for so long, `--seed S` in that order.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter

import bson
import pymongo
from bson import Int64
from faulty_network import NetworkedSet
from fernd import fails, host, raw, run_tests, wait_until
from pymongo.errors import OperationFailure, PyMongoError, WTimeoutError
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.write_concern import WriteConcern
from replica_set_test import Writer, agreed, begin, code_of, end, progress, status_of

WRITE_CONCERN_TIMEOUT, BAD_VALUE, UNKNOWN_FIELD = 64, 2, 40415
# Healed, a set takes writes again within so many seconds and elections.
RECOVERS, ELECTIONS = 20, 5
# What clients may meet while members come and go, beside connections that break (no code): the time is up, the write is
# on no majority in time, the primary's end.
EXPECTED = {None, 50, 64, 91, 189, 10107, 11600, 11602, 13435, 13436, 251, 112}
SETTINGS = {"seed": 1, "seconds": 30.0}


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
        for _ in range(4):
            time.sleep(2)
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
        time.sleep(5)
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
            for n in range(3):
                # Noise, which compresses to nothing less; seconds of such a link.
                a.insert_one({"_id": n, "bytes": os.urandom(8 << 20)})
        assert says_it_leads(primary) and term_of(primary) == term, cluster.tails()
        cluster.network.heal()
        assert len(agreed(cluster)["a"]) == 3


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
]


if __name__ == "__main__":
    run_tests("replica set faults", TESTS)
