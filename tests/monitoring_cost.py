"""What being watched costs: a server under load with all its eyes open in some slices of time, shut in
those between, in one run.

Open: a row of figures each second (`diagnosticDataCollectionEnabled`), and each second a Prometheus
scrape, what the page on the status port asks for, and a `serverStatus`. Shut: none of it. What is counted in
each operation itself is counted either way.

    cargo xtask monitoring-cost [--seconds 4] [--pairs 20]
"""

import argparse
import math
import os
import statistics
import subprocess
import threading
import time
import urllib.request

from fernd import Fernd, free_port

PHASES = [("read", "query"), ("readupdate", "update")]
NAMES = "opcounters.query,opcounters.update,opcounters.insert"


class Watcher(threading.Thread):
    """The eyes outside of the server, once a second while `open` is set."""

    def __init__(self, client, status_port):
        super().__init__(daemon=True)
        self.client, self.port = client, status_port
        self.open, self.ended = threading.Event(), threading.Event()
        self.looks = 0

    def run(self):
        while not self.ended.wait(1):
            if not self.open.is_set():
                continue
            now = int(time.time() * 1000)
            history = f"/api/history?from={now - 600_000}&to={now}&step=1&names={NAMES}"
            for path in ("/metrics", "/api/now", "/api/collections", history):
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
                    answer.read()
            self.client.admin.command("serverStatus")
            self.looks += 1


def measure(options, experiment, counter):
    status_port = free_port()
    fern = os.path.join(os.path.dirname(os.environ["FERND"]), "fern")
    with Fernd("--statusPort", str(status_port), "--cacheSize", "256M") as server:
        client = server.client()
        watcher = Watcher(client, status_port)
        watcher.start()
        seconds = math.ceil(2 * options.pairs * (options.seconds + 1)) + 20
        load = subprocess.Popen(
            [fern, "bench", experiment, "--uri", f"mongodb://127.0.0.1:{server.port}",
             "--clients", "2", "--seconds", str(seconds), "--docs", "100000"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )

        def done():
            return client.admin.command("serverStatus")["opcounters"][counter]

        def slice_of(watched):
            client.admin.command("setParameter", 1, diagnosticDataCollectionEnabled=watched)
            (watcher.open.set if watched else watcher.open.clear)()
            time.sleep(0.3)
            count, cpu, start = done(), server.cpu_seconds(), time.monotonic()
            time.sleep(options.seconds)
            took = time.monotonic() - start
            count, cpu = done() - count, server.cpu_seconds() - cpu
            assert count > 0, "the load has ended"
            return count / took, cpu / count * 1e6

        while done() < 1000:
            assert load.poll() is None, "the load did not begin"
            time.sleep(0.2)
        slices = {True: [], False: []}
        for pair in range(options.pairs):
            for watched in (pair % 2 == 0, pair % 2 == 1):
                slices[watched].append(slice_of(watched))
        watcher.ended.set()
        watcher.join()
        assert watcher.looks > options.pairs * (options.seconds - 1) / 2, "nobody looked"
        load.terminate()
        load.wait()
    for what, at, unit in (("throughput", 0, "/s"), ("server CPU", 1, " µs each")):
        pairs = [on[at] / off[at] for on, off in zip(slices[True], slices[False])]
        on, off = (statistics.median(s[at] for s in slices[w]) for w in (True, False))
        quarter = statistics.quantiles(pairs, n=4)
        print(f"{experiment}: {what} watched {on:.1f}{unit}, unwatched {off:.1f}{unit}, "
              f"ratio of pairs {statistics.median(pairs):.3f} "
              f"(quartiles {quarter[0]:.3f} to {quarter[2]:.3f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4, help="length of a slice")
    parser.add_argument("--pairs", type=int, default=20, help="slices of each kind")
    options = parser.parse_args()
    for experiment, counter in PHASES:
        measure(options, experiment, counter)


if __name__ == "__main__":
    main()
