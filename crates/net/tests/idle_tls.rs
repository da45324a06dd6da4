//! What silent connections cost that speak TLS. Alone in its process, whose memory it measures.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "support/fake.rs"]
mod fake;
#[path = "support/secure.rs"]
mod secure;

use fake::{eventually, msg, ping, start_with};
use limits::{Account, Part};
use net::NetOptions;
use secure::{connect, port};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;
use tls::Mode;
use wire::MsgFlags;

#[test]
fn idle_connections_over_tls_cost_little() {
    const COUNT: usize = 1000;
    // Both ends of every connection are in this process.
    let open_files = os::raise_open_file_limit().unwrap();
    assert!(open_files > 2 * COUNT as u64 + 200, "too few open files for this test: {open_files}");
    let (tls, client) = port(Mode::Require);
    let memory = Account::new(1 << 30);
    let running = start_with(NetOptions {
        worker_idle: Duration::from_millis(100),
        tls,
        memory: Arc::clone(&memory),
        ..NetOptions::default()
    });
    let open = || {
        let mut stream = connect(&client, running.address);
        stream.write_all(&msg(MsgFlags::NONE, &ping())).unwrap();
        stream.read_exact(&mut [0; 30]).unwrap();
        // What the client's side takes is not what is measured.
        stream.sock
    };
    let first = open();
    let before = os::resident_bytes();
    let clients: Vec<_> = (0..COUNT).map(|_| open()).collect();
    eventually("all are parked", || running.stats.active() == 0);
    let each = os::resident_bytes().saturating_sub(before) / COUNT as u64;
    assert!(each < 24 * 1024, "an idle connection costs {each} bytes");
    // What the account says of them is what they take, roundly.
    let charged = memory.usage().of(Part::Tls);
    assert_eq!(charged, (COUNT as u64 + 1) * tls::SESSION_BYTES);
    assert!((each / 2..each * 2).contains(&tls::SESSION_BYTES), "{each} bytes are measured");
    drop((first, clients));
    eventually("nothing is charged", || memory.usage().of(Part::Tls) == 0);
}
