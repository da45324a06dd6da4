"""Inserts until the data is many times the cache, into a set of three: the test at which MongoDB's secondaries lost their
heartbeats and fell off the oplog (20,000,000 documents, one client).

    FERND=target/release/fernd python tests/replica_set_seed.py --documents 20000000

`fern bench insert` writes; each member's role is asked for several times a second, and a document written now and then is looked
for at each secondary until it is there. Fails where a member ever was anything but a secondary (or the primary), where the lag's
99th percentile is over `--lag` seconds, where the worst second of inserts is less than `--evenness` of the median one, or where
the members do not have the same at the end.
"""

import argparse
import json
import os
import struct
import subprocess
import tempfile
import threading
import time

from fernd import ReplicaSet, host, raw, validate, wait_until
from pymongo.errors import PyMongoError

READ = {"$readPreference": {"mode": "secondaryPreferred"}}
# Of `fern bench insert`.
DATABASE, COLLECTION = "fern_bench", "johan"


class Roles(threading.Thread):
    """Asks a member what it is; keeps every other answer than its role at the beginning."""

    def __init__(self, member, role):
        super().__init__(daemon=True)
        self.member, self.role, self.asked, self.others = member, role, 0, []
        self.ending = threading.Event()

    def run(self):
        while not self.ending.wait(0.2):
            try:
                hello = self.member.hello()
                is_it = hello.get(self.role)
            except (OSError, struct.error) as error:
                is_it, hello = False, repr(error)
            self.asked += 1
            if not is_it:
                self.others.append(hello)


class Lag(threading.Thread):
    """How long after its acknowledgement a document is there at a secondary."""

    def __init__(self, primary, secondary):
        super().__init__(daemon=True)
        self.primary, self.secondary, self.lags, self.error = primary, secondary, [], None
        self.ending = threading.Event()

    def run(self):
        try:
            with self.primary.client() as client, self.secondary.client(readPreference="secondaryPreferred") as there:
                while not self.ending.wait(0.1):
                    key = {"at": host(self.secondary), "n": len(self.lags)}
                    client.lag.marks.insert_one({"_id": key})
                    acknowledged = time.monotonic()
                    while there.lag.marks.find_one({"_id": key}) is None:
                        time.sleep(0.002)
                    self.lags.append(time.monotonic() - acknowledged)
        except PyMongoError as error:
            self.error = error

    def percentile(self, share):
        return sorted(self.lags)[min(len(self.lags) - 1, int(share * len(self.lags)))]


def bench(cluster, options, folder):
    """The figures of the run's only phase."""
    program = os.path.join(os.path.dirname(os.environ["FERND"]), "fern-client")
    command = [program, "bench", "insert", "--uri", cluster.uri(), "--docs", str(options.documents), "--seconds",
               str(options.seconds), "--warm-up", "10", "--clients", str(options.clients), "--batch", str(options.batch),
               "--out", folder, "--keep"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    with open(os.path.join(folder, "report.json")) as file:
        return json.load(file)["servers"][0]["phases"][0]


def evenness(steadiness):
    """The worst second behind the first ten as a part of the median one; where most are of that kind, of those from which the
    machine took nothing away."""
    of = "undisturbed_" if steadiness.get("undisturbed_median_second") else ""
    return steadiness[f"{of}worst_second"] / steadiness[f"{of}median_second"]


def check_same(cluster):
    """The members have the same documents, and indexes that agree with them."""
    digests = [raw(member, DATABASE, {"dbHash": 1, **READ}, timeout=3600)["md5"] for member in cluster.members]
    assert len(set(digests)) == 1, digests
    for member in cluster.members:
        with member.client(readPreference="secondaryPreferred") as client:
            validate(client[DATABASE][COLLECTION])


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--documents", type=int, default=2_000_000)
    arguments.add_argument("--seconds", type=int, default=7200, help="at most")
    arguments.add_argument("--clients", type=int, default=16)
    arguments.add_argument("--batch", type=int, default=10)
    arguments.add_argument("--cacheSize", default="64M")
    arguments.add_argument("--lag", type=float, default=1.0)
    arguments.add_argument("--evenness", type=float, default=0.7)
    options = arguments.parse_args()
    with ReplicaSet("--cacheSize", options.cacheSize) as cluster, tempfile.TemporaryDirectory() as folder:
        primary, secondaries = cluster.wait_for_primary(), cluster.secondaries()
        roles = [Roles(primary, "isWritablePrimary"), *(Roles(member, "secondary") for member in secondaries)]
        lags = [Lag(primary, member) for member in secondaries]
        for thread in [*roles, *lags]:
            thread.start()
        figures = bench(cluster, options, folder)
        for thread in [*roles, *lags]:
            thread.ending.set()
        for thread in [*roles, *lags]:
            thread.join(60)
        assert figures["units"] == options.documents, f"{figures['units']} documents within {options.seconds} s"
        for watched in roles:
            assert watched.asked and not watched.others, f"{host(watched.member)} was otherwise: {watched.others[:3]}"
        even = evenness(figures["steadiness"])
        print(f"{figures['units']} documents, {figures['units_per_s']:.0f}/s; worst second {even:.2f} of the median", flush=True)
        for watched in lags:
            assert watched.error is None, repr(watched.error)
            print(f"lag of {host(watched.secondary)}: {len(watched.lags)} times, p50 {watched.percentile(0.5) * 1000:.0f} ms, "
                  f"p99 {watched.percentile(0.99) * 1000:.0f} ms, most {max(watched.lags) * 1000:.0f} ms", flush=True)
        check_same(cluster)
        print("the members have the same", flush=True)
        assert all(watched.percentile(0.99) <= options.lag for watched in lags), "the lag is over its bound"
        assert even >= options.evenness, "the worst second is under its bound"
        print("replica set seed: passed")


if __name__ == "__main__":
    main()
