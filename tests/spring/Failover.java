// Spring Data's template and its transactions on a set whose primary dies meanwhile.
//
// Run by tests/odm_failover_test.py with the URI of the set. Prints a line for every ten rounds; ends when its
// standard input does, with what it was told was written. Any error that reaches it ends it with 1. A transaction
// of the transaction manager is tried again where its error says that it may be, as Spring's own guide has it:
// the manager itself tries nothing again.
import com.mongodb.ConnectionString;
import com.mongodb.MongoException;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import java.util.concurrent.atomic.AtomicBoolean;
import org.springframework.dao.DataAccessException;
import org.springframework.data.annotation.Id;
import org.springframework.data.mongodb.MongoTransactionManager;
import org.springframework.data.mongodb.core.MongoTemplate;
import org.springframework.data.mongodb.core.SimpleMongoClientDatabaseFactory;
import org.springframework.data.mongodb.core.query.Criteria;
import org.springframework.data.mongodb.core.query.Query;
import org.springframework.data.mongodb.core.query.Update;
import org.springframework.transaction.support.TransactionTemplate;

public class Failover {
    static final int ACCOUNTS = 10;

    public static class Account {
        @Id public int id;
        public int coins;

        public Account() {}

        Account(int id, int coins) {
            this.id = id;
            this.coins = coins;
        }
    }

    public static class Entry {
        @Id public int id;
        public int from;

        public Entry() {}

        Entry(int id, int from) {
            this.id = id;
            this.from = from;
        }
    }

    static Query by(int id) {
        return Query.query(Criteria.where("_id").is(id));
    }

    static void move(MongoTemplate template, int round) {
        Account giver = template.findById(round % ACCOUNTS, Account.class);
        giver.coins -= 1;
        template.save(giver);
        template.updateFirst(by((round + 3) % ACCOUNTS), new Update().inc("coins", 1), Account.class);
        template.insert(new Entry(round, giver.id));
    }

    // Spring translates the driver's errors, and `withTransaction` tries again by its own errors' labels alone:
    // inside it they are given back as they were.
    static void moveForTheDriver(MongoTemplate template, int round) {
        try {
            move(template, round);
        } catch (DataAccessException error) {
            throw error.getCause() instanceof MongoException own ? own : error;
        }
    }

    static boolean mayBeTriedAgain(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof MongoException mongo
                    && mongo.hasErrorLabel(MongoException.TRANSIENT_TRANSACTION_ERROR_LABEL)) {
                return true;
            }
        }
        return false;
    }

    public static void main(String[] args) throws Exception {
        AtomicBoolean stop = new AtomicBoolean();
        Thread reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (java.io.IOException e) {
                throw new RuntimeException(e);
            } finally {
                stop.set(true);
            }
        });
        reader.setDaemon(true);
        reader.start();
        try (MongoClient client = MongoClients.create(new ConnectionString(args[0]))) {
            SimpleMongoClientDatabaseFactory factory = new SimpleMongoClientDatabaseFactory(client, "failover");
            MongoTemplate template = new MongoTemplate(factory);
            TransactionTemplate transactions = new TransactionTemplate(new MongoTransactionManager(factory));
            template.createCollection(Entry.class);
            template.createCollection("note");
            for (int i = 0; i < ACCOUNTS; i++) {
                template.insert(new Account(i, 100));
            }
            int round = 0;
            int again = 0;
            while (!stop.get()) {
                final int now = round;
                if (round % 2 == 0) {
                    while (true) {
                        try {
                            transactions.executeWithoutResult(status -> move(template, now));
                            break;
                        } catch (RuntimeException error) {
                            if (!mayBeTriedAgain(error)) {
                                throw error;
                            }
                            again += 1;
                        }
                    }
                } else {
                    try (ClientSession session = client.startSession()) {
                        session.withTransaction(() -> {
                            moveForTheDriver(template.withSession(session), now);
                            return null;
                        });
                    }
                }
                template.insert(new org.bson.Document("_id", now), "note");
                template.updateFirst(by(now), new Update().inc("seen", 1), "note");
                template.findAndModify(by(now), new Update().set("again", true), org.bson.Document.class, "note");
                int sum = template.findAll(Account.class).stream().mapToInt(account -> account.coins).sum();
                if (sum != ACCOUNTS * 100) {
                    throw new AssertionError("coins: " + sum);
                }
                round += 1;
                if (round % 10 == 0) {
                    System.out.println(round + " rounds");
                }
            }
            System.out.println("done " + round);
            System.err.println(again + " transactions of the manager were begun again");
        } catch (DataAccessException | MongoException error) {
            error.printStackTrace();
            System.exit(1);
        }
    }
}
