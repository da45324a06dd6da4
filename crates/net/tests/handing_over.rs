//! Connections that become links: the socket leaves, and nothing that was said is lost.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "support/fake.rs"]
mod fake;

use bson::{RawDocumentBuf, rawdoc};
use fake::{eventually, msg, ok, ping, start};
use std::io::{Read, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::{MsgFlags, OpQuery, QueryFlags};

fn link() -> RawDocumentBuf {
    rawdoc! { "link": 1, "$db": "admin" }
}

#[test]
fn a_connection_is_handed_over_with_what_was_said_behind_the_request() {
    let running = start();
    let mut client = running.connect();
    let mut bytes = msg(MsgFlags::NONE, &ping());
    bytes.extend(msg(MsgFlags::NONE, &link()));
    bytes.extend(b"frames that are no messages");
    client.send(&bytes);
    assert!(ok(&client.receive().document));
    assert!(ok(&client.receive().document), "it is answered before it leaves");
    eventually("it is handed over", || running.service.handed_over.lock().len() == 1);
    let link = running.service.handed_over.lock().pop().unwrap();
    let (mut socket, mut input) = (link.socket, link.input);
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.send(b", and more");
    let mut got = Vec::new();
    while got.len() < 37 {
        let mut piece = [0; 64];
        let count = input.read(&mut piece).unwrap();
        got.extend_from_slice(&piece[..count]);
    }
    assert_eq!(got, b"frames that are no messages, and more");
    socket.write_all(b"back").unwrap();
    let mut back = [0; 4];
    client.stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"back");
    assert_eq!(running.stats.open(), 0, "it is no client's connection any more");
    assert_eq!(running.service.closed.load(Ordering::Relaxed), 1);
    assert!(ok(&running.connect().call(&ping())), "its token is another's");
    running.server.stop(Duration::ZERO);
    client.send(b"!");
    input.read_exact(&mut back[..1]).unwrap();
    assert_eq!(&back[..1], b"!", "the server's end is not the link's");
    drop((socket, input));
    assert!(client.is_closed());
}

#[test]
fn what_is_not_answered_or_old_is_not_handed_over() {
    let running = start();
    let mut silent = running.connect();
    silent.send(&msg(MsgFlags::MORE_TO_COME, &link()));
    assert!(silent.is_closed());
    let mut old = running.connect();
    let mut frame = Vec::new();
    let query = OpQuery {
        flags: QueryFlags::default(),
        namespace: "admin.$cmd",
        skip: 0,
        number_to_return: -1,
        query: &rawdoc! { "link": 1 },
        fields: None,
    };
    wire::encode_query(&mut frame, 5, &query);
    old.send(&frame);
    assert!(old.is_closed());
    assert!(running.service.handed_over.lock().is_empty());
}

#[test]
fn many_leave_at_once_and_each_has_its_own_socket() {
    let running = start();
    let mut clients: Vec<_> = (0..50).map(|_| running.connect()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        let mut bytes = msg(MsgFlags::NONE, &link());
        bytes.push(at as u8);
        client.send(&bytes);
    }
    for client in &mut clients {
        assert!(ok(&client.receive().document));
    }
    eventually("all are handed over", || running.service.handed_over.lock().len() == 50);
    for mut link in running.service.handed_over.lock().drain(..) {
        link.socket.set_nonblocking(false).unwrap();
        link.socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut read = [0];
        link.input.read_exact(&mut read).unwrap();
        link.socket.write_all(&read).unwrap();
    }
    for (at, client) in clients.iter_mut().enumerate() {
        let mut back = [0];
        client.stream.read_exact(&mut back).unwrap();
        assert_eq!(usize::from(back[0]), at);
        assert!(client.is_closed());
    }
}
