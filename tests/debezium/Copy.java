// Debezium's engine with its connector for MongoDB: a collection is copied to another server, first as it is and then as it changes.
//
// Run by tests/debezium_test.py with the connection strings of both, the namespace and the file in which the engine remembers
// how far it is. Prints how many events it has applied now and then, and ends behind the one of the document "last".

import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.BulkWriteOptions;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.ReplaceOptions;
import com.mongodb.client.model.WriteModel;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.bson.Document;

public class Copy {
    static final CountDownLatch ended = new CountDownLatch(1);
    static volatile boolean isWhole = false;
    static long applied = 0;
    static long snapshot = 0;

    public static void main(String[] arguments) throws Exception {
        String[] name = arguments[2].split("\\.", 2);
        MongoCollection<Document> target =
            MongoClients.create(arguments[1]).getDatabase(name[0]).getCollection(name[1]);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(properties(arguments))
            .using((success, message, error) -> {
                if (!isWhole) System.err.println("the engine ended: " + message + " " + error);
                ended.countDown();
            })
            .notifying((events, committer) -> {
                apply(target, events);
                for (ChangeEvent<String, String> event : events) committer.markProcessed(event);
                committer.markBatchFinished();
            })
            .build();
        Thread worker = new Thread(engine, "engine");
        worker.setDaemon(true);
        worker.start();
        ended.await();
        System.out.println((isWhole ? "done " : "ended ") + snapshot + " " + applied);
        System.out.flush();
        Runtime.getRuntime().halt(isWhole ? 0 : 1);
    }

    static Properties properties(String[] arguments) {
        Properties of = new Properties();
        of.setProperty("name", "copy");
        of.setProperty("topic.prefix", "copy");
        of.setProperty("connector.class", "io.debezium.connector.mongodb.MongoDbConnector");
        of.setProperty("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        of.setProperty("offset.storage.file.filename", arguments[3]);
        of.setProperty("offset.flush.interval.ms", "500");
        of.setProperty("mongodb.connection.string", arguments[0]);
        of.setProperty("collection.include.list", arguments[2].replace(".", "\\."));
        of.setProperty("converter.schemas.enable", "false");
        of.setProperty("tombstones.on.delete", "false");
        return of;
    }

    static void apply(MongoCollection<Document> target, List<ChangeEvent<String, String>> events) {
        List<WriteModel<Document>> writes = new ArrayList<>();
        boolean hasLast = false;
        for (ChangeEvent<String, String> event : events) {
            if (event.value() == null) continue;
            Document value = Document.parse(event.value());
            if (!value.containsKey("op")) continue;
            Document key = Document.parse("{_id: " + Document.parse(event.key()).getString("id") + "}");
            String after = value.getString("after");
            if (after == null) {
                writes.add(new DeleteOneModel<>(key));
            } else {
                writes.add(new ReplaceOneModel<>(key, Document.parse(after), new ReplaceOptions().upsert(true)));
            }
            if (value.getString("op").equals("r")) snapshot++;
            hasLast |= "last".equals(key.get("_id"));
        }
        if (!writes.isEmpty()) target.bulkWrite(writes, new BulkWriteOptions().ordered(true));
        applied += writes.size();
        System.out.println("applied " + snapshot + " " + applied);
        System.out.flush();
        if (hasLast) {
            isWhole = true;
            ended.countDown();
        }
    }
}
