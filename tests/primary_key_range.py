"""What a primary key and a clustering index save a range scan, on data that is much larger than the cache.

The same documents lie in three collections: in one of them by a primary key on `k`, in the others by `_id`, with a
clustering index on `k` in one and a plain one in the other. `k` comes in no order of the `_id`s. Ranges of `--range`
documents are read from random places of all three, in turns. Prints the median time of each and the ratios to the plain
index; fails where one is below `--at-least`.
"""

import argparse
import os
import random
import statistics
import time

from bson import SON
from fernd import Fernd, size, validate


NAMES = ("clustered", "clustering", "fetched")


def load(client, documents, payload_bytes, seed):
    db = client.ranges
    db.command(SON([("create", "clustered"), ("primaryKey", SON([("k", 1), ("_id", 1)]))]))
    db.clustering.create_index("k", clustering=True)
    db.fetched.create_index("k")
    for name in NAMES:
        rng = random.Random(seed)
        places = list(range(documents))
        rng.shuffle(places)
        for start in range(0, documents, 5000):
            rows = [
                {"_id": at, "k": places[at], "payload": rng.randbytes(payload_bytes)}
                for at in range(start, min(start + 5000, documents))
            ]
            db[name].insert_many(rows, ordered=False)
    client.admin.command("fsync")


def read(coll, start, count):
    """Seconds until the server has looked at the documents of a range: sending them costs the same either way."""
    clock = time.perf_counter()
    [found] = coll.aggregate([
        {"$match": {"k": {"$gte": start, "$lt": start + count}}},
        {"$group": {"_id": None, "n": {"$sum": 1}, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}},
    ])
    assert found["n"] == count, f"{found} instead of {count} documents"
    return time.perf_counter() - clock


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--cache-size", default="64M")
    p.add_argument("--times", type=float, default=10, help="the data, in caches")
    p.add_argument("--payload-bytes", type=int, default=200)
    p.add_argument("--range", type=int, default=1000)
    p.add_argument("--rounds", type=int, default=25)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--buffered", action="store_true", help="let the operating system cache pages, too")
    p.add_argument("--at-least", type=float, default=0)
    a = p.parse_args()
    documents = int(size(a.cache_size) * a.times / a.payload_bytes)
    options = ["--cacheSize", a.cache_size] + ([] if a.buffered else ["--directio"])
    with Fernd(*options) as server, server.client() as client:
        load(client, documents, a.payload_bytes, a.seed)
        db, rng = client.ranges, random.Random(a.seed)
        for name in NAMES:
            explained = db[name].find({"k": {"$gte": 0, "$lt": a.range}}).explain()["executionStats"]
            fetched = explained["totalDocsExamined"]
            assert fetched == (a.range if name == "fetched" else 0), explained
        taken = {name: [] for name in NAMES}
        for _ in range(a.rounds):
            for name, times in taken.items():
                times.append(read(db[name], rng.randrange(documents - a.range), a.range))
        for name in taken:
            validate(db[name])
    medians = {name: statistics.median(times) * 1000 for name, times in taken.items()}
    ratios = {name: medians["fetched"] / medians[name] for name in NAMES[:2]}
    print(f"{documents} documents of {a.payload_bytes} bytes, {a.times:g} times a cache of {a.cache_size}, {os.cpu_count()} processors: {a.range} in a range "
          f"{medians['clustered']:.1f} ms by the primary key, {medians['clustering']:.1f} ms by a clustering index, {medians['fetched']:.1f} ms by a plain one: "
          f"{ratios['clustered']:.1f} and {ratios['clustering']:.1f} times")
    assert min(ratios.values()) >= a.at_least, f"a ratio is below {a.at_least}"


if __name__ == "__main__":
    main()
