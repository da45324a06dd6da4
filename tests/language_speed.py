"""What the query language costs: CPU microseconds of the server per document or operation, for the
shapes that applications and reports run. Questions it answers: is any of it quadratic, and where
does a large aggregation spend its time?

Documents are made from a seed. Prints one line each: the work, its size, CPU us a document, rate.
`--scale 0.1` runs a tenth of every size.
"""

import argparse
import random
import time

import bson
from fernd import Fernd

DAY = 86_400_000


def measure(server, name, size, work):
    """Best of two: CPU of the server's process, over the documents (or operations) of `work`."""
    best = None
    for _ in range(2):
        cpu, start = server.cpu_seconds(), time.monotonic()
        work()
        seconds, cpu = time.monotonic() - start, server.cpu_seconds() - cpu
        if best is None or cpu < best[0]:
            best = (cpu, seconds)
    cpu, seconds = best
    print(f"{name:44} {size:>10,} {1e6 * cpu / size:9.3f} us {size / seconds:13,.0f} /s", flush=True)
    return 1e6 * cpu / size


def load(collection, count, make):
    batch = []
    for at in range(count):
        batch.append(bson.raw_bson.RawBSONDocument(bson.encode(make(at))))
        if len(batch) == 10_000:
            collection.insert_many(batch, ordered=False)
            batch = []
    if batch:
        collection.insert_many(batch, ordered=False)


def drain(cursor):
    n = 0
    for _ in cursor:
        n += 1
    return n


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--scale", type=float, default=1.0)
    p.add_argument("--cache-size", default="2G")
    p.add_argument("--count", type=int, default=10_000_000, help="documents to count")
    a = p.parse_args()
    n = int(1_000_000 * a.scale)
    pairs = int(100_000 * a.scale)
    counted = int(a.count * a.scale)
    rng = random.Random(7)
    with Fernd("--cacheSize", a.cache_size) as server, server.client() as client:
        db = client.speed
        load(db.big, n, lambda at: {
            "_id": at, "k": rng.randrange(1000), "v": rng.random(), "s": rng.randbytes(8).hex(),
            "t": [rng.randrange(100), rng.randrange(100)], "sub": {"a": at % 97},
        })
        big = db.big

        def group(stage):
            return lambda: drain(big.aggregate([{"$group": stage}], allowDiskUse=True))

        measure(server, "$group by 1,000 keys, $sum $avg", n,
                group({"_id": "$k", "n": {"$sum": 1}, "v": {"$avg": "$v"}}))
        measure(server, "$group by 1,000 keys, $push", n, group({"_id": "$k", "all": {"$push": "$sub.a"}}))
        measure(server, "$group of all, $addToSet of 97", n, group({"_id": None, "s": {"$addToSet": "$sub.a"}}))
        measure(server, "sort of all, no index, $limit 10", n,
                lambda: drain(big.find().sort("s", 1).limit(10)))
        measure(server, "sort of all, no index, every document", n,
                lambda: drain(big.aggregate([{"$sort": {"s": 1}}, {"$project": {"_id": 1}}], allowDiskUse=True)))
        measure(server, "regex scan, no prefix", n, lambda: big.count_documents({"s": {"$regex": "ab.*cd"}}))
        measure(server, "scan, range of a double", n, lambda: big.count_documents({"v": {"$gt": 0.5}}))
        measure(server, "$unwind of pairs, $group by 100", n,
                lambda: drain(big.aggregate([{"$unwind": "$t"}, {"$group": {"_id": "$t", "n": {"$sum": 1}}}])))
        measure(server, "$setWindowFields: running sum by key", n, lambda: drain(big.aggregate([
            {"$setWindowFields": {"partitionBy": "$k", "sortBy": {"_id": 1}, "output": {
                "r": {"$sum": "$v", "window": {"documents": ["unbounded", "current"]}}}}},
            {"$count": "n"}], allowDiskUse=True)))
        measure(server, "$bucketAuto in 10", n,
                lambda: drain(big.aggregate([{"$bucketAuto": {"groupBy": "$v", "buckets": 10}}], allowDiskUse=True)))
        measure(server, "$facet of two groups", n, lambda: drain(big.aggregate([{"$facet": {
            "a": [{"$group": {"_id": "$sub.a", "n": {"$sum": 1}}}], "b": [{"$match": {"k": 1}}, {"$count": "n"}]}}])))
        measure(server, "distinct of 1,000", n, lambda: big.distinct("k"))
        big.create_index("k")
        measure(server, "$match by index, 1 of 1,000", n // 1000, lambda: drain(big.find({"k": 7})))
        load(db.left, pairs, lambda at: {"_id": at, "r": rng.randrange(pairs)})
        load(db.right, pairs, lambda at: {"_id": at, "f": at, "pay": "x" * 40})
        db.right.create_index("f")
        lookup = {"from": "right", "localField": "r", "foreignField": "f", "as": "o"}
        measure(server, "$lookup on an index", pairs,
                lambda: drain(db.left.aggregate([{"$lookup": lookup}, {"$match": {"o": []}}])))
        lookup = {"from": "right", "localField": "r", "foreignField": "_id", "as": "o"}
        measure(server, "$lookup on _id", pairs,
                lambda: drain(db.left.aggregate([{"$lookup": lookup}, {"$match": {"o": []}}])))
        merge = [{"$limit": 10_000}, {"$group": {"_id": None, "all": {"$push": {
            "$arrayToObject": [[["$s", 1]]]}}}}, {"$project": {"m": {"$size": {
                "$objectToArray": {"$mergeObjects": "$all"}}}}}]
        measure(server, "$mergeObjects over 10,000", 10_000, lambda: drain(big.aggregate(merge)))
        for size in (1000, 10_000):
            numbers = {"$range": [0, size]}
            for name, expression in (
                ("$reduce with $concatArrays", {"$reduce": {"input": numbers, "initialValue": [],
                                                "in": {"$concatArrays": ["$$value", ["$$this"]]}}}),
                ("$setUnion of distinct", {"$setUnion": [numbers, {"$range": [size, 2 * size]}]}),
                ("$sortArray", {"$sortArray": {"input": numbers, "sortBy": -1}}),
                ("$filter with $in", {"$filter": {"input": numbers, "cond": {"$in": ["$$this", [1, 2, 3]]}}}),
            ):
                work = [{"$limit": 1}, {"$project": {"x": {"$size": expression}}}]
                measure(server, f"{name}, {size:,}", size, lambda: drain(big.aggregate(work)))
        load(db.many, counted, lambda at: {"_id": at})
        measure(server, "estimated count", 1, db.many.estimated_document_count)
        measure(server, "count without a filter", 1, lambda: db.command("count", "many"))
        measure(server, "countDocuments({})", counted, lambda: db.many.count_documents({}))


if __name__ == "__main__":
    main()
