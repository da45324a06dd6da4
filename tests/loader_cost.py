"""What a bulk load costs against plain inserts, and an index build against that of another program: the server's CPU,
time, bytes written, the final size, peak memory. iiBench's documents and its three indexes.

The documents are encoded beforehand; inserts and load send the same bytes, by a client that does nothing else: a driver would
take more of the processors than the server. Reported, and checked where `--check` is given: the load takes a third of the
inserts' time at most, writes 1.5 times the final size at most, and memory stays within the cache's bound.
`--old PROGRAM` is another fernd, to build the same indexes in turns.
"""

import argparse
import os
import time

import fernd
from bson import SON
from fernd import Fernd, validate
from iibench import INDEXES
from prepared import Client, Prepared, batches

MIB = 1 << 20


def spec(fields):
    return {"key": SON(fields), "name": "_".join(name for name, _ in fields)}


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
            stats = client.iibench.command("dbStats")
            size = stats["storageSize"] + stats["indexSize"]
            print(
                f"{what}: {docs / took:,.0f} docs/s in {took:.1f} s; CPU {cpu / docs * 1e6:.1f} µs/doc, {all_cpu / docs * 1e6:.1f} with what follows; "
                f"written {written / MIB:.0f} MiB, {written / max(self.server.disk_bytes(), 1):.2f} x of {self.server.disk_bytes() / MIB:.0f} MiB on disk "
                f"(dbStats {size / MIB:.0f}); peak resident {self.server.peak_resident() / MIB:.0f} MiB",
                flush=True,
            )
            return took, written / size, self.server.peak_resident()


def plain(options, docs, prepared):
    with Fernd(*options) as server, server.client(w=1) as client:
        coll = client.iibench.purchases
        coll.create_indexes([__import__("pymongo").IndexModel(fields) for fields in INDEXES])
        own = Client(server.port)
        cost = Cost(server)
        own.insert_all(prepared)
        took = cost.told("inserts", docs)
        assert coll.estimated_document_count() == docs
        return took


def loaded(options, docs, prepared):
    with Fernd(*options) as server, server.client(w=1) as client:
        own, cost = Client(server.port), Cost(server)
        own.command({"beginTransaction": 1, "$db": "iibench"})
        indexes = [spec(fields) for fields in INDEXES]
        own.command({"beginLoad": 1, "ns": "purchases", "indexes": indexes, "options": {}, "$db": "iibench"})
        own.insert_all(prepared)
        gathered = time.monotonic() - cost.clock
        own.command({"commitLoad": 1, "$db": "iibench"})
        own.command({"commitTransaction": 1, "$db": "iibench"})
        took = cost.told(f"load (inserts {gathered:.1f} s)", docs)
        validate(client.iibench.purchases)
        return took


def built(options, docs, program, name, prepared):
    before = fernd.os.environ.get("FERND")
    fernd.os.environ["FERND"] = program
    try:
        with Fernd(*options) as server, server.client(w=1) as client:
            own, began = Client(server.port), time.monotonic()
            own.insert_all(prepared)
            inserted = time.monotonic() - began
            client.admin.command("fsync")
            time.sleep(8)
            client.admin.command("checkpoint")
            documents = client.iibench.command("dbStats")["storageSize"]
            cost = Cost(server)
            own.command({"createIndexes": "purchases", "indexes": [spec(fields) for fields in INDEXES], "$db": "iibench"})
            took, of_all, peak = cost.told(f"index build, {name} (inserts without the indexes {inserted:.1f} s)", docs)
            stats = client.iibench.command("dbStats")
            all_bytes = stats["storageSize"] + stats["indexSize"]
            indexes = all_bytes - documents
            of_indexes = of_all * all_bytes / indexes
            print(f"the indexes hold {indexes / MIB:.0f} MiB; written {of_indexes:.2f} times that", flush=True)
            validate(client.iibench.purchases)
            return took, inserted, of_indexes, peak
    finally:
        fernd.os.environ["FERND"] = before


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--cache", default="256M")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--old")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", choices=["loads", "builds"])
    given = parser.parse_args()
    options = ["--cacheSize", given.cache]
    bound = fernd.size(given.cache) * 5 // 4 + 64 * MIB
    prepared = Prepared(given.documents, 1)
    for _ in range(given.rounds):
        by_inserts, _, _ = plain(options, given.documents, prepared)
        if given.only != "builds":
            by_load, written, peak = loaded(options, given.documents, prepared)
            print(f"the load takes {by_inserts / by_load:.2f} times less, writes {written:.2f} times its size", flush=True)
            if given.check:
                assert by_inserts >= 3 * by_load, (by_inserts, by_load)
                assert written <= 1.5, written
                assert peak <= bound, peak
        if given.only != "loads":
            if given.old:
                built(options, given.documents, given.old, "old", prepared)
            took, inserted, written, peak = built(options, given.documents, os.environ["FERND"], "new", prepared)
            # What the indexes cost where they are kept as the documents arrive.
            kept = by_inserts - inserted
            print(f"the build takes {kept / took:.2f} times less than the indexes' part of the inserts", flush=True)
            if given.check:
                assert kept >= 3 * took, (by_inserts, inserted, took)
                assert written <= 1.5, written
                assert peak <= bound, peak
