"""Transactions larger than the cache, over a set of three: all or nothing on every member, whatever dies meanwhile.

A client inserts documents of 10 KB under keys in no order and one that tells their number, in one transaction. Members are killed
while it writes, while it commits and right behind that. Each member is asked again and again for some of the documents by one
find: it shows all of them or none. At the end all members have the same, and it is what the client was told.

A member's memory stays within the bound of a single server (the cache, a quarter of it and 64 MB) and 64 MiB.

`--megabytes` of each transaction, `--kills` in the commit, `--cacheSize`.
"""

import argparse
import os
import random
import threading
import time

from bson import Binary
from fernd import ReplicaSet, host, raw, size, validate, wait_until
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

DOCUMENT, BATCH = 10_000, 200
TRANSIENT, UNKNOWN = "TransientTransactionError", "UnknownTransactionCommitResult"
NO_SUCH_TRANSACTION = 251
READ = {"$readPreference": {"mode": "secondaryPreferred"}}


class Transaction(threading.Thread):
    """Writes documents of its own number; `outcome` says what the client was told in the end."""

    def __init__(self, cluster, number, megabytes):
        super().__init__(daemon=True)
        self.cluster, self.number = cluster, number
        self.count = megabytes * 1_000_000 // DOCUMENT
        self.random = random.Random(number)
        self.written, self.outcome, self.error = 0, None, None
        self.commit_began = self.commit_took = None

    def run(self):
        try:
            with self.cluster.client() as client, client.start_session() as session:
                self.outcome = self.write(client, session)
        except Exception as error:
            self.error = error

    def write(self, client, session):
        large = client.test.large
        keys = list(range(self.count))
        self.random.shuffle(keys)
        session.start_transaction(write_concern=WriteConcern("majority"))
        try:
            for start in range(0, self.count, BATCH):
                large.insert_many([self.document(key) for key in keys[start : start + BATCH]], session=session)
                self.written += BATCH
            client.test.sums.insert_one({"_id": self.number, "count": self.count}, session=session)
        except PyMongoError as error:
            if not error.has_error_label(TRANSIENT):
                raise
            return "ended"
        self.commit_began = time.monotonic()
        return self.commit(session)

    def commit(self, session):
        while True:
            try:
                session.commit_transaction()
            except PyMongoError as error:
                if error.has_error_label(UNKNOWN):
                    continue
                if not error.has_error_label(TRANSIENT) and getattr(error, "code", None) != NO_SUCH_TRANSACTION:
                    raise
                return "ended"
            self.commit_took = time.monotonic() - self.commit_began
            return "committed"

    def document(self, key):
        half = self.random.randbytes(DOCUMENT // 2)
        return {"_id": {"of": self.number, "key": key}, "k": self.random.randrange(1 << 30), "r": Binary(half),
                "t": "x" * (DOCUMENT // 2 - 100)}

    def some(self):
        """A find of documents that are there together or not at all."""
        keys = [0, self.count // 3, self.count // 2, self.count - 1]
        return {"_id": {"$in": [{"of": self.number, "key": key} for key in keys]}}, len(keys)

    def has_written(self, share):
        return self.written >= share * self.count or self.error or self.outcome

    def told(self):
        """What it was told; an error that it was not meant for fails the test."""
        self.join(300)
        assert not self.is_alive(), f"transaction {self.number} waits for ever"
        if self.error is not None:
            raise AssertionError(f"transaction {self.number} met {self.error!r}") from self.error
        return self.outcome


class Observer(threading.Thread):
    """Asks one member for the newest transaction's documents."""

    def __init__(self, member, transactions):
        super().__init__(daemon=True)
        self.member, self.transactions = member, transactions
        self.looks, self.torn, self.ending = 0, None, threading.Event()

    def run(self):
        while not self.ending.is_set() and self.torn is None:
            try:
                with self.member.client(readPreference="secondaryPreferred", socketTimeoutMS=60000,
                                        serverSelectionTimeoutMS=1000) as client:
                    while not self.ending.is_set() and self.torn is None:
                        self.look(client)
            except PyMongoError:
                time.sleep(0.1)

    def look(self, client):
        transaction = self.transactions[-1]
        asked, of = transaction.some()
        found = len(list(client.test.large.find(asked, {"_id": 1})))
        self.looks += 1
        if found not in (0, of):
            self.torn = f"{host(self.member)} shows {found} of {of} documents of transaction {transaction.number}"
        time.sleep(0.02)


class Large:
    """A set, its transactions one after the other, and who watches them."""

    def __init__(self, cluster, megabytes, cache):
        self.cluster, self.megabytes = cluster, megabytes
        self.bound = cache * 5 // 4 + (64 << 20) + (64 << 20)
        self.transactions, self.committed, self.peak = [], [], 0
        with cluster.client() as client:
            client.test.create_collection("sums")
            client.test.large.create_index("k")

    def watch(self):
        self.begin(start=False)
        self.observers = [Observer(member, self.transactions) for member in self.cluster.members]
        for observer in self.observers:
            observer.start()

    def begin(self, start=True):
        transaction = Transaction(self.cluster, len(self.transactions), self.megabytes)
        self.transactions.append(transaction)
        if start:
            transaction.start()
        return transaction

    def kill(self, member):
        self.measure()
        member.kill()

    def measure(self):
        """A member's peak is gone with its process."""
        for member in self.cluster.members:
            if member.is_running():
                self.peak = max(self.peak, member.peak_resident())
        assert self.peak <= self.bound, f"peak resident {self.peak >> 20} MB is over {self.bound >> 20} MB"

    def end(self, what, transaction, may_be=("committed", "ended")):
        """What was told is so on every member, and nothing was shown in part."""
        told = transaction.told()
        assert told in may_be, f"{what}: {told}"
        if told == "committed":
            self.committed.append(transaction.number)
        for member in self.cluster.members:
            if not member.is_running():
                member.start()
        self.cluster.wait_for_all()
        with self.cluster.client() as client:
            all_three = WriteConcern(w=3, wtimeout=120_000)
            client.test.get_collection("marks", write_concern=all_three).insert_one({})
        for member in self.cluster.members:
            with member.client(readPreference="secondaryPreferred") as client:
                # A member has it before it shows it.
                wait_until(lambda: client.test.marks.count_documents({}) == len(self.transactions), f"{what}: it is not shown")
                sums = [found["_id"] for found in client.test.sums.find(sort=[("_id", 1)])]
                assert sums == self.committed, f"{what}: {host(member)} has {sums} of {self.committed}"
                count = client.test.large.count_documents({})
                assert count == len(sums) * transaction.count, f"{what}: {host(member)} has {count} of {sums}"
        for observer in self.observers:
            assert observer.torn is None, f"{what}: {observer.torn}"
        self.measure()
        print(f"  {what}: {told}, peak resident {self.peak >> 20} of {self.bound >> 20} MB", flush=True)
        return told

    def finish(self):
        for observer in self.observers:
            observer.ending.set()
            observer.join(60)
            assert observer.looks > 0, "an observer saw nothing"
        digests = [raw(member, "test", {"dbHash": 1, **READ}, timeout=600)["md5"] for member in self.cluster.members]
        assert len(set(digests)) == 1, digests
        for member in self.cluster.members:
            with member.client(readPreference="secondaryPreferred") as client:
                validate(client.test.large)


def run(large, kills):
    cluster = large.cluster
    first = large.transactions[0]
    first.start()
    large.end("alone", first, ("committed",))

    middle = large.begin()
    wait_until(lambda: middle.has_written(0.5), "it does not write", cluster.tails, wait=300)
    primary = cluster.wait_for_primary()
    large.kill(primary)
    large.end("the primary is killed in the middle", middle, ("ended",))

    handed = large.begin()
    wait_until(lambda: handed.has_written(0.5), "it does not write", cluster.tails, wait=300)
    assert raw(cluster.wait_for_primary(), "admin", {"replSetStepDown": 5}, timeout=120)["ok"] == 1
    large.end("the primary steps down in the middle", handed, ("ended",))

    followed = large.begin()
    wait_until(lambda: followed.commit_began or followed.error, "it does not commit", cluster.tails, wait=300)
    large.kill(cluster.secondaries()[0])
    large.end("a secondary is killed in the commit", followed, ("committed",))

    ends = []
    for number in range(kills):
        committing = large.begin()
        wait_until(lambda: committing.commit_began or committing.error, "it does not commit", cluster.tails, wait=300)
        # From its beginning to a little behind its end.
        share = 1.2 * (number + 0.5) / kills
        time.sleep(share * first.commit_took)
        large.kill(cluster.wait_for_primary())
        ends.append(large.end(f"the primary is killed after {100 * share:.0f} % of the commit", committing))
    return ends


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--megabytes", type=int, default=40)
    arguments.add_argument("--cacheSize", default="32M")
    arguments.add_argument("--kills", type=int, default=3, help="of the primary in the commit")
    options = arguments.parse_args()
    # A disk that is nearly full is another test's: where nothing can be spilled, all of a transaction is in memory.
    lifetime = ("--setParameter", "transactionLifetimeLimitSeconds=1200", "--fsRedzone", "1")
    with ReplicaSet("--cacheSize", options.cacheSize, *lifetime) as cluster:
        large = Large(cluster, options.megabytes, size(options.cacheSize))
        large.watch()
        ends = run(large, options.kills)
        large.finish()
        print(f"large transactions: {len(large.transactions)} of {options.megabytes} MB, {len(large.committed)} committed "
              f"({ends.count('committed')} of {len(ends)} whose primary was killed in the commit), peak resident "
              f"{large.peak >> 20} of {large.bound >> 20} MB: passed")


if __name__ == "__main__":
    main()
