"""Runs the examples of the Node driver's and of Mongoose's guides (tests/node/) against a `fernd`
that is a replica set of one, as their users start it."""

import os
import shutil
import subprocess
import sys

from fernd import Fernd


def main():
    modules = sys.argv[1]
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node")
    with Fernd("--cacheSize", "256M", "--replSet", "rs0", "--replSetAutoInitiate") as server:
        uri = f"mongodb://127.0.0.1:{server.port}/?replicaSet=rs0"
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
