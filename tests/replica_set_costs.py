"""What a replica set costs beside one server: the targets of its design, each as a ratio to a server alone of the same
build, measured in turns on the same processors.

    FERND=target/release/fernd python tests/replica_set_costs.py --check

Prints a row for each target: the figure, what it must be, what is aimed at. `--only ROW` (several times) measures some of
them, `--short` takes a tenth of the time and says less, `--check` fails where a figure is not what it must be. Copies of
data are measured by `replica_set_copy.py`. Loads are sent by a client that has its requests prepared (`prepared.py`).
"""

import argparse
import bisect
import contextlib
import itertools
import os
import random
import re
import signal
import statistics
import subprocess
import threading
import time
from collections import Counter, namedtuple

from fernd import TICKS, Fernd, ReplicaSet, raw, wait_until
from iibench import INDEXES
from prepared import Prepared, message, send_all
from pymongo import IndexModel
from pymongo.errors import PyMongoError

MIB = 1 << 20
ALONE, MAJORITY, SYNCED = {"w": 1}, {"w": "majority"}, {"w": 1, "j": True}
SECONDARY = {"$readPreference": {"mode": "secondaryPreferred"}}

# How much of each is done, and with `--short`.
Sizes = namedtuple("Sizes", "documents updates cache rounds slices slice bulks behind held data_mb small_cache deaths")
FULL = Sizes(1_000_000, 200_000, "256M", 3, 7, 5, 40, 2_000_000, 1_000_000, 640, "64M", 50)
SHORT = Sizes(200_000, 40_000, "64M", 1, 3, 2, 8, 300_000, 100_000, 320, "32M", 6)

Figure = namedtuple("Figure", "what value must aim")
Row = namedtuple("Row", "measure kinds")
ROWS = {}


def row(name, kinds=()):
    """A row of the table; `kinds` are the servers that the loads of it are measured at."""

    def add(measure):
        ROWS[name] = Row(measure, kinds)
        return measure

    return add


def most(what, value, must, aim):
    return Figure(what, value, ("<=", must), ("<=", aim))


def least(what, value, must, aim):
    return Figure(what, value, (">=", must), (">=", aim))


def meets(value, bound):
    relation, limit = bound
    return value <= limit if relation == "<=" else value >= limit


# Servers.


class Alone:
    """A server without a set, in the place of one."""

    def __init__(self, *options):
        self.members = [Fernd(*options)]

    def __enter__(self):
        self.members[0].start()
        return self

    def __exit__(self, *error):
        self.members[0].__exit__(*error)

    def wait_for_primary(self):
        return self.members[0]


class PatientSet(ReplicaSet):
    """A set that elects nobody else where the machine is so busy that a member gets no time for seconds."""

    def config(self):
        return {**super().config(), "settings": {"electionTimeoutMillis": 60_000}}


KINDS = {
    "single": (lambda *options: Alone(*options), ALONE),
    "one": (lambda *options: ReplicaSet(*options, members=1), ALONE),
    "three": (lambda *options: PatientSet(*options), MAJORITY),
}


def in_order(cluster):
    """The primary, then the others."""
    primary = cluster.wait_for_primary()
    return [primary, *(member for member in cluster.members if member is not primary)]


def counted(member, database, collection):
    return raw(member, database, {"count": collection, **SECONDARY})["n"]


def wait_for_the_others(members, database, collection):
    """Until all members have what the first one has."""
    there = counted(members[0], database, collection)
    for member in members[1:]:
        wait_until(lambda: counted(member, database, collection) == there, "it does not catch up", wait=600)


def applied(member):
    """The time up to which a member shows what was written."""
    return raw(member, "admin", {"replSetGetStatus": 1})["optimes"]["appliedOpTime"]["ts"].as_datetime()


def settle(members):
    """What is still in memory is to be written too. No more than that: with what is done while nobody uses a member those
    would be charged that wait for the others."""
    for member in members:
        assert raw(member, "admin", {"checkpoint": 1}, timeout=600)["ok"] == 1


def wait_for_rest(members):
    """Until members merge nothing any more of what was written."""
    settle(members)

    def is_quiet():
        before = [thread_times(member)["fern-flush"] for member in members]
        time.sleep(1)
        return all(thread_times(member)["fern-flush"] - taken <= 0.02 for member, taken in zip(members, before))

    wait_until(is_quiet, "they merge on and on", wait=600)


def thread_times(member):
    """Seconds of the processors that each kind of thread of a member has taken."""
    times, tasks = Counter(), f"/proc/{member.process.pid}/task"
    for task in os.listdir(tasks):
        with contextlib.suppress(FileNotFoundError), open(f"{tasks}/{task}/stat") as f:
            name, rest = f.read().rsplit(")", 1)
            words = rest.split()
            times[re.sub(r"[-\d]+$", "", name.split("(", 1)[1])] += (int(words[11]) + int(words[12])) / TICKS
    return times


def read_by_thread(member, name):
    """Bytes that threads of this name have read from files, from whichever memory."""
    total, tasks = 0, f"/proc/{member.process.pid}/task"
    for task in os.listdir(tasks):
        with contextlib.suppress(FileNotFoundError):
            with open(f"{tasks}/{task}/comm") as f:
                if f.read().strip() != name:
                    continue
            with open(f"{tasks}/{task}/io") as f:
                total += int(f.readline().split()[1])
    return total


def sent_to(primary, member):
    """Bytes that the primary has sent by its link to a member, as the kernel counts them."""
    words = ["ss", "-tniHpO", "state", "established", "dst", f"127.0.0.1:{member.port}"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    own = [line for line in lines if f"pid={primary.process.pid}," in line]
    return sum(int(sent) for line in own for sent in re.findall(r"bytes_sent:(\d+)", line))


Cost = namedtuple("Cost", "cpu written peak threads")


class Costs:
    """What each member takes from now on."""

    def __init__(self, members):
        self.members = members
        self.began = [(m.cpu_seconds(), m.bytes_written(), thread_times(m)) for m in members]
        self.sent = [sent_to(members[0], member) for member in members[1:]]

    def each(self, count):
        """For each member what one of `count` documents took."""
        for member, (cpu, written, threads) in zip(self.members, self.began):
            yield Cost(
                (member.cpu_seconds() - cpu) / count * 1e6,
                (member.bytes_written() - written) / count,
                member.peak_resident(),
                {name: time / count * 1e6 for name, time in (thread_times(member) - threads).most_common(6)},
            )

    def sent_to_each(self):
        return [sent_to(self.members[0], member) - sent for member, sent in zip(self.members[1:], self.sent)]


# Loads.

Load = namedtuple("Load", "members seconds sent")


def update(collection, updates, concern, ordered=True):
    body = {"update": collection, "ordered": ordered, "$db": "test", "writeConcern": concern, "updates": updates}
    return message(1, body)


def set_random(r, count):
    return {"q": {"_id": r.randrange(count)}, "u": {"$set": {"n": r.randrange(1 << 30), "text": r.randbytes(60).hex()}}}


def fill_kilobytes(member, documents, size=1000):
    """Documents of that size which compress to half of it at best."""
    r = random.Random(2)
    with member.client(w="majority") as client:
        for first in range(0, documents, 1000):
            rows = [
                {"_id": i, "n": 0, "text": "", "r": r.randbytes(size // 2), "x": r.randbytes(size // 4).hex()}
                for i in range(first, min(first + 1000, documents))
            ]
            client.test.a.insert_many(rows, ordered=False)


class Bench:
    """The loads that several rows are made of, each measured once, the servers in turns."""

    def __init__(self, given, kinds):
        self.sizes = SHORT if given.short else FULL
        self.rounds = given.rounds or self.sizes.rounds
        self.kinds = [kind for kind in KINDS if kind in kinds]
        self.shows_threads = given.threads
        self.done = {}

    def iibench(self):
        return self.in_turns("iiBench", self.load_iibench)

    def updates(self):
        return self.in_turns("updates", self.load_updates)

    def mix(self):
        return self.in_turns("reads and updates", self.load_mix)

    def in_turns(self, name, load):
        """For each kind of servers the results of all rounds."""
        if name not in self.done:
            results = {kind: [] for kind in self.kinds}
            for _ in range(self.rounds):
                for kind in self.kinds:
                    results[kind].append(load(*KINDS[kind]))
                    self.tell(name, kind, results[kind][-1])
            self.done[name] = results
        return self.done[name]

    def tell(self, name, kind, load):
        for number, cost in enumerate(load.members):
            print(f"  {name}, {kind}, member {number}: {cost.cpu:.2f} µs, {cost.written:.0f} bytes written, peak "
                  f"{cost.peak / MIB:.0f} MiB; {load.seconds:.1f} s", flush=True)
            if self.shows_threads:
                print("    " + ", ".join(f"{name} {time:.2f}" for name, time in cost.threads.items()), flush=True)

    def measured(self, members, count, collection, run):
        costs = Costs(members)
        seconds = run()
        wait_for_the_others(members, *collection)
        settle(members)
        return Load(list(costs.each(count)), seconds, costs.sent_to_each())

    def load_iibench(self, servers, concern):
        prepared = Prepared(self.sizes.documents, 1, writeConcern=concern)
        self.bson_bytes = prepared.bson_bytes
        with servers("--cacheSize", self.sizes.cache) as cluster:
            members = in_order(cluster)
            with members[0].client() as client:
                client.iibench.purchases.create_indexes([IndexModel(fields) for fields in INDEXES])
            run = lambda: send_all(members[0].port, 4, prepared.requests())[1]
            return self.measured(members, prepared.documents, ("iibench", "purchases"), run)

    def load_updates(self, servers, concern):
        r, documents, count = random.Random(3), self.sizes.updates // 2, self.sizes.updates
        requests = [update("a", [set_random(r, documents)], concern) for _ in range(count)]
        return self.over_kilobytes(servers, documents, requests)

    def cold_updates(self):
        return self.in_turns("updates, ten times the cache", self.load_cold_updates)

    def load_cold_updates(self, servers, concern):
        r, documents, count = random.Random(5), self.sizes.data_mb * 1000, self.sizes.updates // 4
        requests = [update("a", [set_random(r, documents)], concern) for _ in range(count)]
        return self.over_kilobytes(servers, documents, requests, self.sizes.small_cache)

    def read_updates(self):
        return self.in_turns("readupdate", self.load_read_updates)

    def load_read_updates(self, servers, concern):
        """As `fern bench readupdate`: a document is found by an index, and gets a longer text."""
        r, documents, count = random.Random(6), self.sizes.updates, self.sizes.updates // 2
        text = lambda: r.randbytes(100).hex()
        with servers("--cacheSize", self.sizes.cache) as cluster:
            members = in_order(cluster)
            with members[0].client(w="majority") as client:
                client.test.a.create_index("x")
                for first in range(0, documents, 1000):
                    rows = [{"_id": i, "x": i, "y": text()} for i in range(first, first + 1000)]
                    client.test.a.insert_many(rows, ordered=False)
            wait_for_the_others(members, "test", "a")
            settle(members)
            requests = []
            for _ in range(count):
                key = {"x": r.randrange(documents)}
                find = {"find": "a", "filter": key, "projection": {"y": 1}, "limit": 1, "singleBatch": True}
                requests.append(message(1, {**find, "$db": "test"}))
                change = {"q": key, "u": {"$set": {"y": f"{text()}{key['x']}"}}}
                requests.append(update("a", [change], concern))
            run = lambda: send_all(members[0].port, 6, requests)[1]
            return self.measured(members, count, ("test", "a"), run)

    def load_mix(self, servers, concern):
        r, documents, count = random.Random(4), self.sizes.updates // 2, self.sizes.updates
        find = lambda: message(1, {"find": "a", "filter": {"_id": r.randrange(documents)}, "limit": 1, "$db": "test"})
        change = lambda: update("a", [set_random(r, documents)], concern)
        requests = [r.choice((find, change))() for _ in range(count)]
        return self.over_kilobytes(servers, documents, requests)

    def over_kilobytes(self, servers, documents, requests, cache=None):
        with servers("--cacheSize", cache or self.sizes.cache) as cluster:
            members = in_order(cluster)
            fill_kilobytes(members[0], documents)
            wait_for_the_others(members, "test", "a")
            settle(members)

            def run():
                seconds = send_all(members[0].port, 8, requests)[1]
                # Counts do not tell when updates are there.
                last = applied(members[0]) if len(members) > 1 else None
                for member in members[1:]:
                    wait_until(lambda: applied(member) >= last, "it does not catch up", wait=600)
                return seconds

            return self.measured(members, len(requests), ("test", "a"), run)


def ratios(results, kind, figure):
    """The median over the rounds of what a kind of servers takes, of what a server alone takes in the same round."""
    each = [figure(load) / figure_of_one(alone, figure) for load, alone in zip(results[kind], results["single"])]
    return statistics.median(each)


def figure_of_one(alone, figure):
    """Of a server alone the figure is that of its only member, whichever is asked for."""
    return figure(Load(alone.members * 3, alone.seconds, alone.sent))


def primary(field):
    return lambda load: getattr(load.members[0], field)


def secondary(field):
    """The dearer one of the secondaries."""
    return lambda load: max(getattr(member, field) for member in load.members[1:])


@row("set-of-one", ("single", "one"))
def set_of_one(bench):
    results = bench.iibench()
    yield most("set of one, iiBench: CPU of single", ratios(results, "one", primary("cpu")), 1.05, 1.02)
    yield most("set of one, iiBench: bytes written of single", ratios(results, "one", primary("written")), 0.95, 0.85)
    read_updates = ratios(bench.read_updates(), "one", primary("cpu"))
    yield most("set of one, readupdate: CPU of single", read_updates, 1.08, 1.04)
    yield most("set of one, half reads half updates (YCSB A): CPU", ratios(bench.mix(), "one", primary("cpu")), 1.08, 1.04)
    updates = ratios(bench.updates(), "one", primary("cpu"))
    print(f"  no row of the design: a set of one that does nothing but updates of 1 KB, CPU of single: {updates:.3f}", flush=True)


@row("primary", ("single", "three"))
def primary_of_three(bench):
    yield most("primary of three, iiBench: CPU of single", ratios(bench.iibench(), "three", primary("cpu")), 1.2, 1.1)


@row("secondary", ("single", "three"))
def secondary_of_three(bench):
    yield most("secondary, iiBench: CPU of single", ratios(bench.iibench(), "three", secondary("cpu")), 0.6, 0.5)
    cold = ratios(bench.cold_updates(), "three", secondary("cpu"))
    yield most("secondary, updates of 1 KB, data ten times the cache: CPU of single", cold, 0.3, 0.2)
    yield most("the same, data in cache", ratios(bench.updates(), "three", secondary("cpu")), 0.3, 0.2)


@row("sent", ("three",))
def sent(bench):
    each = [max(load.sent) for load in bench.iibench()["three"]]
    yield most("sent to each secondary, of the BSON's bytes", statistics.median(each) / bench.bson_bytes, 1.2, 1.0)


@row("written", ("single", "three"))
def written(bench):
    results = bench.iibench()
    yield most("written by the primary, of single", ratios(results, "three", primary("written")), 1.0, 0.9)
    yield most("written by a secondary, of single", ratios(results, "three", secondary("written")), 1.0, 0.9)


@row("memory", ("single", "three"))
def memory(bench):
    more = []
    for results in (bench.iibench(), bench.updates()):
        alone = max(load.members[0].peak for load in results["single"])
        more += [member.peak - alone for load in results["three"] for member in load.members]
    yield most("peak memory of a member, MiB above single's", max(more) / MIB, 64, 32)


# Rows of which single requests are the load: a server alone and a set, both up, in turns.


def until(seconds, requests):
    ending = time.perf_counter() + seconds
    return itertools.takewhile(lambda _: time.perf_counter() < ending, requests)


@contextlib.contextmanager
def both(*options):
    with Alone(*options) as alone, PatientSet(*options) as cluster:
        yield alone.members[0], cluster.wait_for_primary()


def single_inserts(concern):
    """Each of a document of its own."""
    r = random.Random()
    while True:
        row = {"a": r.randrange(1 << 30), "b": r.random(), "text": "x" * 60}
        yield message(1, {"insert": "singles", "documents": [row], "writeConcern": concern, "$db": "test"})


def insert_slices(bench, connections):
    """For each slice of a server alone and of a set what `send_all` says."""
    sizes = bench.sizes
    with both() as (alone, member):
        for server, concern in ((alone, SYNCED), (member, MAJORITY)):
            send_all(server.port, connections, until(1, single_inserts(concern)))
        for _ in range(sizes.slices):
            yield [send_all(server.port, connections, until(sizes.slice, single_inserts(concern)))
                   for server, concern in ((alone, SYNCED), (member, MAJORITY))]


@row("one-client")
def one_client(bench):
    each = [[statistics.median(took) * 1e3 for took, _ in pair] for pair in insert_slices(bench, 1)]
    alone, three = (statistics.median(of) for of in zip(*each))
    print(f"  one client's inserts: p50 {alone:.3f} ms alone and synced, {three:.3f} ms by a majority", flush=True)
    yield most("one client's inserts, majority: p50, ms above single synced", three - alone, 0.6, 0.3)


@row("many-clients")
def many_clients(bench):
    each = [[len(took) / seconds for took, seconds in pair] for pair in insert_slices(bench, 64)]
    print(f"  64 clients' inserts a second, alone and of three: {[[round(rate) for rate in pair] for pair in each]}", flush=True)
    yield least("64 clients' inserts, majority: rate of single synced",
                statistics.median(three / alone for alone, three in each), 0.6, 0.8)


@row("hot-document")
def hot_document(bench):
    change = lambda key: update("counters", [{"q": {"_id": key}, "u": {"$inc": {"n": 1}}, "upsert": True}], MAJORITY)
    hot, spread = itertools.repeat(change(0)), itertools.cycle([change(key) for key in range(1, 33)])
    with PatientSet() as cluster:
        port, each = cluster.wait_for_primary().port, []
        for key in range(33):
            send_all(port, 1, [change(key)])
        for _ in range(bench.sizes.slices):
            pair = [send_all(port, 32, until(bench.sizes.slice, requests)) for requests in (spread, hot)]
            each.append([len(took) / seconds for took, seconds in pair])
    print(f"  $inc a second of 32 documents and of one: {[[round(rate) for rate in pair] for pair in each]}", flush=True)
    yield least("32 clients $inc one document: rate of 32 documents",
                statistics.median(one / many for many, one in each), 0.5, 0.8)


@row("ordered-bulk")
def ordered_bulk(bench):
    updates = [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}, "$set": {"at": n}}} for n in range(1000)]
    with both() as pair:
        each = []
        for server in pair:
            raw(server, "test", {"insert": "a", "documents": [{"_id": 1, "n": 0}]})
        for _ in range(bench.sizes.bulks):
            each.append([send_all(server.port, 1, [update("a", updates, concern)])[1]
                         for server, concern in zip(pair, (SYNCED, MAJORITY))])
        counts = [raw(server, "test", {"find": "a"})["cursor"]["firstBatch"][0]["n"] for server in pair]
        assert counts == [1000 * bench.sizes.bulks] * 2, counts
    alone, three = (statistics.median(of) * 1e3 for of in zip(*each))
    print(f"  ordered bulks of 1,000: {alone:.1f} ms alone and synced, {three:.1f} ms by a majority", flush=True)
    yield most("ordered bulk of 1,000 of one document: time of single synced", three / alone, 1.5, 1.2)


# Rows about members that were away.


@row("page-reads")
def page_reads(bench):
    sizes = bench.sizes
    documents, count = sizes.data_mb * 1000, sizes.updates // 4
    with PatientSet("--cacheSize", sizes.small_cache) as cluster:
        members = in_order(cluster)
        fill_kilobytes(members[0], documents)
        wait_for_the_others(members, "test", "a")
        settle(members)
        r = random.Random(5)
        misses = lambda member: raw(member, "admin", {"serverStatus": 1})["ft"]["cachetable"]["miss"]["full"]["count"]
        read = lambda: [(read_by_thread(member, "member"), misses(member)) for member in members[1:]]
        before = read()
        send_all(members[0].port, 8, (update("a", [set_random(r, documents)], MAJORITY) for _ in range(count)))
        last = applied(members[0])
        for member in members[1:]:
            wait_until(lambda: applied(member) >= last, "it does not catch up", wait=600)
        more = [[(now - then) / count for now, then in zip(*pair)] for pair in zip(read(), before)]
    for by_thread, missed in more:
        print(f"  a secondary: {by_thread:.1f} bytes read an update by the thread that applies; "
              f"{missed:.4f} pages read by all of its threads, merges among them", flush=True)
    yield most("secondary: bytes read an update by the thread that applies", max(by_thread for by_thread, _ in more), 0, 0)


class Absence:
    """A secondary that is stopped while documents are written, and comes back."""

    def __init__(self, cluster, prepared):
        self.members = in_order(cluster)
        self.requests = prepared.requests()

    def written(self, documents, rate=None):
        """Writes so many documents; documents a second."""
        batches = itertools.islice(self.requests, documents // 1000)
        took, seconds = send_all(self.members[0].port, 4, batches, rate and rate / 1000)
        return len(took) * 1000 / seconds

    def rest(self):
        """What the members that are there still merge would take the processors of the one that comes back."""
        wait_for_rest(self.members[:-1])

    def count(self, member):
        return counted(member, "iibench", "purchases")

    def comes_back(self, within):
        """Documents a second that the member takes until it is `within` documents of the primary, from its first answer on.
        What the others still have to do for what was written would take its processors."""
        settle(self.members[:-1])
        behind = self.members[-1]
        behind.start()
        first, began = wait_until(lambda: (self.count(behind), time.monotonic()), "it does not answer", wait=600)
        wait_until(lambda: self.count(behind) >= self.count(self.members[0]) - within, "it stays behind", wait=3600)
        seconds = time.monotonic() - began
        print(f"  {self.count(behind) - first:,} documents in {seconds:.1f} s; since its start the member took "
              f"{behind.cpu_seconds():.1f} s of the processors", flush=True)
        assert '"id":9016766' not in behind.tail(1 << 24), "it took a copy instead"
        return (self.count(behind) - first) / seconds


@row("catch-up")
def catch_up(bench):
    held = bench.sizes.held
    prepared = Prepared(held + 4 * bench.sizes.behind, 6, writeConcern=MAJORITY)
    with PatientSet("--cacheSize", "256M") as cluster:
        absence = Absence(cluster, prepared)
        with absence.members[0].client() as client:
            client.iibench.purchases.create_indexes([IndexModel(fields) for fields in INDEXES])
        full = absence.written(held)
        absence.members[-1].stop()
        alone = absence.written(bench.sizes.behind)
        absence.rest()
        stopped = absence.comes_back(0)
        absence.members[-1].stop()
        absence.written(bench.sizes.behind)
        absence.rest()
        half = threading.Thread(target=absence.written, args=(2 * bench.sizes.behind, full / 2))
        half.start()
        loaded = absence.comes_back(full / 2)
        was_written = half.is_alive()
        half.join()
    print(f"  documents a second: {full:,.0f} into three, {alone:,.0f} into two; catching up {stopped:,.0f}, beside half of the load "
          f"{loaded:,.0f}{'' if was_written else ' (the load ended before)'}", flush=True)
    yield least("catch-up, primary stopped taking writes: of the full rate", stopped / full, 2, 3)
    yield least("catch-up beside half of the load: of the full rate", loaded / full, 1.5, 2)


# Rows about changes of the primary.


class Inserter(threading.Thread):
    """A stock driver's client that inserts one document after the other, and knows when each was acknowledged."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.acknowledged, self.error, self.ending = cluster, [], None, threading.Event()

    def run(self):
        try:
            with self.cluster.client() as client:
                for number in itertools.count():
                    if self.ending.is_set():
                        return
                    client.test.inserted.insert_one({"_id": number})
                    self.acknowledged.append(time.monotonic())
        except PyMongoError as error:
            self.error = error

    def first_after(self, moment):
        """When the first write was acknowledged after that moment."""

        def there():
            if self.error is not None:
                raise AssertionError(f"an insert failed: {self.error!r}")
            index = bisect.bisect_right(self.acknowledged, moment)
            return self.acknowledged[index] if index < len(self.acknowledged) else None

        return wait_until(there, "no write is acknowledged", self.cluster.tails, wait=60)

    def longest_pause(self, since):
        times = [at for at in self.acknowledged if at >= since - 1]
        return max(later - earlier for earlier, later in zip(times, times[1:]))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.ending.set()
        self.join(60)


def told(what, pauses):
    print(f"  {what}: {', '.join(f'{pause:.3f}' for pause in sorted(pauses))} s", flush=True)
    return statistics.median(pauses), max(pauses)


@row("killed-primary")
def killed_primary(bench):
    pauses = []
    with ReplicaSet() as cluster, Inserter(cluster) as inserter:
        for _ in range(bench.sizes.deaths):
            time.sleep(1)
            primary = cluster.wait_for_all()
            inserter.first_after(time.monotonic())
            began = time.monotonic()
            primary.kill()
            # An answer from before is read by now.
            pauses.append(inserter.first_after(time.monotonic()) - began)
            primary.start()
    median, worst = told("from kill -9 to the first acknowledged write", pauses)
    yield most("kill -9 of the primary to the first acknowledged write: p50, s", median, 1.0, 0.6)
    yield most(f"the same, worst of {len(pauses)}", worst, 2.5, 1.5)


@row("halted-primary")
def halted_primary(bench):
    pauses = []
    with ReplicaSet() as cluster:
        for _ in range(max(bench.sizes.deaths // 5, 2)):
            primary = cluster.wait_for_all()
            pauses.append(halted(cluster, primary))
            time.sleep(2)
    median, worst = told("from the primary's halt to the first acknowledged write that began after it", pauses)
    yield most("halted primary, a write that begins after it: p50, s", median, 3.5, 3)
    yield most(f"the same, worst of {len(pauses)}", worst, 5, 4)


def halted(cluster, primary):
    """A write begins every 50 ms after the halt: those that met the halted one wait for its end."""
    ended = []
    with cluster.client() as client:
        client.test.halted.insert_one({})

        def insert():
            with contextlib.suppress(PyMongoError):
                client.test.halted.insert_one({})
                ended.append(time.monotonic())

        os.kill(primary.process.pid, signal.SIGSTOP)
        began, writes = time.monotonic(), []
        try:
            while not ended and time.monotonic() < began + 30:
                writes.append(threading.Thread(target=insert))
                writes[-1].start()
                time.sleep(0.05)
        finally:
            os.kill(primary.process.pid, signal.SIGCONT)
        for write in writes:
            write.join()
    return min(ended) - began


@row("step-down")
def step_down(bench):
    pauses = []
    with ReplicaSet() as cluster, Inserter(cluster) as inserter:
        for _ in range(max(bench.sizes.deaths // 2, 3)):
            time.sleep(1.5)
            primary = cluster.wait_for_all()
            began = time.monotonic()
            assert raw(primary, "admin", {"replSetStepDown": 1})["ok"] == 1
            cluster.wait_for_primary(but=primary)
            inserter.first_after(time.monotonic() + 0.5)
            pauses.append(inserter.longest_pause(began))
    _, worst = told("pauses of acknowledged writes at step-downs", pauses)
    yield most("replSetStepDown: longest pause of acknowledged writes, s", worst, 0.6, 0.2)


def shown(figure):
    bounds = [f"{relation} {limit:g}" for relation, limit in (figure.must, figure.aim)]
    state = "aim" if meets(figure.value, figure.aim) else "must" if meets(figure.value, figure.must) else "SHORT"
    return f"{figure.what:<68} {figure.value:>9.3f}  {bounds[0]:>8}  {bounds[1]:>8}  {state}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(ROWS), help="a row; again for another")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--rounds", type=int, help="of the loads that are measured in turns")
    parser.add_argument("--threads", action="store_true", help="say which threads took the time")
    parser.add_argument("--check", action="store_true", help="fail where a figure is not what it must be")
    given = parser.parse_args()
    rows = {name: ROWS[name] for name in given.only or ROWS}
    bench = Bench(given, {kind for row in rows.values() for kind in row.kinds})
    figures = []
    for name, measured in rows.items():
        print(f"{name}:", flush=True)
        figures += measured.measure(bench)
    print(f"\n{'':<68} {'figure':>9}  {'must':>8}  {'aim':>8}")
    for figure in figures:
        print(shown(figure))
    failed = [figure for figure in figures if not meets(figure.value, figure.must)]
    if given.check and failed:
        raise SystemExit(f"{len(failed)} of {len(figures)} are not what they must be")


if __name__ == "__main__":
    main()
