//! Real sockets on the loopback, a small service behind them: what a client sees.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "support/fake.rs"]
mod fake;

use bson::rawdoc;
use fake::{Commands, eventually, msg, ok, ping, start, start_with};
use net::{Endpoint, Listener, NetOptions, Server, Service};
use os::Os;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::{Codec, Compressor, MsgFlags, OpQuery, QueryFlags};

#[test]
fn op_query_handshake_gets_an_op_reply() {
    let running = start();
    let mut client = running.connect();
    for body in [
        rawdoc! { "isMaster": 1, "helloOk": true },
        rawdoc! { "$query": { "isMaster": 1 }, "$readPreference": { "mode": "primary" } },
    ] {
        let mut frame = Vec::new();
        let query = OpQuery {
            flags: QueryFlags::SECONDARY_OK,
            namespace: "admin.$cmd",
            skip: 0,
            number_to_return: -1,
            query: &body,
            fields: None,
        };
        wire::encode_query(&mut frame, 5, &query);
        client.send(&frame);
        let answer = client.receive();
        assert_eq!(answer.response_to, 5);
        assert!(ok(&answer.document) && !answer.failure);
        assert!(answer.document.get_bool("query").unwrap());
        assert_eq!(answer.document.get_str("db").unwrap(), "admin");
    }
}

#[test]
fn op_query_that_fails_is_a_query_failure() {
    let running = start();
    let mut client = running.connect();
    let mut frame = Vec::new();
    let body = rawdoc! { "a": 1 };
    let query = OpQuery {
        flags: QueryFlags::default(),
        namespace: "test.c",
        skip: 0,
        number_to_return: 1,
        query: &body,
        fields: None,
    };
    wire::encode_query(&mut frame, 5, &query);
    client.send(&frame);
    let answer = client.receive();
    assert!(answer.failure);
    assert_eq!(answer.document.get_i32("code").unwrap(), 59, "the service's error");
    assert!(answer.document.get("$err").unwrap().is_some());
    assert!(ok(&client.call(&ping())), "the connection goes on");
}

#[test]
fn op_msg_with_a_sequence_is_answered() {
    let running = start();
    let mut client = running.connect();
    let documents = [rawdoc! { "a": 1 }, rawdoc! { "a": 2 }];
    let sequences = [("documents", documents.iter().map(AsRef::as_ref).collect())];
    let mut frame = Vec::new();
    wire::encode_msg_with_sequences(&mut frame, 9, 0, MsgFlags::NONE, &ping(), &sequences);
    client.send(&frame);
    let answer = client.receive();
    assert_eq!(answer.response_to, 9);
    assert_eq!(answer.document.get_i32("documents").unwrap(), 2);
}

#[test]
fn more_to_come_gets_no_reply_not_even_an_error() {
    let running = start();
    let mut client = running.connect();
    client.send(&msg(MsgFlags::MORE_TO_COME, &ping()));
    client.send(&msg(MsgFlags::MORE_TO_COME, &rawdoc! { "nosuch": 1, "$db": "a" }));
    client.send(&msg(MsgFlags::MORE_TO_COME, &rawdoc! { "ping": 1 }));
    let mut malformed = msg(MsgFlags::MORE_TO_COME, &ping());
    malformed[25] = 0x77;
    client.send(&malformed);
    assert!(ok(&client.call(&ping())), "the next reply is the ping's");
    assert_eq!(running.service.ran.load(Ordering::Relaxed), 3);
}

#[test]
fn replies_are_packed_like_their_requests() {
    let running = start();
    let mut client = running.connect();
    let body = rawdoc! { "give": 100_000, "$db": "a" };
    for compressor in [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let mut packed = Vec::new();
        client.codec.compress(&msg(MsgFlags::NONE, &body), compressor, &mut packed).unwrap();
        client.send(&packed);
        let answer = client.receive();
        assert_eq!((answer.packed, answer.response_to), (Some(compressor), 77));
        assert_eq!(answer.document.get_str("filler").unwrap().len(), 100_000);
    }
    client.send(&msg(MsgFlags::NONE, &ping()));
    assert_eq!(client.receive().packed, None);
}

#[test]
fn a_checksum_is_checked_and_returned() {
    let running = start();
    let mut client = running.connect();
    let mut frame = msg(MsgFlags::CHECKSUM_PRESENT, &ping());
    client.send(&frame);
    assert_eq!(client.receive().flags, MsgFlags::CHECKSUM_PRESENT);
    let last = frame.len() - 1;
    frame[last] ^= 1;
    client.send(&frame);
    assert!(client.is_closed());
}

#[test]
fn exhaust_streams_until_the_service_is_done() {
    let running = start();
    let mut client = running.connect();
    client.send(&msg(MsgFlags::EXHAUST_ALLOWED, &rawdoc! { "stream": 3, "$db": "a" }));
    let mut expected = 77;
    for left in (0..=3).rev() {
        let answer = client.receive();
        assert_eq!(answer.response_to, expected);
        assert_eq!(answer.document.get_i32("left").unwrap(), left);
        assert_eq!(answer.flags.contains(MsgFlags::MORE_TO_COME), left > 0);
        expected = answer.request_id;
    }
    let reply = client.call(&rawdoc! { "stream": 3, "$db": "a" });
    assert_eq!(reply.get_i32("left").unwrap(), 3, "one reply where only one is allowed");
    assert!(ok(&client.call(&ping())));
}

#[test]
fn refused_contents_are_answered_and_the_connection_goes_on() {
    let running = start();
    let mut client = running.connect();
    let code = |client: &mut fake::Client, frame: &[u8]| {
        client.send(frame);
        let answer = client.receive();
        assert!(!ok(&answer.document));
        answer.document.get_i32("code").unwrap()
    };
    let mut malformed = msg(MsgFlags::NONE, &ping());
    malformed[25] = 0x77;
    assert_eq!(code(&mut client, &malformed), 22);
    assert_eq!(code(&mut client, &msg(MsgFlags(8), &ping())), 223);
    assert_eq!(code(&mut client, &msg(MsgFlags::NONE, &rawdoc! { "ping": 1 })), 40571);
    assert_eq!(code(&mut client, &msg(MsgFlags::NONE, &rawdoc! { "ping": 1, "$db": 1 })), 14);
    let mut deep = rawdoc! {};
    for _ in 0..300 {
        deep = rawdoc! { "a": deep };
    }
    let deep = rawdoc! { "ping": deep, "$db": "a" };
    assert_eq!(code(&mut client, &msg(MsgFlags::NONE, &deep)), 15);
    assert!(ok(&client.call(&ping())));
}

#[test]
fn frames_that_cannot_be_trusted_close_the_connection() {
    let running = start();
    let header = |length: i32, op: i32| {
        [length, 1, 0, op].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()
    };
    let op_msg = wire::opcode::MSG;
    let nested = {
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        let mut codec = Codec::new();
        codec.compress(&msg(MsgFlags::NONE, &ping()), Compressor::Noop, &mut once).unwrap();
        codec.compress(&once, Compressor::Noop, &mut twice).unwrap();
        twice
    };
    for bytes in [
        header(0, op_msg),
        header(15, op_msg),
        header(-1, op_msg),
        header(48_000_001, op_msg),
        header(i32::MAX, op_msg),
        header(16, op_msg),
        header(16, 4242),
        header(16, wire::opcode::COMPRESSED),
        b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        nested,
    ] {
        let mut client = running.connect();
        client.send(&bytes);
        assert!(client.is_closed(), "{bytes:?}");
    }
    assert!(ok(&running.connect().call(&ping())), "the server goes on");
}

#[test]
fn a_browser_is_told_where_it_is() {
    let running = start();
    let mut stream = TcpStream::connect(running.address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    // The rest of the request is not read, so the close may arrive as a reset after the text.
    let _reset = stream.read_to_string(&mut text);
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200") && body.contains("mongosh"), "{text}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{text}");
}

#[test]
fn a_truncated_frame_followed_by_a_close_is_forgotten() {
    let running = start();
    let whole = msg(MsgFlags::NONE, &ping());
    for cut in [1, 15, 16, 30, whole.len() - 1] {
        let mut client = running.connect();
        client.send(&whole[..cut]);
    }
    eventually("all are closed", || running.service.closed.load(Ordering::Relaxed) == 5);
    assert_eq!(running.stats.open(), 0);
    assert_eq!(running.service.ran.load(Ordering::Relaxed), 0);
}

#[test]
fn a_client_that_sends_byte_by_byte_holds_nobody_and_is_answered() {
    let running = start();
    let mut slow = running.connect();
    let mut quick = running.connect();
    let frame = msg(MsgFlags::NONE, &ping());
    for (at, byte) in frame.iter().enumerate() {
        slow.send(&[*byte]);
        if at % 10 == 0 {
            // Longer than it takes to be parked, so that half messages are parked too.
            std::thread::sleep(Duration::from_millis(60));
            assert!(ok(&quick.call(&ping())));
        }
    }
    assert!(ok(&slow.receive().document));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let running = start();
    let mut client = running.connect();
    let mut bytes = Vec::new();
    for n in 0..100 {
        let body = rawdoc! { "stream": n, "$db": "a" };
        wire::encode_msg(&mut bytes, n, 0, MsgFlags::NONE, &body);
    }
    client.send(&bytes);
    for n in 0..100 {
        let answer = client.receive();
        assert_eq!((answer.response_to, answer.document.get_i32("left").unwrap()), (n, n));
    }
}

#[test]
fn large_messages_pass_both_ways() {
    let running = start();
    let mut client = running.connect();
    let documents: Vec<_> = (0..3).map(|_| rawdoc! { "x": "y".repeat(10_000_000) }).collect();
    let sequences = [("documents", documents.iter().map(AsRef::as_ref).collect())];
    let mut frame = Vec::new();
    wire::encode_msg_with_sequences(&mut frame, 9, 0, MsgFlags::NONE, &ping(), &sequences);
    client.send(&frame);
    assert_eq!(client.receive().document.get_i32("documents").unwrap(), 3);
    let reply = client.call(&rawdoc! { "give": 16_000_000, "$db": "a" });
    assert_eq!(reply.get_str("filler").unwrap().len(), 16_000_000);
}

#[test]
fn a_last_reply_is_sent_and_the_connection_ends() {
    let running = start();
    let mut client = running.connect();
    assert!(ok(&client.call(&ping())));
    assert!(ok(&client.call(&rawdoc! { "last": 1, "$db": "a" })));
    assert!(client.is_closed());
}

#[test]
fn what_a_reply_holds_is_dropped_when_it_is_sent_or_given_up() {
    let running = start();
    let (news, dropped) = (&running.service.news, &running.service.dropped);
    let mut client = running.connect();
    assert!(ok(&client.call(&rawdoc! { "hold": 10, "$db": "a" })), "its end waits for this");
    news.store(true, Ordering::SeqCst);
    eventually("its end comes", || dropped.load(Ordering::SeqCst) == 1);
    // More than sockets take: the rest is sent as the client takes it.
    assert!(ok(&client.call(&rawdoc! { "hold": 15_000_000, "$db": "a" })));
    eventually("its end comes", || dropped.load(Ordering::SeqCst) == 2);
    client.send(&msg(MsgFlags::NONE, &rawdoc! { "hold": 15_000_000, "$db": "a" }));
    client.send(&msg(MsgFlags::MORE_TO_COME, &rawdoc! { "hold": 10, "$db": "a" }));
    drop(client);
    eventually("nobody takes it", || dropped.load(Ordering::SeqCst) >= 3);
}

#[test]
fn a_panic_in_a_command_is_an_internal_error_and_the_connection_goes_on() {
    let running = start();
    let mut client = running.connect();
    let reply = client.call(&rawdoc! { "panic": 1, "$db": "a" });
    assert_eq!(reply.get_i32("code").unwrap(), 1);
    assert_eq!(reply.get_str("codeName").unwrap(), "InternalError");
    assert!(ok(&client.call(&ping())));
}

#[test]
fn a_panic_outside_of_a_command_ends_its_connection_alone() {
    // One worker at most: where it ends, nobody is served any more.
    let running = start_with(NetOptions { max_connections: 2, ..NetOptions::default() });
    running.service.close_panics.store(true, Ordering::Relaxed);
    let mut other = running.connect();
    assert!(ok(&other.call(&ping())));
    for round in 1..=5 {
        let mut client = running.connect();
        // An OP_INSERT whose document ends before its length does.
        let mut frame = Vec::new();
        for word in [0, 1, 0, wire::opcode::INSERT, 0] {
            frame.extend_from_slice(&word.to_le_bytes());
        }
        frame.extend_from_slice(b"a.b\0");
        frame.extend_from_slice(&[6, 0, 0, 0, 9, 0]);
        let length = frame.len() as i32;
        frame[..4].copy_from_slice(&length.to_le_bytes());
        client.send(&frame);
        assert!(client.is_closed());
        eventually("it is closed", || running.service.closed.load(Ordering::Relaxed) == round);
        eventually("it is counted down", || running.stats.open() == 1);
    }
    assert!(ok(&other.call(&ping())));
    eventually("no worker is held", || running.stats.active() <= 1);
}

#[test]
fn a_client_that_reads_nothing_is_cut_off_and_holds_nobody() {
    let running = start_with(NetOptions {
        write_timeout: Duration::from_millis(300),
        ..NetOptions::default()
    });
    let mut stuck = running.connect();
    for _ in 0..20 {
        stuck.send(&msg(MsgFlags::NONE, &rawdoc! { "give": 4_000_000, "$db": "a" }));
    }
    let mut other = running.connect();
    assert!(ok(&other.call(&ping())));
    eventually("the stuck one is cut off", || running.stats.open() == 1);
    assert!(ok(&other.call(&ping())));
}

#[test]
fn connections_beyond_the_limit_are_closed_and_a_free_place_is_given() {
    let running = start_with(NetOptions { max_connections: 3, ..NetOptions::default() });
    let mut clients: Vec<_> = (0..3).map(|_| running.connect()).collect();
    assert!(clients.iter_mut().all(|client| ok(&client.call(&ping()))));
    assert!(running.connect().is_closed());
    assert_eq!(running.stats.rejected(), 1);
    drop(clients.pop());
    eventually("one has left", || running.stats.open() == 2);
    assert!(ok(&running.connect().call(&ping())));
    assert!(clients.iter_mut().all(|client| ok(&client.call(&ping()))));
}

#[test]
fn some_are_let_in_beyond_the_limit_and_not_without_end() {
    let options = NetOptions { max_connections: 2, connections_beyond: 4, ..NetOptions::default() };
    let running = start_with(options);
    let mut clients: Vec<_> = (0..2).map(|_| running.connect()).collect();
    assert!(clients.iter_mut().all(|client| ok(&client.call(&ping()))));
    assert!(running.connect().is_closed());
    running.service.lets_in_beyond.store(true, Ordering::Relaxed);
    clients.extend((0..2).map(|_| running.connect()));
    assert!(clients.iter_mut().all(|client| ok(&client.call(&ping()))));
    assert!(running.connect().is_closed());
    assert_eq!(running.stats.rejected(), 2);
}

#[test]
fn every_opened_connection_is_closed_exactly_once() {
    let running = start();
    let mut clients: Vec<_> = (0..50).map(|_| running.connect()).collect();
    for client in &mut clients[..25] {
        assert!(ok(&client.call(&ping())));
    }
    eventually("all are open", || running.service.opened.load(Ordering::Relaxed) == 50);
    drop(clients.split_off(10));
    eventually("forty have left", || running.service.closed.load(Ordering::Relaxed) == 40);
    running.server.stop(Duration::from_secs(5));
    assert_eq!(running.service.closed.load(Ordering::Relaxed), 50);
    assert_eq!(running.stats.open(), 0);
}

#[test]
fn the_service_is_told_of_a_client_that_hangs_up_while_its_request_runs() {
    let running = start();
    let (mut patient, mut leaver) = (running.connect(), running.connect());
    let wait = msg(MsgFlags::NONE, &rawdoc! { "wait": 1, "$db": "a" });
    leaver.send(&wait);
    eventually("it runs", || running.service.ran.load(Ordering::Relaxed) == 1);
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(running.service.left.load(Ordering::Relaxed), 0, "nobody has left yet");
    assert!(ok(&patient.call(&ping())));
    drop(leaver);
    eventually("it is closed", || running.stats.open() == 1);
    assert!(running.service.left.load(Ordering::Relaxed) > 0);
    assert!(ok(&patient.call(&ping())));
}

#[test]
fn stopping_lets_a_running_request_finish_and_closes_the_others() {
    let running = start();
    let (mut idle, mut busy) = (running.connect(), running.connect());
    assert!(ok(&idle.call(&ping())));
    busy.send(&msg(MsgFlags::NONE, &rawdoc! { "wait": 1, "$db": "a" }));
    eventually("it runs", || running.service.ran.load(Ordering::Relaxed) == 2);
    running.server.stop(Duration::from_millis(300));
    assert!(busy.receive().document.get_bool("interrupted").unwrap());
    assert!(busy.is_closed() && idle.is_closed());
    assert!(TcpStream::connect(running.address).is_err(), "nobody listens any more");
}

#[test]
fn a_unix_socket_serves_too_and_its_file_goes_with_it() {
    let os = Os::real();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fern.sock");
    let endpoint = Endpoint::Unix(path.clone(), 0o700);
    let listener = Listener::bind(&endpoint, &*os.vfs).unwrap();
    assert!(Listener::bind(&endpoint, &*os.vfs).is_err(), "somebody listens there");
    let service = Arc::new(Commands::default());
    let server =
        Server::start(&os, vec![listener], service, NetOptions::default(), Arc::default()).unwrap();
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(&msg(MsgFlags::NONE, &ping())).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    assert!(u32::from_le_bytes(length) > 16);
    drop(server);
    assert!(!path.exists());
    // What a killed server leaves behind is no obstacle.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(Listener::bind(&endpoint, &*os.vfs).is_ok());
}

#[test]
fn a_port_in_use_says_so() {
    let running = start();
    let os = Os::real();
    let error = Listener::bind(&Endpoint::Tcp(running.address), &*os.vfs).unwrap_err();
    assert!(error.to_string().contains("already in use"));
    assert!(error.to_string().contains(&running.address.port().to_string()));
}

/// With so many permits; a worker without one ends after a tenth of a second.
fn with_permits(permits: usize) -> fake::Running {
    let worker_idle = Duration::from_millis(100);
    start_with(NetOptions { permits, worker_idle, ..NetOptions::default() })
}

#[test]
fn who_waits_gives_its_permit_on() {
    let running = with_permits(1);
    let mut clients: Vec<_> = (0..20).map(|_| running.connect()).collect();
    for client in &mut clients {
        client.send(&msg(MsgFlags::NONE, &rawdoc! { "meet": 20, "$db": "a" }));
    }
    for client in &mut clients {
        assert!(ok(&client.receive().document), "each needed the others to run meanwhile");
    }
    eventually("spare threads end", || running.stats.threads() <= 2);
    assert!(ok(&clients[0].call(&ping())));
}

#[test]
fn requests_that_take_long_keep_nobody_waiting() {
    let running = with_permits(2);
    let mut long: Vec<_> = (0..4).map(|_| running.connect()).collect();
    for client in &mut long {
        client.send(&msg(MsgFlags::NONE, &rawdoc! { "spin": 1, "$db": "a" }));
    }
    eventually("all run", || running.service.ran.load(Ordering::Relaxed) == 4);
    let mut other = running.connect();
    for _ in 0..20 {
        assert!(ok(&other.call(&ping())));
    }
    eventually("the others are done", || running.stats.active() == 4);
    running.service.interrupt_all();
    for client in &mut long {
        assert!(ok(&client.receive().document));
        assert!(ok(&client.call(&ping())));
    }
    // Some end at once, where a priority may not be raised again; others once they were spare for a while, and
    // those with one permit too many when they have served once more.
    for tries in 0.. {
        if running.stats.threads() <= 3 {
            break;
        }
        assert!(tries < 1000, "their threads end");
        assert!(ok(&other.call(&ping())));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn many_active_clients_take_few_threads() {
    let running = with_permits(2);
    let most = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                let mut client = running.connect();
                for _ in 0..50 {
                    assert!(ok(&client.call(&ping())));
                    most.fetch_max(running.stats.threads(), Ordering::Relaxed);
                }
            });
        }
    });
    let most = most.into_inner();
    // A worker that the system does not run for some milliseconds is taken for one whose request takes long.
    assert!(most <= 50, "{most} threads served a hundred clients");
    assert_eq!(running.stats.requests(), 100 * 50);
}

#[test]
fn a_stream_to_a_slow_reader_holds_no_thread_and_arrives_whole() {
    const REPLIES: i32 = 30;
    let running = start();
    let mut slow = running.connect();
    let body = rawdoc! { "flood": REPLIES, "$db": "a" };
    slow.send(&msg(MsgFlags::EXHAUST_ALLOWED, &body));
    // A request of its own, which waits behind the stream.
    slow.send(&msg(MsgFlags::NONE, &ping()));
    eventually("nobody serves it", || {
        running.service.ran.load(Ordering::Relaxed) > 0 && running.stats.active() == 0
    });
    std::thread::sleep(Duration::from_millis(50));
    let ran = running.service.ran.load(Ordering::Relaxed);
    assert!(ran < 20, "{ran} replies were made for somebody who reads none");
    assert!(ok(&running.connect().call(&ping())));
    let mut expected = 77;
    for left in (0..=REPLIES).rev() {
        let answer = slow.receive();
        assert_eq!(
            (answer.response_to, answer.document.get_i32("left").unwrap()),
            (expected, left)
        );
        assert_eq!(answer.document.get_str("filler").unwrap().len(), 1_000_000);
        expected = answer.request_id;
    }
    assert!(slow.receive().document.get("id").unwrap().is_some(), "the ping's answer");
}

#[test]
fn a_client_that_sends_and_leaves_is_served_first() {
    let running = start();
    for round in 1..=50 {
        let mut client = running.connect();
        client.send(&msg(MsgFlags::MORE_TO_COME, &ping()));
        drop(client);
        eventually("it ran", || running.service.ran.load(Ordering::Relaxed) == round);
        eventually("it is closed", || running.stats.open() == 0);
    }
}

#[test]
fn clients_that_come_go_and_ask_at_once_are_all_answered() {
    let running = with_permits(2);
    std::thread::scope(|scope| {
        for number in 0..16 {
            let running = &running;
            scope.spawn(move || {
                for round in 0..30 {
                    let mut client = running.connect();
                    for n in 0..(number + round) % 5 {
                        // Two at once, cut at another place each time.
                        let mut bytes = msg(MsgFlags::NONE, &ping());
                        bytes
                            .extend(msg(MsgFlags::NONE, &rawdoc! { "give": 9000 * n, "$db": "a" }));
                        let cut = (number * 31 + round * 17) as usize % bytes.len();
                        client.send(&bytes[..cut]);
                        client.send(&bytes[cut..]);
                        assert!(ok(&client.receive().document) && ok(&client.receive().document));
                    }
                }
            });
        }
    });
    let service = &running.service;
    let (opened, closed) = (&service.opened, &service.closed);
    // Who left at once may not have been accepted yet.
    eventually("all are closed", || closed.load(Ordering::Relaxed) == 16 * 30);
    assert_eq!(opened.load(Ordering::Relaxed), 16 * 30);
    assert_eq!(running.stats.open(), 0);
}
