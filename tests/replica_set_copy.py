"""How fast a member gets a copy of another one's data, beside `cp`, and how much of it comes twice where it is interrupted.

    FERND=target/release/fernd python tests/replica_set_copy.py --gigabytes 2

A set of one is filled, then a second member is added; then a third one, which is killed five times on its way; then two more,
while clients write: one at half of what `cp` does, one at half of what the second one did. Prints figures, asserts that the
members have the same.
"""

import argparse
import itertools
import os
import shutil
import statistics
import threading
import time

from bson import Binary
from fernd import ReplicaSet, host, raw, wait_until
from prepared import send_all
from replica_set_costs import MAJORITY, single_inserts, until, wait_for_rest
from replica_set_test import reconfigure

DOCUMENTS = 1000
# Clients that write beside a copy, and for how many seconds before it.
WRITERS, SECONDS = 4, 10


def fill(client, gigabytes):
    """Documents of half a kilobyte, of which half can be compressed, with a secondary index."""
    client.test.a.create_index("k")
    for n in range(int(gigabytes * 1e9) // (DOCUMENTS * 512)):
        documents = [
            {"_id": n * DOCUMENTS + i, "k": (n * 7919 + i * 104729) % 1000003, "r": Binary(os.urandom(230)), "t": "x" * 230}
            for i in range(DOCUMENTS)
        ]
        client.test.a.insert_many(documents, ordered=False)


def digest(member):
    reply = raw(member, "test", {"dbHash": 1, "$readPreference": {"mode": "secondaryPreferred"}}, timeout=600)
    return reply["md5"]


def progress(member):
    status = raw(member, "admin", {"replSetGetStatus": 1})
    return status.get("initialSyncStatus")


def copied_bytes(member):
    """From the log's last line about a copy: what is there, and what came."""
    import json

    lines = [json.loads(line) for line in member.tail(1 << 24).splitlines() if '"id":9016766' in line]
    return lines[-1]["attr"] if lines else None


def p99_ms(took):
    return statistics.quantiles(took, n=100)[98] * 1000


def writes_beside_a_copy(cluster, member, rate):
    """What writers of single documents meet while that member gets its copy, at a rate in bytes a second."""
    port = cluster.wait_for_primary().port
    send_all(port, WRITERS, until(1, single_inserts(MAJORITY)))
    before, seconds = send_all(port, WRITERS, until(SECONDS, single_inserts(MAJORITY)))
    assert raw(member, "admin", {"setParameter": 1, "initialSyncThrottle": int(rate)})["ok"] == 1
    joining = {"_id": cluster.members.index(member), "host": host(member), "priority": 0, "votes": 0}
    reconfigure(cluster, lambda c: c["members"].append(joining))
    wait_until(lambda: progress(member), "nothing comes", cluster.tails)
    done = threading.Event()

    def wait():
        wait_until(lambda: copied_bytes(member), "it gets no copy", cluster.tails, wait=3600)
        done.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    beside, took = send_all(port, WRITERS, itertools.takewhile(lambda _: not done.is_set(), single_inserts(MAJORITY)))
    waiting.join()
    print(f"{WRITERS} clients beside a copy at {rate / 1e6:.0f} MB/s: p99 {p99_ms(before):.2f} ms before, {p99_ms(beside):.2f} ms "
          f"beside it ({len(beside)} inserts in {took:.1f} s), {p99_ms(beside) / p99_ms(before):.2f} times; "
          f"{len(before) / seconds:.0f} and {len(beside) / took:.0f} a second", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--cacheSize", default="512M")
    options = parser.parse_args()
    with ReplicaSet("--cacheSize", options.cacheSize, members=5, initiated=False) as cluster:
        first, second, third, fourth, fifth = cluster.members
        with first.client() as client:
            client.admin.command("replSetInitiate", {"_id": "rs", "members": [{"_id": 0, "host": host(first)}]})
            wait_until(lambda: first.hello().get("isWritablePrimary"), "it does not lead itself")
            fill(client, options.gigabytes)
            raw(first, "admin", {"fsync": 1}, timeout=600)
        data = os.path.join(first.dbpath, "fern.data")
        began = time.monotonic()
        shutil.copyfile(data, data + ".copied")
        with open(data + ".copied", "rb") as copied:
            os.fsync(copied.fileno())
        cp = time.monotonic() - began
        stored = os.stat(data).st_blocks * 512
        os.remove(data + ".copied")
        print(f"stored {stored / 1e6:.0f} MB; cp and fsync {cp:.1f} s, {stored / cp / 1e6:.0f} MB/s", flush=True)
        began = time.monotonic()
        reconfigure(cluster, lambda c: c["members"].append({"_id": 1, "host": host(second)}))
        wait_until(lambda: second.hello().get("secondary"), "it gets no copy", cluster.tails, wait=3600)
        took = time.monotonic() - began
        told = copied_bytes(second)
        alone = told["durationMillis"] / 1000
        print(f"copied {told['done'] / 1e6:.0f} MB in {alone:.1f} s, {told['done'] / alone / 1e6:.0f} MB/s, "
              f"{told['done'] / alone / (stored / cp):.2f} of cp; secondary after {took:.1f} s", flush=True)
        # The third one joins, and is killed on its way. What is merged meanwhile would be another copy each time.
        wait_for_rest([first, second])
        reconfigure(cluster, lambda c: c["members"].append({"_id": 2, "host": host(third)}))
        received, kills = 0, 0
        for share in (0.1, 0.3, 0.5, 0.7, 0.9):
            def far():
                at = progress(third)
                return at is not None and at["copiedBytes"] >= share * told["done"] and at

            at = wait_until(lambda: far() or third.hello().get("secondary"), "it does not go on", cluster.tails, wait=3600)
            if at is True:
                break
            received += at["receivedBytes"]
            third.kill()
            kills += 1
            third.start()
        wait_until(lambda: third.hello().get("secondary"), "it gets no copy", cluster.tails, wait=3600)
        last = copied_bytes(third)
        twice = received + last["received"] - last["done"]
        print(f"killed {kills} times: {(received + last['received']) / 1e6:.0f} MB came for {last['done'] / 1e6:.0f}, "
              f"{100 * twice / last['done']:.2f} % twice", flush=True)
        wait_for_rest([first, second, third])
        for member, rate in ((fourth, stored / cp / 2), (fifth, told["done"] / alone / 2)):
            writes_beside_a_copy(cluster, member, rate)
            wait_until(lambda: member.hello().get("secondary"), "it gets no copy", cluster.tails, wait=3600)
            wait_for_rest([first, second, third])
        wait_until(lambda: len({digest(member) for member in cluster.members}) == 1, "they have not the same", cluster.tails)
        print("all have the same documents", flush=True)


if __name__ == "__main__":
    main()
