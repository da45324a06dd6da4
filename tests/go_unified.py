"""The Go driver's runner of the drivers' unified specifications, from the Go proxy, against `fernd`.

The module holds the runner and not the specifications; those are taken from PyMongo's source package,
where they stand under other names. Prints what passed, failed and was skipped, and the failures.
Needs Go.
"""

import argparse
import collections
import json
import os
import shutil
import subprocess

import pymongo
from fernd import Fernd, ReplicaSet
from pymongo_suite import sources

MODULE = "go.mongodb.org/mongo-driver/v2"
VERSION = "v2.9.3"
# Where the driver looks, and where PyMongo has them.
SPECIFICATIONS = {
    "unified-test-format/tests/valid-pass": "unified-test-format/valid-pass",
    "unified-test-format/tests/valid-fail": "unified-test-format/valid-fail",
    "transactions-convenient-api/tests/unified": "transactions-convenient-api/unified",
    "versioned-api/tests": "versioned-api",
    "crud/tests/unified": "crud/unified",
    "change-streams/tests/unified": "change_streams/unified",
    "load-balancers/tests": "load_balancer",
    "collection-management/tests": "collection_management",
    "command-logging-and-monitoring/tests/monitoring": "command_monitoring",
    "command-logging-and-monitoring/tests/logging": "command_logging",
    "connection-monitoring-and-pooling/tests/logging": "connection_logging",
    "sessions/tests": "sessions",
    "retryable-reads/tests/unified": "retryable_reads/unified",
    "retryable-writes/tests/unified": "retryable_writes/unified",
    # Without a case, which the runner takes for a failure: it is built without libmongocrypt.
    "client-side-encryption/tests/unified": None,
    "client-side-operations-timeout/tests": "csot",
    "gridfs/tests": "gridfs",
    "server-selection/tests/logging": "server_selection_logging",
    "server-discovery-and-monitoring/tests/unified": "discovery_and_monitoring/unified",
    "run-command/tests/unified": "run_command/unified",
    "index-management/tests": "index_management",
    "mongodb-handshake/tests/unified": "handshake/unified",
    "client-backpressure/tests": "client-backpressure",
    "transactions/tests/unified": "transactions/unified",
    "causal-consistency/tests": "causal_consistency",
}

SKIPPED = "^TestUnifiedSpec$/^client-side-encryption$"


def checkout(target, suite):
    """A writable copy of the module with the specifications in their places."""
    home = os.path.join(target, "go-driver")
    folder = os.path.join(home, VERSION)
    if os.path.exists(os.path.join(folder, "ready")):
        return folder
    os.makedirs(home, exist_ok=True)
    with open(os.path.join(home, "go.mod"), "w") as f:
        f.write("module fetch\n")
    done = subprocess.run(
        ["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"], cwd=home, check=True,
        capture_output=True, text=True,
    )
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(json.loads(done.stdout)["Dir"], folder)
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)
    for place, source in SPECIFICATIONS.items():
        to = os.path.join(folder, "testdata", "specifications", "source", place)
        os.makedirs(to, exist_ok=True)
        if source is None:
            continue
        of = os.path.join(suite, "test", source)
        for name in os.listdir(of) if os.path.isdir(of) else []:
            if name.endswith(".json"):
                shutil.copy(os.path.join(of, name), to)
    open(os.path.join(folder, "ready"), "w").close()
    return folder


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--run", default="TestUnifiedSpec", help="go test's -run")
    p.add_argument("--at-least", type=int, default=0)
    p.add_argument("--standalone", action="store_true")
    p.add_argument("--members", type=int, default=1, help="of the replica set")
    p.add_argument("--show", action="store_true", help="the text of each failure")
    a = p.parse_args()
    target = os.path.abspath(os.environ["FERN_TARGET"])
    folder = checkout(target, sources(target))
    options = ["--cacheSize", "512M", "--setParameter", "enableTestCommands=1"]
    uri = "mongodb://127.0.0.1:{}/"
    if not a.standalone:
        uri += "?replicaSet=rs0"
        if a.members == 1:
            options += ["--replSet", "rs0", "--replSetAutoInitiate"]
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOWORK": "off"}
    outcomes, texts = {}, collections.defaultdict(list)
    several = a.members > 1 and not a.standalone
    with ReplicaSet(*options, members=a.members, name="rs0") if several else Fernd(*options) as served:
        server = served.wait_for_primary() if several else served
        environment["MONGODB_URI"] = served.uri() if several else uri.format(server.port)
        run = subprocess.Popen(
            ["go", "test", "-json", "-timeout", "50m", "-run", a.run, "-skip", SKIPPED, "./internal/integration/unified/"],
            cwd=folder, env=environment, stdout=subprocess.PIPE, text=True,
        )
        for line in run.stdout:
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            name = event.get("Test")
            if event["Action"] in ("pass", "fail", "skip") and name:
                outcomes[name] = event["Action"]
            elif event["Action"] == "output" and name:
                texts[name].append(event["Output"])
            elif event["Action"] in ("build-output", "build-fail"):
                print(event.get("Output", event), end="")
        run.wait()
        if server.process.poll() is not None:
            raise SystemExit(f"fernd died:\n{server.tail()}")
    # A case is what has no case below it; there are folders in the names of files.
    parents = {name[:at] for name in outcomes for at, letter in enumerate(name) if letter == "/"}
    cases = {name: outcome for name, outcome in outcomes.items() if name not in parents}
    for name, outcome in sorted(cases.items()):
        if outcome == "fail":
            print(f"FAIL {name}")
            if a.show:
                print("".join(texts[name]))
    counts = collections.Counter(cases.values())
    print(f"{counts['pass']} passed, {counts['fail']} failed, {counts['skip']} skipped "
          f"(Go driver {VERSION}, specifications of PyMongo {pymongo.version})")
    if counts["pass"] < a.at_least:
        raise SystemExit(f"fewer than {a.at_least} passed")


if __name__ == "__main__":
    main()
