//! How many connections may come, and how fast.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "support/fake.rs"]
mod fake;

use fake::{Client, eventually, ok, ping, start};
use std::io::Write;
use std::sync::atomic::Ordering;

#[test]
fn an_address_has_no_more_connections_than_it_may() {
    let running = start();
    let limit = &running.service.arrivals.connections_per_address;
    let mut first: Vec<Client> = (0..3).map(|_| running.connect()).collect();
    assert!(first.iter_mut().all(|client| ok(&client.call(&ping()))));
    // Those that were there before the limit was set count, and stay.
    limit.store(4, Ordering::Relaxed);
    let mut last = running.connect();
    assert!(ok(&last.call(&ping())));
    assert!(running.connect().is_closed(), "a fifth one is closed at once");
    assert_eq!(running.stats.rejected(), 1);
    drop(first.pop());
    eventually("one is closed", || running.stats.open() == 3);
    assert!(ok(&running.connect().call(&ping())), "there is room again");
    limit.store(0, Ordering::Relaxed);
    let mut many: Vec<Client> = (0..9).map(|_| running.connect()).collect();
    assert!(many.iter_mut().all(|client| ok(&client.call(&ping()))));
    assert!(ok(&last.call(&ping())));
}

#[test]
fn connections_over_the_rate_wait_for_their_turn_or_are_closed() {
    let running = start();
    let arrivals = &running.service.arrivals;
    arrivals.per_second.store(5, Ordering::Relaxed);
    arrivals.burst_seconds.store(1, Ordering::Relaxed);
    arrivals.queue_depth.store(2, Ordering::Relaxed);
    arrivals.is_rate_limited.store(true, Ordering::Relaxed);
    let clients: Vec<Client> = (0..8).map(|_| running.connect()).collect();
    // Five come at once, two wait for a fifth of a second each, one is closed. On a slow machine one more comes.
    let is_answered = |mut client: Client| {
        // One that is closed may not take it.
        let _closed = client.stream.write_all(&fake::msg(wire::MsgFlags::NONE, &ping()));
        client.frame().is_some()
    };
    let answered = clients.into_iter().map(is_answered).filter(|yes| *yes).count();
    assert!((7..=8).contains(&answered), "{answered}");
    if answered == 7 {
        assert_eq!(running.stats.rejected(), 1);
    }
    // Whoever waits comes in at once where there is no rate any more.
    arrivals.per_second.store(1, Ordering::Relaxed);
    arrivals.queue_depth.store(100, Ordering::Relaxed);
    let mut waiting: Vec<Client> = (0..20).map(|_| running.connect()).collect();
    arrivals.is_rate_limited.store(false, Ordering::Relaxed);
    assert!(waiting.iter_mut().all(|client| ok(&client.call(&ping()))));
}
