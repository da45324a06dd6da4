// YCSB's door to a MongoDB server: its own binding is on no package registry, so this one asks the
// driver for the same. `insertOne`; `find` of one `_id`, its first document; `updateOne` with `$set`;
// for a scan, `find` from an `_id` on, sorted by it, with a limit.
//
// YCSB makes one object a client thread; all of them share one driver, as an application would.
// Properties: `mongodb.url`, whose path names the database.

import com.mongodb.MongoClient;
import com.mongodb.MongoClientURI;
import com.mongodb.client.FindIterable;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.Projections;
import com.mongodb.client.model.Sorts;
import java.util.*;
import org.bson.Document;
import org.bson.conversions.Bson;
import org.bson.types.Binary;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

public class FernBinding extends DB {
    private static MongoClient client;
    private static int users;

    private MongoDatabase database;

    interface Request { boolean found(); }

    @Override
    public void init() throws DBException {
        String url = getProperties().getProperty("mongodb.url");
        if (url == null) throw new DBException("mongodb.url is not given");
        MongoClientURI address = new MongoClientURI(url);
        synchronized (FernBinding.class) {
            if (users++ == 0) client = new MongoClient(address);
            database = client.getDatabase(address.getDatabase());
        }
    }

    @Override
    public void cleanup() {
        synchronized (FernBinding.class) {
            if (--users == 0) client.close();
        }
    }

    @Override
    public Status insert(String table, String key, Map<String, ByteIterator> values) {
        return answer("insert", key, () -> {
            database.getCollection(table).insertOne(fields(new Document("_id", key), values));
            return true;
        });
    }

    @Override
    public Status read(
            String table, String key, Set<String> wanted, Map<String, ByteIterator> result) {
        return answer("read", key, () -> {
            Document found = find(table, Filters.eq("_id", key), wanted).first();
            if (found != null) result.putAll(record(found));
            return found != null;
        });
    }

    @Override
    public Status scan(
            String table, String first, int count, Set<String> wanted,
            Vector<HashMap<String, ByteIterator>> result) {
        return answer("scan", first, () -> {
            FindIterable<Document> range = find(table, Filters.gte("_id", first), wanted)
                    .sort(Sorts.ascending("_id")).limit(count);
            for (Document found : range) result.add(record(found));
            return !result.isEmpty();
        });
    }

    @Override
    public Status update(String table, String key, Map<String, ByteIterator> values) {
        Document change = new Document("$set", fields(new Document(), values));
        return answer("update", key, () -> database.getCollection(table)
                .updateOne(Filters.eq("_id", key), change).getMatchedCount() == 1);
    }

    @Override
    public Status delete(String table, String key) {
        return answer("delete", key, () -> database.getCollection(table)
                .deleteOne(Filters.eq("_id", key)).getDeletedCount() == 1);
    }

    /** What YCSB is told of a request; what went wrong is told on the standard error output. */
    private static Status answer(String verb, String key, Request request) {
        try {
            if (request.found()) return Status.OK;
            System.err.println(verb + " of " + key + ": no such record");
            return Status.NOT_FOUND;
        } catch (RuntimeException error) {
            System.err.println(verb + " of " + key + ": " + error);
            return Status.ERROR;
        }
    }

    private FindIterable<Document> find(
            String table, Bson filter, Set<String> wanted) {
        FindIterable<Document> found = database.getCollection(table).find(filter);
        return wanted == null
                ? found : found.projection(Projections.include(new ArrayList<>(wanted)));
    }

    private static Document fields(Document into, Map<String, ByteIterator> values) {
        values.forEach((name, value) -> into.append(name, value.toArray()));
        return into;
    }

    /** The fields of a document that YCSB put there: all but `_id`. */
    private static HashMap<String, ByteIterator> record(Document found) {
        HashMap<String, ByteIterator> record = new HashMap<>();
        found.forEach((name, value) -> {
            if (value instanceof Binary) {
                record.put(name, new ByteArrayByteIterator(((Binary) value).getData()));
            }
        });
        return record;
    }
}
