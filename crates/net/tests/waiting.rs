//! Clients that keep the server waiting: they hold no thread, and memory within a budget. The numbers
//! are those of the findings about a hostile network.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "support/fake.rs"]
mod fake;

use bson::rawdoc;
use fake::{Client, Running, eventually, msg, ok, ping, start, start_with};
use limits::{Account, Part};
use net::NetOptions;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::{Compressor, MsgFlags};

fn with_memory(bytes: u64, change: impl FnOnce(&mut NetOptions)) -> (Running, Arc<Account>) {
    let memory = Account::new(bytes);
    let mut options = NetOptions { memory: Arc::clone(&memory), ..NetOptions::default() };
    change(&mut options);
    (start_with(options), memory)
}

/// A message of so many bytes, of which only the beginning is sent.
fn send_half(client: &mut Client, promised: usize, sent: usize) {
    let mut bytes = vec![0; sent];
    bytes[..4].copy_from_slice(&(promised as u32).to_le_bytes());
    bytes[12..16].copy_from_slice(&wire::opcode::MSG.to_le_bytes());
    // The server may close it at once.
    let _closed = client.stream.write_all(&bytes);
}

fn large(bytes: usize) -> Vec<u8> {
    msg(MsgFlags::NONE, &rawdoc! { "ping": "x".repeat(bytes), "$db": "a" })
}

#[test]
fn finding_1_half_messages_have_a_budget_and_the_largest_is_closed() {
    let (running, memory) = with_memory(64 << 20, |options| options.partial_bytes = 300_000);
    let mut small: Vec<_> = (0..4).map(|_| running.connect()).collect();
    for client in &mut small {
        send_half(client, 100_000, 40_000);
    }
    eventually("all are kept", || memory.usage().of(Part::PartialRequests) >= 160_000);
    let mut greedy = running.connect();
    send_half(&mut greedy, 240_000, 200_000);
    assert!(greedy.is_closed());
    eventually("it is counted", || running.stats.partial_closed() == 1);
    assert!(ok(&running.connect().call(&ping())));
    drop(small);
    eventually("all is given back", || memory.usage().of(Part::PartialRequests) == 0);
}

#[test]
fn finding_1_a_message_that_is_not_whole_in_time_is_closed() {
    let (running, memory) =
        with_memory(64 << 20, |options| options.message_timeout = Duration::from_millis(200));
    let mut slow = running.connect();
    send_half(&mut slow, 20_000_000, 1000);
    let mut honest = running.connect();
    assert!(ok(&honest.call(&ping())));
    assert!(slow.is_closed());
    assert!(ok(&honest.call(&ping())), "silence between messages is no half message");
    eventually("its room is given back", || memory.usage().of(Part::PartialRequests) == 0);
}

#[test]
fn finding_1_large_messages_wait_for_room_and_all_are_answered() {
    let (running, memory) = with_memory(20 << 20, |_| ());
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut client = running.connect();
                for _ in 0..3 {
                    client.send(&large(6_000_000));
                    assert!(ok(&client.receive().document));
                }
            });
        }
        // Small ones wait for nobody.
        let mut other = running.connect();
        for _ in 0..50 {
            assert!(ok(&other.call(&ping())));
            assert!(memory.usage().of(Part::Requests) < 20 << 20);
        }
    });
    eventually("all is given back", || memory.total() < 1 << 20);
}

#[test]
fn finding_1_a_stalled_message_makes_way_for_one_that_comes() {
    let (running, _memory) = with_memory(10 << 20, |_| ());
    let mut stalled = running.connect();
    send_half(&mut stalled, 9_000_000, 1_000_000);
    eventually("it has the room", || running.stats.bytes_in() >= 1_000_000);
    let mut honest = running.connect();
    honest.send(&large(6_000_000));
    assert!(ok(&honest.receive().document));
    assert!(stalled.is_closed());
}

#[test]
fn finding_2_waiting_requests_hold_no_thread() {
    let running = start();
    let ask = rawdoc! { "await": 60_000, "$db": "a" };
    let mut waiting: Vec<_> = (0..100).map(|_| running.connect()).collect();
    for client in &mut waiting {
        client.send(&msg(MsgFlags::NONE, &ask));
    }
    eventually("all wait", || running.stats.deferred() == 100 && running.stats.active() == 0);
    // What a client says meanwhile is answered after that.
    waiting[0].send(&msg(MsgFlags::NONE, &ping()));
    drop(waiting.pop());
    eventually("one has left", || running.stats.open() == 99);
    assert!(ok(&running.connect().call(&ping())));
    running.service.happened.store(true, Ordering::SeqCst);
    running.service.changed.get().unwrap()();
    for client in &mut waiting {
        let reply = client.receive().document;
        assert!(ok(&reply) && reply.get("id").unwrap().is_none());
    }
    assert!(waiting[0].receive().document.get("id").unwrap().is_some(), "the ping's answer");
    assert_eq!(running.stats.deferred(), 0);
}

#[test]
fn finding_2_waiting_requests_have_a_budget_and_the_largest_is_closed() {
    let (running, memory) = with_memory(64 << 20, |options| options.partial_bytes = 500_000);
    let ask = |bytes: usize| {
        msg(MsgFlags::NONE, &rawdoc! { "await": 60_000, "$db": "a", "comment": "x".repeat(bytes) })
    };
    let mut modest: Vec<_> = (0..4).map(|_| running.connect()).collect();
    for client in &mut modest {
        client.send(&ask(50_000));
    }
    eventually("all wait", || running.stats.deferred() == 4);
    assert!(memory.usage().of(Part::PartialRequests) >= 200_000, "they are charged");
    let mut greedy = running.connect();
    greedy.send(&ask(400_000));
    assert!(greedy.is_closed());
    eventually("the others go on", || running.stats.deferred() == 4 && running.stats.open() == 4);
    running.service.happened.store(true, Ordering::SeqCst);
    running.service.changed.get().unwrap()();
    for client in &mut modest {
        assert!(ok(&client.receive().document));
    }
    eventually("all is given back", || memory.usage().of(Part::PartialRequests) == 0);
}

#[test]
fn finding_2_a_wait_ends_when_its_time_has_come_also_in_a_stream() {
    let running = start();
    let mut client = running.connect();
    assert!(ok(&client.call(&rawdoc! { "await": 50, "$db": "a" })));
    client.send(&msg(MsgFlags::EXHAUST_ALLOWED, &rawdoc! { "await": 30, "$db": "a" }));
    let mut before = client.receive();
    assert_eq!(before.response_to, 77);
    for _ in 0..3 {
        let next = client.receive();
        assert!(next.flags.contains(MsgFlags::MORE_TO_COME) && ok(&next.document));
        assert_eq!(next.response_to, before.request_id, "each answers the one before it");
        before = next;
    }
    eventually("between two answers it holds no thread", || running.stats.active() == 0);
}

#[test]
fn an_answer_that_waits_keeps_no_request_and_its_connections_order() {
    let (running, memory) = with_memory(64 << 20, |_| ());
    let ask = |number: i32, flags: MsgFlags| {
        let filler = "x".repeat(100_000);
        msg(flags, &rawdoc! { "finish": number, "$db": "a", "filler": filler })
    };
    let mut waiting: Vec<_> = (0..100).map(|_| running.connect()).collect();
    for (number, client) in waiting.iter_mut().enumerate() {
        client.send(&ask(number as i32, MsgFlags::NONE));
        client.send(&msg(MsgFlags::NONE, &rawdoc! { "give": 1, "$db": "a" }));
    }
    let mut silent = running.connect();
    silent.send(&ask(100, MsgFlags::MORE_TO_COME));
    silent.send(&msg(MsgFlags::NONE, &ping()));
    eventually("all wait", || running.stats.deferred() == 101 && running.stats.active() == 0);
    let ran = || running.service.ran.load(Ordering::Relaxed);
    assert_eq!(ran(), 101, "what comes behind it is not run");
    let kept = memory.usage().of(Part::PartialRequests);
    assert!((101_000..200_000).contains(&kept), "its request is not kept, but {kept} bytes are");
    drop(waiting.pop());
    let dropped = || running.service.dropped.load(Ordering::SeqCst);
    eventually("one has left", || running.stats.deferred() == 100 && dropped() == 1);
    let first = Arc::clone(&running.service.wakers.lock()[0]);
    first();
    eventually("it has looked, and waits", || running.service.wakers.lock().len() == 102);
    running.service.news.store(true, Ordering::SeqCst);
    let wakers = std::mem::take(&mut *running.service.wakers.lock());
    for wake in &wakers {
        wake();
    }
    for (number, client) in waiting.iter_mut().enumerate() {
        let answer = client.receive();
        assert_eq!(answer.response_to, 77);
        if number == 13 {
            assert_eq!(answer.document.get_i32("code").ok(), Some(1), "a bug is answered");
        } else {
            assert_eq!(answer.document.get_i32("number").ok(), Some(number as i32));
        }
        let behind = client.receive().document;
        assert_eq!(behind.get_str("filler").ok(), Some("x"), "what came behind it");
    }
    assert!(silent.receive().document.get("id").unwrap().is_some(), "no answer is sent before");
    eventually("nothing is kept", || memory.usage().of(Part::PartialRequests) == 0);
    assert_eq!((dropped(), running.stats.deferred()), (101, 0));
    for wake in &wakers {
        wake();
    }
    assert!(ok(&silent.call(&ping())));
}

#[test]
fn a_request_that_waits_is_run_again_by_its_own_waker_and_the_others_are_not() {
    let running = start();
    let ask = |time: i32| msg(MsgFlags::NONE, &rawdoc! { "watch": time, "$db": "a" });
    let mut waiting: Vec<_> = (0..20).map(|_| running.connect()).collect();
    for client in &mut waiting {
        client.send(&ask(60_000));
    }
    eventually("all wait", || running.stats.deferred() == 20 && running.stats.active() == 0);
    let ran = || running.service.ran.load(Ordering::Relaxed);
    assert_eq!(ran(), 20);
    let first = Arc::clone(&running.service.wakers.lock()[0]);
    first();
    eventually("it was run again, and waits", || ran() == 21 && running.stats.deferred() == 20);
    running.service.news.store(true, Ordering::SeqCst);
    let wakers = std::mem::take(&mut *running.service.wakers.lock());
    for wake in &wakers {
        wake();
    }
    for client in &mut waiting {
        assert!(ok(&client.receive().document));
    }
    assert_eq!((ran(), running.stats.deferred()), (41, 0));
    // Who wakes too often, or too late, does no harm.
    for wake in &wakers {
        wake();
    }
    assert!(ok(&waiting[0].call(&ping())));
    drop(waiting);
    eventually("all have left", || running.stats.open() == 0);
    for wake in &wakers {
        wake();
    }
}

#[test]
fn what_comes_behind_a_request_that_waits_has_time() {
    let (running, _memory) =
        with_memory(64 << 20, |options| options.message_timeout = Duration::from_millis(100));
    let mut client = running.connect();
    let waits = msg(MsgFlags::NONE, &rawdoc! { "await": 2500, "$db": "a" });
    // In one piece, so that it is read together.
    client.send(&[waits, msg(MsgFlags::NONE, &ping())].concat());
    assert!(client.receive().document.get("id").unwrap().is_none());
    assert!(client.receive().document.get("id").unwrap().is_some(), "the ping's answer");
}

#[test]
fn news_between_the_look_and_the_wait_is_not_lost() {
    let running = start();
    let waker = Arc::clone(&running.service);
    std::thread::scope(|scope| {
        let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let told = Arc::clone(&over);
        scope.spawn(move || {
            // Wakes whoever has asked for it, at once.
            while !told.load(Ordering::Relaxed) {
                let wakers = std::mem::take(&mut *waker.wakers.lock());
                if !wakers.is_empty() {
                    waker.news.store(true, Ordering::SeqCst);
                    for wake in &wakers {
                        wake();
                    }
                }
                std::hint::spin_loop();
            }
        });
        let mut client = running.connect();
        let now = || running.service.os.get().unwrap().clock.monotonic();
        let began = now();
        for _ in 0..300 {
            running.service.news.store(false, Ordering::SeqCst);
            assert!(ok(&client.call(&rawdoc! { "watch": 60_000, "$db": "a" })));
        }
        let took = now().saturating_sub(began);
        over.store(true, Ordering::Relaxed);
        assert!(took < Duration::from_secs(50), "one waited its time out");
    });
}

#[test]
fn a_request_that_nobody_answers_does_not_wait() {
    let running = start();
    let mut client = running.connect();
    client.send(&msg(MsgFlags::MORE_TO_COME, &rawdoc! { "watch": 60_000, "$db": "a" }));
    assert!(ok(&client.call(&ping())));
    assert!(running.service.wakers.lock().is_empty(), "it was given nothing to wait with");
}

#[test]
fn finding_3_a_byte_now_and_then_holds_no_thread() {
    let (running, _memory) = with_memory(64 << 20, |_| ());
    let mut slow = running.connect();
    let message = msg(MsgFlags::NONE, &ping());
    for byte in &message[..message.len() - 1] {
        slow.send(&[*byte]);
        eventually("it is parked", || running.stats.active() == 0);
    }
    slow.send(&message[message.len() - 1..]);
    assert!(ok(&slow.receive().document));
}

#[test]
fn finding_16_messages_are_unpacked_only_as_agreed_and_where_there_is_room() {
    let (running, memory) = with_memory(10 << 20, |_| ());
    let mut client = running.connect();
    let mut packed = Vec::new();
    client.codec.compress(&large(15_000_000), Compressor::Zstd, &mut packed).unwrap();
    assert!(packed.len() < 100_000);
    let held = memory.try_admit(Part::Requests, 9 << 20).unwrap();
    client.send(&packed);
    eventually("it waits for room", || memory.is_awaited());
    assert_eq!(running.service.ran.load(Ordering::Relaxed), 0);
    drop(held);
    assert!(ok(&client.receive().document));
    running.service.plain_only.store(true, Ordering::Relaxed);
    client.send(&packed);
    assert!(client.is_closed(), "not agreed");
}
