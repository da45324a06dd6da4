"""What a bulk load costs against plain inserts, and an index build against that of another program: the server's CPU,
time, bytes written, the final size, peak memory. iiBench's documents and its three indexes.

Reported, not checked: the machine is shared. `--old PROGRAM` is another fernd, to build the same indexes in turns.
"""

import argparse
import datetime
import os
import random
import time

import fernd
from bson import SON
from fernd import Fernd, validate
from iibench import INDEXES, document

MIB = 1 << 20


def spec(fields):
    return {"key": SON(fields), "name": "_".join(name for name, _ in fields)}


def batches(count, seed):
    rng = random.Random(seed)
    now = datetime.datetime(2026, 11, 28)
    for _ in range(count // 1000):
        yield [document(rng, now) for _ in range(1000)]


class Cost:
    def __init__(self, server):
        self.server, self.cpu, self.written, self.clock = server, server.cpu_seconds(), server.bytes_written(), time.monotonic()

    def told(self, what, docs):
        with self.server.client() as client:
            took = time.monotonic() - self.clock
            cpu = self.server.cpu_seconds() - self.cpu
            # What is still in memory is to be written too.
            client.admin.command("fsync")
            time.sleep(5)
            client.admin.command("checkpoint")
            written = self.server.bytes_written() - self.written
            all_cpu = self.server.cpu_seconds() - self.cpu
            size = client.iibench.command("dbStats")["storageSize"] + client.iibench.command("dbStats")["indexSize"]
            print(
                f"{what}: {docs / took:,.0f} docs/s in {took:.1f} s; CPU {cpu / docs * 1e6:.1f} µs/doc, {all_cpu / docs * 1e6:.1f} with what follows; "
                f"written {written / MIB:.0f} MiB, {written / max(self.server.disk_bytes(), 1):.2f} x of {self.server.disk_bytes() / MIB:.0f} MiB on disk "
                f"(dbStats {size / MIB:.0f}); peak resident {self.server.peak_resident() / MIB:.0f} MiB",
                flush=True,
            )


def plain(options, docs):
    with Fernd(*options) as server, server.client(w=1) as client:
        coll = client.iibench.purchases
        coll.create_indexes([__import__("pymongo").IndexModel(fields) for fields in INDEXES])
        all_ = list(batches(docs, 1))
        cost = Cost(server)
        for rows in all_:
            coll.insert_many(rows, ordered=False)
        cost.told("inserts", docs)


def loaded(options, docs):
    with Fernd(*options) as server, server.client(w=1, maxPoolSize=1, retryWrites=False) as client:
        db = client.iibench
        all_ = list(batches(docs, 1))
        cost = Cost(server)
        db.command("beginTransaction")
        db.command(SON([("beginLoad", 1), ("ns", "purchases"), ("indexes", [spec(f) for f in INDEXES]), ("options", {})]))
        for rows in all_:
            db.purchases.insert_many(rows, ordered=False)
        gathered = time.monotonic() - cost.clock
        db.command("commitLoad")
        db.command("commitTransaction")
        cost.told(f"load (inserts {gathered:.1f} s)", docs)
        validate(db.purchases)


def built(options, docs, program, name):
    before = fernd.os.environ.get("FERND")
    fernd.os.environ["FERND"] = program
    try:
        with Fernd(*options) as server, server.client(w=1) as client:
            coll = client.iibench.purchases
            for rows in batches(docs, 1):
                coll.insert_many(rows, ordered=False)
            client.admin.command("fsync")
            time.sleep(8)
            client.admin.command("checkpoint")
            cost = Cost(server)
            coll.create_indexes([__import__("pymongo").IndexModel(fields) for fields in INDEXES])
            cost.told(f"index build, {name}", docs)
            validate(coll)
    finally:
        fernd.os.environ["FERND"] = before


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--cache", default="256M")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--old")
    parser.add_argument("--only", choices=["loads", "builds"])
    given = parser.parse_args()
    options = ["--cacheSize", given.cache]
    for _ in range(given.rounds):
        if given.only != "builds":
            plain(options, given.documents)
            loaded(options, given.documents)
        if given.only != "loads":
            if given.old:
                built(options, given.documents, given.old, "old")
            built(options, given.documents, os.environ["FERND"], "new")
