//! Fail points from the outside.

use super::Client;
use bson::{Document, doc};
use std::sync::atomic::Ordering;

fn configure(client: &Client, mode: impl Into<bson::Bson>, data: Document) -> Document {
    client.run("admin", doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data })
}

#[test]
fn fail_points_exist_only_in_tests() {
    let client = Client::new();
    let reply = configure(&client, "alwaysOn", doc! { "failCommands": ["ping"], "errorCode": 8 });
    assert_eq!(reply.get_i32("code").ok(), Some(59));
    let remote = client.run("admin", doc! { "setParameter": 1, "enableTestCommands": 1 });
    assert_eq!(remote.get_i32("code").ok(), Some(20));
}

#[test]
fn command_fails_as_often_as_asked() {
    let client = Client::new();
    client.service.test_commands.store(true, Ordering::Relaxed);
    let data =
        doc! { "failCommands": ["ping"], "errorCode": 91, "errorLabels": ["RetryableWriteError"] };
    configure(&client, doc! { "times": 1 }, data);
    let failed = client.run("admin", doc! { "ping": 1 });
    assert_eq!(failed.get_i32("code").ok(), Some(91));
    assert_eq!(failed.get_array("errorLabels").unwrap().len(), 1);
    client.ok("admin", doc! { "ping": 1 });
    assert_eq!(configure(&client, "off", doc! {}).get_i64("count").ok(), Some(1));
}

#[test]
fn connection_is_closed_and_write_concern_fails() {
    let client = Client::new();
    client.service.test_commands.store(true, Ordering::Relaxed);
    configure(&client, "alwaysOn", doc! { "failCommands": ["ping"], "closeConnection": true });
    assert!(client.reply("admin", &doc! { "ping": 1 }, false).hang_up);
    let error = doc! { "code": 64, "errmsg": "x" };
    let data = doc! { "failCommands": ["insert"], "writeConcernError": error.clone() };
    configure(&client, "alwaysOn", data);
    let reply = client.ok("db", doc! { "insert": "c", "documents": [{}] });
    assert_eq!(reply.get_document("writeConcernError").unwrap(), &error);
    assert_eq!(reply.get_i32("n").ok(), Some(1));
}

#[test]
fn modes_and_data_are_checked() {
    let client = Client::new();
    client.service.test_commands.store(true, Ordering::Relaxed);
    let mode = |mode: bson::Bson| doc! { "configureFailPoint": "failCommand", "mode": mode };
    let data = |data: Document| {
        doc! { "configureFailPoint": "failCommand", "mode": "off", "data": data }
    };
    let producer =
        |mode: bson::Bson| doc! { "configureFailPoint": "stopReplProducer", "mode": mode };
    for (command, expected) in [
        (doc! { "configureFailPoint": "failCommand" }, 20),
        (doc! { "configureFailPoint": "noSuchPoint", "mode": "off" }, 266),
        (mode("sometimes".into()), 2),
        (mode(1.into()), 14),
        (mode(doc! {}.into()), 2),
        (mode(doc! { "times": -1 }.into()), 2),
        (mode(doc! { "skip": "x" }.into()), 14),
        (mode(doc! { "activationProbability": 1 }.into()), 14),
        (mode(doc! { "activationProbability": 1.5 }.into()), 2),
        (mode(doc! { "activationProbability": 0.5 }.into()), 0),
        (data(doc! { "blockConnection": true }), 72),
        (data(doc! { "blockConnection": true, "blockTimeMS": 1 }), 0),
        (data(doc! { "failInternalCommands": true, "failLocalClients": false }), 0),
        (data(doc! { "failInternalCommands": "x" }), 14),
        (data(doc! { "unknown": 1 }), 40415),
        (producer("alwaysOn".into()), 76),
        (producer(doc! { "times": 1 }.into()), 2),
    ] {
        let reply = client.run("admin", command.clone());
        assert_eq!(reply.get_i32("code").unwrap_or(0), expected, "{command} gave {reply}");
    }
}

#[test]
fn a_fail_point_picks_commands_by_name_space_and_connection() {
    let client = Client::new();
    client.service.test_commands.store(true, Ordering::Relaxed);
    let other = client.another(2);
    let code = |client: &Client, command: Document| client.run("db", command).get_i32("code").ok();
    let all = doc! { "failAllCommands": true, "errorCode": 91 };
    configure(&client, "alwaysOn", all);
    assert_eq!(code(&client, doc! { "find": "c" }), Some(91));
    let name = format!("conn{}", other.connection.id());
    let data = doc! { "failCommands": ["find"], "threadName": name, "errorCode": 91 };
    configure(&client, "alwaysOn", data);
    assert_eq!(code(&client, doc! { "find": "c" }), None);
    assert_eq!(code(&other, doc! { "find": "c" }), Some(91));
    let data = doc! { "failCommands": ["find"], "namespace": "db.c", "errorCode": 91 };
    configure(&client, "alwaysOn", data);
    assert_eq!(code(&client, doc! { "find": "c" }), Some(91));
    assert_eq!(code(&client, doc! { "find": "d" }), None);
    let info = doc! { "expectedCollection": "x" };
    let data = doc! { "failCommands": ["find"], "errorCode": 361, "errorExtraInfo": info };
    configure(&client, "alwaysOn", data);
    let reply = client.run("db", doc! { "find": "c" });
    assert_eq!(reply.get_str("expectedCollection").ok(), Some("x"), "{reply}");
    configure(&client, "off", doc! {});
    assert_eq!(code(&client, doc! { "find": "c" }), None);
}

#[test]
fn a_blocked_command_ends_when_it_is_killed() {
    let client = Client::new();
    client.service.test_commands.store(true, Ordering::Relaxed);
    let data = doc! { "failCommands": ["find"], "blockConnection": true, "blockTimeMS": 600_000 };
    configure(&client, "alwaysOn", data);
    let (other, os) = (client.another(2), os::Os::real());
    let blocked = move || {
        let reply = other.run("db", doc! { "find": "c" });
        assert_eq!(reply.get_i32("code").ok(), Some(11601), "{reply}");
    };
    let thread = os.spawner.spawn("blocked", Box::new(blocked)).unwrap();
    let find = |client: &Client| {
        let list = client.ok("admin", doc! { "currentOp": 1, "command.find": "c" });
        let running = list.get_array("inprog").unwrap().first()?.as_document()?.clone();
        running.get("opid").cloned()
    };
    let opid = loop {
        match find(&client) {
            Some(opid) => break opid,
            None => os.clock.sleep(std::time::Duration::from_millis(5)),
        }
    };
    client.ok("admin", doc! { "killOp": 1, "op": opid });
    thread.join().unwrap();
}
