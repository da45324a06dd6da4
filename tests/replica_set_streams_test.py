"""Change streams of a set of three whose primary is killed, stopped and told to step down, again and again, under load.

Three clients insert, update, replace and delete, alone and in transactions, documents of their own: what each of them did is
known. Four streams (of a collection, of a database, of the whole set, and of a database at a secondary) are read meanwhile, are
closed at random and opened again behind the last event, behind an earlier one, or at the token of an empty batch. At the end:

- each stream told every change once, in its client's order, with the document before and after it;
- behind an earlier event it told the same as the first time;
- all streams told the same;
- an event that is left out, told twice, told too early or with another document would have been found.

`--failovers` and `--resumes`: as many at least.
"""

import argparse
import copy
import itertools
import os
import random
import threading
import time

import bson
from bson import SON
from fernd import ReplicaSet, raw, wait_until
from pymongo.errors import PyMongoError
from replica_set_kills import EXPECTED
from replica_set_test import contents, progress

DATABASE, COLLECTIONS = "streams", ["a", "b"]
IMAGES = {"full_document": "required", "full_document_before_change": "required"}
# What a stream may end with while members come and go; one of them is starting.
PASSING = {*EXPECTED, 13436}
LAST = {"_id": "last"}


class Changer(threading.Thread):
    """Changes documents of its own, and remembers each change; retries are the driver's, and no error may reach it."""

    def __init__(self, cluster, number, seed):
        super().__init__(daemon=True)
        self.cluster, self.number, self.random = cluster, number, random.Random(seed * 100 + number)
        self.documents, self.told = {}, []
        self.acknowledged, self.error = 0, None
        self.ending = threading.Event()

    def run(self):
        try:
            with self.cluster.client() as client:
                while not self.ending.is_set():
                    self.step(client)
                    self.acknowledged += 1
        except Exception as error:
            self.error = error

    def step(self, client):
        if self.random.random() < 0.8:
            self.done([self.change(client, self.random.randrange(8), self.documents)])
            return
        keys = self.random.sample(range(8), 3)
        state = self.random.getstate()

        def several(session):
            # Where it is begun again it is the same again.
            self.random.setstate(state)
            return [self.change(client, key, self.documents, session) for key in keys]

        with client.start_session() as session:
            self.done(session.with_transaction(several))

    def change(self, client, key, documents, session=None):
        """Makes one change: (collection, kind, key, the document before, the one after)."""
        r, name = self.random, self.random.choice(COLLECTIONS)
        collection, key = client[DATABASE][name], SON([("of", self.number), ("key", key)])
        before = documents.get((name, key["key"]))
        value = r.randrange(1 << 30)
        if before is None:
            after = {"_id": key, "value": value, "text": "x" * r.randrange(300)}
            collection.insert_one(after, session=session)
            return name, "insert", key, None, after
        kind = r.choice(["update", "update", "update", "replace", "delete"])
        after = None
        if kind == "update":
            after = {**before, "value": value}
            collection.update_one({"_id": key}, {"$set": {"value": value}}, session=session)
        elif kind == "replace":
            after = {"_id": key, "whole": value}
            collection.replace_one({"_id": key}, after, session=session)
        else:
            collection.delete_one({"_id": key}, session=session)
        return name, kind, key, before, after

    def done(self, changes):
        for name, kind, key, before, after in changes:
            if after is None:
                del self.documents[name, key["key"]]
            else:
                self.documents[name, key["key"]] = after
            self.told.append((name, kind, key, before, after))


class Reader(threading.Thread):
    """Reads a stream to its last event, and opens it again at random."""

    def __init__(self, cluster, of, seed, start, preference="primary"):
        super().__init__(daemon=True)
        self.cluster, self.of, self.start_at, self.preference = cluster, of, start, preference
        self.random = random.Random(seed)
        self.events, self.token = [], None
        self.resumes, self.lookbacks, self.error, self.ended = 0, 0, None, False

    def open(self, client, token):
        on = {"collection": client[DATABASE][COLLECTIONS[0]], "database": client[DATABASE], "set": client}[self.of]
        place = {"start_at_operation_time": self.start_at}
        if token is not None:
            place = {self.random.choice(["resume_after", "start_after"]): token}
        return on.watch(max_await_time_ms=100, batch_size=self.random.choice([1, 7, 100]), **place, **IMAGES)

    def run(self):
        with self.cluster.client(readPreference=self.preference) as client:
            while not self.ended and self.error is None:
                try:
                    self.read(client)
                    if self.events and self.random.random() < 0.3:
                        self.look_back(client)
                except PyMongoError as error:
                    self.error = None if getattr(error, "code", None) in PASSING else error
                    time.sleep(0.05)
                except AssertionError as error:
                    self.error = error

    def read(self, client):
        with self.open(client, self.token) as stream:
            self.resumes += self.token is not None
            for _ in range(self.random.randrange(1, 150)):
                event = stream.try_next()
                if event is not None:
                    self.events.append(event)
                    self.ended = event.get("documentKey") == LAST
                self.token = stream.resume_token
                if self.ended:
                    return

    def look_back(self, client):
        """Behind an earlier event the stream tells what it told before."""
        at = self.random.randrange(max(0, len(self.events) - 300), len(self.events))
        expected = self.events[at + 1 : at + 31]
        with self.open(client, self.events[at]["_id"]) as stream:
            self.resumes += 1
            self.lookbacks += 1
            told = list(itertools.islice(stream, len(expected)))
        assert told == expected, f"behind {self.events[at]} it is told otherwise: {told}"


def failover(cluster, how, changers):
    """The primary is no longer; the members are three again."""
    primary = cluster.wait_for_primary()
    if how == "kill":
        primary.kill()
    elif how == "stop":
        assert primary.stop() == 0, primary.tail()
    else:
        # One that has just begun to lead may find nobody in two seconds who has everything.
        step_down = lambda: raw(primary, "admin", {"replSetStepDown": 2})["ok"] == 1
        wait_until(step_down, "it does not step down", cluster.tails)
    cluster.wait_for_primary(but=primary)
    progress(changers)
    if not primary.is_running():
        primary.start()
    cluster.wait_for_all()
    progress(changers)


def seen(event):
    """What a changer remembers of the change."""
    kind = event["operationType"]
    return (event["ns"]["coll"], kind, event["documentKey"]["_id"], event.get("fullDocumentBeforeChange"),
            event.get("fullDocument"))


def check_events(events, changers, collections=tuple(COLLECTIONS)):
    """Everything that was done, once, in order, and nothing else."""
    tokens = [event["_id"]["_data"] for event in events]
    assert tokens == sorted(set(tokens)), "an event came twice, or out of its order"
    assert [seen(event) for event in events[-1:]] == [(COLLECTIONS[0], "insert", "last", None, LAST)], events[-1:]
    for changer in changers:
        told = [seen(event) for event in events[:-1] if event["documentKey"]["_id"]["of"] == changer.number]
        done = [change for change in changer.told if change[0] in collections]
        for place, (one, other) in enumerate(itertools.zip_longest(told, done)):
            assert one == other, f"change {place} of client {changer.number}: told {one}, done {other}"


def check_planted(events, changers):
    """What must be found, is found."""
    r = random.Random(len(events))
    place = r.randrange(1, len(events) - 2)
    left_out = events[:place] + events[place + 1 :]
    twice = events[: place + 1] + events[place:]
    exchanged = [*events[: place], events[place + 1], events[place], *events[place + 2 :]]
    images = [at for at, event in enumerate(events) if event.get("fullDocumentBeforeChange")]
    another = copy.deepcopy(events)
    another[r.choice(images)]["fullDocumentBeforeChange"]["value"] = -1
    for name, planted in (("left out", left_out), ("twice", twice), ("exchanged", exchanged), ("another image", another)):
        try:
            check_events(planted, changers)
        except AssertionError:
            continue
        raise RuntimeError(f"{name}: it was not found")


def check_members(cluster, changers):
    """Every member has what was done."""
    done = {name: [LAST] if name == COLLECTIONS[0] else [] for name in COLLECTIONS}
    for changer in changers:
        for (name, _), document in changer.documents.items():
            done[name].append(document)

    def same():
        found = [contents(member, DATABASE)["documents"] for member in cluster.members]
        return all(documents == found[0] for documents in found) and found[0]

    found = wait_until(same, "the members do not come to the same", cluster.tails)
    for name in COLLECTIONS:
        by_id = lambda document: bson.encode({"": document["_id"]})
        assert sorted(found[name], key=by_id) == sorted(done[name], key=by_id), f"{name} is otherwise than was done"


def prepared(cluster):
    """When the streams begin: behind what makes the collections."""
    with cluster.client() as client:
        for name in COLLECTIONS:
            client[DATABASE].create_collection(name, changeStreamPreAndPostImages={"enabled": True})
        return client.admin.command("ping")["operationTime"]


def finish(cluster, changers, readers, resumes):
    wait_until(lambda: any(reader.error for reader in readers) or sum(reader.resumes for reader in readers) >= resumes,
               "the streams are not opened so often", cluster.tails)
    for changer in changers:
        changer.ending.set()
    for changer in changers:
        changer.join(60)
        assert not changer.is_alive() and changer.error is None, repr(changer.error)
    with cluster.client() as client:
        client[DATABASE][COLLECTIONS[0]].insert_one(dict(LAST))
    for reader in readers:
        reader.join(60)
        assert reader.error is None, f"the stream of the {reader.of} failed: {reader.error!r}"
        assert reader.ended, f"the stream of the {reader.of} does not come to its end: {len(reader.events)} events"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--failovers", type=int, default=10)
    arguments.add_argument("--resumes", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2), "little"))
    options = arguments.parse_args()
    print(f"seed {options.seed}", flush=True)
    with ReplicaSet("--cacheSize", "64M") as cluster:
        start = prepared(cluster)
        changers = [Changer(cluster, number, options.seed) for number in range(3)]
        readers = [Reader(cluster, of, options.seed + at, start) for at, of in enumerate(["collection", "database", "set"])]
        readers.append(Reader(cluster, "database", options.seed + 3, start, "secondaryPreferred"))
        for thread in [*readers, *changers]:
            thread.start()
        progress(changers)
        for _, how in zip(range(options.failovers), itertools.cycle(["kill", "step down", "stop"])):
            failover(cluster, how, changers)
        finish(cluster, changers, readers, options.resumes)
        of_collection, of_database, of_set, at_secondary = (reader.events for reader in readers)
        check_events(of_database, changers)
        check_events(of_collection, changers, COLLECTIONS[:1])
        assert of_set == of_database, "the stream of the set tells something else than that of the database"
        assert at_secondary == of_database, "the stream at a secondary tells something else than that at the primary"
        check_planted(of_database, changers)
        check_members(cluster, changers)
        resumes = [reader.resumes for reader in readers]
        print(f"replica set streams: {options.failovers} failovers, {sum(resumes)} resumes ({sum(r.lookbacks for r in readers)} "
              f"behind earlier events), {len(of_database)} events told by each: passed")


if __name__ == "__main__":
    main()
