// What a program of MongoDB 2.4's time does with the oplog, by its Java driver 2.14.3: it tails `local.oplog.rs` of a
// replica set with the flag `oplogReplay`, remembers the time of the last entry, and begins behind it where its cursor ends.
//
// Run by tests/oplog_tail_test.py with the set's connection string, a namespace and the time to begin behind (seconds, number).
// Prints an entry a line (seconds, number, operation, id, as JSON) until one has the id "last", to standard error why a cursor ended.

import com.mongodb.*;
import com.mongodb.util.JSON;
import org.bson.types.BSONTimestamp;

public class Tail {
    static BSONTimestamp last;
    static boolean ended = false;

    public static void main(String[] arguments) throws Exception {
        MongoClient client = new MongoClient(new MongoClientURI(arguments[0]));
        String namespace = arguments[1];
        last = new BSONTimestamp(Integer.parseInt(arguments[2]), Integer.parseInt(arguments[3]));
        while (!ended) {
            try {
                tail(client, namespace);
                if (!ended) System.err.println("a cursor came to an end");
            } catch (MongoException error) {
                System.err.println(error);
            }
            Thread.sleep(50);
        }
        client.close();
    }

    static void tail(MongoClient client, String namespace) {
        DBObject filter = new BasicDBObject("ts", new BasicDBObject("$gt", last)).append("ns", namespace);
        try (DBCursor cursor = client.getDB("local").getCollection("oplog.rs").find(filter)
                .sort(new BasicDBObject("$natural", 1))
                .addOption(Bytes.QUERYOPTION_TAILABLE | Bytes.QUERYOPTION_AWAITDATA
                    | Bytes.QUERYOPTION_OPLOGREPLAY | Bytes.QUERYOPTION_NOTIMEOUT)) {
            while (!ended && cursor.hasNext()) show(cursor.next());
        }
    }

    static void show(DBObject entry) {
        last = (BSONTimestamp) entry.get("ts");
        String operation = (String) entry.get("op");
        Object id = ((DBObject) entry.get(operation.equals("u") ? "o2" : "o")).get("_id");
        BasicDBList line = new BasicDBList();
        line.add(last.getTime());
        line.add(last.getInc());
        line.add(operation);
        line.add(id);
        System.out.println(JSON.serialize(line));
        System.out.flush();
        ended = "last".equals(id);
    }
}
