"""A set of three whose members are restarted one after the other under load, as for a new version: no error reaches a client.

Each secondary is stopped and started, then the primary steps down and is restarted as the last one. Clients insert, count, and
move coins in transactions meanwhile, with retryable writes; what they know of their longest operation is printed for each step.
At the end everything that was acknowledged is there, once, and all members have the same.

`--from PROGRAM`: the members begin with another fernd, and are upgraded to this one.
"""

import argparse
import os
import time

from fernd import ReplicaSet, raw, wait_until
from pymongo.write_concern import WriteConcern
from replica_set_test import Mover, Writer, begin, end, progress


class Timed:
    """A writer that knows how long its longest step took."""

    longest = 0.0

    def step(self, client):
        began = time.monotonic()
        super().step(client)
        self.longest = max(self.longest, time.monotonic() - began)


class TimedWriter(Timed, Writer):
    pass


class TimedMover(Timed, Mover):
    pass


def restart(cluster, member, program):
    """Returns once it has everything that was acknowledged before."""
    assert member.stop() == 0, member.tail()
    member.binary = program
    member.start()
    cluster.wait_for_all()
    with cluster.client() as client:
        all_three = WriteConcern(w=len(cluster.members), wtimeout=30000)
        client.test.get_collection("marks", write_concern=all_three).insert_one({})


def hand_over(cluster):
    """The primary steps down; what was the primary."""
    primary = cluster.wait_for_primary()
    reply = raw(primary, "admin", {"replSetStepDown": 10})
    assert reply["ok"] == 1, reply
    cluster.wait_for_primary(but=primary)
    return primary


def measured(writers, what, action, pause):
    """Does it; how long an operation took at most meanwhile is within the bound."""
    for writer in writers:
        writer.longest = 0.0
    done = action()
    progress(writers)
    longest = max(writer.longest for writer in writers)
    print(f"  {what}: {longest * 1000:.0f} ms at most", flush=True)
    assert longest <= pause, f"{what}: an operation took {longest:.2f} s"
    return done


def a_round(cluster, writers, program, pause):
    for number, secondary in enumerate(cluster.secondaries()):
        measured(writers, f"secondary {number + 1}", lambda: restart(cluster, secondary, program), pause)
    old = measured(writers, "the primary steps down", lambda: hand_over(cluster), pause)
    measured(writers, "it is restarted", lambda: restart(cluster, old, program), pause)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--pause", type=float, default=5, help="seconds that an operation may take")
    arguments.add_argument("--from", dest="old", metavar="PROGRAM")
    options = arguments.parse_args()
    new = os.environ["FERND"]
    cluster = ReplicaSet("--cacheSize", "64M")
    for member in cluster.members:
        member.binary = os.path.abspath(options.old or new)
    with cluster:
        writers = begin(*(TimedWriter(cluster, number) for number in range(3)), *movers(cluster))
        for number in range(options.rounds):
            print(f"round {number + 1}", flush=True)
            a_round(cluster, writers, new, options.pause)
        documents = end(cluster, writers)
        assert len(documents["marks"]) == 3 * options.rounds
        done = sum(writer.acknowledged for writer in writers)
        print(f"replica set restarts: {3 * options.rounds} restarts, {options.rounds} hand-overs, {done} steps of clients, "
              "no error: passed")


def movers(cluster):
    with cluster.client() as client:
        client.test.accounts.insert_many([{"_id": "from", "coins": 0}, {"_id": "to", "coins": 0}])
        client.test.create_collection("moves")
    return [TimedMover(cluster, 10)]


if __name__ == "__main__":
    main()
