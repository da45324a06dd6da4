"""Encryption at rest of `fernd`: nothing that users store is seen in any file of the data directory, under load,
after kill -9, in backups; what has not the right key is told so in one line; a flipped bit is found without a key."""

import base64
import os
import shutil
import subprocess
import tempfile

from fernd import Fernd, ReplicaSet, fails, host, raw, run_tests, wait_until
from replica_set_test import all_vote, reconfigure

# In keys, values, names of collections and fields. Not compressible away: it stands alone.
MARKER = "MARKEDNAMEOFSOMEBODY"


def key_file(folder, byte=1, name="master"):
    path = os.path.join(folder, name)
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        file.write(base64.b64encode(bytes([byte] * 32)).decode() + "\n")
    return path


def options(key):
    return ["--enableEncryption", "--encryptionKeyFile", key]


def marked_files(folder):
    found = []
    for directory, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(directory, name)
            try:
                with open(path, "rb") as file:
                    if MARKER.encode() in file.read():
                        found.append(path)
            except FileNotFoundError:
                pass  # a temporary file
    return found


def fern(*arguments):
    binary = os.path.join(os.path.dirname(os.environ["FERND"]), "fern")
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def refused(dbpath, *more):
    """A start that fails: its exit code and what it says, which is one line."""
    command = [os.environ["FERND"], "--dbpath", dbpath, "--port", "0", "--statusPort", "0", "--logpath", os.devnull, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return done.returncode, lines[0]


def load(client, round):
    """Documents, an index, a large one, a large transaction, a sort and a group that go to the disk."""
    db = client.shop
    collection = db["c" + MARKER]
    if round == 0:
        collection.create_index("name" + MARKER)
    documents = [{"_id": f"{MARKER}-{round}-{n}", "name" + MARKER: f"{MARKER}{n % 97}", "pad": os.urandom(14_000).hex()}
                 for n in range(4000)]
    collection.insert_many(documents)
    collection.insert_one({"_id": f"{MARKER}-{round}-large", "text": MARKER + os.urandom(3_000_000).hex()})
    collection.update_many({"name" + MARKER: f"{MARKER}3"}, {"$set": {"more": MARKER}})
    with client.start_session() as session, session.start_transaction():
        many = [{"_id": f"{MARKER}-{round}-t{n}", "pad": os.urandom(1000).hex()} for n in range(4000)]
        db.t.insert_many(many, session=session)
    return collection


def spills(client, collection, folder):
    """A sort of more than the 100 MB that may stay in memory; what lies in files meanwhile is looked at."""
    cursor = collection.aggregate(
        [{"$sort": {"pad": 1}}, {"$group": {"_id": "$_id", "all": {"$push": "$$ROOT"}}}],
        allowDiskUse=True, batchSize=10)
    assert MARKER in next(cursor)["_id"]
    assert marked_files(folder) == [], marked_files(folder)
    cursor.close()
    found = collection.find({}).sort("pad", 1).allow_disk_use(True).batch_size(10)
    next(found)
    names = os.listdir(os.path.join(folder, "tmp"))
    assert any(name.startswith("spill-") for name in names), names
    assert marked_files(folder) == [], marked_files(folder)
    found.close()


def nothing_is_seen_in_any_file_under_load_and_after_kills():
    with tempfile.TemporaryDirectory() as folder:
        server = Fernd(*options(key_file(folder)))
        try:
            count = 0
            for round in range(3):
                server.start()
                with server.client() as client:
                    assert client.shop["c" + MARKER].count_documents({}) == count
                    collection = load(client, round)
                    count += 4001
                    spills(client, collection, server.dbpath)
                    client.admin.command("fsync")
                    assert marked_files(server.dbpath) == [], marked_files(server.dbpath)
                    assert client.shop["c" + MARKER].count_documents({}) == count
                    assert client.shop.command("validate", "c" + MARKER, full=True)["valid"]
                server.kill()
                assert marked_files(server.dbpath) == [], marked_files(server.dbpath)
            server.start()
            with server.client() as client:
                status = client.admin.command("serverStatus")["encryptionAtRest"]
                assert status["encryptionEnabled"] and status["encryptionCipherMode"] == "AES256-GCM", status
                assert client.shop["c" + MARKER].find_one({"_id": f"{MARKER}-2-7"})["name" + MARKER] == f"{MARKER}7"
            assert server.stop() == 0
        finally:
            if server.is_running():
                server.kill()
            server.remove()


def a_plain_server_shows_what_an_encrypted_one_hides():
    with Fernd() as server, server.client() as client:
        client.shop.c.insert_one({"_id": MARKER})
        client.admin.command("fsync")
        assert marked_files(server.dbpath), "the search finds what is there"
        assert client.admin.command("serverStatus")["encryptionAtRest"] == {"encryptionEnabled": False}


def who_has_not_the_right_key_is_told_so_in_one_line():
    with tempfile.TemporaryDirectory() as folder:
        key, other = key_file(folder), key_file(folder, 2, "other")
        encrypted, plain = Fernd(*options(key)), Fernd()
        try:
            for server in (encrypted, plain):
                server.start()
                with server.client() as client:
                    client.shop.c.insert_one({"_id": 1})
                assert server.stop() == 0
            code, line = refused(encrypted.dbpath)
            assert code == 100 and "is encrypted" in line and "--encryptionKeyFile" in line, line
            code, line = refused(encrypted.dbpath, *options(other))
            assert code == 100 and "another master key (fingerprint" in line, line
            code, line = refused(plain.dbpath, *options(key))
            assert code == 2 and "is not encrypted" in line, line
            os.chmod(other, 0o644)
            for wrong, word in [(other, "chmod 600"), (os.path.join(folder, "none"), "No such file"), (folder, "")]:
                code, line = refused(encrypted.dbpath, *options(wrong))
                assert code == 2 and "encryptionKeyFile" in line and word in line, line
            code, line = refused(encrypted.dbpath, *options(key), "--encryptionCipherMode", "AES256-CBC")
            assert code == 2 and "AES256-CBC" in line, line
            for server in (encrypted, plain):
                server.start()
                with server.client() as client:
                    assert client.shop.c.count_documents({}) == 1
                assert server.stop() == 0
            os.rename(os.path.join(encrypted.dbpath, "fern.keys"), os.path.join(folder, "kept"))
            code, line = refused(encrypted.dbpath, *options(key))
            assert code == 100 and "fern.keys is missing" in line, line
            os.rename(os.path.join(folder, "kept"), os.path.join(encrypted.dbpath, "fern.keys"))
            encrypted.start()
            assert encrypted.stop() == 0
        finally:
            encrypted.remove()
            plain.remove()


def a_program_tells_the_key():
    folder = tempfile.mkdtemp()
    try:
        key = key_file(folder)
        dbpath = os.path.join(folder, "db")
        by_command = ["--enableEncryption", "--encryptionKeyCommand", f"/bin/cat {key}"]
        with Fernd(*by_command, dbpath=dbpath) as server, server.client() as client:
            client.shop.c.insert_one({"_id": 1})
            assert client.admin.command("serverStatus")["encryptionAtRest"]["encryptionEnabled"]
        # It is the same key, whoever tells it.
        with Fernd(*options(key), dbpath=dbpath) as server, server.client() as client:
            assert client.shop.c.find_one() == {"_id": 1}
        start = ("--enableEncryption", "--encryptionKeyCommand")
        for command, word in (("/bin/cat /no/such/file", "exit status: 1"), ("/bin/echo no key", "base64 of 32 bytes"),
                              ("cat key", "whole path"), ("/no/such/program", "No such file")):
            server = Fernd(*start, command, dbpath=dbpath)
            done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60)
            last = done.stderr.strip().splitlines()[-1]
            assert done.returncode == 2 and word in last and "encryptionKeyCommand" in last, (command, done)
            server.remove()
        code, line = refused(dbpath, *start, f"/bin/cat {key_file(folder, 2, 'other')}")
        assert code == 100, (code, line)
        assert "leave one out" in refused(dbpath, *options(key), "--encryptionKeyCommand", "/bin/true")[1]
    finally:
        shutil.rmtree(folder)


def a_flipped_bit_is_found_with_and_without_the_key():
    with tempfile.TemporaryDirectory() as folder:
        key, other = key_file(folder), key_file(folder, 2, "other")
        server = Fernd(*options(key))
        try:
            server.start()
            with server.client() as client:
                load(client, 0)
            assert server.stop() == 0
            code, text = fern("check", server.dbpath)
            assert code == 0 and "no key was given" in text and "clean" in text, text
            code, text = fern("check", server.dbpath, "--encryptionKeyFile", key)
            assert code == 0 and "no key was given" not in text and " entries" in text, text
            code, text = fern("check", server.dbpath, "--encryptionKeyFile", other)
            assert code == 2 and "another master key" in text, text
            code, text = fern("inspect", server.dbpath, "--encryptionKeyFile", key)
            assert code == 0 and MARKER in text, text
            code, text = fern("inspect", server.dbpath)
            assert code == 0 and MARKER not in text and "no key was given" in text, text
            # In the middle of the pages: a byte that is not zero.
            path = os.path.join(server.dbpath, "fern.data")
            with open(path, "r+b") as file:
                file.seek(os.path.getsize(path) // 3)
                at = file.tell()
                byte = file.read(1)
                while byte == b"\0":
                    at += 1
                    byte = file.read(1)
                file.seek(at)
                file.write(bytes([byte[0] ^ 0x10]))
            code, text = fern("check", server.dbpath)
            assert code == 1 and "DAMAGED" in text and "checksum" in text, text
            code, text = fern("check", server.dbpath, "--encryptionKeyFile", key)
            assert code == 1 and "DAMAGED" in text, text
        finally:
            server.remove()


def a_new_master_key_takes_the_place_of_the_old_one():
    with tempfile.TemporaryDirectory() as folder:
        key, other = key_file(folder), key_file(folder, 2, "other")
        server = Fernd(*options(key))
        try:
            server.start()
            with server.client() as client:
                client.shop.c.insert_one({"_id": MARKER})
            rotate = ["rotate-master", server.dbpath, "--newEncryptionKeyFile", other, "--encryptionKeyFile"]
            code, text = fern(*rotate, key)
            assert code == 2 and "in use" in text, text
            assert server.stop() == 0
            code, text = fern(*rotate, other)
            assert code == 2 and "another master key" in text, text
            code, text = fern(*rotate, key)
            assert code == 0 and "fingerprint" in text, text
            code, line = refused(server.dbpath, *options(key))
            assert code == 100 and "another master key" in line, line
            server.options = options(other)
            server.start()
            with server.client() as client:
                assert client.shop.c.count_documents({}) == 1
            assert server.stop() == 0
        finally:
            server.remove()


def keys_are_changed_while_the_server_runs():
    with tempfile.TemporaryDirectory() as folder:
        key = key_file(folder)
        server = Fernd(*options(key))
        try:
            server.start()
            with server.client() as client:
                client.shop.c.insert_many([{"_id": f"{MARKER}{n}"} for n in range(1000)])
                before = client.admin.command("rotateMasterKey")
                os.remove(key)
                fails(96, lambda: client.admin.command("rotateMasterKey"))
                key_file(folder, 3)
                after = client.admin.command("rotateMasterKey")
                assert after["masterFingerprint"] != before["masterFingerprint"], after
                added = client.admin.command("rotateDataKey")
                assert (added["dataKeys"], added["newestDataKey"]) == (2, 2), added
                client.shop.c.insert_many([{"_id": f"{MARKER}{n}"} for n in range(1000, 2000)])
                client.admin.command("fsync")
                told = client.admin.command("serverStatus")["encryptionAtRest"]
                assert told["dataKeys"] == 2, told
                assert told["encryptionKeyId"]["local"]["fingerprint"] == after["masterFingerprint"], told
            server.kill()
            code, line = refused(server.dbpath, *options(key_file(folder, 1, "old")))
            assert code == 100 and "another master key" in line, line
            server.start()
            with server.client() as client:
                assert client.shop.c.count_documents({}) == 2000
            assert server.stop() == 0
            assert marked_files(server.dbpath) == []
        finally:
            server.remove()
    with Fernd() as plain, plain.client() as client:
        for command in ("rotateMasterKey", "rotateDataKey"):
            fails(20, lambda: client.admin.command(command))


def a_backup_is_encrypted_and_opens_with_the_key():
    with tempfile.TemporaryDirectory() as folder:
        key = key_file(folder)
        root = os.path.join(folder, "backups")
        os.mkdir(root)
        with Fernd(*options(key), "--backupRoot", root) as server, server.client() as client:
            client.shop.c.insert_many([{"_id": f"{MARKER}{n}"} for n in range(1000)])
            target = os.path.join(root, "one")
            os.mkdir(target)
            client.admin.command("backupStart", target)
            assert os.path.exists(os.path.join(target, "fern.keys"))
            assert marked_files(root) == [], marked_files(root)
        code, line = refused(target)
        assert code == 100 and "is encrypted" in line, line
        with Fernd(*options(key), dbpath=target) as copy, copy.client() as client:
            assert client.shop.c.count_documents({}) == 1000


def keyed_set(folder, plain=()):
    """Members that each have a key of their own, but for those that have none."""
    cluster = ReplicaSet(initiated=False)
    for number, member in enumerate(cluster.members):
        if number not in plain:
            member.options = [*member.options, *options(key_file(folder, number + 1, f"master{number}"))]
    return cluster


def fingerprint(member):
    reply = raw(member, "admin", {"serverStatus": 1})
    return reply["encryptionAtRest"]["encryptionKeyId"]["local"]["fingerprint"]


def count_on(member):
    command = {"count": "c" + MARKER, "$readPreference": {"mode": "secondaryPreferred"}}
    return raw(member, "shop", command).get("n")


def members_of_a_set_have_keys_of_their_own():
    """The first one has data before there is a set, so that the others get copies of its files."""
    with tempfile.TemporaryDirectory() as folder, keyed_set(folder) as cluster:
        first, second, third = cluster.members
        with first.client() as client:
            client.admin.command("replSetInitiate", {"_id": "rs", "members": [{"_id": 0, "host": host(first)}]})
        wait_until(lambda: first.hello().get("isWritablePrimary"), "it does not lead itself")
        with first.client() as client:
            load(client, 0)
            client.admin.command("fsync")
        for number, member in ((1, second), (2, third)):
            reconfigure(cluster, lambda c: c["members"].append({"_id": number, "host": host(member)}))
            wait_until(lambda: member.hello().get("secondary"), "it gets no copy", cluster.tails)
        assert '"id":9016766' in second.tail(1 << 22), "the second member has not copied files"
        assert len({fingerprint(member) for member in cluster.members}) == 3, "each has a key of its own"
        everybody_has = lambda n: all(count_on(member) == n for member in cluster.members)
        wait_until(lambda: everybody_has(4001), "a member lacks documents", cluster.tails)
        all_vote(cluster, 3)
        with cluster.client(w="majority") as client:
            client.shop["c" + MARKER].insert_many([{"_id": f"{MARKER}-more-{n}"} for n in range(100)])
            primary = cluster.wait_for_primary()
            primary.kill()
            cluster.wait_for_primary(but=primary)
            client.shop["c" + MARKER].insert_one({"_id": f"{MARKER}-after"})
        primary.start()
        wait_until(lambda: everybody_has(4102), "who was killed does not come back", cluster.tails)
        # One whose disk was emptied, and which is given another key.
        third.stop()
        shutil.rmtree(third.dbpath)
        os.mkdir(third.dbpath)
        third.options = [*third.options[:2], *options(key_file(folder, 9, "another"))]
        third.start()
        wait_until(lambda: third.hello().get("secondary"), "it gets no copy", cluster.tails)
        wait_until(lambda: everybody_has(4102), "an emptied member lacks documents", cluster.tails)
        assert fingerprint(third) not in {fingerprint(first), fingerprint(second)}
        for member in cluster.members:
            raw(member, "admin", {"fsync": 1})
            assert marked_files(member.dbpath) == [], marked_files(member.dbpath)
        # What was copied opens with its own key, and not with the one of the member that it was copied from.
        assert second.stop() == 0
        code, line = refused(second.dbpath, *options(os.path.join(folder, "master0")), "--replSet", "rs")
        assert code == 100 and "another master key" in line, line
        code, text = fern("check", second.dbpath, "--encryptionKeyFile", os.path.join(folder, "master1"))
        assert code == 0 and "clean" in text, text
        second.start()
        wait_until(lambda: count_on(second) == 4102, "it does not come back", cluster.tails)


def plain_members_are_in_no_set_with_encrypted_ones():
    with tempfile.TemporaryDirectory() as folder, keyed_set(folder, plain=(2,)) as cluster:
        first, second, third = cluster.members
        every, two = cluster.config(), {**cluster.config(), "members": cluster.config()["members"][:2]}
        for asked, told, words in ((first, third, "does not encrypt what it keeps"), (third, first, "encrypts what it keeps")):
            with asked.client() as client:
                text = str(fails(93, lambda: client.admin.command("replSetInitiate", every)))
                assert host(told) in text and words in text and "--enableEncryption" in text, text
        with first.client() as client:
            client.admin.command("replSetInitiate", two)
        wait_until(lambda: second.hello().get("secondary"), "it does not follow", cluster.tails)
        primary = cluster.wait_for_primary()
        config = raw(primary, "admin", {"replSetGetConfig": 1})["config"]
        config["version"] += 1
        config["members"].append({"_id": 2, "host": host(third)})
        reply = raw(primary, "admin", {"replSetReconfig": config})
        assert reply["code"] == 93 and "does not encrypt" in reply["errmsg"], reply


TESTS = [
    nothing_is_seen_in_any_file_under_load_and_after_kills,
    a_plain_server_shows_what_an_encrypted_one_hides,
    who_has_not_the_right_key_is_told_so_in_one_line,
    a_program_tells_the_key,
    a_flipped_bit_is_found_with_and_without_the_key,
    a_new_master_key_takes_the_place_of_the_old_one,
    keys_are_changed_while_the_server_runs,
    a_backup_is_encrypted_and_opens_with_the_key,
    members_of_a_set_have_keys_of_their_own,
    plain_members_are_in_no_set_with_encrypted_ones,
]


if __name__ == "__main__":
    run_tests("encryption", TESTS)
