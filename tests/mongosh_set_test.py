"""Runs tests/mongosh/replica_set.js, the helpers of mongosh for replica sets: `rs.initiate` first, of three empty servers; then the
others on the set that it has made, with an empty server to add and one to be an arbiter."""

import json
import os
import subprocess
import sys

from fernd import Fernd, ReplicaSet, host, lasting_port

HERE = os.path.dirname(os.path.abspath(__file__))


def shell(mongosh, uri, home, *arguments):
    done = subprocess.run([mongosh, "--quiet", "--norc", uri, *arguments], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "HOME": home, "NO_COLOR": "1"})
    if done.returncode != 0:
        raise SystemExit(f"mongosh ended with {done.returncode}:\n{done.stderr}\n{done.stdout}")
    return done.stdout


def main():
    [mongosh] = sys.argv[1:]
    with ReplicaSet(initiated=False) as cluster:
        first, home = cluster.members[0], cluster.members[0].home
        configuration = json.dumps(cluster.config())
        told = shell(mongosh, f"mongodb://{host(first)}/", home, "--eval",
                     f"if (rs.initiate({configuration}).ok !== 1) throw new Error('refused')")
        print(told, end="")
        cluster.wait_for_all()
        # They end with the set.
        for _ in range(2):
            joining = Fernd("--replSet", cluster.name)
            joining.port = lasting_port()
            cluster.members.append(joining.start())
        hosts = json.dumps([host(member) for member in cluster.members])
        told = shell(mongosh, cluster.uri().replace(f",{host(cluster.members[3])},{host(cluster.members[4])}", ""), home,
                     "--eval", f"hosts = {hosts}", "--file", os.path.join(HERE, "mongosh", "replica_set.js"))
        print(told, end="")
        assert "0 failed" in told, told


if __name__ == "__main__":
    main()
