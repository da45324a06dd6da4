//! TLS on the loopback: who is let in, and that whatever a client does, threads are held by nobody.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "support/fake.rs"]
mod fake;
#[path = "support/secure.rs"]
mod secure;

use bson::{RawDocumentBuf, rawdoc};
use dispatch::HandedOver;
use fake::{eventually, msg, ok, ping, start_with};
use net::{NetOptions, TlsPort};
use secure::{connect, port, session, socket};
use std::io::{self, Read, Write};
use std::time::Duration;
use tls::Mode;
use wire::{Message, MsgFlags};

fn receive(stream: &mut impl Read) -> io::Result<RawDocumentBuf> {
    let mut frame = vec![0; 4];
    stream.read_exact(&mut frame)?;
    let length = u32::from_le_bytes(frame[..4].try_into().unwrap()) as usize;
    frame.resize(length, 0);
    stream.read_exact(&mut frame[4..])?;
    match wire::decode(&frame).unwrap() {
        (_, Message::Msg(msg)) => Ok(msg.body.to_owned()),
        (_, other) => panic!("{other:?} is no reply"),
    }
}

fn call(stream: &mut (impl Read + Write), body: &bson::RawDocument) -> io::Result<RawDocumentBuf> {
    stream.write_all(&msg(MsgFlags::NONE, body))?;
    receive(stream)
}

fn with(tls: TlsPort) -> NetOptions {
    NetOptions { tls, permits: 2, ..NetOptions::default() }
}

#[test]
fn each_mode_takes_who_it_is_to_take() {
    for (mode, plain, secure) in [
        (Mode::Disabled, true, false),
        (Mode::Allow, true, true),
        (Mode::Prefer, true, true),
        (Mode::Require, false, true),
    ] {
        let (port, client) = port(mode);
        let running = start_with(with(port));
        let mut stream = connect(&client, running.address);
        assert_eq!(call(&mut stream, &ping()).is_ok_and(|reply| ok(&reply)), secure, "{mode:?}");
        assert_eq!(running.stats.tls13(), u64::from(secure));
        let mut stream = socket(running.address);
        assert_eq!(call(&mut stream, &ping()).is_ok_and(|reply| ok(&reply)), plain, "{mode:?}");
        // A browser.
        let mut stream = socket(running.address);
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        // A reset is an end, too.
        let _ended = stream.read_to_string(&mut text);
        assert_eq!(text.contains("FernDB"), plain);
    }
}

#[test]
fn small_and_large_messages_come_through() {
    let (port, client) = port(Mode::Require);
    let running = start_with(with(port));
    let mut stream = connect(&client, running.address);
    for bytes in [0, 1, 100, 4_000, 16_300, 16_384, 70_000, 1_000_000, 15_000_000] {
        let reply = call(&mut stream, &rawdoc! { "give": bytes, "$db": "x" }).unwrap();
        assert_eq!(reply.get_str("filler").unwrap().len(), bytes as usize);
        let big = rawdoc! { "ping": 1, "filler": "y".repeat(bytes as usize), "$db": "x" };
        assert!(ok(&call(&mut stream, &big).unwrap()));
    }
    // Many in one record, and each in one of its own, more than a worker runs in one turn.
    let mut many = Vec::new();
    for _ in 0..500 {
        many.extend(msg(MsgFlags::NONE, &ping()));
    }
    stream.write_all(&many).unwrap();
    for _ in 0..500 {
        assert!(ok(&receive(&mut stream).unwrap()));
    }
    for _ in 0..300 {
        stream.write_all(&msg(MsgFlags::NONE, &ping())).unwrap();
    }
    for _ in 0..300 {
        assert!(ok(&receive(&mut stream).unwrap()));
    }
    // A stream of replies, which is taken slowly.
    stream
        .write_all(&msg(MsgFlags::EXHAUST_ALLOWED, &rawdoc! { "flood": 20, "$db": "x" }))
        .unwrap();
    for left in (0..=20).rev() {
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(receive(&mut stream).unwrap().get_i32("left").unwrap(), left);
    }
}

#[test]
fn clients_that_say_one_byte_at_a_time_hold_no_thread() {
    let (port, client) = port(Mode::Allow);
    let running = start_with(with(port));
    let mut slow = Vec::new();
    for _ in 0..8 {
        let mut hello = Vec::new();
        session(&client).write_tls(&mut hello).unwrap();
        slow.push((socket(running.address), hello));
    }
    let mut quick = connect(&client, running.address);
    for at in 0..300 {
        for (stream, hello) in &mut slow {
            if let Some(byte) = hello.get(at) {
                stream.write_all(&[*byte]).unwrap();
            }
        }
        assert!(ok(&call(&mut quick, &ping()).unwrap()));
    }
    eventually("nobody is served", || running.stats.active() == 0);
    assert_eq!(running.stats.open(), 9);
}

#[test]
fn requests_that_wait_are_answered_over_tls() {
    let (port, client) = port(Mode::Require);
    let running = start_with(with(port));
    let mut streams: Vec<_> = (0..10).map(|_| connect(&client, running.address)).collect();
    for stream in &mut streams {
        // The second comes while the first waits.
        stream.write_all(&msg(MsgFlags::NONE, &rawdoc! { "await": 60, "$db": "x" })).unwrap();
        stream.write_all(&msg(MsgFlags::NONE, &ping())).unwrap();
    }
    eventually("all wait", || running.stats.deferred() == 10 || running.stats.requests() >= 20);
    for stream in &mut streams {
        assert!(ok(&receive(stream).unwrap()));
        assert!(ok(&receive(stream).unwrap()));
    }
}

#[test]
fn what_stays_half_is_closed_in_time_and_what_is_whole_is_not() {
    let (port, client) = port(Mode::Require);
    let options = NetOptions { message_timeout: Duration::from_millis(1500), ..with(port) };
    let running = start_with(options);
    let mut idle = connect(&client, running.address);
    assert!(ok(&call(&mut idle, &ping()).unwrap()));
    // Half a hello, a hello and nothing more, and half a record after the handshake.
    let mut hello = Vec::new();
    session(&client).write_tls(&mut hello).unwrap();
    let silent = [9, 40, hello.len()].map(|length| {
        let mut stream = socket(running.address);
        stream.write_all(&hello[..length]).unwrap();
        stream
    });
    let mut half = connect(&client, running.address);
    assert!(ok(&call(&mut half, &ping()).unwrap()));
    let mut record = Vec::new();
    half.conn.writer().write_all(&msg(MsgFlags::NONE, &ping())).unwrap();
    half.conn.write_tls(&mut record).unwrap();
    half.sock.write_all(&record[..20]).unwrap();
    eventually("four are closed", || running.stats.open() == 1);
    assert_eq!(running.stats.partial_closed(), 4);
    drop(silent);
    assert!(ok(&call(&mut idle, &ping()).unwrap()), "one without anything half stays");
}

#[test]
fn links_and_the_end_of_the_server() {
    let (port, client) = port(Mode::Allow);
    let running = start_with(with(port));
    let mut stream = connect(&client, running.address);
    assert!(ok(&call(&mut stream, &rawdoc! { "link": 1, "$db": "x" }).unwrap()));
    stream.write_all(b"frames").unwrap();
    eventually("it is handed over", || running.service.handed_over.lock().len() == 1);
    let HandedOver { socket, mut input } = running.service.handed_over.lock().pop().unwrap();
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut frames = [0; 6];
    input.read_exact(&mut frames).unwrap();
    assert_eq!(&frames, b"frames", "what comes by TLS is handed over as it was meant");
    stream.write_all(&vec![7; 100_000]).unwrap();
    let mut many = vec![0; 100_000];
    input.read_exact(&mut many).unwrap();
    assert!(many.iter().all(|byte| *byte == 7));
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    assert_eq!(input.read(&mut frames).unwrap(), 0, "the end is told");
    let mut stream = connect(&client, running.address);
    assert!(ok(&call(&mut stream, &ping()).unwrap()));
    running.server.stop(Duration::ZERO);
    // With a word before: otherwise it would be an error.
    assert_eq!(stream.read(&mut [0; 9]).unwrap(), 0);
}
