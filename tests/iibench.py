"""iiBench through a real driver: three secondary indexes, batches of 1000, then the checks and
figures that the project promises.

Checked: every document is there, `validate` (full) finds every index agreeing with the documents,
peak resident memory stays within cacheSize + 25 % + 64 MB.
Reported: documents/s and server CPU per document; findOne by `_id` and by secondary index; bytes
written and on disk per document.
"""

import argparse
import base64
import contextlib
import datetime
import json
import os
import random
import tempfile
import threading
import time

from bson import ObjectId
from fernd import Fernd, size, validate

INDEXES = [
    [("price", 1), ("customerid", 1)],
    [("cashregisterid", 1), ("price", 1), ("customerid", 1)],
    [("price", 1), ("dateandtime", 1), ("customerid", 1)],
]


def document(rng, now):
    customer = rng.randrange(100_000)
    return {
        "_id": ObjectId(),
        "dateandtime": now,
        "cashregisterid": rng.randrange(1000),
        "customerid": customer,
        "productid": rng.randrange(10_000),
        "price": (rng.random() * 500 + customer) / 100,
    }


def load(server, first, docs, batch, seed, samples):
    rng = random.Random(seed)
    with server.client(w=1) as client:
        bench = client.iibench.purchases_index
        for start in range(first, first + docs, batch):
            now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
            rows = [document(rng, now) for _ in range(min(batch, first + docs - start))]
            bench.insert_many(rows, ordered=False)
            samples.append(rng.choice(rows))


def reads(server, name, queries, expect):
    with server.client() as client:
        bench = client.iibench.purchases_index
        bench.find_one(queries[0])
        cpu, clock = server.cpu_seconds(), time.monotonic()
        for query in queries:
            found = bench.find_one(query)
            assert found is not None and expect(query, found), (query, found)
        cpu, clock = server.cpu_seconds() - cpu, time.monotonic() - clock
    n = len(queries)
    return {f"{name}_per_s": round(n / clock), f"{name}_cpu_us": round(cpu / n * 1e6, 1)}


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--docs", type=int, default=2_000_000)
    p.add_argument("--cache-size", default="256M")
    p.add_argument("--batch", type=int, default=1000)
    p.add_argument("--loaders", type=int, default=1)
    p.add_argument("--reads", type=int, default=5000)
    p.add_argument("--directio", action="store_true")
    p.add_argument("--encrypted", action="store_true", help="at rest")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--out", help="write the figures as JSON here")
    a = p.parse_args()
    options = ["--cacheSize", a.cache_size] + (["--directio"] if a.directio else [])
    with contextlib.ExitStack() as stack:
        if a.encrypted:
            key = stack.enter_context(tempfile.NamedTemporaryFile(dir="/dev/shm"))
            key.write(base64.b64encode(os.urandom(32)))
            key.flush()
            options += ["--enableEncryption", "--encryptionKeyFile", key.name]
        server = stack.enter_context(Fernd(*options))
        with server.client() as client:
            for keys in INDEXES:
                client.iibench.purchases_index.create_index(keys)
        samples, share = [], a.docs // a.loaders
        loaders = [
            threading.Thread(
                target=load, args=(server, i * share, share, a.batch, a.seed + i, samples)
            )
            for i in range(a.loaders)
        ]
        cpu, clock = server.cpu_seconds(), time.monotonic()
        for t in loaders:
            t.start()
        done = 0
        while any(t.is_alive() for t in loaders):
            time.sleep(5)
            now = len(samples) * a.batch
            print(f"  {now:>10} docs  {(now - done) / 5:>8.0f}/s  "
                  f"rss {server.resident() >> 20} MB", flush=True)
            done = now
        for t in loaders:
            t.join()
        clock, cpu = time.monotonic() - clock, server.cpu_seconds() - cpu
        total = share * a.loaders
        figures = {
            "docs": total,
            "docs_per_s": round(total / clock),
            "cpu_us_per_doc": round(cpu / total * 1e6, 1),
        }
        with server.client() as client:
            bench = client.iibench.purchases_index
            counted = bench.estimated_document_count()
            assert counted == total, f"count says {counted} of {total}"
            client.admin.command("fsync")
            figures["written_per_doc"] = round(server.bytes_written() / total)
        rng = random.Random(a.seed)
        some = [rng.choice(samples) for _ in range(a.reads)]
        figures |= reads(server, "find_id", [{"_id": s["_id"]} for s in some],
                         lambda q, f: f["_id"] == q["_id"])
        figures |= reads(server, "find_secondary",
                         [{"price": s["price"], "customerid": s["customerid"]} for s in some],
                         lambda q, f: f["price"] == q["price"])
        with server.client() as client:
            bench = client.iibench.purchases_index
            report = validate(bench)
            assert report["nrecords"] == total, report["nrecords"]
            assert set(report["keysPerIndex"].values()) == {total}, report["keysPerIndex"]
        figures["peak_resident_mb"] = server.peak_resident() >> 20
        bound = size(a.cache_size) * 5 // 4 + (64 << 20)
        figures["bound_mb"] = bound >> 20
        peak = server.peak_resident()
        assert server.stop() == 0, server.tail()
        figures["disk_per_doc"] = round(server.disk_bytes() / total, 1)
        print(json.dumps(figures, indent=2))
        if a.out:
            with open(a.out, "w") as f:
                json.dump(figures, f, indent=2)
        assert peak <= bound, f"peak resident {peak >> 20} MB is over {bound >> 20} MB"
        print("iibench: 1 passed, 0 failed")


if __name__ == "__main__":
    main()
