"""Hot backups through PyMongo: TokuMX's commands, what a backup under load holds, where nothing is written to, and
what is left of one that was stopped or killed.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import time

from fernd import Fernd, ReplicaSet, fails, run_tests, validate, wait_until
from pymongo.errors import OperationFailure, PyMongoError

ROOT = tempfile.mkdtemp(prefix="fernd-backups-")


def place(name):
    path = os.path.join(ROOT, name)
    os.makedirs(path)
    return path


def serving(*options):
    return Fernd("--backupRoot", ROOT, "--cacheSize", "64M", *options)


class Writer:
    """Moves amounts between accounts in transactions, whose sum never changes, and counts acknowledged inserts."""

    def __init__(self, server):
        self.server, self.ended, self.acknowledged = server, False, 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        with server.client() as client:
            client.bank.accounts.insert_many([{"_id": i, "amount": 100} for i in range(50)])
            client.bank.log.create_index("at")

    def run(self):
        with self.server.client(journal=True) as client, client.start_session() as session:
            n = 0
            while not self.ended:
                n += 1
                with session.start_transaction():
                    for account, change in ((n % 50, -1), (n * 7 % 50, 1)):
                        client.bank.accounts.update_one({"_id": account}, {"$inc": {"amount": change}}, session=session)
                client.bank.log.insert_one({"_id": n, "at": n, "filler": os.urandom(500)})
                self.acknowledged = n

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.ended = True
        self.thread.join()


def check(path, at_least, at_most):
    """A server on the backup has whole transactions, and a prefix of the inserts."""
    with Fernd(dbpath=path) as server, server.client() as client:
        assert sum(account["amount"] for account in client.bank.accounts.find()) == 5000
        count = client.bank.log.count_documents({})
        assert at_least <= count <= at_most, (at_least, count, at_most)
        assert [d["_id"] for d in client.bank.log.find(projection=["_id"]).sort("_id")] == list(range(1, count + 1))
        validate(client.bank.accounts)
        validate(client.bank.log)
        client.bank.log.insert_one({"_id": "goes on"})


def a_backup_under_load_holds_a_prefix_and_a_server_starts_on_it():
    with serving() as server, server.client() as client, Writer(server) as writer:
        for number in range(3):
            wait_until(lambda: writer.acknowledged >= 300 * (number + 1), "nothing is written")
            path, before = place(f"load{number}"), writer.acknowledged
            reply = client.admin.command("backupStart", path)
            after = writer.acknowledged + 1
            assert reply["bytes"] > 0 and reply["files"] >= 2, reply
            # While the server goes on, and with its own data directory there.
            check(path, before, after)
        assert not any("backup" in text for text in os.listdir(server.dbpath))


def how_far_it_is_and_how_fast_it_may_be():
    with serving() as server, server.client() as client:
        client.d.c.insert_many([{"_id": i, "filler": os.urandom(1000)} for i in range(20_000)])
        assert "no backup" in str(fails(20, lambda: client.admin.command("backupStatus")))
        assert client.admin.command("backupThrottle", "5MB")["was"] == 0
        assert client.admin.command("backupThrottle", 8 << 20)["was"] == 5 << 20
        path, told, failed, seen = place("slow"), [], [], []

        def back_up():
            try:
                with server.client() as other:
                    other.admin.command("backupStart", path)
            except PyMongoError as error:
                failed.append(error)

        thread = threading.Thread(target=back_up)
        thread.start()
        while thread.is_alive():
            with contextlib.suppress(OperationFailure):
                told.append(client.admin.command("backupStatus"))
                seen += [one["progress"] for one in client.admin.aggregate([{"$currentOp": {}}])
                         if "backupStart" in one.get("command", {}) and "progress" in one]
                if len(told) == 3:
                    # It has seconds to go.
                    assert told[-1]["percent"] < 60, told
                    fails(117, lambda: client.admin.command("backupStart", place("second")))
            time.sleep(0.05)
        thread.join()
        assert not failed, failed
        assert len(told) > 3 and seen and all(p["total"] >= p["done"] for p in seen), (told, seen)
        one = next(status for status in told if status["bytesDone"] > 0)
        assert 0 < one["percent"] <= 100 and one["files"]["total"] >= 2, one
        assert one["current"]["source"].startswith(server.dbpath) and one["current"]["dest"].startswith(path), one
        assert one["current"]["bytes"]["total"] >= one["current"]["bytes"]["done"], one
        assert [s["bytesDone"] for s in told] == sorted(s["bytesDone"] for s in told)
        for wrong in ("fast", -1, "1.5m"):
            fails(2, lambda: client.admin.command("backupThrottle", wrong))


def nothing_is_written_elsewhere():
    with Fernd() as server, server.client() as client:
        assert "backupRoot" in str(fails(20, lambda: client.admin.command("backupStart", place("unnamed"))))
    with serving() as server, server.client() as client:
        outside = tempfile.mkdtemp(prefix="fernd-outside-")
        os.symlink(outside, os.path.join(ROOT, "link"))
        full = place("full")
        open(os.path.join(full, "file"), "w").close()
        a_file = os.path.join(ROOT, "a-file")
        open(a_file, "w").close()
        for path, word in ((outside, "below"), (os.path.join(ROOT, "link"), "below"), ("relative", "absolute"),
                           (os.path.join(ROOT, "missing"), "No such file"), (full, "not empty"), (a_file, ""),
                           (os.path.join(ROOT, "..", os.path.basename(outside)), "below"), ("", "absolute")):
            error = str(fails(2, lambda: client.admin.command("backupStart", path)))
            assert word in error, (path, error)
        fails(13, lambda: client.test.command("backupStart", full))
        fails(14, lambda: client.admin.command("backupStart", 1))
        assert os.listdir(outside) == []
        shutil.rmtree(outside)
    # Its own directory below the root.
    with Fernd("--backupRoot", ROOT, dbpath=os.path.join(ROOT, "own")) as server, server.client() as client:
        os.makedirs(os.path.join(server.dbpath, "inside"))
        for path in (server.dbpath, os.path.join(server.dbpath, "inside")):
            assert "data directory" in str(fails(2, lambda: client.admin.command("backupStart", path)))


def does_not_start(path):
    """What a backup has left that was not finished is taken for no data directory."""
    server = Fernd(dbpath=path)
    done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "not written to its end" in done.stdout + done.stderr, done
    server.remove()


def one_that_is_stopped_or_killed_leaves_no_data_directory():
    with serving() as server, server.client() as client:
        client.d.c.insert_many([{"_id": i, "filler": os.urandom(1000)} for i in range(20_000)])
        client.admin.command("backupThrottle", "2MB")

        def is_copying():
            try:
                return client.admin.command("backupStatus")["bytesDone"] > 0
            except OperationFailure:
                return False

        def begin(path, ended):
            def run():
                try:
                    with server.client() as other:
                        other.admin.command("backupStart", path)
                        ended.append(None)
                except PyMongoError as error:
                    ended.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            wait_until(lambda: is_copying() or not thread.is_alive(), "it does not begin")
            return thread

        path, ended = place("stopped"), []
        thread = begin(path, ended)
        running = [one for one in client.admin.aggregate([{"$currentOp": {}}]) if "backupStart" in one.get("command", {})]
        client.admin.command("killOp", op=running[0]["opid"])
        thread.join()
        assert ended[0] is not None and ended[0].code == 11601, ended
        does_not_start(path)
        # Another one may be written there.
        client.admin.command("backupThrottle", 0)
        client.admin.command("backupStart", path)
        with Fernd(dbpath=path) as other, other.client() as one:
            assert one.d.c.count_documents({}) == 20_000
        client.admin.command("backupThrottle", "2MB")
        path, ended = place("killed"), []
        thread = begin(path, ended)
        server.kill()
        thread.join()
        does_not_start(path)
        server.start()
        assert client.d.c.count_documents({}) == 20_000
        client.admin.command("backupStart", path)
        # One that is held up does not hold up the end of the server.
        client.admin.command("backupThrottle", "1k")
        thread = begin(place("ended"), ended)
        before = server.cpu_seconds()
        assert server.stop() == 0
        thread.join()
        assert ended[-1] is not None and before >= 0


def a_member_of_a_set_can_be_backed_up():
    with ReplicaSet("--backupRoot", ROOT) as cluster, cluster.client(w="majority") as client:
        client.d.c.insert_many([{"_id": i} for i in range(1000)])
        secondary = cluster.secondaries()[0]
        wait_until(lambda: secondary.client().d.command(
            "count", "c", **{"$readPreference": {"mode": "secondary"}})["n"] == 1000, "a member does not follow")
        for member, name in ((cluster.wait_for_primary(), "primary"), (secondary, "secondary")):
            path = place(name)
            with member.client() as one:
                one.admin.command("backupStart", path)
            with Fernd(dbpath=path) as server, server.client() as other:
                assert other.d.c.count_documents({}) == 1000
                validate(other.d.c)
                other.d.c.insert_one({})


TESTS = [
    a_backup_under_load_holds_a_prefix_and_a_server_starts_on_it,
    how_far_it_is_and_how_fast_it_may_be,
    nothing_is_written_elsewhere,
    one_that_is_stopped_or_killed_leaves_no_data_directory,
    a_member_of_a_set_can_be_backed_up,
]


if __name__ == "__main__":
    try:
        run_tests("backup", TESTS)
    finally:
        shutil.rmtree(ROOT, ignore_errors=True)
