"""What collections cost against how many there are: to create and drop one, to checkpoint, to be idle,
and what a ping waits beside them.

Questions it answers: does a create walk over all collections, does an idle server pay for each of them
every second, does a checkpoint hold up a client, how long is the way back after a kill? One line for each
number of collections, each with `--indexes` beside that of `_id` and one document. The server is killed (kill -9)
right after they were made, and at the end, when all of them are in a checkpoint. Processor time is the server's; a
ping is measured from outside, so that its times tell of the machine too. Run by hand, against two builds in turn:
`FERND=target/fast/fernd python tests/collection_costs.py --counts 100,1000,10000 --indexes 3`.
"""

import argparse
import glob
import time

from fernd import Fernd, size
from pymongo import WriteConcern

# Created and dropped to see what one costs.
SAMPLE = 200
# Seconds that the server is left alone.
IDLE = 10


def cpu_ms(server):
    """Of the threads that live, finer than the ticks of the process."""
    tasks = glob.glob(f"/proc/{server.process.pid}/task/*/schedstat")
    return sum(int(open(task).read().split()[0]) for task in tasks) / 1e6


def cpu_of(server, work):
    """Milliseconds of processor time."""
    before = cpu_ms(server)
    work()
    return cpu_ms(server) - before


def create(db, numbers, indexes):
    """The collections, each by one command, with a document each."""
    specs = [{"key": {f"a{i}": 1}, "name": f"a{i}_1"} for i in range(indexes)]
    for n in numbers:
        db.command("createIndexes", f"c{n}", indexes=specs)
        db[f"c{n}"].insert_one({"_id": 1, **{f"a{i}": n for i in range(indexes)}})


def answers_after_a_kill(server, count):
    """Seconds until a server that was killed answers, and everything is there."""
    with server.client() as client:
        # The log up to here is on disk.
        client.last.get_collection("c", write_concern=WriteConcern(j=True)).insert_one({})
    server.kill()
    start = time.monotonic()
    server.start()
    took = time.monotonic() - start
    with server.client() as client:
        assert len(client.many.list_collection_names()) == count
        for n in range(0, count, max(1, count // 50)):
            assert client.many[f"c{n}"].find_one({"a0": n}, hint="a0_1")["_id"] == 1, n
    return took


def pings(db, count):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        db.command("ping")
        times.append(time.perf_counter() - start)
    times.sort()
    return 1e6 * times[count // 2], 1e6 * times[count * 99 // 100]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--counts", default="100,1000,10000")
    p.add_argument("--cache-size", default="256M")
    p.add_argument("--indexes", type=int, default=1, help="of each collection, beside that of _id")
    a = p.parse_args()
    with Fernd("--cacheSize", a.cache_size) as server, server.client() as client:
        db, have = client.many, 0
        print("collections  made a second  killed: s  create, drop: ms each  checkpoint: ms  with 100 written"
              "  idle: ms a second  ping: us, 99th  resident MB")
        for count in map(int, a.counts.split(",")):
            start = time.monotonic()
            create(db, range(have, count), a.indexes)
            rate = (count - have) / (time.monotonic() - start)
            have = count
            killed = answers_after_a_kill(server, count)
            made = cpu_of(server, lambda: create(db, range(count, count + SAMPLE), a.indexes))

            def drop():
                for n in range(count, count + SAMPLE):
                    db.drop_collection(f"c{n}")

            dropped = cpu_of(server, drop)

            def checkpoint():
                client.admin.command("checkpoint")

            checkpoint()
            nothing = cpu_of(server, checkpoint)
            for n in range(0, count, max(1, count // 100)):
                db[f"c{n}"].update_one({"_id": 1}, {"$inc": {"b": 1}})
            written = cpu_of(server, checkpoint)
            time.sleep(2)
            # Threads end meanwhile: the process knows what they took.
            idle = server.cpu_seconds()
            time.sleep(IDLE)
            idle = 1e3 * (server.cpu_seconds() - idle)
            middle, late = pings(db, 5000)
            print(f"{count:>11,}  {rate:>13.0f}  {killed:>9.2f}  {made / SAMPLE:>9.2f}, {dropped / SAMPLE:>10.2f}  {nothing:>14.1f}"
                  f"  {written:>16.1f}  {idle / IDLE:>18.1f}  {middle:>8.0f}, {late:>4.0f}"
                  f"  {server.resident() >> 20:>11}", flush=True)
        killed = answers_after_a_kill(server, have)
        time.sleep(IDLE)
        print(f"killed with all of it in a checkpoint: answers after {killed:.2f} s, resident {server.resident() >> 20} MB"
              f" ({server.peak_resident() >> 20} at most) of {(size(a.cache_size) * 5 // 4 >> 20) + 64}")
        client.close()
        server.stop()
        start = time.monotonic()
        server.start()
        print(f"opened again in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
