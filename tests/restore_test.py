"""Recovery to a moment: the log archived under load, and `fern restore` to seconds of it.

`--moments N` restores to so many random moments (10 unless said).
"""

import argparse
import base64
import functools
import glob
import os
import random
import shutil
import sys
import tempfile
import threading
import time

from bson import Timestamp
from fernd import Fernd, fern, fern_restore, kills, refuses_to_start, run_tests, validate, wait_until
from pymongo.errors import PyMongoError

ROOT = tempfile.mkdtemp(prefix="fernd-restore-")
MOMENTS = 10


def place(name):
    path = os.path.join(ROOT, name)
    os.makedirs(path, exist_ok=True)
    return path


def archived(name, *options, **more):
    return Fernd("--backupRoot", ROOT, "--logArchiveDir", os.path.join(ROOT, name), "--cacheSize", "64M", *options,
                 **more)


class Writer:
    """Inserts numbers in their order and notes for each when it was sent and acknowledged, and the cluster time."""

    def __init__(self, server):
        self.server, self.ended, self.number = server, False, 0
        # Number, when sent, when acknowledged, cluster time.
        self.noted = []
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        with self.server.client(journal=True) as client, client.start_session() as session:
            while not self.ended:
                sent = time.time()
                try:
                    client.d.c.insert_one({"_id": self.number, "filler": os.urandom(700)}, session=session)
                except PyMongoError:
                    # The server was killed: what becomes of this one is not known.
                    return
                self.noted.append((self.number, sent, time.time(), session.operation_time))
                self.number += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.ended = True
        self.thread.join()


def numbers_in(path):
    """What a server finds in the directory: a prefix of what was written, and it goes on there."""
    with Fernd("--cacheSize", "64M", dbpath=path) as server, server.client() as client:
        found = [document["_id"] for document in client.d.c.find(projection=["_id"]).sort("_id")]
        assert found == list(range(len(found))), "a prefix of the commits"
        validate(client.d.c)
        client.d.c.insert_one({"_id": "goes on"})
    return len(found)


def check_moment(backup, archive, moment, noted):
    """The state of a moment holds what was acknowledged a second before it, and nothing that was begun a second after."""
    path = os.path.join(ROOT, f"at-{moment:.3f}-{random.random()}")
    fern_restore(backup, path, "--archive", archive, "--to", f"{moment:.3f}")
    found = numbers_in(path)
    shutil.rmtree(path)
    least = sum(1 for _, _, acknowledged, _ in noted if acknowledged < moment - 1)
    most = sum(1 for _, sent, _, _ in noted if sent < moment + 1)
    assert least <= found <= most, (moment, least, found, most)
    return found


def written_and_backed_up(server, writer, name, before=2.0, after=6.0):
    """A backup in the middle of writes; answers its directory and when it was asked for."""
    time.sleep(before)
    backup = place(name)
    with server.client() as client:
        client.admin.command("backupStart", backup)
        begun = time.time()
        half = begun + after / 2
        wait_until(lambda: time.time() > half, "time goes on")
        # The log before is of no more use to the server.
        client.admin.command("checkpoint")
        time.sleep(after / 2)
    return backup, begun


@functools.cache
def under_load():
    """A backup under load and the archive that goes on behind it; what was written when."""
    archive = os.path.join(ROOT, "archive-load")
    with archived("archive-load") as server, server.client() as client:
        with Writer(server) as writer:
            backup, begun = written_and_backed_up(server, writer, "backup-load")
        ended = time.time()
        client.d.c.insert_one({"_id": writer.number})
        status = client.admin.command("serverStatus")["logArchive"]
        assert status["failures"] == 0 and "error" not in status, status
        time.sleep(1.5)
    return backup, archive, writer, begun, ended


def any_second_of_a_server_under_load_comes_back():
    backup, archive, writer, begun, ended = under_load()
    noted, found = writer.noted, []
    moments = [random.uniform(begun + 0.5, ended) for _ in range(MOMENTS)]
    for moment in sorted(moments):
        found.append(check_moment(backup, archive, moment, noted))
    assert found == sorted(found) and found[0] < found[-1], found
    # All of it, and the backup alone.
    whole = os.path.join(ROOT, "whole")
    assert "the state is that of" in fern_restore(backup, whole, "--archive", archive)
    assert numbers_in(whole) == writer.number + 1
    alone = os.path.join(ROOT, "alone")
    fern_restore(backup, alone)
    assert numbers_in(alone) <= min(found)


def a_member_comes_back_at_a_cluster_time_exactly():
    archive = os.path.join(ROOT, "archive-member")
    with archived("archive-member", "--replSet", "r") as server, server.client() as client:
        client.admin.command("replSetInitiate", {"_id": "r", "members": [{"_id": 0, "host": f"127.0.0.1:{server.port}"}]})
        wait_until(lambda: client.admin.command("hello").get("isWritablePrimary"), "it becomes primary")
        with Writer(server) as writer:
            backup, begun = written_and_backed_up(server, writer, "backup-member", after=4.0)
        time.sleep(1.5)
    later = [noted for noted in writer.noted if noted[1] > begun]
    for number, _, _, cluster_time in random.sample(later, min(3, len(later))):
        path = os.path.join(ROOT, f"member-{number}")
        text = fern_restore(backup, path, "--archive", archive, "--to", f"{cluster_time.time},{cluster_time.inc}")
        assert f"cluster time {cluster_time.time},{cluster_time.inc}" in text, text
        assert numbers_in(path) == number + 1
    # A second: the commits of the seconds before.
    second = int(begun) + 2
    path = os.path.join(ROOT, "member-second")
    fern_restore(backup, path, "--archive", archive, "--to", str(second))
    assert numbers_in(path) == sum(1 for noted in writer.noted if noted[3] < Timestamp(second, 0))


def a_kill_in_the_middle_of_archiving_leaves_an_archive_that_goes_on():
    archive = os.path.join(ROOT, "archive-kill")
    server = archived("archive-kill")
    server.start()
    # What was written, and the times in which the server ran.
    noted, ran = [], []
    try:
        writer = Writer(server)
        with writer:
            backup, begun = written_and_backed_up(server, writer, "backup-kill", before=1.0, after=1.0)
            time.sleep(random.uniform(1, 2))
            server.kill()
            ran.append((begun, time.time()))
        for _ in range(kills(3) - 1):
            noted += writer.noted
            server.start()
            with server.client() as client:
                there = client.d.c.count_documents({})
            # One that was not acknowledged may be there.
            assert writer.number <= there <= writer.number + 1, (there, writer.number)
            if there > writer.number:
                noted.append((writer.number, ran[-1][1], time.time(), None))
            writer, started = Writer(server), time.time()
            writer.number = there
            with writer:
                time.sleep(random.uniform(2, 3))
                server.kill()
                ran.append((started, time.time()))
        noted += writer.noted
        server.start()
        time.sleep(1)
    finally:
        server.stop()
        server.remove()
    for started, ended in ran:
        check_moment(backup, archive, random.uniform(started + 1.2, ended - 0.1), noted)


def what_cannot_be_is_refused_in_a_line():
    backup, archive, *_ = under_load()
    with archived("archive-other") as server, server.client() as client:
        client.d.c.insert_one({})
    new = os.path.join(ROOT, "refused")

    def refused(text, *words, directory=new):
        fern_restore(backup, directory, *words, fails=text)
        shutil.rmtree(new, ignore_errors=True)

    refused("not empty", directory=archive)
    refused("needs --archive", "--to", "2026-11-28T00:00:00Z")
    refused("before the backup's checkpoint", "--archive", archive, "--to", "2001-01-01T00:00:00Z")
    refused("the last possible moment is", "--archive", archive, "--to", str(time.time() + 100))
    refused("another data directory", "--archive", os.path.join(ROOT, "archive-other"))
    refused("has no file ARCHIVE", "--archive", backup)
    done = fern("restore", backup, new, "--archive", archive, "--to", "noon")
    assert done.returncode == 2 and "is no time" in done.stderr, done
    # A hole: the middle one of its files is gone.
    holed = os.path.join(ROOT, "holed")
    shutil.copytree(archive, holed)
    segments = sorted(glob.glob(os.path.join(holed, "*.fernlog")))
    if len(segments) > 2:
        os.remove(segments[-2])
        refused("has a hole", "--archive", holed)
    # A page of the backup is damaged.
    damaged = os.path.join(ROOT, "damaged")
    shutil.copytree(backup, damaged)
    with open(os.path.join(damaged, "fern.data"), "r+b") as file:
        file.seek(16384)
        file.write(os.urandom(os.path.getsize(file.name) - 16384 - 4096))
    done = fern("restore", damaged, new)
    assert done.returncode != 0 and "damage" in (done.stdout + done.stderr).lower(), done
    shutil.rmtree(new, ignore_errors=True)


def an_archive_belongs_to_one_data_directory():
    backup, archive, *_ = under_load()
    own = place("own")
    refuses_to_start("another data directory", "--logArchiveDir", archive, dbpath=own)
    refuses_to_start("is the data directory", "--logArchiveDir", os.path.join(own, "archive"), dbpath=own)
    refuses_to_start("no archive", "--logArchiveDir", backup, dbpath=own)
    # What was restored is of the archive's past.
    restored = os.path.join(ROOT, "restored")
    fern_restore(backup, restored)
    refuses_to_start("an archive of its own", "--logArchiveDir", archive, dbpath=restored)


def key_file(name, letter):
    path = os.path.join(ROOT, name)
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        file.write(base64.b64encode(letter.encode() * 32).decode())
    return path


def an_encrypted_log_is_archived_as_it_is_stored():
    archive, old, new = os.path.join(ROOT, "archive-encrypted"), key_file("key", "A"), key_file("new-key", "B")
    server = archived("archive-encrypted", "--enableEncryption", "--encryptionKeyFile", old)
    server.start()
    try:
        with server.client(journal=True) as client:
            client.d.c.insert_many([{"_id": i, "text": "nobody reads this"} for i in range(1000)])
            backup, later = place("backup-encrypted"), place("later-encrypted")
            client.admin.command("backupStart", backup)
            client.d.c.insert_one({"_id": 1000})
            client.admin.command("rotateDataKey", 1)
            time.sleep(1.5)
            moment = time.time()
            time.sleep(1.5)
        # The log has another key from here on.
        server.stop()
        server.start()
        with server.client(journal=True) as client:
            client.d.c.insert_one({"_id": 1001, "text": "nobody reads this"})
            client.admin.command("backupStart", later, since=backup)
            client.d.c.insert_one({"_id": 1002})
            shutil.copy(new, old)
            client.admin.command("rotateMasterKey", 1)
            time.sleep(1.5)
    finally:
        server.stop()
        server.remove()
    for directory in (archive, backup, later):
        for at, _, names in os.walk(directory):
            for name in names:
                with open(os.path.join(at, name), "rb") as file:
                    assert b"nobody reads this" not in file.read(), name
    path = os.path.join(ROOT, "restored-encrypted")
    fern_restore(backup, path, "--archive", archive, fails="needs its master key")
    other = key_file("other-key", "C")
    fern_restore(backup, path, "--archive", archive, "--encryptionKeyFile", other, fails="key")
    for source, count, *words in ((backup, 1003), (later, 1003), (backup, 1001, "--to", f"{moment:.3f}")):
        fern_restore(source, path, "--archive", archive, "--encryptionKeyFile", new, *words)
        with Fernd("--enableEncryption", "--encryptionKeyFile", new, dbpath=path) as server, server.client() as client:
            assert client.d.c.count_documents({}) == count, (source, words)
            validate(client.d.c)
        shutil.rmtree(path)
    # Without the key its checksums are compared.
    assert "encrypted" in fern_restore(later, path)


def a_failing_archive_keeps_the_log_and_says_so():
    archive = os.path.join(ROOT, "archive-fails")
    with archived("archive-fails") as server, server.client(journal=True) as client:
        client.d.c.insert_one({"_id": 0})
        time.sleep(1)
        aside = archive + "-aside"
        os.rename(archive, aside)
        # What is open goes on until the next file of the log.
        for first in range(1, 81):
            client.d.c.insert_many([{"_id": first * 1000 + n, "filler": os.urandom(1 << 15)} for n in range(32)])
        client.admin.command("checkpoint")

        def status():
            return client.admin.command("serverStatus")["logArchive"]

        wait_until(lambda: status()["failures"] > 0, "a failure is counted")
        assert "No such file" in status()["error"], status()
        assert "cannot be archived" in server.tail(20000)
        os.rename(aside, archive)
        wait_until(lambda: "error" not in status() and status()["behindBytes"] == 0, "it goes on")
        client.admin.command("backupStart", place("backup-fails"))
        client.d.c.insert_one({"_id": "last"})
        time.sleep(1)
    segments = sorted(os.path.basename(path) for path in glob.glob(os.path.join(archive, "*.fernlog")))
    numbers = [int(name.split(".")[1]) for name in segments]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), numbers
    path = os.path.join(ROOT, "after-failure")
    fern_restore(os.path.join(ROOT, "backup-fails"), path, "--archive", archive)
    with Fernd(dbpath=path) as server, server.client() as client:
        assert client.d.c.find_one({"_id": "last"})


TESTS = [
    any_second_of_a_server_under_load_comes_back,
    a_member_comes_back_at_a_cluster_time_exactly,
    a_kill_in_the_middle_of_archiving_leaves_an_archive_that_goes_on,
    what_cannot_be_is_refused_in_a_line,
    an_archive_belongs_to_one_data_directory,
    an_encrypted_log_is_archived_as_it_is_stored,
    a_failing_archive_keeps_the_log_and_says_so,
]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--moments", type=int, default=MOMENTS)
    arguments, rest = parser.parse_known_args()
    MOMENTS = arguments.moments
    sys.argv[1:] = rest
    try:
        run_tests("restore", TESTS)
    finally:
        shutil.rmtree(ROOT, ignore_errors=True)
