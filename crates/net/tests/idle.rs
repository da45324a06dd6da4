//! What silent connections cost. Alone in its process, whose memory it measures.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "support/fake.rs"]
mod fake;

use fake::{eventually, ok, ping, start_with};
use net::NetOptions;
use std::time::Duration;

#[test]
fn idle_connections_cost_little_and_give_their_threads_back() {
    const COUNT: usize = 2000;
    // Both ends of every connection are in this process.
    let open_files = os::raise_open_file_limit().unwrap();
    assert!(open_files > 2 * COUNT as u64 + 200, "too few open files for this test: {open_files}");
    let running =
        start_with(NetOptions { worker_idle: Duration::from_millis(100), ..NetOptions::default() });
    let before = os::resident_bytes();
    let mut clients: Vec<_> = (0..COUNT)
        .map(|_| {
            let mut client = running.connect();
            assert!(ok(&client.call(&ping())));
            client
        })
        .collect();
    eventually("all are parked", || running.stats.active() == 0);
    let each = os::resident_bytes().saturating_sub(before) / COUNT as u64;
    assert!(each < 16 * 1024, "an idle connection costs {each} bytes");
    for client in &mut clients {
        assert!(ok(&client.call(&ping())), "a parked connection wakes up");
    }
}
