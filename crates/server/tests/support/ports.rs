//! Ports for the servers that tests start.
//!
//! They are never found by listening on one and closing it again: a process that another thread
//! starts at that moment holds a copy of the listening socket until it runs its own program, so a
//! client could reach that copy and be cut off. Nor are they among those that the system gives to
//! clients, from which a client that tries a port again and again may reach itself.

use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 11_000;
const COUNT: u32 = 20_000;

/// A port at which nobody answers and which no other test of this process was given.
pub(crate) fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    loop {
        let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
        let number = std::process::id().wrapping_mul(61).wrapping_add(taken);
        let port = u16::try_from(FIRST + number % COUNT).expect("below 32,768");
        if TcpStream::connect(("127.0.0.1", port)).is_err() {
            return port;
        }
    }
}
