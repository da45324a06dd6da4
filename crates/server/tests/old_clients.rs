//! A client from before OP_MSG against the program itself.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "support/ports.rs"]
mod ports;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use ports::free_port;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use wire::{
    Delete, GetMore, Insert, KillCursors, Message, MsgFlags, OpQuery, QueryFlags, ReplyFlags,
    Update,
};

struct Fernd {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Fernd {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fernd"));
        command.current_dir(directory.path());
        command.args(["--nounixsocket", "--cacheSize", "64M", "--port", &port.to_string()]);
        command.args(["--statusPort", "0"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        Self { child, port, _directory: directory }
    }

    fn connect(&self) -> Client {
        for _ in 0..4000 {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                return Client { stream, number: 0 };
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("fernd does not listen");
    }
}

impl Drop for Fernd {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

struct Client {
    stream: TcpStream,
    number: i32,
}

struct Answer {
    flags: u32,
    cursor_id: i64,
    starting_from: i32,
    documents: Vec<RawDocumentBuf>,
}

impl Answer {
    fn ids(&self) -> Vec<i32> {
        self.documents.iter().map(|document| document.get_i32("_id").unwrap()).collect()
    }

    fn failure(&self) -> (i32, String) {
        assert!(self.flags & ReplyFlags::QUERY_FAILURE.0 != 0, "{:?}", self.documents);
        assert_eq!((self.cursor_id, self.documents.len()), (0, 1));
        let document = &self.documents[0];
        (document.get_i32("code").unwrap(), document.get_str("$err").unwrap().to_owned())
    }
}

impl Client {
    fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>, i32)) {
        self.number += 1;
        let mut frame = Vec::new();
        encode(&mut frame, self.number);
        self.stream.write_all(&frame).unwrap();
    }

    fn receive(&mut self) -> Answer {
        let mut frame = vec![0; 4];
        self.stream.read_exact(&mut frame).unwrap();
        frame.resize(u32::from_le_bytes(frame[..4].try_into().unwrap()) as usize, 0);
        self.stream.read_exact(&mut frame[4..]).unwrap();
        let Ok((header, Message::Reply(reply))) = wire::decode(&frame) else {
            panic!("not an OP_REPLY")
        };
        assert_eq!(header.response_to, self.number);
        Answer {
            flags: reply.flags.0,
            cursor_id: reply.cursor_id,
            starting_from: reply.starting_from,
            documents: reply.documents.iter().map(|&document| document.to_owned()).collect(),
        }
    }

    fn ask(&mut self, query: &OpQuery<'_>) -> Answer {
        self.send(|out, number| wire::encode_query(out, number, query));
        self.receive()
    }

    fn find(&mut self, query: &RawDocument, number_to_return: i32) -> Answer {
        self.ask(&OpQuery { number_to_return, query, ..blank("t.c", query) })
    }

    fn more(&mut self, cursor_id: i64, number_to_return: i32) -> Answer {
        let more = GetMore { namespace: "t.c", number_to_return, cursor_id };
        self.send(|out, number| more.encode(out, number));
        self.receive()
    }

    fn command(&mut self, namespace: &str, command: &RawDocument) -> RawDocumentBuf {
        let answer = self.ask(&OpQuery { number_to_return: -1, ..blank(namespace, command) });
        assert_eq!((answer.cursor_id, answer.documents.len()), (0, 1));
        answer.documents.into_iter().next().unwrap()
    }

    fn insert(&mut self, flags: u32, documents: &[RawDocumentBuf]) {
        let documents = documents.iter().map(AsRef::as_ref).collect();
        let insert = Insert { flags, namespace: "t.c", documents };
        self.send(|out, number| insert.encode(out, number));
    }

    fn update(&mut self, flags: u32, selector: &RawDocument, update: &RawDocument) {
        let update = Update { namespace: "t.c", flags, selector, update };
        self.send(|out, number| update.encode(out, number));
    }

    fn delete(&mut self, flags: u32, selector: &RawDocument) {
        let delete = Delete { namespace: "t.c", flags, selector };
        self.send(|out, number| delete.encode(out, number));
    }

    fn last_error(&mut self) -> RawDocumentBuf {
        let reply = self.command("t.$cmd", &rawdoc! { "getlasterror": 1 });
        assert!(reply.get_f64("ok").unwrap() > 0.5, "{reply:?}");
        reply
    }

    /// `n` and the code of the error, which is 0 for none.
    fn came_to(&mut self) -> (i32, i32) {
        let last = self.last_error();
        (last.get_i32("n").unwrap(), last.get_i32("code").unwrap_or(0))
    }

    fn fill(&mut self, count: i32) {
        let documents: Vec<_> = (0..count).map(|n| rawdoc! { "_id": n, "a": n % 10 }).collect();
        self.insert(0, &documents);
        assert_eq!(self.came_to(), (0, 0));
    }
}

fn blank<'a>(namespace: &'a str, query: &'a RawDocument) -> OpQuery<'a> {
    OpQuery {
        flags: QueryFlags::default(),
        namespace,
        skip: 0,
        number_to_return: 0,
        query,
        fields: None,
    }
}

#[test]
fn cursor_is_read_to_its_end_whatever_the_numbers() {
    let fernd = Fernd::start();
    let mut client = fernd.connect();
    client.fill(1000);
    let all: Vec<i32> = (0..1000).collect();
    let sorted = rawdoc! { "$query": {}, "$orderby": { "_id": 1 } };
    for number in [0, 2, 7, 100, 1000, 5000] {
        for next in [0, -3, 333] {
            let mut answer = client.find(&sorted, number);
            let mut found = answer.ids();
            while answer.cursor_id != 0 {
                answer = client.more(answer.cursor_id, next);
                assert_eq!(answer.starting_from as usize, found.len());
                found.extend(answer.ids());
            }
            assert_eq!(found, all, "{number} {next}");
        }
    }
    for (number, count) in
        [(1, 1), (-1, 1), (-5, 5), (-1000, 1000), (-2000, 1000), (i32::MIN, 1000)]
    {
        let answer = client.find(&sorted, number);
        assert_eq!((answer.documents.len(), answer.cursor_id), (count, 0), "{number}");
    }
    assert_eq!(client.find(&sorted, 0).documents.len(), 101);
}

#[test]
fn large_documents_come_whole_over_many_batches() {
    let fernd = Fernd::start();
    let mut client = fernd.connect();
    let filler = "x".repeat(6 << 20);
    for id in 0..7 {
        client.insert(0, &[rawdoc! { "_id": id, "f": filler.as_str() }]);
        assert_eq!(client.came_to(), (0, 0));
    }
    let mut answer = client.find(&rawdoc! {}, 0);
    let (mut found, mut batches) = (answer.ids(), 1);
    while answer.cursor_id != 0 {
        answer = client.more(answer.cursor_id, 0);
        assert!(answer.documents.iter().all(|d| d.get_str("f").unwrap().len() == filler.len()));
        found.extend(answer.ids());
        batches += 1;
    }
    assert_eq!(found, (0..7).collect::<Vec<_>>());
    assert!(batches > 2);
    // The same documents do not fit in one aggregation reply, and are not cut to fit.
    let reply = client.command("t.$cmd", &rawdoc! { "aggregate": "c", "pipeline": [] });
    assert_eq!(reply.get_i32("code").unwrap(), 16389);
}

#[test]
fn killed_and_unknown_cursors_have_a_flag() {
    let fernd = Fernd::start();
    let mut client = fernd.connect();
    client.fill(500);
    let (one, two) = (client.find(&rawdoc! {}, 2).cursor_id, client.find(&rawdoc! {}, 2).cursor_id);
    let other = client.find(&rawdoc! {}, 2).cursor_id;
    let kill = KillCursors { cursor_ids: vec![one, 12345, two] };
    client.send(|out, number| kill.encode(out, number));
    for id in [one, two, 12345] {
        let answer = client.more(id, 0);
        assert!(answer.flags & ReplyFlags::CURSOR_NOT_FOUND.0 != 0);
        assert_eq!((answer.cursor_id, answer.documents.len()), (0, 0));
    }
    assert_eq!(client.more(other, 0).documents.len(), 498);
}

#[test]
fn query_forms_filter_sort_project_and_fail_like_old_servers() {
    let fernd = Fernd::start();
    let mut client = fernd.connect();
    client.fill(30);
    assert_eq!(client.find(&rawdoc! { "a": 3 }, 0).ids(), [3, 13, 23]);
    let wrapped = rawdoc! { "query": { "a": 3 }, "orderby": { "_id": -1 } };
    assert_eq!(client.find(&wrapped, 0).ids(), [23, 13, 3]);
    let (filter, fields) = (rawdoc! { "a": 3 }, rawdoc! { "_id": 1 });
    let answer = client.ask(&OpQuery { skip: 1, fields: Some(&fields), ..blank("t.c", &filter) });
    assert_eq!(answer.documents, [rawdoc! { "_id": 13 }, rawdoc! { "_id": 23 }]);
    let plan = client.find(&rawdoc! { "$query": { "a": 3 }, "$explain": true }, 0);
    assert!(plan.documents[0].get_document("queryPlanner").is_ok());
    assert!(plan.documents[0].get_document("executionStats").is_ok());
    assert_eq!(client.find(&rawdoc! { "$query": {}, "$hint": "none" }, 0).failure().0, 2);
    let (code, text) = client.find(&rawdoc! { "a": { "$nope": 1 } }, 0).failure();
    assert_eq!((code, text.contains("$nope")), (2, true));
    let exhaust = OpQuery { flags: QueryFlags::EXHAUST, ..blank("t.c", &filter) };
    let (code, text) = client.ask(&exhaust).failure();
    assert_eq!((code, text.contains("exhaust")), (238, true));
    assert_eq!(client.ask(&blank("nothing", &filter)).failure().0, 73);
    let tailable = OpQuery { flags: QueryFlags::TAILABLE, ..blank("t.c", &filter) };
    assert_eq!(client.ask(&tailable).failure().0, 2);
}

#[test]
fn writes_tell_get_last_error_what_they_did() {
    let fernd = Fernd::start();
    let mut client = fernd.connect();
    client.fill(10);
    client.update(0, &rawdoc! { "a": 1 }, &rawdoc! { "$set": { "b": 1 } });
    let last = client.last_error();
    assert_eq!(last.get_i32("n").unwrap(), 1);
    assert!(last.get_bool("updatedExisting").unwrap());
    assert_eq!(last.get("err").unwrap(), Some(bson::RawBsonRef::Null));
    assert_eq!(client.last_error(), last, "asking changes nothing");
    client.update(2, &rawdoc! {}, &rawdoc! { "$set": { "b": 2 } });
    assert_eq!(client.came_to(), (10, 0));
    client.update(1, &rawdoc! { "_id": 77 }, &rawdoc! { "$set": { "b": 2 } });
    let last = client.last_error();
    assert_eq!((last.get_i32("n").unwrap(), last.get_i32("upserted").unwrap()), (1, 77));
    assert!(!last.get_bool("updatedExisting").unwrap());
    client.update(0, &rawdoc! { "_id": 78 }, &rawdoc! { "$set": { "b": 2 } });
    assert_eq!(client.came_to(), (0, 0));
    client.update(2, &rawdoc! {}, &rawdoc! { "whole": 1 });
    assert_eq!(client.came_to(), (0, 9), "a replacement is for one document");
    client.delete(1, &rawdoc! { "b": 2 });
    assert_eq!(client.came_to(), (1, 0));
    client.delete(0, &rawdoc! {});
    assert_eq!(client.came_to(), (10, 0));
    assert!(client.find(&rawdoc! {}, 0).documents.is_empty());
    assert_eq!(client.came_to(), (0, 0), "only of the message directly before");
    client.insert(0, &[rawdoc! { "a": 1 }]);
    assert_eq!(client.came_to(), (0, 0));
    let found = client.find(&rawdoc! {}, 0);
    assert!(found.documents[0].get_object_id("_id").is_ok(), "it got an _id");
}

#[test]
fn continue_on_error_goes_on_and_tells_the_error() {
    let fernd = Fernd::start();
    let mut client = fernd.connect();
    let documents = [1, 2, 1, 3].map(|id| rawdoc! { "_id": id });
    client.insert(0, &documents);
    let last = client.last_error();
    assert_eq!(last.get_i32("code").unwrap(), 11000);
    assert!(last.get_str("err").unwrap().starts_with("E11000 duplicate key error"));
    assert!(client.find(&rawdoc! {}, 0).documents.is_empty(), "all of it or nothing");
    client.insert(1, &documents);
    assert_eq!(client.came_to(), (0, 11000));
    assert_eq!(client.find(&rawdoc! {}, 0).ids(), [1, 2, 3]);
    client.insert(0, &[rawdoc! { "_id": 1 }]);
    assert!(client.command("t.$cmd", &rawdoc! { "resetError": 1 }).get_f64("ok").unwrap() > 0.5);
    assert_eq!(client.came_to(), (0, 0));
    // What cannot be read is told too, and the connection goes on.
    let empty = rawdoc! {};
    client.send(|out, number| {
        let delete = Delete { namespace: "nodot", flags: 0, selector: &empty };
        delete.encode(out, number);
    });
    assert_eq!(client.came_to(), (0, 73));
    client.send(|out, number| {
        let delete = Delete { namespace: "t.c", flags: 0, selector: &empty };
        delete.encode(out, number);
        let last = out.len() - 1;
        out[last] = 1;
    });
    assert_ne!(client.came_to().1, 0);
    assert_eq!(client.find(&rawdoc! {}, 0).documents.len(), 3, "nothing was deleted");
}

#[test]
fn a_message_may_hold_more_documents_than_a_command() {
    let fernd = Fernd::start();
    let mut client = fernd.connect();
    let documents: Vec<_> = (0..100_100).map(|n| rawdoc! { "_id": n.min(100_050) }).collect();
    client.insert(1, &documents);
    assert_eq!(client.came_to(), (0, 11000));
    let count = client.command("t.$cmd", &rawdoc! { "count": "c", "query": null, "fields": null });
    assert_eq!(count.get_i32("n").unwrap(), 100_051);
}

#[test]
fn get_last_error_is_for_those_who_wrote_in_the_old_way() {
    let fernd = Fernd::start();
    let (mut client, mut other) = (fernd.connect(), fernd.connect());
    let code = |client: &mut Client, command: &RawDocument| {
        client.command("t.$cmd", command).get_i32("code").unwrap_or(0)
    };
    let ask = rawdoc! { "getLastError": 1 };
    let write = rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] };
    assert_eq!((code(&mut client, &ask), code(&mut client, &write)), (59, 0));
    assert_eq!(code(&mut client, &ask), 59);
    client.insert(0, &[rawdoc! { "_id": 2 }]);
    assert_eq!((code(&mut client, &ask), code(&mut other, &ask)), (0, 59));
    client.insert(0, &[rawdoc! { "_id": 2 }]);
    client.insert(0, &[rawdoc! { "_id": 3 }]);
    for concern in [
        rawdoc! { "getLastError": 1, "w": 1, "wtimeout": 100, "fsync": false, "j": false },
        rawdoc! { "getLastError": 1, "j": true },
        rawdoc! { "getlasterror": 1, "fsync": true, "w": 0 },
        rawdoc! { "getlasterror": 1, "w": "majority" },
    ] {
        let reply = client.command("t.$cmd", &concern);
        assert!(reply.get_f64("ok").unwrap() > 0.5, "{reply:?}");
        assert!(reply.get_i64("connectionId").unwrap() > 0);
    }
    let reply = client.command("t.$cmd", &rawdoc! { "getLastError": 1, "w": 2 });
    assert_eq!((reply.get_i32("code").unwrap(), reply.get_f64("ok").unwrap()), (2, 0.0));
    assert_eq!(reply.get_document("badGLE").unwrap().get_i32("w").unwrap(), 2);
}

#[test]
fn commands_answer_to_their_old_spellings() {
    let fernd = Fernd::start();
    let mut client = fernd.connect();
    client.fill(20);
    for command in [
        rawdoc! { "buildinfo": 1 },
        rawdoc! { "query": { "buildinfo": 1 } },
        rawdoc! { "$query": { "buildinfo": 1 }, "$readPreference": { "mode": "secondary" } },
        rawdoc! { "buildinfo": 1, "$readPreference": { "mode": "secondary" } },
    ] {
        assert!(client.command("admin.$cmd", &command).get_str("version").is_ok());
    }
    let reply = client.command(
        "t.$cmd",
        &rawdoc! { "aggregate": "c", "pipeline": [
            { "$match": { "a": 4 } }, { "$sort": { "_id": 1 } }, { "$project": { "_id": 1 } },
        ] },
    );
    assert_eq!(reply, rawdoc! { "result": [{ "_id": 4 }, { "_id": 14 }], "ok": 1.0 });
    let index = rawdoc! { "ns": "t.c", "key": { "a": 1 }, "name": "a_1", "background": true };
    client.send(|out, number| {
        let documents = vec![index.as_ref()];
        Insert { flags: 0, namespace: "t.system.indexes", documents }.encode(out, number);
    });
    assert_eq!(client.came_to(), (0, 0));
    let plan = client.find(&rawdoc! { "$query": { "a": 3 }, "$explain": true, "$hint": "a_1" }, 0);
    assert!(format!("{:?}", bson::Document::try_from(&plan.documents[0])).contains("IXSCAN"));
    let running = client.command("admin.$cmd.sys.inprog", &rawdoc! {});
    assert!(running.get_array("inprog").is_ok());
}

#[test]
fn old_and_new_messages_share_a_connection_and_its_cursors() {
    let fernd = Fernd::start();
    let mut client = fernd.connect();
    client.fill(10);
    let id = client.find(&rawdoc! {}, 4).cursor_id;
    let body = rawdoc! { "getMore": id, "collection": "c", "batchSize": 3, "$db": "t" };
    client.send(|out, number| wire::encode_msg(out, number, 0, MsgFlags::NONE, &body));
    let mut frame = vec![0; 4];
    client.stream.read_exact(&mut frame).unwrap();
    frame.resize(u32::from_le_bytes(frame[..4].try_into().unwrap()) as usize, 0);
    client.stream.read_exact(&mut frame[4..]).unwrap();
    let Ok((_, Message::Msg(msg))) = wire::decode(&frame) else { panic!("not OP_MSG") };
    let cursor = msg.body.get_document("cursor").unwrap();
    assert_eq!(cursor.get_array("nextBatch").unwrap().into_iter().count(), 3);
    assert!(cursor.get("startingFrom").unwrap().is_none(), "only old clients are told");
    let rest = client.more(id, 0);
    assert_eq!((rest.starting_from, rest.ids()), (7, vec![7, 8, 9]));
}
