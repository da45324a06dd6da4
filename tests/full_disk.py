"""Full disks: small file systems are filled by clients, then by somebody else to the last byte.

On a file system of each size, mounted for the test: three threads insert noise, one of them without
`j: true`, until nothing is taken any more, and all the while the red zone stays free. Then a file takes
every byte that is left and the server is killed, and started, and killed again: each start succeeds,
everything acknowledged can be read, a write is refused with OutOfDiskSpace. Dropping the collection gives
its space back and writes are taken again, while the file is still there.

Needs to mount: root, or user namespaces, in one of which it then starts itself.
"""

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20
SIZES = [64, 96, 128, 150, 200, 256, 384, 512, 600, 1024, 1536, 2048]
RED_ZONE = 0.05
OUT_OF_DISK_SPACE = 14031
# How far below the red zone free space may be at any time: a checkpoint's last resort, and one file of
# the log. And how far above it writes may end: there was room that nobody could use.
LESS, MORE = (0.01, 4 * MIB), (0.01, 16 * MIB)


class FileSystem:
    """One of so many MiB, in memory, or ext4 in a file of /dev/shm behind a loop device."""

    def __init__(self, mib, kind):
        self.path, self.image = tempfile.mkdtemp(prefix="fernd-full-"), None
        if kind == "tmpfs":
            mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", self.path]
        else:
            self.image = tempfile.mktemp(prefix="fernd-full-", dir="/dev/shm")
            with open(self.image, "wb") as f:
                f.truncate(mib * MIB)
            make = ["mkfs.ext4", "-q", "-m", "0", self.image]
            subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
            mount = ["mount", "-o", "loop", self.image, self.path]
        subprocess.run(mount, check=True)

    def space(self):
        stat = os.statvfs(self.path)
        return stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize

    def free(self):
        return self.space()[0]

    def fill(self):
        """A file that takes every byte that is left."""
        with open(os.path.join(self.path, "ballast"), "ab", buffering=0) as f:
            for size in (MIB, 65536, 4096, 512, 1):
                try:
                    while True:
                        f.write(b"\1" * size)
                except OSError:
                    pass
            os.fsync(f.fileno())

    def empty(self):
        """The file that took what was left goes."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.path, "ballast"))

    def remove(self):
        subprocess.run(["umount", self.path], check=False)
        shutil.rmtree(self.path, ignore_errors=True)
        if self.image:
            os.unlink(self.image)


class Watch(threading.Thread):
    """The least free space there was at any time."""

    def __init__(self, disk):
        super().__init__(daemon=True)
        self.disk, self.least, self.over = disk, disk.free(), threading.Event()

    def run(self):
        while not self.over.wait(0.005):
            self.least = min(self.least, self.disk.free())


def document(key, size):
    return {"_id": key, "noise": random.Random(key).randbytes(size)}


class Writer(threading.Thread):
    """Inserts until everything was refused for some seconds; knows what was acknowledged."""

    PATIENCE = 4

    def __init__(self, server, number, journal, size):
        super().__init__()
        self.server, self.number, self.size = server, number, size
        self.concern = pymongo.WriteConcern(w=1, j=journal)
        self.acknowledged, self.error = [], None

    def run(self):
        try:
            with self.server.client(retryWrites=False) as client:
                self.fill(client.full.get_collection("large", write_concern=self.concern))
        except Exception as error:
            self.error = error

    def fill(self, large):
        key, refused_since = 0, None
        while refused_since is None or time.monotonic() - refused_since < self.PATIENCE:
            count = random.randrange(1, 20)
            keys = [f"{self.number}/{key + n}" for n in range(count)]
            key += count
            try:
                large.insert_many([document(k, self.size) for k in keys], ordered=True)
                self.acknowledged += keys
            except pymongo.errors.BulkWriteError as error:
                failed = error.details["writeErrors"]
                assert all(e["code"] == OUT_OF_DISK_SPACE for e in failed), failed
                assert not error.details["writeConcernErrors"], error.details
                self.acknowledged += keys[: error.details["nInserted"]]
            else:
                refused_since = None
                continue
            refused_since = refused_since or time.monotonic()
            time.sleep(0.05)


def is_refused(collection):
    try:
        collection.insert_one({"much": b"x" * 2000})
    except pymongo.errors.WriteError as error:
        assert error.code == OUT_OF_DISK_SPACE, error
        return True
    return False


def wait(what, seconds, condition):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def check(server, writers):
    with server.client() as client:
        large = client.full.large
        for writer in writers:
            keys = writer.acknowledged
            for i in range(0, len(keys), 500):
                part = keys[i : i + 500]
                found = {d["_id"]: d["noise"] for d in large.find({"_id": {"$in": part}})}
                for key in part:
                    assert key in found, f"acknowledged document {key} is lost"
                    assert found[key] == document(key, writer.size)["noise"], f"{key} is another"
        return large.estimated_document_count()


def one(mib, kind, starts):
    began = time.monotonic()
    disk = FileSystem(mib, kind)
    watch = Watch(disk)
    watch.start()
    server = Fernd("--cacheSize", "64M", dbpath=os.path.join(disk.path, "db"))
    try:
        total = disk.space()[1]
        server.start()
        with server.client() as client:
            client.full.kept.insert_one({"_id": 1})
            client.full.large.create_index("x")
        size = max(2000, min(60_000, mib * 60))
        writers = [Writer(server, n, journal=n > 0, size=size) for n in range(3)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
            if writer.error:
                raise writer.error
        # What was acknowledged without `j: true` is written to the log every 100 ms.
        time.sleep(1)
        watch.over.set()
        least, left = watch.least / total, disk.free() / total
        taken = sum(len(w.acknowledged) for w in writers)
        text = (f"{mib:5} MiB {kind}: {taken} documents, least free {100 * least:.2f} %, "
                f"in the end {100 * left:.2f} %")
        print(f"{text}, {time.monotonic() - began:.0f} s", flush=True)
        lowest = RED_ZONE - max(LESS[0], LESS[1] / total)
        assert least >= lowest, f"the red zone was overshot: {text}"
        most = RED_ZONE + max(MORE[0], MORE[1] / total)
        assert left <= most, f"writes were refused with room left: {text}"
        for _ in range(starts):
            disk.fill()
            server.kill()
            disk.fill()
            assert disk.free() == 0, disk.free()
            server.start()
            check(server, writers)
            with server.client() as client:
                # A start may give back what was written since the last checkpoint, or the log held.
                assert is_refused(client.full.kept) or disk.free() > total * lowest, (
                    "a write was taken on a full disk")
        disk.fill()
        with server.client() as client:
            client.full.large.drop()
            kept = client.full.get_collection("kept", write_concern=pymongo.WriteConcern(j=True))
            wait("the space of what was dropped is free", 60, lambda: disk.free() > total * 0.5)
            wait("writes are taken again", 30, lambda: not is_refused(kept))
            kept.insert_one({"_id": 2})
        server.kill()
        server.start()
        with server.client() as client:
            assert {1, 2} <= {d["_id"] for d in client.full.kept.find({}, {"much": 0})}
            assert client.full.large.estimated_document_count() == 0
            validate(client.full.kept)
        assert server.stop() == 0, "it did not end cleanly"
        print(f"{mib:5} MiB {kind}: {starts} starts without a free byte, dropped, written again, "
              f"{time.monotonic() - began:.0f} s", flush=True)
    except BaseException:
        print(server.tail(2000), file=sys.stderr)
        raise
    finally:
        watch.over.set()
        watch.join()
        if server.process and server.process.poll() is None:
            server.kill()
        server.remove()
        disk.remove()


def may_mount():
    return os.geteuid() == 0 and subprocess.run(
        ["unshare", "--mount", "true"], stderr=subprocess.DEVNULL).returncode == 0


def start_where_mounts_are_allowed():
    """This program starts again in a user namespace where it may not mount here."""
    if not may_mount() and "FERND_FULL_DISK_INSIDE" not in os.environ:
        os.environ["FERND_FULL_DISK_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "--map-root-user", "--mount", sys.executable, *sys.argv])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="two small sizes, as a step of the tests")
    parser.add_argument("--sizes", type=int, nargs="*", help="in MiB")
    parser.add_argument("--ext4", action="store_true", help="ext4 in place of tmpfs; needs root")
    parser.add_argument("--starts", type=int, default=3)
    options = parser.parse_args()
    start_where_mounts_are_allowed()
    kind = "ext4" if options.ext4 else "tmpfs"
    failed = []
    sizes = options.sizes or ([96, 150] if options.short else SIZES)
    if options.short:
        options.starts = 1
    for mib in sizes:
        try:
            one(mib, kind, options.starts)
        except Exception as error:
            failed.append(mib)
            print(f"{mib:5} MiB {kind}: FAILED: {type(error).__name__}: {error}", flush=True)
    print(f"full disks: {len(sizes) - len(failed)} passed, {len(failed)} failed")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    import pymongo
    from fernd import Fernd, validate

    main()
