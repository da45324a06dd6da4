"""Hot backups through PyMongo: TokuMX's commands, what a backup under load holds, incremental ones, where nothing is
written to, damage, and what is left of one that was stopped or killed.

`--kills N` kills so many backups in the middle (3 unless said).
"""

import argparse
import contextlib
import os
import random
import shutil
import sys
import tempfile
import threading
import time

from fernd import Fernd, ReplicaSet, fails, fern, fern_restore, kills, refuses_to_start, run_tests, validate, wait_until
from full_disk import FileSystem, may_mount
from pymongo.errors import OperationFailure, PyMongoError

ROOT = tempfile.mkdtemp(prefix="fernd-backups-")
KILLS = kills(3)


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
        names = set(os.listdir(server.dbpath))
        assert not any("BACKUP" in name for name in names) and "fern.backups" in names, names


def used_bytes(path):
    """What a directory takes of the disk: an incremental backup's data file has holes."""
    return sum(os.stat(os.path.join(at, name)).st_blocks * 512 for at, _, names in os.walk(path) for name in names)


def restored(newest, *words):
    path = os.path.join(ROOT, f"restored-{random.random()}")
    fern_restore(newest, path, *words)
    return path


def an_incremental_backup_holds_what_is_new():
    with serving() as server, server.client() as client:
        for first in range(0, 50_000, 5000):
            client.d.c.insert_many([{"_id": first + i, "n": 0, "filler": os.urandom(1000)} for i in range(5000)])
        client.d.c.create_index("n")
        whole = place("whole")
        first = client.admin.command("backupStart", whole)
        assert "bytesSince" not in first, first
        client.d.c.update_many({"_id": {"$gte": 10_000, "$lt": 10_500}}, {"$set": {"n": 1}})
        tuesday = place("tuesday")
        second = client.admin.command("backupStart", tuesday, since=whole)
        # A hundredth has changed. The log behind the checkpoint comes in whole files.
        data = [os.stat(os.path.join(path, "fern.data")).st_blocks * 512 for path in (whole, tuesday)]
        print(f"data files of {data[0]} and, with 1 % changed, {data[1]} bytes; with the log {first['bytes']} and "
              f"{second['bytes']}", flush=True)
        # What memory held of the first part may have been written since, where the machine was busy.
        assert data[1] < data[0] / 2 and second["bytesSince"] > data[0] / 2, (data, first, second)
        assert second["bytes"] + second["bytesSince"] > first["bytes"] / 2 > 0, (first, second)
        client.d.c.delete_many({"_id": {"$lt": 10}})
        # By the program, and on another incremental one.
        wednesday = place("wednesday")
        done = fern("backup", f"mongodb://127.0.0.1:{server.port}", wednesday, "--since", tuesday)
        assert done.returncode == 0 and f"more are in {tuesday}" in done.stdout, done
        client.d.c.drop()
    does_not_start(tuesday, "is an incremental backup")
    done = fern("check", tuesday)
    assert done.returncode == 2 and "is an incremental backup" in done.stderr, done
    for newest, ones, count in ((tuesday, 500, 50_000), (wednesday, 500, 49_990), (whole, 0, 50_000)):
        with Fernd("--cacheSize", "64M", dbpath=restored(newest)) as server, server.client() as client:
            assert client.d.c.count_documents({}) == count
            assert client.d.c.count_documents({"n": 1}) == ones
            validate(client.d.c)
            client.d.c.insert_one({})
    # Moved away: it has to be said where to.
    moved = os.path.join(ROOT, "moved")
    os.makedirs(moved)
    for path in (whole, tuesday):
        os.rename(path, os.path.join(moved, os.path.basename(path)))
    new = os.path.join(ROOT, "not-made")
    fern_restore(wednesday, new, fails=f"which was in {tuesday} and is not found")
    bases = [word for name in ("whole", "tuesday") for word in ("--base", os.path.join(moved, name))]
    with Fernd("--cacheSize", "64M", dbpath=restored(wednesday, *bases)) as server, server.client() as client:
        assert client.d.c.count_documents({}) == 49_990
    # Damage in what it is built on is found when it is put together.
    with open(os.path.join(moved, "whole", "fern.data"), "r+b") as file:
        for at in range(1 << 20, 8 << 20, 1 << 20):
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 1]))
    done = fern_restore(wednesday, new, *bases, fails="", status=1)
    assert "DAMAGED" in done and "checksum differs" in done, done
    does_not_start(new)
    shutil.rmtree(new)
    # A server that was started in it has changed it.
    with Fernd("--cacheSize", "64M", dbpath=os.path.join(moved, "whole")) as server, server.client() as client:
        client.d.other.insert_one({})
    fern_restore(wednesday, new, *bases, fails="was changed since it was written")


def an_incremental_backup_is_of_the_same_directory():
    with serving() as server, server.client() as client:
        client.d.c.insert_many([{"_id": i, "filler": os.urandom(1000)} for i in range(2000)])
        own, empty = place("own-base"), place("empty")
        client.admin.command("backupStart", own)
        for since, word in ((empty, "is no backup"), (ROOT + "-missing", "No such file"), ("relative", "absolute"),
                            (os.path.dirname(ROOT), "not below")):
            error = str(fails(2, lambda: client.admin.command("backupStart", empty, since=since)))
            assert word in error, error
        fails(14, lambda: client.admin.command("backupStart", empty, since=1))
        fails(40415, lambda: client.admin.command("backupStart", empty, before=own))
        with Fernd("--backupRoot", ROOT, "--cacheSize", "64M", dbpath=restored(own)) as other, other.client() as one:
            error = str(fails(2, lambda: one.admin.command("backupStart", empty, since=own)))
            assert "write a whole backup first" in error, error
            assert "write a whole backup first" in str(fails(20, lambda: one.admin.command("backupStatus")))
        assert os.listdir(empty) == []
        client.admin.command("backupStart", empty, since=own)


def an_incremental_backup_under_load_holds_a_prefix():
    with serving() as server, server.client() as client, Writer(server) as writer:
        earlier = place("chain0")
        client.admin.command("backupStart", earlier)
        for number in range(1, 4):
            wait_until(lambda: writer.acknowledged >= 300 * number, "nothing is written")
            path, before = place(f"chain{number}"), writer.acknowledged
            client.admin.command("backupStart", path, since=earlier)
            after, earlier = writer.acknowledged + 1, path
            check(restored(path), before, after)


def a_damaged_page_ends_the_backup():
    server = serving()
    server.start()
    try:
        with server.client() as client:
            client.d.c.insert_many([{"_id": i, "filler": os.urandom(1000)} for i in range(20_000)])
            client.admin.command("backupStart", place("before-damage"))
            data, end = os.path.join(server.dbpath, "fern.data"), 10 << 20
            # On a busy machine what was written may be in memory and in the log for a while.
            wait_until(lambda: os.stat(data).st_size > end, "nothing is written into the trees")
            with open(data, "r+b") as file:
                for at in range(2 << 20, end, 1 << 20):
                    file.seek(at)
                    byte = file.read(1)
                    file.seek(at)
                    file.write(bytes([byte[0] ^ 1]))
            path = place("damaged")
            for told in (str(fails(1, lambda: client.admin.command("backupStart", path))),
                         str(fails(20, lambda: client.admin.command("backupStatus"))), server.tail(20_000),
                         fern("backup", f"mongodb://127.0.0.1:{server.port}", path).stderr):
                assert "corruption in tree" in told and "segment" in told and "page checksum differs" in told, told
            assert '"id":9016820' in server.tail(20_000)
            does_not_start(path)
            assert client.d.c.count_documents({"_id": {"$lt": 10}}) == 10
    finally:
        server.kill()
        server.remove()


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


def does_not_start(path, why="not written to its end"):
    """What a backup has left that was not finished is taken for no data directory, and so is a part of one."""
    refuses_to_start(why, dbpath=path)


def killed_in_the_middle_again_and_again():
    """The server is killed while it writes a backup, whole or incremental: what is left is none, and is written over."""
    server = serving()
    server.start()
    try:
        with server.client() as client:
            client.d.c.insert_many([{"_id": i, "filler": os.urandom(1000)} for i in range(10_000)])
            base = place("killed-base")
            client.admin.command("backupStart", base)
            most = used_bytes(base)
        path = place("killed-often")
        for kill in range(KILLS):
            with server.client() as client:
                client.d.c.update_many({"_id": {"$mod": [3, kill % 3]}}, {"$set": {"filler": os.urandom(1000)}})
                client.admin.command("backupThrottle", "8MB")
                words = {"since": base} if kill % 2 else {}
                thread = threading.Thread(target=lambda: try_backup(server, path, words))
                thread.start()
                time.sleep(random.uniform(0, 1))
                server.kill()
                thread.join()
            # Before the first byte, or after the last one, too.
            if os.listdir(path) and "BACKUP" not in os.listdir(path):
                does_not_start(path)
            elif "UNFINISHED-BACKUP" in os.listdir(path):
                does_not_start(path)
            server.start()
            if os.listdir(path) and "UNFINISHED-BACKUP" not in os.listdir(path):
                shutil.rmtree(path)
                os.makedirs(path)
            assert used_bytes(path) < 3 * most, "what is left of one is removed by the next"
        with server.client() as client:
            client.admin.command("backupStart", path, since=base)
            left = os.listdir(os.path.join(path, "copy")) + os.listdir(os.path.join(path, "journal", "copy"))
            assert left == [], left
            with Fernd("--cacheSize", "64M", dbpath=restored(path)) as other, other.client() as one:
                assert one.d.c.count_documents({}) == 10_000
                validate(one.d.c)
    finally:
        server.stop()
        server.remove()


def a_full_disk_ends_the_backup_and_gets_its_space_back():
    if os.geteuid() != 0 or not may_mount():
        print("left out: nothing can be mounted here", flush=True)
        return
    # Less than the data and its log, and more than the log alone.
    disk = FileSystem(48, "tmpfs")
    try:
        with Fernd("--backupRoot", disk.path, "--cacheSize", "64M") as server, server.client() as client:
            client.d.large.insert_many([{"_id": i, "filler": os.urandom(1000)} for i in range(30_000)])
            client.d.small.insert_many([{"_id": i} for i in range(1000)])
            path, free = os.path.join(disk.path, "backup"), disk.free()
            os.makedirs(path)
            for _ in range(2):
                fails(14031, lambda: client.admin.command("backupStart", path))
                does_not_start(path)
                assert disk.free() > free - (1 << 20), (disk.free(), free)
            assert "14031" in server.tail(20_000) or "No space" in server.tail(20_000)
            assert client.d.large.count_documents({}) == 30_000
            client.d.large.drop()
            # What was written to the log goes with the checkpoint behind it.
            client.admin.command("checkpoint")
            client.admin.command("checkpoint")
            client.admin.command("backupStart", path)
            with Fernd("--cacheSize", "64M", dbpath=restored(path)) as other, other.client() as one:
                assert one.d.small.count_documents({}) == 1000
    finally:
        disk.remove()


def try_backup(server, path, words):
    with contextlib.suppress(PyMongoError), server.client() as other:
        other.admin.command("backupStart", path, **words)


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
    an_incremental_backup_holds_what_is_new,
    an_incremental_backup_is_of_the_same_directory,
    an_incremental_backup_under_load_holds_a_prefix,
    a_damaged_page_ends_the_backup,
    how_far_it_is_and_how_fast_it_may_be,
    nothing_is_written_elsewhere,
    one_that_is_stopped_or_killed_leaves_no_data_directory,
    killed_in_the_middle_again_and_again,
    a_full_disk_ends_the_backup_and_gets_its_space_back,
    a_member_of_a_set_can_be_backed_up,
]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=KILLS)
    arguments, rest = parser.parse_known_args()
    KILLS = arguments.kills
    sys.argv[1:] = rest
    try:
        run_tests("backup", TESTS)
    finally:
        shutil.rmtree(ROOT, ignore_errors=True)
