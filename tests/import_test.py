"""`fern import`: files of each kind into a new collection by a bulk load, and into one that is there by inserts; what is
broken, refused and left out; a kill in the middle; memory."""

import contextlib
import csv
import gzip
import io
import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time

import bson
from bson import json_util

from fernd import Fernd, ReplicaSet, kills, run_tests, validate, wait_until
from pymongo.write_concern import WriteConcern

FERN = os.environ.get("FERN", os.path.join(os.path.dirname(os.environ["FERND"]), "fern"))
MIB = 1 << 20


def uri(server):
    return f"mongodb://127.0.0.1:{server.port}/"


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory(prefix="fern-import-") as path:
        yield path


def begin(server, name, *words, stdin=subprocess.DEVNULL):
    command = [FERN, "import", uri(server), name, *words]
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def imported(server, name, *words, status=0, given=None):
    """Imports; what it says at its end, and what it says on the way."""
    process = begin(server, name, *words, stdin=subprocess.DEVNULL if given is None else subprocess.PIPE)
    out, err = (text.decode() for text in process.communicate(given, timeout=120))
    assert process.returncode == status, f"ended with {process.returncode}\n{out}\n{err}"
    assert "panicked" not in err, err
    return out, err


def write(path, name, data):
    """A file, compressed where its name says so."""
    path = os.path.join(path, name)
    with (gzip.open if name.endswith(".gz") else open)(path, "wb") as file:
        file.write(data)
    return path


def rich():
    """A document with a value of each type."""
    return {
        "z": 1, "a": bson.Int64(5), "b": 2.5, "c": "text \u00e9 \U0001f33f", "d": bson.Decimal128("1.50"), "e": b"\0\1",
        "f": bson.Timestamp(4_000_000_000, 7), "g": bson.Regex("a.b", "i"), "h": bson.ObjectId(), "i": None,
        "j": [True, {"k": [1, -2]}], "l": bson.MinKey(), "m": bson.MaxKey(), "n": bson.Code("f()"),
        "o": bson.Code("f()", {"x": 1}), "p": 0.1 + 0.2, "q": -7, "r": bson.datetime_ms.DatetimeMS(-1),
        "s": bson.Binary(b"\1" * 16, 4), "t": 1e300, "u": bson.Int64(-1 << 62), "v": {}, "w": [],
    }


def documents(count, start=0, size=40):
    return [{"_id": i, "a": i * 7919 % 10007, "b": [i % 5, i % 3], "s": "x" * size} for i in range(start, start + count)]


def lines(all_):
    return b"".join(json.dumps(document).encode() + b"\n" for document in all_)


def table(rows, delimiter):
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(rows)
    return text.getvalue().encode()


def each_kind_comes_as_it_is_meant():
    every = [{"_id": n, **rich()} for n in range(3)]
    canonical = [json_util.dumps(one, json_options=json_util.CANONICAL_JSON_OPTIONS).encode() for one in every]
    bsons = b"".join(map(bson.encode, every))
    rows = [["_id", "name", "size.w", "zip"], [1, "a, b", 2.5, "007"], [2, "line\nbreak", -3, ""], [3000000000, "x", "1e3", "n/a"]]
    of_rows = [
        {"_id": 1, "name": "a, b", "size": {"w": 2.5}, "zip": 7},
        {"_id": 2, "name": "line\nbreak", "size": {"w": -3}, "zip": ""},
        {"_id": 3000000000, "name": "x", "size": {"w": 1000.0}, "zip": "n/a"},
    ]
    tabs = "_id\tname\tsize.w\tzip\n1\ta, b\t2.5\t007\n".encode()
    pretty = json_util.dumps(every, json_options=json_util.CANONICAL_JSON_OPTIONS, indent=2).encode()
    with Fernd() as server, server.client() as client, folder() as path:
        raw = client.get_database("shop", bson.codec_options.CodecOptions(document_class=bson.raw_bson.RawBSONDocument))
        for name, data, wanted, options in [
            ("a.json", b"\n".join(canonical), every, []),
            ("a.jsonl.gz", b"\n".join(canonical), every, []),
            ("array.json", pretty, every, []),
            ("array.json.gz", b"[" + b",".join(canonical) + b"]", every, []),
            ("a.bson", bsons, every, []),
            ("a.bson.gz", bsons, every, []),
            ("a.csv", table(rows, ","), of_rows, []),
            ("a.csv.gz", table(rows, ","), of_rows, []),
            ("a.tsv", tabs, of_rows[:1], []),
            ("a.tab.gz", tabs, of_rows[:1], []),
            ("without-ending", b"\n".join(canonical), every, ["--type", "json"]),
            ("empty.json", b"", [], []),
        ]:
            file = write(path, name, data)
            out, err = imported(server, "shop.c", file, *options)
            assert out.startswith(f"shop.c: {len(wanted)} documents loaded in "), out
            assert "importing" in err, err
            found = [one.raw for one in raw.c.find()]
            assert found == [bson.encode(one) for one in wanted], (name, found)
            assert "c" in client.shop.list_collection_names(), name
            validate(client.shop.c)
            # The standard input has no name.
            kind = name.removesuffix(".gz").rsplit(".", 1)[-1]
            kind = {"jsonl": "json", "tab": "tsv", "without-ending": "json"}.get(kind, kind)
            given = gzip.compress(data) if name.endswith(".gz") else data
            imported(server, "shop.c", "-", "--type", kind, "--drop", *(["--gzip"] if name.endswith(".gz") else []), given=given)
            assert [one.raw for one in raw.c.find()] == found, name
            client.shop.c.drop()
        relaxed = [json_util.dumps(one, json_options=json_util.RELAXED_JSON_OPTIONS).encode() for one in every]
        imported(server, "shop.c", write(path, "relaxed.json", b"\n".join(relaxed)))
        assert [one["p"] for one in client.shop.c.find()] == [0.1 + 0.2] * 3
        assert [one["q"] for one in client.shop.c.find({"q": {"$type": "int"}})] == [-7] * 3
        # Several files, and documents without an _id.
        imported(server, "shop.several.dots", write(path, "1.json", b'{"a":1}'), write(path, "2.csv", b"a\n2\n3\n"))
        assert [one["a"] for one in client.shop["several.dots"].find()] == [1, 2, 3]
        assert all(isinstance(one["_id"], bson.ObjectId) for one in client.shop["several.dots"].find())


def a_new_collection_has_its_indexes_and_its_primary_key():
    with Fernd() as server, server.client() as client, folder() as path:
        all_ = documents(20_000)
        random.Random(3).shuffle(all_)
        file = write(path, "a.json", lines(all_))
        indexes = ["--index", '{"a": 1}', "--index", '{"key": {"s": 1, "_id": -1}, "name": "own", "unique": true}']
        for name, more in [("loaded", []), ("inserted", ["--noLoad"])]:
            out, _ = imported(server, f"shop.{name}", file, "--primaryKey", '{"a": 1, "_id": 1}', *indexes, *more)
            assert f"20,000 documents {name} in" in out, out
            coll = client.shop[name]
            told = coll.index_information()
            assert told["a_1"]["key"] == [("a", 1)] and told["own"]["unique"], told
            found = [(d["a"], d["_id"]) for d in coll.find().hint([("$natural", 1)])]
            assert found == sorted((d["a"], d["_id"]) for d in all_)
            validate(coll)
        # What belongs to a new collection is refused for one that is there, before anything is written.
        _, err = imported(server, "shop.loaded", file, "--index", '{"b": 1}', status=2)
        assert "it is there already" in err and client.shop.loaded.count_documents({}) == 20_000, err


def what_is_there_is_counted_and_stays():
    with Fernd() as server, server.client() as client, folder() as path:
        coll = client.shop.c
        coll.insert_many([{"_id": i, "old": True} for i in range(0, 100, 2)])
        file = write(path, "a.json", lines(documents(100)))
        out, err = imported(server, "shop.c", file, status=1)
        assert "50 documents inserted in" in out and "50 refused for a key that is there" in out, out
        assert f"refused: {file}: line 1: E11000 duplicate key error" in err and "line 3: E11000" in err, err
        assert err.count("refused:") == 20 and "are counted" in err, err
        assert coll.count_documents({"old": True}) == 50 and coll.count_documents({}) == 100
        # Another reason than a key.
        client.shop.command("collMod", "c", validator={"a": {"$gte": 5}})
        out, err = imported(server, "shop.c", write(path, "b.json", b'{"a": 4}\n{"a": 5}\n{"a": 3}'), status=1)
        assert "1 documents inserted" in out and "2 refused" in out and "(code 121)" in err, (out, err)
        # Dropped first it is loaded.
        out, _ = imported(server, "shop.c", file, "--drop")
        assert "100 documents loaded" in out and coll.count_documents({"old": True}) == 0
        client.shop.command("create", "view", viewOn="c", pipeline=[])
        _, err = imported(server, "shop.view", file, status=2)
        assert "it is a view" in err, err
        # A key that stands twice ends a load.
        twice = write(path, "twice.json", lines(documents(100) + documents(1)))
        _, err = imported(server, "shop.twice", twice, status=2)
        assert "nothing was imported" in err and "E11000" in err, err
        assert "twice" not in client.shop.list_collection_names()


def what_is_broken_is_named_and_leaves_nothing():
    whole = bson.encode({"_id": 1})
    long_ = json.dumps({"_id": 9, "s": "x" * (16 * MIB)}).encode()
    with Fernd() as server, server.client() as client, folder() as path:
        names = client.shop.list_collection_names
        for name, data, place, left in [
            ("a.json", b'{"_id":1}\n{"_id":2,}\n{"_id":3}\n', "line 2: ", [1, 3]),
            ("b.json", b'{"_id":1}\nnothing\n{"_id":3}\n', "line 2: a document is expected", [1, 3]),
            ("c.json", b'{"_id":1}\n{"_id":{"$oid":"x"}}\n{"_id":3}\n', "line 2: $oid has no value of its type", [1, 3]),
            ("d.json", b'{"_id":1}\n{"_id":2\n{"_id":3}\n', "line 3: ", [1, 3]),
            ("e.json.gz", b'{"_id":1}\n' + long_ + b'\n{"_id":3}\n', "line 2: the document has 167772", [1, 3]),
            ("f.json", b'[{"_id":1},{"_id":2}', "line 1: the file ends within the array", None),
            ("g.json", b'{"_id":1}\n{"_id":' + b"[" * 1000 + b"]" * 1000 + b'}\n{"_id":3}\n', "line 2: recursion limit", [1, 3]),
            ("a.csv", b"_id,a\n1,2\n2,3,4\n3,4\n", "line 3: the row has 3 fields", [1, 3]),
            ("b.csv", b"_id,a\n1,2\n2,\xff\n3,4\n", "line 3: the field a is not UTF-8", [1, 3]),
            ("c.csv", b"_id,_id\n1,2\n", "line 1: it names _id beside _id", None),
            ("a.bson", whole + bson.encode({"_id": 2})[:-3], "document 2: the file ends within the document at byte 14", None),
            ("b.bson", whole + b"\x08\0\0\0\x08ab\0" + bson.encode({"_id": 3}), "document 2: at byte 14", [1, 3]),
            ("a.json.gz", None, "", None),
        ]:
            file = write(path, name, data or b"")
            if data is None:
                # Cut off within what is compressed.
                packed = gzip.compress(lines(documents(1000)))
                with open(file, "wb") as out:
                    out.write(packed[: len(packed) // 2])
            _, err = imported(server, "shop.c", file, status=2)
            assert f"{file}: {place}" in err and "nothing was imported" in err, (name, err[-500:])
            assert names() == [], name
            if left is None:
                imported(server, "shop.c", file, "--skipInvalid", status=2)
                assert names() == [], name
                continue
            out, err = imported(server, "shop.c", file, "--skipInvalid", status=1)
            assert "1 left out, as no documents" in out and f"left out: {file}: {place}" in err, (name, out, err[-500:])
            assert [one["_id"] for one in client.shop.c.find()] == left, name
            client.shop.c.drop()
        # Into a collection that is there what was sent before stays, and is told.
        client.shop.c.insert_one({"_id": -1})
        many = lines(documents(12_000)) + b"x\n"
        _, err = imported(server, "shop.c", write(path, "many.json", many), status=2)
        assert "line 12001" in err and f"after {client.shop.c.count_documents({}) - 1:,} documents were imported" in err, err


def what_is_called_wrong_is_refused_before_anything_is_done():
    with Fernd() as server, server.client() as client, folder() as path:
        client.shop.c.insert_one({"_id": 1})
        file = write(path, "a.json", b"{}")
        for words, what in [
            (["shop.c", file, os.path.join(path, "missing.json"), "--drop"], "missing.json: No such file"),
            (["shop.c", write(path, "a.xml", b""), "--drop"], "--type json, csv, tsv or bson"),
            (["shop.c", "-", "--drop"], "--type json, csv, tsv or bson"),
            (["shop.c", "-", "-", "--type", "json", "--drop"], "can be read once"),
            (["shop", file, "--drop"], "no collection"),
            (["shop.c", file, "--drop", "--index", "{"], "--index"),
            (["shop.c", file, "--drop", "--primaryKey", "[1]"], "--primaryKey"),
        ]:
            _, err = imported(server, *words, status=2)
            assert what in err, (words, err)
            assert client.shop.c.count_documents({}) == 1, words
        _, err = imported(server, "shop.capped$", file, status=2)
        assert "nothing" not in client.shop.list_collection_names(), err


def nothing_or_all(client, count):
    """What an import has left, once it is one of both: on a fast machine it may end before it is killed."""
    if client.shop.list_collection_names() == []:
        return "nothing"
    return "all" if client.shop.c.count_documents({}) == count else None


def kills_leave_nothing_or_all():
    left = []
    with Fernd("--cacheSize", "128M") as server, folder() as path:
        file = write(path, "a.json", lines(documents(400_000, size=300)))
        chance = random.Random(11)
        for turn in range(kills(9)):
            with server.client() as client:
                process = begin(server, "shop.c", file, "--index", '{"a": 1}', "--index", '{"b": 1}')
                time.sleep(0.1 + chance.random() * 0.9)
                assert process.poll() is None, process.communicate()
                if turn % 3 == 2:
                    # The server goes in the middle, and is back at once: what follows must not go into it as plain inserts.
                    server.kill()
                    server.start()
                    _, err = process.communicate(timeout=60)
                    told = process.returncode == 2 and b"nothing was imported" in err
                    assert told or process.returncode == 0, err
                else:
                    process.send_signal(signal.SIGKILL if turn % 3 else signal.SIGINT)
                    process.communicate()
            with server.client() as client:
                ends = wait_until(lambda: nothing_or_all(client, 400_000), "a killed import leaves a part of a collection",
                                  lambda: f"turn {turn}: {client.shop.c.count_documents({})} documents\n{server.tail()}")
                left.append(ends)
                # The name is free. The server may be killed next: what it dropped is to be gone then.
                client.shop.c.insert_one({"turn": turn})
                client.get_database("shop", write_concern=WriteConcern(w=1, j=True)).drop_collection("c")
        assert left.count("nothing") > len(left) // 2, left
        out, _ = imported(server, "shop.c", file, "--index", '{"a": 1}')
        assert "400,000 documents loaded" in out, out
        with server.client() as client:
            validate(client.shop.c)


def a_member_of_a_set_takes_imports():
    with ReplicaSet(members=3) as members, folder() as path:
        file = write(path, "a.json", lines(documents(5000)))
        out, err = imported(members.primary(), "shop.c", file, "--index", '{"a": 1}')
        assert "5,000 documents loaded" in out and "through the log" in err, (out, err)
        for member in members.secondaries():
            with member.client(readPreference="secondaryPreferred") as own:
                wait_until(lambda own=own: own.shop.c.count_documents({}) == 5000, "a member lacks what was imported")
                validate(own.shop.c)


def memory_is_bounded():
    """200 MiB of documents, a row without end, and a document with more values than one can have."""
    with Fernd("--cacheSize", "128M") as server, folder() as path:
        part = lines(documents(50_000, size=350))

        def peak(feed, *words):
            """The most that it held at any time, and how it ended."""
            process, most = begin(server, "shop.c", *words, stdin=subprocess.PIPE), 0

            def write_all():
                with contextlib.suppress(BrokenPipeError):
                    for piece in feed:
                        process.stdin.write(piece)
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()

            writer = threading.Thread(target=write_all)
            writer.start()
            while process.poll() is None:
                # Until `fern` has become the program that imports it is another one's.
                with contextlib.suppress(OSError), open(f"/proc/{process.pid}/status") as status:
                    told = dict(line.split(":", 1) for line in status)
                    if told["Name"].strip() == "fern-client" and "VmHWM" in told:
                        most = int(told["VmHWM"].split()[0]) << 10
                time.sleep(0.01)
            writer.join()
            assert most > 0, "it was never seen"
            return most, process.returncode, process.stdout.read(), process.stderr.read()

        # The same documents again and again: refused as they are there, which is all that counts here.
        most, status, out, err = peak((part for _ in range(10)), "-", "--type", "json", "--noLoad")
        assert status == 1 and b"50,000 documents inserted" in out, (out, err)
        assert most < 80 * MIB, most // MIB
        most, status, out, err = peak((b'_id,a\n1,"' if n == 0 else b"x" * MIB for n in range(200)), "-", "--type", "csv", "--drop")
        assert status == 2 and b"is a quote not closed" in err, (out, err)
        assert most < 250 * MIB, most // MIB
        values = b'{"a":[' + b"1," * (8 * MIB)
        most, status, out, err = peak([values], "-", "--type", "json")
        assert status == 2 and b"too many values" in err, (out, err[-300:])
        assert most < 700 * MIB, most // MIB


if __name__ == "__main__":
    run_tests(
        "import",
        [
            each_kind_comes_as_it_is_meant,
            a_new_collection_has_its_indexes_and_its_primary_key,
            what_is_there_is_counted_and_stays,
            what_is_broken_is_named_and_leaves_nothing,
            what_is_called_wrong_is_refused_before_anything_is_done,
            kills_leave_nothing_or_all,
            a_member_of_a_set_takes_imports,
            memory_is_bounded,
        ],
    )
