//! What clients are held to that have to log in and have not.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "support/fake.rs"]
mod fake;

use bson::{RawDocumentBuf, rawdoc};
use fake::{Client, Running, eventually, msg, ok, ping, start, start_with};
use net::NetOptions;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::MsgFlags;

fn asking(connections: u64, per_address: u64, ms: u64) -> Running {
    let running = start();
    let limits = &running.service.before_login;
    limits.connections.store(connections, Ordering::Relaxed);
    limits.connections_per_address.store(per_address, Ordering::Relaxed);
    limits.message_ms.store(ms, Ordering::Relaxed);
    running.service.asks_for_logins.store(true, Ordering::Relaxed);
    running
}

const LONG_MS: u64 = 3_600_000;

fn long() -> RawDocumentBuf {
    rawdoc! { "ping": 1, "$db": "admin", "filler": "x".repeat(20_000) }
}

fn login() -> RawDocumentBuf {
    rawdoc! { "login": 1, "$db": "admin" }
}

#[test]
fn long_messages_are_taken_after_a_login_alone() {
    let running = asking(100, 100, LONG_MS);
    let mut client = running.connect();
    assert!(ok(&client.call(&ping())));
    client.send(&msg(MsgFlags::NONE, &long())[..5000]);
    assert!(client.is_closed(), "it is closed before the rest has come");
    let mut client = running.connect();
    assert!(ok(&client.call(&login())));
    assert!(ok(&client.call(&long())));
    running.service.logged_in.lock().clear();
    client.send(&msg(MsgFlags::NONE, &long()));
    assert!(client.is_closed(), "who has logged out is nobody again");
    running.service.asks_for_logins.store(false, Ordering::Relaxed);
    assert!(ok(&running.connect().call(&long())), "nobody is asked");
}

#[test]
fn who_says_nothing_or_half_a_message_is_closed() {
    let running = asking(100, 100, 50);
    let mut silent = running.connect();
    let mut half = running.connect();
    half.send(&msg(MsgFlags::NONE, &ping())[..20]);
    let mut monitor = running.connect();
    assert!(ok(&monitor.call(&ping())));
    let mut user = running.connect();
    assert!(ok(&user.call(&login())));
    assert!(silent.is_closed() && half.is_closed());
    eventually("both are counted", || {
        running.stats.closed_before_login() == 1 && running.stats.partial_closed() == 1
    });
    assert!(ok(&monitor.call(&ping())) && ok(&user.call(&ping())), "who has asked may be silent");
}

#[test]
fn over_a_limit_who_was_silent_for_longest_makes_way() {
    for (connections, per_address) in [(3, 100), (100, 3)] {
        let running = asking(connections, per_address, LONG_MS);
        let mut users = Vec::new();
        for _ in 0..5 {
            let mut user = running.connect();
            assert!(ok(&user.call(&login())), "who logs in makes room for the next");
            // The answer comes before the count.
            assert!(ok(&user.call(&ping())));
            users.push(user);
        }
        let mut monitors: Vec<Client> = (0..3).map(|_| running.connect()).collect();
        for monitor in &mut monitors {
            assert!(ok(&monitor.call(&ping())));
        }
        // The order is of milliseconds.
        std::thread::sleep(Duration::from_millis(5));
        assert!(ok(&monitors[0].call(&ping())));
        let mut more = running.connect();
        assert!(ok(&more.call(&ping())));
        assert!(monitors.remove(1).is_closed(), "the one that was silent for longest");
        for other in users.iter_mut().chain(&mut monitors).chain([&mut more]) {
            assert!(ok(&other.call(&ping())));
        }
        assert_eq!(running.stats.closed_before_login(), 1);
        // One that waits for an answer makes way, too.
        monitors[0].send(&msg(MsgFlags::NONE, &rawdoc! { "await": 3_600_000, "$db": "admin" }));
        eventually("it waits", || running.stats.deferred() == 1);
        std::thread::sleep(Duration::from_millis(5));
        assert!(ok(&monitors[1].call(&ping())) && ok(&more.call(&ping())));
        assert!(ok(&running.connect().call(&ping())));
        assert!(monitors[0].is_closed());
    }
}

#[test]
fn who_only_holds_connections_keeps_nobody_out() {
    let running = start_with(NetOptions { max_connections: 10, ..NetOptions::default() });
    running.service.asks_for_logins.store(true, Ordering::Relaxed);
    let mut users = Vec::new();
    for _ in 0..5 {
        let mut user = running.connect();
        assert!(ok(&user.call(&login())) && ok(&user.call(&ping())));
        users.push(user);
    }
    let mut holders: Vec<Client> = (0..5).map(|_| running.connect()).collect();
    for holder in &mut holders {
        assert!(ok(&holder.call(&ping())));
    }
    std::thread::sleep(Duration::from_millis(20));
    for _ in 0..5 {
        let mut user = running.connect();
        assert!(ok(&user.call(&login())), "a place was made");
        users.push(user);
    }
    for user in &mut users {
        assert!(ok(&user.call(&ping())), "nobody who has logged in made way");
    }
    assert!(running.connect().is_closed(), "there is no place for an eleventh user");
}

#[test]
fn a_flood_of_silent_connections_shuts_nobody_out() {
    let running = asking(20, 20, LONG_MS);
    let flood: Vec<Client> = (0..200).map(|_| running.connect()).collect();
    for _ in 0..10 {
        let mut user = running.connect();
        assert!(ok(&user.call(&login())) && ok(&user.call(&long())));
    }
    eventually("the flood is cut", || running.stats.open() <= 30);
    drop(flood);
}
