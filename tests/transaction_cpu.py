"""What a small transaction costs the server: begin, two updates, commit, through a driver.

The figure is CPU seconds of the server process per transaction, so it needs no quiet machine. TokuMX
took 118 us for the same by the same measure.
"""

import argparse
import random

from fernd import Fernd
from pymongo import WriteConcern


def measure(server, transactions, acknowledged_by):
    with server.client(retryWrites=False) as client:
        accounts = client.bank.accounts
        accounts.drop()
        accounts.insert_many([{"_id": n, "balance": 100} for n in range(1000)])
        concern = WriteConcern(w=acknowledged_by)
        chosen = random.Random(1)

        def run(count):
            with client.start_session() as session:
                for _ in range(count):
                    giver, taker = chosen.sample(range(1000), 2)
                    with session.start_transaction(write_concern=concern):
                        accounts.update_one({"_id": giver}, {"$inc": {"balance": -1}}, session=session)
                        accounts.update_one({"_id": taker}, {"$inc": {"balance": 1}}, session=session)

        run(transactions // 10)
        before = server.cpu_seconds()
        run(transactions)
        used = server.cpu_seconds() - before
        total = next(accounts.aggregate([{"$group": {"_id": None, "sum": {"$sum": "$balance"}}}]))
        assert total["sum"] == 100_000, total
        return used / transactions * 1e6


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--transactions", type=int, default=5000)
    p.add_argument("--at-most", type=float, help="fails above so many microseconds")
    a = p.parse_args()
    with Fernd("--replSet", "rs0", "--replSetAutoInitiate") as server:
        buffered = measure(server, a.transactions, 1)
        synced = measure(server, a.transactions // 5, "majority")
    print(f"server CPU per transaction: {buffered:.1f} us with w: 1, {synced:.1f} us with w: majority")
    if a.at_most is not None and buffered > a.at_most:
        raise SystemExit(f"more than {a.at_most} us")


if __name__ == "__main__":
    main()
