"""Mongoose and Spring Data on a replica set of three whose primary is killed, and another one told to step down.

Each program moves coins in transactions, by the helpers of its guide, and writes besides; no error may reach it
(retryable writes are on), and what it was told was written is there at the end, once.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

from fernd import ReplicaSet, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))


class Program:
    """A running program, the rounds that it has done, and what it says."""

    def __init__(self, command, cwd):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True)
        self.rounds, self.done = 0, None
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if found := re.match(r"(\d+) rounds", line):
                self.rounds = int(found[1])
            elif found := re.match(r"done (\d+)", line):
                self.done = int(found[1])

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def goes_on(self, rounds=30):
        """Waits until it has done so many more rounds."""
        target = self.rounds + rounds

        def there():
            if self.process.poll() is not None:
                raise SystemExit(f"ended with {self.process.returncode} after {self.rounds} rounds:\n{self.said()}")
            return self.rounds >= target

        wait_until(there, "the program does not go on", self.said)

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=120) == 0, self.said()
        self.reader.join()
        return self.done


def through_failovers(name, command, cwd, check):
    """Runs a program while its primary is killed, comes back, and the next one steps down."""
    with ReplicaSet() as cluster:
        program = Program([*command, f"{cluster.uri()}&retryWrites=true&w=majority"], cwd)
        try:
            program.goes_on()
            killed = cluster.wait_for_primary()
            killed.kill()
            cluster.wait_for_primary(but=killed)
            program.goes_on()
            killed.start()
            cluster.wait_for_all()
            program.goes_on()
            with cluster.wait_for_primary().client() as client:
                client.admin.command("replSetStepDown", 20)
            program.goes_on()
            rounds = program.end()
        finally:
            if program.process.poll() is None:
                program.process.send_signal(signal.SIGKILL)
        with cluster.client() as client:
            check(client.failover, rounds)
        print(f"  {name}: {rounds} rounds, no error; {program.said().strip() or 'nothing else'}")


def mongoose(modules):
    if not shutil.which("node"):
        print("mongoose: not run, there is no node")
        return
    folder = os.path.dirname(os.path.abspath(modules))
    # Modules are looked for beside the script: it runs where they were installed.
    shutil.copy(os.path.join(HERE, "node", "failover.mjs"), folder)

    def check(db, rounds):
        assert sum(account["coins"] for account in db.accounts.find()) == 1000
        assert sorted(entry["round"] for entry in db.entries.find()) == list(range(rounds))
        assert [(note["round"], note["seen"]) for note in db.notes.find(sort=[("round", 1)])] == [
            (n, 1) for n in range(rounds)]

    through_failovers("mongoose", ["node", os.path.join(folder, "failover.mjs")], folder, check)


def java_version():
    said = subprocess.run(["javac", "-version"], capture_output=True, text=True)
    return int(re.search(r"javac (\d+)", said.stdout + said.stderr)[1])


def spring():
    if not (shutil.which("javac") and shutil.which("mvn")) or java_version() < 17:
        print("spring: not run, there is no Java 17 with Maven")
        return
    source = os.path.join(HERE, "spring")
    folder = os.path.join(os.environ.get("FERN_TARGET", os.path.join(os.path.dirname(HERE), "target")), "spring")
    jars = os.path.join(folder, "jars")
    os.makedirs(folder, exist_ok=True)
    if not os.path.isdir(jars):
        subprocess.run(["mvn", "--quiet", "--batch-mode", "-Dstyle.color=never", "--file", os.path.join(source, "pom.xml"),
                        "dependency:copy-dependencies", f"-DoutputDirectory={jars}.new"], check=True)
        os.rename(f"{jars}.new", jars)
    path = f"{jars}/*"
    subprocess.run(["javac", "-nowarn", "-cp", path, "-d", folder, os.path.join(source, "Failover.java")], check=True)

    def check(db, rounds):
        assert sum(account["coins"] for account in db.account.find()) == 1000
        assert sorted(entry["_id"] for entry in db.entry.find()) == list(range(rounds))
        assert [(note["_id"], note["seen"], note["again"]) for note in db.note.find(sort=[("_id", 1)])] == [
            (n, 1, True) for n in range(rounds)]

    through_failovers("spring", ["java", "-cp", f"{path}:{folder}", "Failover"], folder, check)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("modules", help="the folder `node_modules`")
    p.add_argument("--only", choices=["mongoose", "spring"])
    a = p.parse_args()
    if a.only != "spring":
        mongoose(a.modules)
    if a.only != "mongoose":
        spring()
    print("odm-failover: passed")


if __name__ == "__main__":
    sys.exit(main())
