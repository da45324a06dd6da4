"""mongostat and mongotop of the MongoDB Database Tools, built from their source as `tests/mongo-tools`
pins it, read the server's figures as they read mongod's."""

import json
import os
import shutil
import subprocess
import threading
import time

from fernd import Fernd

HERE = os.path.dirname(os.path.abspath(__file__))


def built(name):
    """The tool, built where it is missing or the pins are newer."""
    home = os.path.join(os.environ["FERN_TARGET"], "mongo-tools")
    os.makedirs(home, exist_ok=True)
    path, pins = os.path.join(home, name), os.path.join(HERE, "mongo-tools", "go.mod")
    if not os.path.exists(path) or os.path.getmtime(path) < os.path.getmtime(pins):
        package = f"github.com/mongodb/mongo-tools/{name}/main"
        subprocess.run(["go", "build", "-mod=readonly", "-p", "2", "-o", path, package],
                       check=True, cwd=os.path.dirname(pins))
    return path


def documents(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def mongostat_counts_what_was_done(server):
    seconds = documents([built("mongostat"), "--port", str(server.port), "-n", "4", "--json"])
    rows = [row for second in seconds for row in second.values()]
    assert len(rows) == 4, rows
    number = lambda text: int(text.lstrip("*").split("|")[0])
    assert sum(number(row["insert"]) for row in rows) > 0, rows
    assert sum(number(row["query"]) for row in rows) > 0, rows
    assert all(number(row["conn"]) > 0 and row["res"] != "0B" for row in rows), rows


def mongotop_names_the_collection(server):
    seconds = documents([built("mongotop"), "--port", str(server.port), "-n", "3", "--json"])
    totals = [second["totals"]["shop.orders"] for second in seconds if "shop.orders" in second["totals"]]
    assert totals and any(total["write"]["count"] > 0 for total in totals), seconds
    assert any(total["total"]["time"] > 0 for total in totals), totals


def main():
    if not shutil.which("go"):
        print("mongo-tools: not run, there is no Go to build them with")
        return
    tests = [mongostat_counts_what_was_done, mongotop_names_the_collection]
    for name in ("mongostat", "mongotop"):
        built(name)
    stop = threading.Event()

    def load(server):
        with server.client() as client:
            while not stop.is_set():
                client.shop.orders.insert_many([{} for _ in range(50)])
                client.shop.orders.find_one({})
                time.sleep(0.01)

    with Fernd("--cacheSize", "64M") as server:
        thread = threading.Thread(target=load, args=(server,))
        thread.start()
        try:
            for test in tests:
                print(test.__name__.replace("_", " "), flush=True)
                test(server)
        finally:
            stop.set()
            thread.join()
    print(f"mongo-tools: {len(tests)} passed, 0 failed")


if __name__ == "__main__":
    main()
