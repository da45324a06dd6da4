"""The status page in headless Chromium: it loads, moves each second, is reached by the keyboard, and
survives a restart of the server. `dashboard_test.py NODE_MODULES [PICTURES]`."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from fernd import Fernd, free_port


def chromium():
    """Debian's, installed where it is missing."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if not found:
        for command in (["apt-get", "update", "-qq"],
                        ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "chromium",
                         "fonts-dejavu-core"]):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL,
                           env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
        found = shutil.which("chromium")
    return found


class Load:
    """Writes and reads, and a transaction that another one waits for, until it is told to end."""

    def __init__(self, server):
        self.server, self.stop, self.threads = server, threading.Event(), []
        self.failures = []

    def start(self):
        for work in (self.writes, self.reads, self.waits):
            thread = threading.Thread(target=self.guarded, args=(work,))
            thread.start()
            self.threads.append(thread)

    def guarded(self, work):
        try:
            with self.server.client() as client:
                work(client)
        except Exception as e:  # told by the main thread
            self.failures.append(f"{work.__name__}: {e}")

    def writes(self, client):
        number = 0
        while not self.stop.is_set():
            batch = [{"_id": number + i, "customer": (number + i) % 997, "pad": "leaf " * 40}
                     for i in range(200)]
            client.shop.orders.insert_many(batch)
            number += 200
            time.sleep(0.05)

    def reads(self, client):
        while not self.stop.is_set():
            list(client.shop.orders.find({"customer": 5}).limit(50))
            client.shop.orders.update_one({"_id": 1}, {"$inc": {"n": 1}})
            time.sleep(0.02)

    def waits(self, client):
        """A transaction of TokuMX's kind waits for the lock that another connection holds."""
        client.admin.command("profile", 0, slowms=20)
        other = self.server.client(maxPoolSize=1)
        while not self.stop.is_set():
            with self.server.client(maxPoolSize=1) as holder:
                holder.shop.command("beginTransaction", isolation="serializable")
                holder.shop.orders.update_one({"_id": 0}, {"$inc": {"held": 1}})
                waiter = threading.Thread(target=self.wait_for, args=(other,))
                waiter.start()
                time.sleep(1.5)
                holder.shop.command("rollbackTransaction")
                waiter.join()
        other.close()

    def wait_for(self, client):
        client.shop.command("beginTransaction", isolation="serializable")
        client.shop.orders.update_one({"_id": 0}, {"$inc": {"waited": 1}})
        client.shop.command("commitTransaction")

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        assert not self.failures, self.failures


def main():
    modules, pictures = sys.argv[1], sys.argv[2:]
    folder = pictures[0] if pictures else tempfile.mkdtemp(prefix="fernd-pictures-")
    port = free_port()
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dashboard", "page.mjs")
    server = Fernd("--cacheSize", "64M", "--statusPort", str(port), "--checkpointPeriod", "5")
    with server:
        load = Load(server)
        page = subprocess.Popen(["node", script, modules, chromium(), str(port), folder],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def step(name):
            line = page.stdout.readline().strip()
            assert line == name, f"{name} did not come: {line!r} (exit {page.poll()})"
            print(f"  ok {name}", flush=True)

        def go_on():
            page.stdin.write("go on\n")
            page.stdin.flush()

        try:
            step("loaded")
            step("updated")
            load.start()
            go_on()
            for name in ("filled", "keyboard", "zoomed"):
                step(name)
            load.end()
            assert server.stop() == 0
            go_on()
            step("missed")
            server.start()
            go_on()
            step("survived")
            load = Load(server)
            with server.client() as client:
                client.shop.orders.drop()
            load.start()
            time.sleep(45 if pictures else 3)
            go_on()
            step("pictures")
            load.end()
            assert page.wait(60) == 0, page.returncode
        finally:
            load.stop.set()
            if page.poll() is None:
                page.kill()
    if not pictures:
        shutil.rmtree(folder)
    print("dashboard: all steps passed, 0 failed")


if __name__ == "__main__":
    main()
