"""A reader of MongoDB 2.4's time tails the oplog of a set of three (tests/legacy-java/Tail.java, driver 2.14.3) over a kill of
the primary and a step-down, under load: it is told everything that was written, once, in order. Needs a JDK of 11 or later, Maven
and its repository; says so and passes where they are missing.
"""

import json
import os
import shutil
import subprocess
import tempfile
import threading

from fernd import ReplicaSet, raw, wait_until
from legacy_java_test import driver
from replica_set_test import Writer, begin, end, progress

HERE = os.path.dirname(os.path.abspath(__file__))
NAMESPACE = "test.writes"


class Tail(threading.Thread):
    """The running program, and what it has been told."""

    def __init__(self, jar, cluster, start):
        super().__init__(daemon=True)
        source = os.path.join(HERE, "legacy-java", "Tail.java")
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            ["java", "-cp", jar, source, cluster.uri(), NAMESPACE, str(start.time), str(start.inc)],
            stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.entries = []

    def run(self):
        for line in self.process.stdout:
            self.entries.append(json.loads(line))

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def goes_on(self):
        seen = len(self.entries)
        wait_until(lambda: len(self.entries) > seen + 20, "the oplog is not told on", self.said)

    def end(self):
        assert self.process.wait(timeout=60) == 0, self.said()
        self.join()


def oplog(member):
    """Its entries, as the program shows them."""
    with member.client(readPreference="secondaryPreferred") as client:
        found = client.local["oplog.rs"].find({"ns": NAMESPACE}, sort=[("$natural", 1)])
        return [[entry["ts"].time, entry["ts"].inc, entry["op"], entry["o"]["_id"]] for entry in found]


def run(jar):
    with ReplicaSet() as cluster:
        with cluster.client() as client:
            start = client.admin.command("ping")["operationTime"]
        tail = Tail(jar, cluster, start)
        try:
            tail.start()
            writers = begin(Writer(cluster, 0), Writer(cluster, 1))
            tail.goes_on()
            killed = cluster.wait_for_primary()
            killed.kill()
            progress(writers)
            tail.goes_on()
            killed.start()
            cluster.wait_for_all()
            assert raw(cluster.wait_for_primary(), "admin", {"replSetStepDown": 5})["ok"] == 1
            progress(writers)
            tail.goes_on()
            end(cluster, writers)
            with cluster.client() as client:
                client.test.writes.insert_one({"_id": "last"})
            tail.end()
        finally:
            if tail.process.poll() is None:
                tail.process.kill()
        cluster.wait_for_all()
        for member in cluster.members:
            wait_until(lambda: oplog(member) == tail.entries, "it was told something else than the oplog has", cluster.tails)
        for writer in writers:
            told = [id["n"] for _, _, op, id in tail.entries if op == "i" and id != "last" and id["writer"] == writer.number]
            assert told == list(range(writer.acknowledged)), f"{len(told)} told, {writer.acknowledged} written"
        ends = [line for line in tail.said().splitlines() if not line.startswith(("INFO", "WARN", "SEVERE"))]
        print(f"oplog tail: {len(tail.entries)} entries told by driver 2.14.3, in order, over {len(ends)} ends of its cursor: passed")


def main():
    if not (shutil.which("javac") and shutil.which("mvn")):
        print("skipped: no JDK or no Maven here")
        return
    try:
        jar = driver(os.path.abspath(os.environ["FERN_TARGET"]))
    except subprocess.CalledProcessError as error:
        print(f"skipped: the driver cannot be fetched ({error})")
        return
    run(jar)


if __name__ == "__main__":
    main()
