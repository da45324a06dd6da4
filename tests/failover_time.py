"""How long a client of a set of three waits for its primary's successor: from the moment at which the primary is killed, halted
(it takes connections and says nothing, as behind a black hole) or told to step down, until a write is acknowledged that the stock driver
began after it. The client's `socketTimeoutMS` is three seconds: what is under way to a member that says nothing ends by that.

    FERND=target/release/fernd python tests/failover_time.py --rounds 50

Prints median and worst of each kind. `--bound 1,2.5` fails where they are over it.
"""

import argparse
import os
import signal
import statistics
import threading
import time

from fernd import ReplicaSet, raw


class Client(threading.Thread):
    """Inserts one document after the other, by retryable writes; an error may not reach it."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.ends, self.error = cluster, [], None
        self.ending = threading.Event()

    def run(self):
        try:
            with self.cluster.client(socketTimeoutMS=3000, connectTimeoutMS=1000) as client:
                while not self.ending.is_set():
                    began = time.monotonic()
                    client.test.writes.insert_one({"_id": len(self.ends)})
                    self.ends.append((began, time.monotonic()))
        except Exception as error:
            self.error = error

    def wait_from(self, moment):
        """Seconds until the first write that was begun after it had its answer."""
        seen = max(0, len(self.ends) - 1)
        while time.monotonic() < moment + 60:
            assert self.error is None, repr(self.error)
            for began, ended in self.ends[seen:]:
                if began >= moment:
                    return ended - moment
            time.sleep(0.005)
        raise AssertionError(f"no write is acknowledged\n{self.cluster.tails()}")


def fail(cluster, how, primary):
    """The moment from which on it is no primary; what it takes to have it back."""
    moment = time.monotonic()
    if how == "kill":
        primary.kill()
        return moment, primary.start
    if how == "halt":
        os.kill(primary.process.pid, signal.SIGSTOP)
        return moment, lambda: os.kill(primary.process.pid, signal.SIGCONT)
    assert raw(primary, "admin", {"replSetStepDown": 5})["ok"] == 1
    return moment, lambda: None


def measured(cluster, client, how, rounds):
    took = []
    for _ in range(rounds):
        primary = cluster.wait_for_all()
        time.sleep(1)
        moment, back = fail(cluster, how, primary)
        try:
            took.append(client.wait_from(moment))
        finally:
            back()
    return took


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--how", nargs="+", choices=["kill", "halt", "step-down"], default=["kill", "halt", "step-down"])
    arguments.add_argument("--bound", help="median and worst in seconds, as 1,2.5")
    options = arguments.parse_args()
    over = []
    with ReplicaSet("--cacheSize", "64M") as cluster:
        client = Client(cluster)
        client.start()
        for how in options.how:
            took = measured(cluster, client, how, options.rounds)
            median, worst = statistics.median(took), max(took)
            print(f"{how}: {len(took)} times, median {median:.2f} s, worst {worst:.2f} s", flush=True)
            if options.bound:
                bounds = [float(bound) for bound in options.bound.split(",")]
                over += [how] if median > bounds[0] or worst > bounds[1] else []
        client.ending.set()
        client.join(60)
        assert client.error is None, repr(client.error)
        cluster.wait_for_all()
        with cluster.client() as reader:
            assert reader.test.writes.count_documents({}) == len(client.ends), "not what was acknowledged"
    if over:
        raise SystemExit(f"over the bound: {', '.join(over)}")


if __name__ == "__main__":
    main()
