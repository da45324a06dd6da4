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
