"""kill -9 in the middle of a load, again and again.

Three threads insert the iiBench schema with `j: true` (two update and delete as well, one of them in a
collection with a primary key, where updates move documents), a fourth without, until the server is
killed at a random moment. After each restart: every document
acknowledged with `j: true` is there as last acknowledged, none whose deletion was acknowledged is,
and a full `validate` is clean.
"""

import argparse
import datetime
import random
import threading
import time

import pymongo
from bson import SON
from fernd import Fernd, validate
from iibench import INDEXES, document
from pymongo.errors import PyMongoError


COLLECTIONS = ["load", "clustered"]


class Loader(threading.Thread):
    """Inserts until the server goes away; knows exactly what was acknowledged."""

    def __init__(self, server, seed, journal, rewrite=False, name="load"):
        super().__init__()
        self.name_of_collection = name
        self.server, self.rng, self.rewrite = server, random.Random(seed), rewrite
        self.concern = pymongo.WriteConcern(w=1, j=journal)
        self.kept, self.gone, self.unsure = {}, set(), set()

    def run(self):
        try:
            with self.server.client(serverSelectionTimeoutMS=2000, retryWrites=False) as client:
                bench = client.kill9.get_collection(self.name_of_collection, write_concern=self.concern)
                while True:
                    self.step(bench)
        except PyMongoError:
            pass

    def step(self, bench):
        now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
        rows = [document(self.rng, now) for _ in range(self.rng.randrange(1, 300))]
        for row in rows:
            row["version"] = 0
        bench.insert_many(rows, ordered=False)
        self.kept.update((row["_id"], 0) for row in rows)
        if self.rewrite:
            for row in rows[: len(rows) // 2]:
                self.change(bench, row["_id"])

    def change(self, bench, key):
        self.unsure.add(key)
        if self.rng.random() < 0.3:
            bench.delete_one({"_id": key})
            self.kept.pop(key)
            self.gone.add(key)
        else:
            price = self.rng.random() * 1000
            bench.update_one({"_id": key}, {"$inc": {"version": 1}, "$set": {"price": price}})
            self.kept[key] += 1
        self.unsure.discard(key)


def check(server, loaders):
    with server.client() as client:
        total = 0
        for name in COLLECTIONS:
            report = validate(client.kill9[name])
            found = client.kill9[name].estimated_document_count()
            assert found == report["nrecords"], f"count of {name} is not exact"
            total += report["nrecords"]
        for loader in loaders:
            check_loader(client.kill9[loader.name_of_collection], loader)
        return total


def check_loader(bench, loader):
    keys = list(loader.kept)
    for i in range(0, len(keys), 5000):
        part = keys[i : i + 5000]
        found = {d["_id"]: d["version"] for d in bench.find({"_id": {"$in": part}})}
        for key in part:
            if key in loader.unsure:
                continue
            assert key in found, f"acknowledged document {key} is lost"
            assert found[key] == loader.kept[key], (
                f"{key}: version {found[key]}, acknowledged {loader.kept[key]}")
    left = bench.count_documents({"_id": {"$in": list(loader.gone)}})
    assert left == 0, f"{left} documents came back whose deletion was acknowledged"


def acknowledged(loaders):
    return sum(len(x.kept) + len(x.gone) for x in loaders)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    p.add_argument("--cache-size", default="64M")
    p.add_argument("--longest", type=float, default=8.0, help="seconds until the latest kill")
    a = p.parse_args()
    print(f"seed {a.seed}")
    rng = random.Random(a.seed)
    server = Fernd("--cacheSize", a.cache_size, "--checkpointPeriod", "3")
    journaled = []
    try:
        server.start()
        with server.client() as client:
            key = SON([("price", -1), ("_id", 1)])
            client.kill9.command(SON([("create", "clustered"), ("primaryKey", key)]))
            for name in COLLECTIONS:
                for keys in INDEXES:
                    client.kill9[name].create_index(keys)
        for round_ in range(a.rounds):
            loaders = [
                Loader(server, rng.random(), True, rewrite=True),
                Loader(server, rng.random(), True, rewrite=True, name="clustered"),
                Loader(server, rng.random(), True),
            ]
            other = Loader(server, rng.random(), False)
            for t in [*loaders, other]:
                t.start()
            time.sleep(rng.uniform(0.3, a.longest))
            # On a loaded machine nothing may have been acknowledged by then.
            patience = time.monotonic() + 120
            while acknowledged(loaders) == 0 and time.monotonic() < patience:
                time.sleep(0.05)
            server.kill()
            for t in [*loaders, other]:
                t.join()
            clock = time.monotonic()
            server.start()
            opened = time.monotonic() - clock
            journaled = [*journaled[-9:], *loaders]
            acked = acknowledged(loaders)
            total = check(server, journaled)
            print(f"  round {round_ + 1}: {acked} acknowledged with j:true since the last kill, "
                  f"{total} documents, open after {opened:.2f} s", flush=True)
            assert acked > 0, "nothing was acknowledged: the round shows nothing"
        assert server.stop() == 0
        print(f"kill9: {a.rounds} passed, 0 failed")
    except BaseException:
        print(server.tail())
        raise
    finally:
        if server.process.poll() is None:
            server.kill()
        server.remove()


if __name__ == "__main__":
    main()
