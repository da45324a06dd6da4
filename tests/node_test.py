"""Runs the examples of the Node driver's and of Mongoose's guides (tests/node/) against a `fernd`
that is a replica set of one, as their users start it; with `--auth` and `--tls` one with users and TLS."""

import argparse
import os
import shutil
import subprocess

from secured import Secured, add_options, missing


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("modules", help="the folder `node_modules`")
    add_options(p)
    a = p.parse_args()
    if why := missing(a):
        print(f"skipped: {why}")
        return
    modules = a.modules
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node")
    member = ("--cacheSize", "256M", "--replSet", "rs0", "--replSetAutoInitiate")
    with Secured(*member, auth=a.auth, tls=a.tls) as server:
        uri = server.uri(replicaSet="rs0")
        # Modules are looked for beside the script: it runs where they were installed.
        for name in os.listdir(folder):
            shutil.copy(os.path.join(folder, name), os.path.dirname(modules))
        for script in ("driver.mjs", "mongoose.mjs"):
            place = os.path.join(os.path.dirname(modules), script)
            done = subprocess.run(
                ["node", place, uri], capture_output=True, text=True, timeout=300,
                cwd=os.path.dirname(modules),
            )
            print(f"== {script}\n{done.stdout}", end="")
            if done.returncode != 0 or not done.stdout.rstrip().endswith("0 failed"):
                raise SystemExit(f"{script} ended with {done.returncode}:\n{done.stderr}")
        if server.process.poll() is not None:
            raise SystemExit(f"fernd died:\n{server.tail()}")


if __name__ == "__main__":
    main()
