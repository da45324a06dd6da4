"""What collections cost against how many there are: to create and drop one, to checkpoint, to be idle,
and what a ping waits beside them.

Questions it answers: does a create walk over all collections, does an idle server pay for each of them
every second, does a checkpoint hold up a client? One line for each number of collections, each with one
index beside that of `_id` and one document. Processor time is the server's; a ping is measured from
outside, so that its times tell of the machine too. Run by hand, against two builds in turn:
`FERND=target/fast/fernd python tests/collection_costs.py --counts 100,1000,10000`.
"""

import argparse
import glob
import time

from fernd import Fernd

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


def create(db, numbers):
    for n in numbers:
        db.command("createIndexes", f"c{n}", indexes=[{"key": {"a": 1}, "name": "a_1"}])
        db[f"c{n}"].insert_one({"_id": 1, "a": n})


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
    a = p.parse_args()
    with Fernd("--cacheSize", a.cache_size) as server, server.client() as client:
        db, have = client.many, 0
        print("collections  create, drop: ms each  checkpoint: ms  with 100 written  idle: ms a second"
              "  ping: us, 99th  resident MB")
        for count in map(int, a.counts.split(",")):
            create(db, range(have, count))
            have = count
            made = cpu_of(server, lambda: create(db, range(count, count + SAMPLE)))

            def drop():
                for n in range(count, count + SAMPLE):
                    db.drop_collection(f"c{n}")

            dropped = cpu_of(server, drop)

            def checkpoint():
                client.admin.command("checkpoint")

            checkpoint()
            nothing = cpu_of(server, checkpoint)
            for n in range(0, count, max(1, count // 100)):
                db[f"c{n}"].update_one({"_id": 1}, {"$inc": {"a": 1}})
            written = cpu_of(server, checkpoint)
            time.sleep(2)
            # Threads end meanwhile: the process knows what they took.
            idle = server.cpu_seconds()
            time.sleep(IDLE)
            idle = 1e3 * (server.cpu_seconds() - idle)
            middle, late = pings(db, 5000)
            print(f"{count:>11,}  {made / SAMPLE:>9.2f}, {dropped / SAMPLE:>10.2f}  {nothing:>14.1f}"
                  f"  {written:>16.1f}  {idle / IDLE:>18.1f}  {middle:>8.0f}, {late:>4.0f}"
                  f"  {server.resident() >> 20:>11}", flush=True)
        client.close()
        server.stop()
        start = time.monotonic()
        server.start()
        print(f"opened again in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
