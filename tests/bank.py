"""Transfers between accounts in transactions, from many threads, with kill -9 in the middle.

What must hold: the sum of all balances never changes, every acknowledged transfer is in the ledger
exactly once, and every transfer in the ledger is in the balances.
"""

import argparse
import random
import threading
import time

import pymongo
from fernd import Fernd, validate
from pymongo.errors import PyMongoError

ACCOUNTS = 50
START = 1000


class Teller(threading.Thread):
    def __init__(self, client, number, until):
        super().__init__(daemon=True)
        self.client, self.number, self.until = client, number, until
        self.chosen = random.Random(number)
        self.acknowledged, self.failed, self.retries = [], 0, 0

    def run(self):
        serial = 0
        while time.monotonic() < self.until:
            serial += 1
            name = f"{self.number}-{serial}"
            try:
                with self.client.start_session() as session:
                    session.with_transaction(lambda s: self.transfer(s, name))
                self.acknowledged.append(name)
            except PyMongoError:
                self.failed += 1

    def transfer(self, session, name):
        self.retries += 1
        bank = self.client.bank
        giver, taker = self.chosen.sample(range(ACCOUNTS), 2)
        amount = self.chosen.randint(1, 10)
        bank.ledger.insert_one({"_id": name, "from": giver, "to": taker, "amount": amount}, session=session)
        bank.accounts.update_one({"_id": giver}, {"$inc": {"balance": -amount}}, session=session)
        bank.accounts.update_one({"_id": taker}, {"$inc": {"balance": amount}}, session=session)


def check(client, acknowledged):
    bank = client.bank
    balances = {a["_id"]: a["balance"] for a in bank.accounts.find()}
    assert sum(balances.values()) == ACCOUNTS * START, "money was made or lost"
    expected = dict.fromkeys(range(ACCOUNTS), START)
    ledger = set()
    for transfer in bank.ledger.find():
        expected[transfer["from"]] -= transfer["amount"]
        expected[transfer["to"]] += transfer["amount"]
        ledger.add(transfer["_id"])
    assert balances == expected, "ledger and balances disagree"
    lost = set(acknowledged) - ledger
    assert not lost, f"{len(lost)} acknowledged transfers are lost"
    validate(bank.accounts)
    validate(bank.ledger)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--threads", type=int, default=8)
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--kills", type=int, default=3)
    a = p.parse_args()
    with Fernd("--replSet", "rs0", "--replSetAutoInitiate", "--cacheSize", "256M") as server:
        url = f"mongodb://localhost:{server.port}/?replicaSet=rs0&w=majority"
        client = pymongo.MongoClient(url, serverSelectionTimeoutMS=60000)
        client.bank.accounts.insert_many([{"_id": n, "balance": START} for n in range(ACCOUNTS)])
        until = time.monotonic() + a.seconds
        tellers = [Teller(client, n, until) for n in range(a.threads)]
        for teller in tellers:
            teller.start()
        for _ in range(a.kills):
            time.sleep(a.seconds / (a.kills + 1))
            server.kill()
            server.start()
        for teller in tellers:
            teller.join(300)
            assert not teller.is_alive(), "a transfer hangs"
        acknowledged = [name for teller in tellers for name in teller.acknowledged]
        check(client, acknowledged)
        client.close()
    failed, runs = sum(t.failed for t in tellers), sum(t.retries for t in tellers)
    print(f"bank: {len(acknowledged)} transfers acknowledged, {runs} attempts, {failed} failed, "
          f"{a.kills} kills; nothing lost")
    if not acknowledged:
        raise SystemExit("nothing was transferred")


if __name__ == "__main__":
    main()
