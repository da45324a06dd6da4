//! Capped collections and tailable cursors, as a client meets them.

use super::*;
use bson::Bson;
use std::sync::atomic::{AtomicUsize, Ordering};

fn capped(client: &Client, options: Document) {
    let mut create = doc! { "create": "c", "capped": true };
    create.extend(options);
    client.ok("db", create);
}

fn insert(client: &Client, ids: impl IntoIterator<Item = i32>) {
    let documents: Vec<Document> = ids.into_iter().map(|id| doc! { "_id": id }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
}

fn batch(reply: &Document, name: &str) -> Vec<i32> {
    let cursor = reply.get_document("cursor").unwrap();
    let of = |value: &Bson| value.as_document().unwrap().get_i32("_id").unwrap();
    cursor.get_array(name).unwrap().iter().map(of).collect()
}

fn code(reply: &Document) -> i32 {
    reply.get_i32("code").unwrap()
}

fn id_of(reply: &Document) -> i64 {
    reply.get_document("cursor").unwrap().get_i64("id").unwrap()
}

fn found(client: &Client, find: Document) -> Vec<i32> {
    let mut command = doc! { "find": "c" };
    command.extend(find);
    batch(&client.ok("db", command), "firstBatch")
}

#[test]
fn natural_order_is_the_order_of_insertion() {
    let client = Client::new();
    capped(&client, doc! { "size": 4096, "max": 4 });
    insert(&client, [5, 3, 9, 1, 7]);
    assert_eq!(found(&client, doc! {}), [3, 9, 1, 7]);
    assert_eq!(found(&client, doc! { "projection": { "_id": 1 } }), [3, 9, 1, 7]);
    assert_eq!(found(&client, doc! { "sort": { "$natural": -1 } }), [7, 1, 9, 3]);
    assert_eq!(found(&client, doc! { "sort": { "_id": 1 } }), [1, 3, 7, 9]);
    assert_eq!(found(&client, doc! { "filter": { "_id": { "$gt": 3 } } }), [7, 9]);
    let aggregate =
        doc! { "aggregate": "c", "pipeline": [{ "$project": { "_id": 1 } }], "cursor": {} };
    assert_eq!(batch(&client.ok("db", aggregate), "firstBatch"), [3, 9, 1, 7]);
    client.ok("db", doc! { "delete": "c", "deletes": [{ "q": { "_id": 9 }, "limit": 1 }] });
    let update = doc! { "q": { "_id": 1 }, "u": { "$set": { "text": "longer than it was" } } };
    let reply = client.ok("db", doc! { "update": "c", "updates": [update] });
    assert_eq!(reply.get_i32("nModified").unwrap(), 1);
    insert(&client, [2]);
    assert_eq!(found(&client, doc! {}), [3, 1, 7, 2]);
}

#[test]
fn its_options_and_figures_are_shown() {
    let client = Client::new();
    capped(&client, doc! { "size": 4096, "max": 4 });
    let options = |client: &Client| {
        let list = client.ok("db", doc! { "listCollections": 1 });
        let first =
            list.get_document("cursor").unwrap().get_array("firstBatch").unwrap()[0].clone();
        first.as_document().unwrap().get_document("options").unwrap().clone()
    };
    assert_eq!(options(&client), doc! { "capped": true, "size": 4096, "max": 4 });
    client.ok("db", doc! { "collMod": "c", "cappedSize": 1000.0, "cappedMax": 2_i64 });
    assert_eq!(options(&client), doc! { "capped": true, "size": 1000, "max": 2 });
    let stats = client.ok("db", doc! { "collStats": "c" });
    let figures = ["max", "maxSize"].map(|name| stats.get_i32(name).unwrap());
    assert_eq!((stats.get_bool("capped").unwrap(), figures), (true, [2, 1000]));
    client.ok("db", doc! { "create": "plain" });
    let refused = client.run("db", doc! { "collMod": "plain", "cappedSize": 1000 });
    assert_eq!(code(&refused), 72);
    client.ok("db", doc! { "convertToCapped": "plain", "size": 2000 });
    let stats = client.ok("db", doc! { "collStats": "plain" });
    assert!(stats.get_bool("capped").unwrap());
    client.fails("db", doc! { "emptycapped": "c" }, 59, "no such command: 'emptycapped'");
}

#[test]
fn what_has_no_room_is_refused() {
    let client = Client::new();
    capped(&client, doc! { "size": 100 });
    let document = doc! { "text": "x".repeat(200) };
    let reply = client.ok("db", doc! { "insert": "c", "documents": [document] });
    let errors = reply.get_array("writeErrors").unwrap();
    let error = errors[0].as_document().unwrap();
    assert_eq!((code(error), reply.get_i32("n").unwrap()), (2, 0));
    let out = doc! { "aggregate": "x", "pipeline": [{ "$out": "c" }], "cursor": {} };
    assert_eq!(code(&client.run("db", out)), 17152);
    let ttl = doc! { "key": { "t": 1 }, "name": "t_1", "expireAfterSeconds": 5 };
    let ttl = client.run("db", doc! { "createIndexes": "c", "indexes": [ttl] });
    assert_eq!(code(&ttl), 67);
}

#[test]
fn a_tail_goes_on_where_it_ended() {
    let client = Client::new();
    capped(&client, doc! { "size": 4096, "max": 3 });
    let tail = doc! { "find": "c", "tailable": true };
    assert_eq!(id_of(&client.ok("db", tail.clone())), 0);
    insert(&client, [1, 2]);
    let first = client.ok("db", tail);
    assert_eq!(batch(&first, "firstBatch"), [1, 2]);
    let more = doc! { "getMore": id_of(&first), "collection": "c" };
    let next = client.ok("db", more.clone());
    assert_eq!((batch(&next, "nextBatch"), id_of(&next)), (vec![], id_of(&first)));
    insert(&client, [0, 5]);
    assert_eq!(batch(&client.ok("db", more.clone()), "nextBatch"), [0, 5]);
    insert(&client, [11, 12, 13]);
    assert_eq!(code(&client.run("db", more.clone())), 136);
    assert_eq!(code(&client.run("db", more)), 43);
}

#[test]
fn a_tail_that_lost_its_place_within_a_batch_ends_at_once() {
    let client = Client::new();
    capped(&client, doc! { "size": 4096, "max": 3 });
    insert(&client, [1, 2, 3]);
    for wait in [false, true] {
        let tail = doc! { "find": "c", "tailable": true, "awaitData": wait, "batchSize": 1 };
        let first = client.ok("db", tail);
        let more = doc! { "getMore": id_of(&first), "collection": "c", "batchSize": 1 };
        let next = client.ok("db", more.clone());
        assert_eq!(batch(&next, "nextBatch").len(), 1, "the place is there");
        insert(&client, [4, 5, 6].map(|n| n + batch(&next, "nextBatch")[0] * 10));
        assert_eq!(code(&client.run("db", more.clone())), 136);
        assert_eq!(code(&client.run("db", more)), 43);
    }
}

#[test]
fn a_waiting_tail_is_woken_by_an_insert_and_ended_by_a_drop() {
    let client = Client::new();
    capped(&client, doc! { "size": 4096 });
    insert(&client, [1]);
    let tail = doc! { "find": "c", "tailable": true, "awaitData": true, "filter": { "_id": { "$gt": 1 } } };
    let first = client.ok("db", tail);
    let more = doc! { "getMore": id_of(&first), "collection": "c", "maxTimeMS": 600_000 };
    let other = client.another(2);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.ok("db", more.clone()));
        insert(&other, [0]);
        insert(&other, [4]);
        assert_eq!(batch(&waiting.join().unwrap(), "nextBatch"), [4]);
        let waiting = scope.spawn(|| client.run("db", more.clone()));
        other.ok("db", doc! { "drop": "c" });
        assert_eq!(code(&waiting.join().unwrap()), 175);
    });
}

/// What wakes a request, and how often it did.
fn waker() -> (Wake, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let wake = move || {
        counted.fetch_add(1, Ordering::SeqCst);
    };
    (Arc::new(wake), count)
}

/// A client, and a getMore of its that waits at the end of a tail; until when, what wakes it and how often it did.
fn waiting_tail(time_ms: i64) -> (Client, Document, Duration, Wake, Arc<AtomicUsize>) {
    let client = Client::new();
    capped(&client, doc! { "size": 4096 });
    insert(&client, [1]);
    let first = client.ok("db", doc! { "find": "c", "tailable": true, "awaitData": true });
    let more = doc! { "getMore": id_of(&first), "collection": "c", "maxTimeMS": time_ms };
    let (wake, woken) = waker();
    let until = client.arrive(&more, None, &wake).wait.unwrap();
    (client, more, until, wake, woken)
}

fn answer(reply: Reply) -> Document {
    assert_eq!(reply.wait, None);
    Document::try_from(&reply.document).unwrap()
}

#[test]
fn a_tail_that_can_be_run_again_holds_no_thread_and_is_woken_by_an_insert() {
    let (client, more, until, wake, woken) = waiting_tail(600_000);
    let now = client.service.os.clock.monotonic();
    assert!(until > now + Duration::from_secs(500) && until <= now + Duration::from_mins(10));
    assert!(client.service.operations.list().is_empty(), "it is no running operation");
    let other = client.another(2);
    assert_eq!(code(&other.run("db", more.clone())), 143);
    client.service.housekeep();
    assert_eq!(woken.load(Ordering::SeqCst), 0);
    insert(&other, [4]);
    assert_eq!(woken.load(Ordering::SeqCst), 1);
    insert(&other, [5]);
    assert_eq!(woken.load(Ordering::SeqCst), 1, "once is enough");
    let reply = answer(client.arrive(&more, Some(until), &wake));
    assert_eq!((batch(&reply, "nextBatch"), id_of(&reply) != 0), (vec![4, 5], true));
    // Run again for nothing it waits for the rest of its time.
    let until = client.arrive(&more, None, &wake).wait.unwrap();
    assert_eq!(client.arrive(&more, Some(until), &wake).wait, Some(until));
    insert(&other, [6]);
    assert_eq!(batch(&answer(client.arrive(&more, Some(until), &wake)), "nextBatch"), [6]);
    let counts = client.ok("db", doc! { "serverStatus": 1 });
    let counts = counts.get_document("opcounters").unwrap();
    assert_eq!(counts.get_i64("getmore").unwrap(), 3, "each is counted once");
}

#[test]
fn a_tail_that_waits_is_answered_empty_when_its_time_has_come() {
    let (client, more, until, wake, _) = waiting_tail(20);
    client.service.os.clock.sleep(Duration::from_millis(30));
    let reply = answer(client.arrive(&more, Some(until), &wake));
    assert_eq!((batch(&reply, "nextBatch"), id_of(&reply) != 0), (vec![], true));
    assert_eq!(client.service.cursors.stats().pinned, 0);
}

#[test]
fn a_tail_that_waits_ends_with_its_cursor_its_collection_its_connection_and_the_server() {
    let again = |client: &Client, more: &Document, until, wake| {
        code(&answer(client.arrive(more, Some(until), wake)))
    };
    let (client, more, until, wake, woken) = waiting_tail(600_000);
    let ids = [more.get_i64("getMore").unwrap()];
    let kill = doc! { "killCursors": "c", "cursors": &ids[..] };
    let reply = client.another(2).ok("db", kill);
    assert_eq!(reply.get_array("cursorsKilled").unwrap().len(), 1);
    assert_eq!(woken.load(Ordering::SeqCst), 1);
    assert_eq!(again(&client, &more, until, &wake), 237);

    let (client, more, until, wake, woken) = waiting_tail(600_000);
    client.another(2).ok("db", doc! { "drop": "c" });
    assert_eq!(woken.load(Ordering::SeqCst), 1);
    assert_eq!(again(&client, &more, until, &wake), 175);
    assert_eq!(client.service.cursors.stats().open, 0);

    let (client, ..) = waiting_tail(600_000);
    client.service.close_connection(&client.connection);
    assert_eq!(client.service.cursors.stats().open, 0);

    let (client, more, until, wake, _) = waiting_tail(600_000);
    client.service.end_waits();
    assert_eq!(again(&client, &more, until, &wake), 11600);
    assert_eq!(client.service.cursors.stats().open, 0);
}

#[test]
fn a_tail_that_fails_before_it_takes_its_cursor_again_leaves_none() {
    let (client, mut more, until, wake, _) = waiting_tail(600_000);
    more.insert("nonsense", 1);
    assert_eq!(code(&answer(client.arrive(&more, Some(until), &wake))), 40415);
    assert_eq!(client.service.cursors.stats().open, 0);
}

#[test]
fn a_tail_that_has_waited_does_not_meet_a_fail_point_again() {
    let (client, more, until, wake, _) = waiting_tail(600_000);
    client.service.test_commands.store(true, Ordering::Relaxed);
    let fail = doc! {
        "configureFailPoint": "failCommand", "mode": "alwaysOn",
        "data": { "failCommands": ["getMore"], "errorCode": 11 },
    };
    let other = client.another(2);
    other.ok("admin", fail);
    insert(&other, [2]);
    assert_eq!(batch(&answer(client.arrive(&more, Some(until), &wake)), "nextBatch"), [2]);
    assert_eq!(code(&client.run("db", more)), 11);
}

#[test]
fn a_tail_that_waited_in_vain_is_empty_and_open() {
    let client = Client::new();
    capped(&client, doc! { "size": 4096 });
    insert(&client, [1]);
    let first = client.ok("db", doc! { "find": "c", "tailable": true, "awaitData": true });
    let more = doc! { "getMore": id_of(&first), "collection": "c", "maxTimeMS": 20 };
    let next = client.ok("db", more);
    assert_eq!((batch(&next, "nextBatch"), id_of(&next)), (vec![], id_of(&first)));
}

#[test]
fn tails_are_for_capped_collections_in_their_order() {
    let client = Client::new();
    client.ok("db", doc! { "create": "plain" });
    client.fails(
        "db",
        doc! { "find": "plain", "tailable": true },
        2,
        "error processing query: ns=db.plain tailable cursor requested on non capped collection",
    );
    capped(&client, doc! { "size": 4096 });
    for options in [doc! { "sort": { "_id": 1 } }, doc! { "singleBatch": true }] {
        let mut find = doc! { "find": "c", "tailable": true };
        find.extend(options);
        assert_eq!(code(&client.run("db", find)), 2);
    }
}
