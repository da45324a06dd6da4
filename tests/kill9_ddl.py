"""kill -9 right behind the acknowledgement of every command that takes a write concern.

The table: each row is a command, run with `{w: 1, j: true}` on a standalone server and with
`w: "majority"` on a set of one; the server is killed as soon as the reply is there, and after the
restart what the command did must be there. `--rounds` times each.

The mix (`--mix`): three clients, each in a database of its own, insert, update, delete, create, drop,
rename, build and drop indexes, change options, write by `$out` and `$merge`, all with `j: true`, until the
server is killed at a random moment. After each restart the names, options, indexes and documents are
those that were acknowledged; a command whose reply did not come has happened as a whole or not at all.
"""

import argparse
import copy
import random
import threading
import time

import pymongo
from bson import SON
from fernd import Fernd, validate
from pymongo.errors import PyMongoError

JOURNAL = {"w": 1, "j": True}
MAJORITY = {"w": "majority"}


def names(db):
    return sorted(c["name"] for c in db.list_collections())


def options(db, name="c"):
    return next(db.list_collections(filter={"name": name}), {}).get("options", {})


def ids(db, name="c"):
    return sorted(d["_id"] for d in db[name].find())


def one(db):
    db.c.insert_one({"_id": 1, "a": 1})


def indexed(db):
    one(db)
    db.c.create_index("a", name="a")


def capped(db):
    db.create_collection("c", capped=True, size=9999)
    one(db)


def partitioned(db):
    db.command("create", "c", partitioned=True)
    one(db)


def divided(db):
    partitioned(db)
    db.command("addPartition", "c", newMax={"_id": 5})


def partitions(db):
    return db.command("getPartitionInfo", "c")["numPartitions"]


def view(db):
    db.create_collection("c", viewOn="x", pipeline=[])


def command(*pairs):
    """A row's command, from its fields; `$db` in a string stands for the database's name."""

    def run(db, concern):
        fields = SON((k, v.replace("$db", db.name) if isinstance(v, str) else v) for k, v in pairs)
        fields["writeConcern"] = concern
        admin = pairs[0][0] in ("renameCollection", "bulkWrite", "setDefaultRWConcern")
        return (db.client.admin if admin else db).command(fields)

    return run


def pipeline(stage):
    return command(("aggregate", "c"), ("pipeline", [stage]), ("cursor", {}))


def transaction(db, concern):
    with db.client.start_session() as session:
        session.start_transaction(write_concern=pymongo.WriteConcern(**concern))
        db.c.insert_one({"_id": 5}, session=session)
        session.commit_transaction()


def bulk(db, concern):
    command(("bulkWrite", 1), ("ops", [{"insert": 0, "document": {"_id": 7}}]),
            ("nsInfo", [{"ns": f"{db.name}.c"}]))(db, concern)


# name, what is there before, the command, whether what it did is there.
TABLE = [
    ("insert", None, command(("insert", "c"), ("documents", [{"_id": 1}])), lambda d: ids(d) == [1]),
    ("update", one, command(("update", "c"), ("updates", [{"q": {}, "u": {"$set": {"b": 2}}}])),
     lambda d: d.c.count_documents({"b": 2}) == 1),
    ("delete", one, command(("delete", "c"), ("deletes", [{"q": {}, "limit": 0}])),
     lambda d: not ids(d)),
    ("findAndModify", one, command(("findAndModify", "c"), ("query", {}), ("remove", True)),
     lambda d: not ids(d)),
    ("bulkWrite", one, bulk, lambda d: ids(d) == [1, 7]),
    ("aggregate $out", one, pipeline({"$out": "d"}), lambda d: ids(d, "d") == [1]),
    ("aggregate $merge", one, pipeline({"$merge": "d"}), lambda d: ids(d, "d") == [1]),
    ("mapReduce", one, command(
        ("mapReduce", "c"), ("map", "function() { emit(this._id, 1) }"),
        ("reduce", "function(k, v) { return 1 }"), ("out", "d")), lambda d: ids(d, "d") == [1]),
    ("commitTransaction", one, transaction, lambda d: ids(d) == [1, 5]),
    ("create", None, command(("create", "c"), ("validationLevel", "moderate")),
     lambda d: options(d).get("validationLevel") == "moderate"),
    ("create view", one, command(("create", "v"), ("viewOn", "c"), ("pipeline", [])),
     lambda d: "v" in names(d)),
    ("createIndexes", one, command(
        ("createIndexes", "c"), ("indexes", [{"key": {"a": 1}, "name": "a"}])),
     lambda d: "a" in d.c.index_information()),
    ("dropIndexes", indexed, command(("dropIndexes", "c"), ("index", "a")),
     lambda d: list(d.c.index_information()) == ["_id_"]),
    ("drop", indexed, command(("drop", "c")), lambda d: not names(d)),
    ("dropDatabase", indexed, command(("dropDatabase", 1)), lambda d: not names(d)),
    ("renameCollection", indexed, command(("renameCollection", "$db.c"), ("to", "$db.d")),
     lambda d: names(d) == ["d"] and "a" in d.d.index_information()),
    ("collMod index", indexed, command(("collMod", "c"), ("index", {"name": "a", "hidden": True})),
     lambda d: d.c.index_information()["a"].get("hidden") is True),
    ("collMod validator", one, command(("collMod", "c"), ("validationAction", "warn")),
     lambda d: options(d).get("validationAction") == "warn"),
    ("collMod view", view, command(("collMod", "c"), ("viewOn", "y"), ("pipeline", [])),
     lambda d: options(d).get("viewOn") == "y"),
    ("convertToCapped", one, command(("convertToCapped", "c"), ("size", 9999)),
     lambda d: options(d).get("capped") is True),
    ("cloneCollectionAsCapped", one, command(
        ("cloneCollectionAsCapped", "c"), ("toCollection", "d"), ("size", 9999)),
     lambda d: ids(d, "d") == [1]),
    ("addPartition", partitioned, command(("addPartition", "c"), ("newMax", {"_id": 5})),
     lambda d: partitions(d) == 2 and ids(d) == [1]),
    ("dropPartition", divided, command(("dropPartition", "c"), ("id", 0)),
     lambda d: partitions(d) == 1 and not ids(d)),
    ("reIndex", indexed, command(
        ("reIndex", "c"), ("index", "a"), ("options", {"compression": "none"})),
     lambda d: d.c.index_information()["a"].get("compression") == "none"),
]


def table(rounds, member):
    """Every row, killed `rounds` times. The servers of one kind share a data directory: what earlier
    rows left must not get lost either."""
    options = ["--replSet", "rs", "--replSetAutoInitiate"] if member else []
    concern = MAJORITY if member else JOURNAL
    lost, kept = [], []
    with Fernd(*options) as server:
        for round_ in range(rounds):
            for at, (name, before, run, there) in enumerate(TABLE):
                database = f"r{round_}_{at}"
                client = server.client(retryWrites=False)
                if before:
                    before(client[database])
                client.admin.command("fsync")
                run(client[database], concern)
                server.kill()
                server.start()
                # Closed now: it tells the server of its sessions.
                client.close()
                with server.client() as client:
                    if there(client[database]):
                        kept.append((database, there))
                    else:
                        lost.append(name)
        with server.client() as client:
            for database, there in kept:
                assert there(client[database]), f"{database} was there, and is no more"
        assert server.stop() == 0
    kind = "a set of one, majority" if member else "standalone, j: true"
    print(f"  {kind}: {len(kept) + len(lost)} kills behind {len(TABLE)} commands, {len(lost)} lost",
          flush=True)
    assert not lost, f"acknowledged and gone ({kind}): {lost}"


class Changer(threading.Thread):
    """Changes one database until the server goes away; knows what was acknowledged, and what the
    command did whose reply did not come."""

    def __init__(self, server, seed, state, number):
        super().__init__()
        self.server, self.rng, self.name = server, random.Random(seed), f"mix{number}"
        self.state, self.maybe, self.acknowledged = state, None, 0

    def run(self):
        try:
            with self.server.client(serverSelectionTimeoutMS=2000, retryWrites=False) as client:
                while True:
                    self.step(client)
        except PyMongoError:
            pass

    def step(self, client):
        after = copy.deepcopy(self.state)
        send = self.choose(client, after)
        if send is None:
            return
        self.maybe = after
        send()
        self.state, self.maybe = after, None
        self.acknowledged += 1

    def choose(self, client, after):
        """Changes the model; gives back what does the same on the server."""
        rng, concern = self.rng, {"writeConcern": JOURNAL}
        db = client[self.name]
        all_names = ["a", "b", "c", "d"]
        name = rng.choice(all_names)
        if name not in after:
            extra = {"validationLevel": "moderate"} if rng.random() < 0.5 else {}
            after[name] = {"options": extra, "indexes": {"_id_": False}, "docs": {}}
            return lambda: db.command("create", name, **extra, **concern)
        coll = after[name]
        docs = coll["docs"]
        kind = rng.choices(
            ["insert", "update", "delete", "index", "unindex", "hide", "options", "rename", "drop",
             "out", "merge", "database"], [30, 12, 8, 8, 4, 6, 6, 6, 6, 6, 6, 1])[0]
        if kind == "insert":
            new = {rng.randrange(1 << 40): rng.randrange(100) for _ in range(rng.randrange(1, 20))}
            docs.update(new)
            rows = [{"_id": k, "v": v} for k, v in new.items()]
            return lambda: db.command("insert", name, documents=rows, **concern)
        if kind == "update" and docs:
            key, value = rng.choice(list(docs)), rng.randrange(100)
            docs[key] = value
            change = [{"q": {"_id": key}, "u": {"$set": {"v": value}}}]
            return lambda: db.command("update", name, updates=change, **concern)
        if kind == "delete" and docs:
            bound = rng.randrange(100)
            coll["docs"] = {k: v for k, v in docs.items() if v >= bound}
            gone = [{"q": {"v": {"$lt": bound}}, "limit": 0}]
            return lambda: db.command("delete", name, deletes=gone, **concern)
        if kind == "index":
            index = rng.choice(["v", "w"])
            if index in coll["indexes"]:
                return None
            coll["indexes"][index] = False
            specs = [{"key": {index: 1}, "name": index}]
            return lambda: db.command("createIndexes", name, indexes=specs, **concern)
        others = [index for index in coll["indexes"] if index != "_id_"]
        if kind == "unindex" and others:
            index = rng.choice(others)
            del coll["indexes"][index]
            return lambda: db.command("dropIndexes", name, index=index, **concern)
        if kind == "hide" and others:
            index = rng.choice(others)
            hidden = coll["indexes"][index] = not coll["indexes"][index]
            change = {"name": index, "hidden": hidden}
            return lambda: db.command("collMod", name, index=change, **concern)
        if kind == "options":
            level = rng.choice(["moderate", "strict"])
            coll["options"]["validationLevel"] = level
            return lambda: db.command("collMod", name, validationLevel=level, **concern)
        target = rng.choice([other for other in all_names if other != name])
        if kind == "rename":
            after[target] = after.pop(name)
            return lambda: client.admin.command(
                "renameCollection", f"{self.name}.{name}", to=f"{self.name}.{target}",
                dropTarget=True, **concern)
        if kind == "drop":
            del after[name]
            return lambda: db.command("drop", name, **concern)
        if kind == "database":
            after.clear()
            return lambda: db.command("dropDatabase", **concern)
        stage = None
        if kind == "out" and target in after:
            after[target]["docs"] = dict(docs)
            stage = {"$out": target}
        # Of a $merge that was cut off a part may have happened: one document has no parts.
        if kind == "merge" and target in after and docs:
            key = rng.choice(list(docs))
            after[target]["docs"][key] = docs[key]
            stage = {"$merge": target}
        if stage is None:
            return None
        head = [{"$match": {"_id": key}}] if kind == "merge" else []
        return lambda: db.command(
            "aggregate", name, pipeline=[*head, stage], cursor={}, **concern)


def found(db):
    """The database as the model has it."""
    state = {}
    for info in db.list_collections():
        name = info["name"]
        indexes = db[name].index_information()
        state[name] = {
            "options": {k: v for k, v in info["options"].items() if k == "validationLevel"},
            "indexes": {i: bool(spec.get("hidden")) for i, spec in indexes.items()},
            "docs": {d["_id"]: d["v"] for d in db[name].find()},
        }
    return state


def check(server, changers):
    """What each client was told is there; gives back what there is."""
    states = []
    with server.client() as client:
        for changer in changers:
            db = client[changer.name]
            state = found(db)
            if state not in (changer.state, changer.maybe):
                for name in sorted({*state, *changer.state}):
                    is_, was = state.get(name), changer.state.get(name)
                    if is_ != was:
                        print(f"{changer.name}.{name}:\n  found {is_}\n  acknowledged {was}\n"
                              f"  or {changer.maybe and changer.maybe.get(name)}")
                raise AssertionError(f"{changer.name} is not as it was acknowledged")
            for name in state:
                validate(db[name])
            states.append(state)
    return states


def mix(rounds, rng, longest):
    acknowledged = 0
    states = [{}, {}, {}]
    with Fernd("--cacheSize", "64M", "--checkpointPeriod", "3") as server:
        for round_ in range(rounds):
            changers = [Changer(server, rng.random(), s, n) for n, s in enumerate(states)]
            for changer in changers:
                changer.start()
            time.sleep(rng.uniform(0.2, longest))
            server.kill()
            for changer in changers:
                changer.join()
            server.start()
            states = check(server, changers)
            acknowledged += sum(changer.acknowledged for changer in changers)
            if (round_ + 1) % 20 == 0:
                print(f"  mix: {round_ + 1} rounds, {acknowledged} commands acknowledged", flush=True)
        assert server.stop() == 0
        assert rounds == 0 or acknowledged > 10 * rounds, "the rounds show nothing"
    print(f"  mix: {rounds} rounds, {acknowledged} commands acknowledged, 0 lost", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=10, help="kills behind each command of the table")
    p.add_argument("--mix", type=int, default=200, help="kills of the mix")
    p.add_argument("--longest", type=float, default=1.5, help="seconds until a kill of the mix")
    p.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    a = p.parse_args()
    print(f"seed {a.seed}")
    for member in (False, True):
        table(a.rounds, member)
    mix(a.mix, random.Random(a.seed), a.longest)
    print(f"kill9_ddl: {2 * a.rounds * len(TABLE) + a.mix} kills passed, 0 failed")


if __name__ == "__main__":
    main()
