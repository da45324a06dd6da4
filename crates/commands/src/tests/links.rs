//! `hello` with `fernLink`, by which another member turns a connection into a link.

use super::Client;
use bson::{Document, RawDocument, RawDocumentBuf, doc, rawdoc};
use dispatch::{AcceptedLink, ConnectionInfo, LinkAcceptor, OpKind, Request};
use errors::{Code, Error, Result};
use serverstate::replication::ReplicaSetOptions;
use std::sync::Arc;

/// Takes every link that says `let_in`.
struct Takes;

impl LinkAcceptor for Takes {
    fn accept(&self, hello: &RawDocument, peer: &ConnectionInfo) -> Result<AcceptedLink> {
        if hello.get("let_in")?.is_none() {
            let text = format!("{} is not let in", peer.remote);
            return Err(Error::new(Code::INVALID_REPLICA_SET_CONFIG, text));
        }
        Ok(AcceptedLink { answer: rawdoc! { "welcome": true }, frames: 7, take: Box::new(drop) })
    }
}

fn hello() -> Document {
    doc! { "hello": 1, "fernLink": { "let_in": 1 } }
}

fn member(initiate: bool) -> Client {
    let options = ReplicaSetOptions { name: "rs".into(), address: "here:1".into(), initiate };
    let client = Client::member(options);
    client.service.start_replication().unwrap();
    client
}

#[test]
fn a_server_that_is_in_no_set_refuses_links_and_says_why() {
    for (client, code, why) in [
        (Client::new(), 76, "it runs without --replSet"),
        (member(false), 94, "it waits for replSetInitiate"),
        (member(true), 93, "its replica set has no other members"),
    ] {
        let reply = client.reply("admin", &hello(), false);
        assert!(reply.hand_over.is_none());
        let reply = Document::try_from(reply.document).unwrap();
        assert_eq!(reply.get_i32("code").ok(), Some(code));
        let text = reply.get_str("errmsg").unwrap();
        assert!(text.starts_with("this server takes no links") && text.ends_with(why), "{text}");
        client.ok("admin", doc! { "hello": 1 });
    }
}

#[test]
fn a_link_that_is_let_in_is_answered_and_handed_over() {
    let client = member(true);
    client.service.links.set(Some(Arc::new(Takes)));
    let reply = client.reply("admin", &hello(), false);
    assert!(reply.hand_over.is_some());
    let reply = Document::try_from(reply.document).unwrap();
    assert_eq!(reply.get_document("fernLink").unwrap(), &doc! { "welcome": true });
    assert_eq!(reply.get_i32("fernFrames").unwrap(), 7);
    let refused = client.reply("admin", &doc! { "hello": 1, "fernLink": {} }, false);
    assert!(refused.hand_over.is_none());
    assert_eq!(refused.document.get_i32("code").ok(), Some(93));
    client.service.links.set(None);
    assert!(client.reply("admin", &hello(), false).hand_over.is_none());
}

#[test]
fn a_link_is_opened_by_hello_alone() {
    let client = member(true);
    client.service.links.set(Some(Arc::new(Takes)));
    let link = || doc! { "let_in": 1 };
    for (database, command) in [
        ("admin", doc! { "isMaster": 1, "fernLink": link() }),
        ("test", hello()),
        ("admin", doc! { "hello": 1, "fernLink": link(), "compression": ["zstd"] }),
        ("admin", doc! { "hello": 1, "fernLink": 1 }),
    ] {
        let reply = client.reply(database, &command, false);
        assert!(reply.hand_over.is_none(), "{command}");
        assert!(matches!(reply.document.get_i32("code"), Ok(72 | 14)), "{:?}", reply.document);
    }
    let body = RawDocumentBuf::try_from(&hello()).unwrap();
    let request = Request {
        database: "admin",
        body: &body,
        sequences: &[],
        op: OpKind::Query,
        exhaust_allowed: false,
        request_id: 1,
        waited_until: None,
        waker: None,
        finisher: None,
    };
    assert!(client.service.run(&client.connection, &request).hand_over.is_none());
}
