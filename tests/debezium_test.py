"""Debezium copies a collection of a set of three to another server (tests/debezium/Copy.java): what is there, then what changes, over
a kill of the primary, a step-down and a kill of Debezium itself, which goes on where it was. At the end both have the same.

`--changes` in all. Needs a JDK of 17 or later, Maven and its repository; says so and passes where they are missing.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from fernd import Fernd, ReplicaSet, host, raw, wait_until
from odm_failover_test import java_version
from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne
from pymongo.write_concern import WriteConcern

HERE = os.path.dirname(os.path.abspath(__file__))
NAMESPACE, BATCH = "shop.orders", 500


def built():
    """The class path of the program, fetched and compiled where it is missing."""
    source = os.path.join(HERE, "debezium")
    folder = os.path.join(os.environ.get("FERN_TARGET", os.path.join(os.path.dirname(HERE), "target")), "debezium")
    jars = os.path.join(folder, "jars")
    os.makedirs(folder, exist_ok=True)
    if not os.path.isdir(jars):
        subprocess.run(["mvn", "--quiet", "--batch-mode", "-Dstyle.color=never", "--file", os.path.join(source, "pom.xml"),
                        "dependency:copy-dependencies", f"-DoutputDirectory={jars}.new"], check=True)
        os.rename(f"{jars}.new", jars)
    subprocess.run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", folder, os.path.join(source, "Copy.java")], check=True)
    return f"{jars}/*:{folder}"


class Copier:
    """The running program; started again it goes on where it was."""

    def __init__(self, path, source, target, home):
        self.offsets = os.path.join(home, "offsets")
        self.command = ["java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", path, "Copy", source,
                        f"mongodb://{host(target)}/", NAMESPACE, self.offsets]
        self.errors = tempfile.TemporaryFile("w+")
        self.process, self.applied, self.snapshot, self.before = None, 0, 0, 0

    def start(self):
        self.before = self.applied
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.reader = threading.Thread(target=self.read, args=(self.process,), daemon=True)
        self.reader.start()

    def read(self, process):
        for line in process.stdout:
            if found := re.match(r"(?:applied|done) (\d+) (\d+)", line):
                self.snapshot = max(self.snapshot, int(found[1]))
                self.applied = self.before + int(found[2])

    def said(self):
        self.errors.seek(0)
        return self.errors.read()[-4000:]

    def goes_on(self, changes=1000):
        goal = self.applied + changes

        def there():
            if self.process.poll() is not None:
                raise AssertionError(f"it ended with {self.process.returncode}:\n{self.said()}")
            return self.applied >= goal

        wait_until(there, "Debezium does not go on", self.said, wait=180)

    def kill(self):
        # It writes the file of its offsets anew each time. Killed in the middle of that it would find the file empty, copy all
        # anew, and miss what was deleted meanwhile.
        while True:
            self.process.send_signal(signal.SIGSTOP)
            time.sleep(0.1)
            if os.path.getsize(self.offsets) > 0:
                break
            self.process.send_signal(signal.SIGCONT)
            time.sleep(0.01)
        self.process.kill()
        self.process.wait()
        self.reader.join()

    def end(self, wait):
        assert self.process.wait(timeout=wait) == 0, self.said()
        self.reader.join()


class Changes(threading.Thread):
    """Inserts, updates, replacements and deletes in bulks, sent again by the driver where the primary goes."""

    def __init__(self, cluster, count):
        super().__init__(daemon=True)
        self.cluster, self.count, self.random = cluster, count, random.Random(1)
        self.done, self.keys, self.next, self.error = 0, [], 0, None

    def run(self):
        try:
            with self.cluster.client() as client:
                orders = client.shop.orders
                while self.done < self.count:
                    bulk = [self.change() for _ in range(min(BATCH, self.count - self.done))]
                    orders.bulk_write(bulk)
                    self.done += len(bulk)
        except Exception as error:
            self.error = error

    def change(self):
        r = self.random
        if len(self.keys) < 1000 or r.random() < 0.45:
            self.next += 1
            self.keys.append(self.next)
            return InsertOne({"_id": self.next, "of": r.randrange(1000), "total": r.random(), "text": "x" * r.randrange(200)})
        at = r.randrange(len(self.keys))
        key = self.keys[at]
        kind = r.random()
        if kind < 0.6:
            return UpdateOne({"_id": key}, {"$set": {"total": r.random()}, "$push": {"paid": r.randrange(100)}})
        if kind < 0.8:
            return ReplaceOne({"_id": key}, {"whole": r.random()})
        self.keys[at] = self.keys[-1]
        self.keys.pop()
        return DeleteOne({"_id": key})

    def has_done(self, share):
        wait_until(lambda: self.error or self.done >= share * self.count, "changes do not go on", self.cluster.tails, wait=600)
        assert self.error is None, repr(self.error)


def same(cluster, target):
    with cluster.client() as client, target.client() as there:
        number = 0
        pairs = (collection.find(sort=[("_id", 1)]) for collection in (client.shop.orders, there.shop.orders))
        for one, other in zip(*pairs, strict=True):
            assert one == other, f"{one} was copied as {other}"
            number += 1
        return number


def run(path, count):
    with ReplicaSet("--cacheSize", "128M") as cluster, Fernd("--cacheSize", "128M") as target, \
            tempfile.TemporaryDirectory() as home:
        with cluster.client() as client:
            client.shop.orders.insert_many([{"_id": f"before {n}", "n": n} for n in range(2000)])
            client.shop.orders.with_options(write_concern=WriteConcern(3)).insert_one({"_id": "before"})
        copier = Copier(path, cluster.uri(), target, home)
        changes = Changes(cluster, count)
        try:
            copier.start()
            copier.goes_on()
            changes.start()
            changes.has_done(0.2)
            killed = cluster.wait_for_primary()
            killed.kill()
            copier.goes_on()
            killed.start()
            cluster.wait_for_all()
            changes.has_done(0.4)
            copier.kill()
            copier.start()
            copier.goes_on()
            changes.has_done(0.6)
            assert raw(cluster.wait_for_primary(), "admin", {"replSetStepDown": 5})["ok"] == 1
            copier.goes_on()
            changes.has_done(1)
            with cluster.client() as client:
                client.shop.orders.insert_one({"_id": "last"})
            copier.end(60 + count // 500)
        finally:
            if copier.process and copier.process.poll() is None:
                copier.process.kill()
        assert copier.snapshot == 2001, f"{copier.snapshot} documents were copied at first, or again"
        number = same(cluster, target)
        assert copier.applied >= count + 2000, f"{copier.applied} applied"
        print(f"debezium: {count} changes, {copier.snapshot} documents copied at first, {copier.applied} events applied, "
              f"{number} documents the same: passed")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--changes", type=int, default=30_000)
    options = arguments.parse_args()
    if not (shutil.which("javac") and shutil.which("mvn")) or java_version() < 17:
        print("skipped: no Java 17 with Maven here")
        return
    try:
        path = built()
    except subprocess.CalledProcessError as error:
        print(f"skipped: Debezium cannot be fetched or compiled ({error})")
        return
    run(path, options.changes)


if __name__ == "__main__":
    main()
