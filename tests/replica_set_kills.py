"""A replica set of three under everything that happens to machines, in any order, while clients write.

Members are killed (one, two, all at once), stopped, halted by SIGSTOP for less and for more than an
election takes, and told to step down; each comes back. Clients insert, count, move coins in transactions
and change collections and indexes; one follows a change stream. A client that meets an error asks
whether the write is there, and else writes again. At the end of each round:

- nothing acknowledged is lost, nothing is there twice, no coin was made or lost;
- the members have the same documents, indexes and oplog, and each of their collections is valid;
- the stream told every insert once, in order.

`--rounds` with `--seconds` of trouble each; `--actions` to have only some kinds of it.
"""

import argparse
import os
import random
import signal
import struct
import threading
import time
from collections import Counter

from bson import SON
from fernd import ReplicaSet, raw, validate, wait_until
from pymongo.errors import CollectionInvalid, DuplicateKeyError, PyMongoError
from pymongo.read_concern import ReadConcern
from replica_set_test import (
    Follower, Mover, Writer, check_events, check_oplogs, contents, end, progress,
)

ACTIONS = ["kill-primary", "kill-secondary", "kill-two", "kill-all", "stop-primary", "halt-primary", "step-down"]

# What clients may meet while members come and go: connections that break (no code), the primary's end.
EXPECTED = {None, 91, 189, 10107, 11600, 11602, 13435, 251}


class Errors:
    """What the clients have met, by kind; a kind that nobody expects fails the round."""

    def __init__(self):
        self.lock, self.met = threading.Lock(), Counter()

    def note(self, error):
        code = getattr(error, "code", None)
        if code not in EXPECTED:
            raise error
        with self.lock:
            self.met[f"{type(error).__name__} {code}"] += 1

    def until_done(self, operation):
        while True:
            try:
                return operation()
            except DuplicateKeyError:
                return None
            except PyMongoError as error:
                self.note(error)


class PatientWriter(Writer):
    def __init__(self, cluster, number, errors):
        super().__init__(cluster, number)
        self.errors = errors

    def step(self, client):
        n, test = self.acknowledged, client.test
        key = {"writer": self.number, "n": n}
        self.errors.until_done(lambda: test.writes.insert_one({"_id": key}))
        count = {"$max": {"n": n + 1}}
        self.errors.until_done(lambda: test.counters.update_one({"_id": self.number}, count, upsert=True))


class PatientMover(Mover):
    def __init__(self, cluster, number, errors):
        super().__init__(cluster, number)
        self.errors = errors

    def step(self, client):
        moves = client.test.get_collection("moves", read_concern=ReadConcern("linearizable"))
        while True:
            try:
                return super().step(client)
            except PyMongoError as error:
                self.errors.note(error)
            # Whether it was committed nobody has said.
            if self.errors.until_done(lambda: moves.find_one({"_id": self.acknowledged})):
                return None


class Changer(PatientWriter):
    """Collections and indexes that come and go, large documents, updates of many."""

    def __init__(self, cluster, number, errors, seed):
        super().__init__(cluster, number, errors)
        self.random = random.Random(seed)

    def step(self, client):
        r = self.random
        collection = client.ddl[f"c{r.randrange(4)}"]
        sizes = [r.randrange(3000)] * r.randrange(1, 60) if r.random() < 0.95 else [300_000] * 30
        kinds = [
            (50, lambda: collection.insert_many([{"x": r.random(), "pad": os.urandom(s)} for s in sizes])),
            (10, lambda: collection.create_index("x")),
            (10, collection.drop_indexes),
            (10, collection.drop),
            (10, lambda: collection.delete_many({"x": {"$lt": r.random()}})),
            (10, lambda: collection.update_many({}, {"$set": {"y": r.random()}})),
        ]
        weights, operations = zip(*kinds)
        try:
            r.choices(operations, weights)[0]()
        except CollectionInvalid:
            pass
        except PyMongoError as error:
            # An index of a collection that is not there.
            if getattr(error, "code", None) != 26:
                self.errors.note(error)

    def check(self, documents):
        if self.error is not None:
            raise AssertionError(f"changes of collections met {self.error!r}")


def trouble(cluster, action, r):
    """Does it, and has all members running again."""
    primary = cluster.wait_for_primary()
    killed = {
        "kill-primary": [primary],
        "kill-secondary": [r.choice(cluster.others(primary))],
        "kill-two": r.sample(cluster.members, 2),
        "kill-all": cluster.members,
    }.get(action, [])
    for member in killed:
        member.process.kill()
    for member in killed:
        member.process.wait()
    if action == "stop-primary":
        primary.stop()
    elif action == "halt-primary":
        os.kill(primary.process.pid, signal.SIGSTOP)
        time.sleep(r.choice([0.3, 3]))
        os.kill(primary.process.pid, signal.SIGCONT)
    elif action == "step-down":
        # Who is primary may have changed just now.
        raw(primary, "admin", {"replSetStepDown": 1})
    time.sleep(r.random())
    back = [member for member in cluster.members if not member.is_running()]
    r.shuffle(back)
    for member in back:
        member.start()
    time.sleep(r.random() * 1.5)


def a_round(seed, seconds, actions):
    r, errors, done = random.Random(seed), Errors(), []
    # Small, and with a checkpoint every two seconds: starts that find much, and starts that find little.
    with ReplicaSet("--cacheSize", "64M", "--checkpointPeriod", "2") as cluster:
        with cluster.client() as client:
            start = client.admin.command("ping")["operationTime"]
            # Each coin moves the documents of both accounts.
            client.test.create_collection("accounts", primaryKey=SON([("coins", 1), ("_id", 1)]))
            client.test.accounts.insert_many([{"_id": "from", "coins": 0}, {"_id": "to", "coins": 0}])
            client.test.create_collection("moves")
        follower = Follower(cluster, start)
        inserting = [PatientWriter(cluster, i, errors) for i in range(3)]
        clients = [*inserting, PatientMover(cluster, 10, errors), Changer(cluster, 11, errors, seed)]
        for thread in [follower, *clients]:
            thread.start()
        ending = time.monotonic() + seconds
        try:
            while time.monotonic() < ending:
                done.append(r.choice(actions))
                try:
                    trouble(cluster, done[-1], r)
                except (OSError, struct.error):
                    # The member that was asked had just lost its role, or its process.
                    cluster.start()
            progress(clients, 2)
            end(cluster, clients)
            check_members(cluster)
            written = sum(writer.acknowledged for writer in inserting)
            wait_until(lambda: follower.error or len(follower.events) >= written, "the stream does not end")
            follower.ending.set()
            follower.join(30)
            assert follower.error is None, follower.error
            check_events(follower.events, inserting)
            check_oplogs(cluster, follower.events)
        except BaseException:
            print(f"  seed {seed}: {' '.join(done)}\n  met: {dict(errors.met)}", flush=True)
            raise
        print(f"  seed {seed}: {len(done)} times trouble, {written} inserts, "
              f"{clients[3].acknowledged} transactions; clients met {dict(errors.met)}", flush=True)


def check_members(cluster):
    def same():
        first, *others = [contents(member, "ddl") for member in cluster.members]
        return all(other == first for other in others)

    wait_until(same, "collections that came and went differ", cluster.tails)
    for member in cluster.members:
        with member.client(readPreference="secondaryPreferred") as client:
            for database in ("test", "ddl"):
                for name in client[database].list_collection_names():
                    report = validate(client[database][name])
                    counted = client[database][name].estimated_document_count()
                    assert counted == report["nrecords"], (database, name, counted, report)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=30)
    arguments.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    arguments.add_argument("--actions", nargs="+", choices=ACTIONS, default=ACTIONS)
    options = arguments.parse_args()
    for seed in range(options.seed, options.seed + options.rounds):
        a_round(seed, options.seconds, options.actions)
    print(f"replica set kills: {options.rounds} passed, 0 failed")


if __name__ == "__main__":
    main()
