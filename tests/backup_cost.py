"""What a hot backup costs the load beside it, and how much an incremental one copies.

Inserts iiBench documents with three secondary indexes without pause, in windows of so many seconds: in every other
one backups are written one after the other, whole ones. Then one document in a hundred is changed, and an incremental
backup is written and restored. Says the rates, and their medians' ratio; fails below `--at-least`.
"""

import argparse
import datetime
import os
import random
import shutil
import statistics
import tempfile
import threading
import time

from fernd import Fernd, fern_restore, validate
from iibench import INDEXES, document

BATCH = 1000


class Load:
    """Inserts until it is ended, and counts."""

    def __init__(self, server):
        self.server, self.ended, self.inserted, self.error = server, False, 0, None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        rng = random.Random(1)
        try:
            with self.server.client() as client:
                while not self.ended:
                    now = datetime.datetime.now(datetime.timezone.utc)
                    client.ii.purchases.insert_many(
                        [{**document(rng, now), "_id": self.inserted + i} for i in range(BATCH)])
                    self.inserted += BATCH
        except Exception as error:
            self.error = error

    def window(self, seconds):
        """Documents a second in the next seconds."""
        before, began = self.inserted, time.monotonic()
        time.sleep(seconds)
        if self.error:
            raise self.error
        return (self.inserted - before) / (time.monotonic() - began)


class Backups:
    """Writes one after the other while it lives."""

    def __init__(self, server, root):
        self.server, self.root, self.ended = server, root, False
        self.bytes, self.written = 0, 0
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        with self.server.client() as client:
            while not self.ended:
                path = tempfile.mkdtemp(dir=self.root)
                self.bytes += client.admin.command("backupStart", path)["bytes"]
                self.written += 1
                shutil.rmtree(path)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.ended = True
        self.thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=int, default=300_000, help="before it is measured")
    parser.add_argument("--windows", type=int, default=6, help="of each kind")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--throttle", default="0", help="as backupThrottle takes it")
    parser.add_argument("--cache-size", default="128M")
    parser.add_argument("--at-least", type=float, default=0)
    options = parser.parse_args()
    root = tempfile.mkdtemp(prefix="fernd-backup-cost-")
    try:
        with Fernd("--backupRoot", root, "--cacheSize", options.cache_size) as server, server.client() as client:
            for index in INDEXES:
                client.ii.purchases.create_index(index)
            client.admin.command("backupThrottle", options.throttle)
            load = Load(server)
            load.thread.start()
            while load.inserted < options.docs and not load.error:
                time.sleep(0.2)
            rates, copied, written = {False: [], True: []}, 0, 0
            for window in range(2 * options.windows):
                if window % 2 == 0:
                    rates[False].append(load.window(options.seconds))
                    continue
                with Backups(server, root) as backups:
                    rates[True].append(load.window(options.seconds))
                copied, written = copied + backups.bytes, written + backups.written
            load.ended = True
            load.thread.join()
            for kind, name in ((False, "without"), (True, "with a backup")):
                print(f"{name}: {', '.join(f'{rate:.0f}' for rate in rates[kind])} documents/s")
            ratio = statistics.median(rates[True]) / statistics.median(rates[False])
            print(f"ratio of the medians: {ratio:.2f}; {written} backups of {copied / max(written, 1) / 1e6:.0f} MB")
            client.admin.command("backupThrottle", 0)
            client.admin.command("checkpoint")
            whole, later = (os.path.join(root, name) for name in ("whole", "later"))
            os.makedirs(whole)
            os.makedirs(later)
            first = client.admin.command("backupStart", whole)
            count = load.inserted
            client.ii.purchases.update_many({"_id": {"$gte": 0, "$lt": count // 100}}, {"$set": {"changed": True}})
            second = client.admin.command("backupStart", later, since=whole)
            print(f"{count} documents, whole: {first['bytes'] / 1e6:.1f} MB; after 1 % changed side by side: "
                  f"{second['bytes'] / 1e6:.1f} MB, {second['bytesSince'] / 1e6:.1f} MB known")
        restored = os.path.join(root, "restored")
        print(fern_restore(later, restored).strip().splitlines()[-1])
        with Fernd("--cacheSize", options.cache_size, dbpath=restored) as server, server.client() as client:
            assert client.ii.purchases.count_documents({}) == count
            assert client.ii.purchases.count_documents({"changed": True}) == count // 100
            validate(client.ii.purchases)
        assert ratio >= options.at_least, ratio
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
