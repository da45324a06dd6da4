// The Java driver of TokuMX's own day, 2.14.3, against `fernd`: what its users' programs do. It
// speaks OP_QUERY, OP_GET_MORE, OP_INSERT, OP_UPDATE, OP_DELETE and getLastError.
//
// Run by tests/legacy_java_test.py with the server's connection string. Prints one line a check.

import com.mongodb.*;
import com.mongodb.gridfs.*;
import java.io.*;
import java.util.*;

public class Legacy {
    static int failed = 0;

    interface Work { void run() throws Exception; }

    static void check(String name, Work work) {
        try {
            work.run();
            System.out.println("ok   " + name);
        } catch (Throwable error) {
            failed += 1;
            System.out.println("FAIL " + name + ": " + error);
            error.printStackTrace(System.out);
        }
    }

    static void same(Object found, Object expected) {
        if (!Objects.equals(String.valueOf(found), String.valueOf(expected))) {
            throw new AssertionError("found " + found + ", expected " + expected);
        }
    }

    static DBObject doc(Object... fields) {
        BasicDBObject document = new BasicDBObject();
        for (int at = 0; at < fields.length; at += 2) document.append((String) fields[at], fields[at + 1]);
        return document;
    }

    public static void main(String[] arguments) throws Exception {
        MongoClient client = new MongoClient(new MongoClientURI(arguments[0]));
        client.dropDatabase("legacy");
        DB db = client.getDB("legacy");
        DBCollection c = db.getCollection("things");

        check("insert one and many, acknowledged", () -> {
            same(c.insert(doc("_id", 1, "x", 1)).getN(), 0);
            c.insert(Arrays.asList(doc("_id", 2, "x", 2), doc("_id", 3, "x", 3)), WriteConcern.SAFE);
            same(c.count(), 3);
        });
        check("a duplicate key is told by its exception, and a batch is all or nothing", () -> {
            try {
                c.insert(Arrays.asList(doc("_id", 9), doc("_id", 1)), WriteConcern.ACKNOWLEDGED);
                throw new AssertionError("no exception");
            } catch (DuplicateKeyException expected) {
                same(expected.getCode(), 11000);
            }
        });
        check("writes nobody waits for arrive, in order", () -> {
            for (int i = 100; i < 200; i++) c.insert(doc("_id", i, "y", i), WriteConcern.UNACKNOWLEDGED);
            c.update(doc("_id", 150), doc("$set", doc("y", -1)), false, false, WriteConcern.UNACKNOWLEDGED);
            c.remove(doc("_id", 151), WriteConcern.UNACKNOWLEDGED);
            same(c.findOne(150).get("y"), -1);
            same(c.findOne(151), null);
        });
        check("update, multi, upsert, save, remove tell their counts", () -> {
            same(c.update(doc("_id", 1), doc("$inc", doc("x", 10))).getN(), 1);
            WriteResult many = c.updateMulti(doc("y", doc("$gte", 190)), doc("$set", doc("z", true)));
            same(many.getN(), 10);
            WriteResult upsert = c.update(doc("_id", "new"), doc("$set", doc("a", 1)), true, false);
            same(upsert.getUpsertedId(), "new");
            c.save(doc("_id", "new", "a", 2));
            same(c.findOne("new").get("a"), 2);
            same(c.remove(doc("z", true)).getN(), 10);
        });
        check("find: sort, skip, limit, fields, batches through OP_GET_MORE", () -> {
            List<Object> ids = new ArrayList<>();
            DBCursor cursor = c.find(doc("y", doc("$gt", 100)), doc("y", 1)).sort(doc("y", -1)).skip(5).limit(50).batchSize(7);
            for (DBObject found : cursor) ids.add(found.get("_id"));
            same(ids.size(), 50);
            same(ids.get(0), 184);
            cursor.close();
            same(c.find().count(), c.count());
            same(c.find(doc("y", doc("$gt", 150))).limit(3).size(), 3);
        });
        check("hint, explain, distinct, findAndModify", () -> {
            c.createIndex(new BasicDBObject("y", 1), new BasicDBObject("name", "by_y"));
            same(c.find(doc("y", 170)).hint("by_y").toArray().size(), 1);
            DBObject plan = c.find(doc("y", 170)).explain();
            if (!plan.toString().contains("by_y")) throw new AssertionError(plan.toString());
            same(c.distinct("x").size(), 3);
            DBObject after = c.findAndModify(doc("_id", 2), null, null, false, doc("$set", doc("x", 20)), true, false);
            same(after.get("x"), 20);
        });
        check("indexes: made, listed, unique, dropped", () -> {
            c.createIndex(new BasicDBObject("u", 1), new BasicDBObject("unique", true).append("sparse", true));
            same(c.getIndexInfo().size(), 3);
            c.insert(doc("u", 5));
            try {
                c.insert(doc("u", 5));
                throw new AssertionError("no exception");
            } catch (DuplicateKeyException expected) { }
            c.dropIndex("by_y");
            same(c.getIndexInfo().size(), 2);
        });
        check("aggregation inline and by cursor; group by map-reduce", () -> {
            DBCollection s = db.getCollection("sales");
            for (int i = 0; i < 300; i++) s.insert(doc("_id", i, "k", i % 3, "v", i));
            List<DBObject> pipeline = Arrays.asList(
                doc("$group", doc("_id", "$k", "n", doc("$sum", 1))), doc("$sort", doc("_id", 1)));
            Iterator<DBObject> inline = s.aggregate(pipeline).results().iterator();
            same(inline.next().get("n"), 100);
            Cursor cursor = s.aggregate(Arrays.asList(doc("$match", doc("v", doc("$gte", 10)))),
                AggregationOptions.builder().outputMode(AggregationOptions.OutputMode.CURSOR).batchSize(20).build());
            int n = 0;
            while (cursor.hasNext()) { cursor.next(); n++; }
            same(n, 290);
            MapReduceOutput reduced = s.mapReduce(
                "function() { emit(this.k, this.v); }", "function(k, vs) { return Array.sum(vs); }",
                null, MapReduceCommand.OutputType.INLINE, null);
            n = 0;
            for (DBObject each : reduced.results()) n++;
            same(n, 3);
        });
        check("bulk operations, ordered and unordered", () -> {
            BulkWriteOperation bulk = c.initializeOrderedBulkOperation();
            bulk.insert(doc("_id", "b1"));
            bulk.find(doc("_id", "b1")).updateOne(doc("$set", doc("q", 1)));
            bulk.find(doc("_id", "b2")).upsert().replaceOne(doc("q", 2));
            bulk.find(doc("_id", "b1")).removeOne();
            BulkWriteResult result = bulk.execute();
            same(result.getInsertedCount() + result.getModifiedCount() + result.getUpserts().size() + result.getRemovedCount(), 4);
        });
        check("GridFS: stored, checked by the server's digest, read, removed", () -> {
            GridFS files = new GridFS(db, "files");
            byte[] bytes = new byte[1_000_003];
            new Random(5).nextBytes(bytes);
            GridFSInputFile in = files.createFile(bytes);
            in.setFilename("f");
            in.setChunkSize(50_000);
            in.save();
            in.validate();
            GridFSDBFile out = files.findOne("f");
            ByteArrayOutputStream back = new ByteArrayOutputStream();
            out.writeTo(back);
            same(Arrays.equals(back.toByteArray(), bytes), true);
            out.validate();
            files.remove("f");
            same(db.getCollection("files.chunks").count(), 0);
        });
        check("a tailable cursor on a capped collection", () -> {
            DBCollection log = db.createCollection("log", doc("capped", true, "size", 100_000));
            log.insert(doc("n", 1));
            DBCursor tail = log.find().addOption(Bytes.QUERYOPTION_TAILABLE).addOption(Bytes.QUERYOPTION_AWAITDATA);
            same(tail.next().get("n"), 1);
            new Thread(() -> log.insert(doc("n", 2))).start();
            same(tail.next().get("n"), 2);
            tail.close();
        });
        check("commands: names, stats, errors", () -> {
            same(db.getCollectionNames().contains("things"), true);
            same(client.getDatabaseNames().contains("legacy"), true);
            same(c.getStats().ok(), true);
            same(db.command("nonsense").ok(), false);
            same(db.getCollection("things").rename("renamed").getName(), "renamed");
            db.getCollection("renamed").drop();
        });
        check("a TokuMX transaction on one connection", () -> {
            DBCollection t = db.getCollection("txn");
            t.insert(doc("_id", 1, "v", 0));
            db.requestStart();
            try {
                db.requestEnsureConnection();
                same(db.command(doc("beginTransaction", 1, "isolation", "mvcc")).ok(), true);
                t.update(doc("_id", 1), doc("$set", doc("v", 1)));
                same(t.findOne(1).get("v"), 1);
                same(db.command(doc("rollbackTransaction", 1)).ok(), true);
                same(t.findOne(1).get("v"), 0);
            } finally {
                db.requestDone();
            }
        });
        client.dropDatabase("legacy");
        client.close();
        System.out.println(failed == 0 ? "0 failed" : failed + " FAILED");
        System.exit(failed == 0 ? 0 : 1);
    }
}
