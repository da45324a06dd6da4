//! `ObjectId`s that the server makes for documents without `_id`.

use bson::oid::ObjectId;
use os::Os;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Seconds, five bytes of this process, a counter.
pub fn new_object_id(os: &Os) -> ObjectId {
    static PROCESS: OnceLock<[u8; 5]> = OnceLock::new();
    static COUNTER: OnceLock<AtomicU32> = OnceLock::new();
    let process = PROCESS.get_or_init(|| {
        let mut bytes = [0; 5];
        os.entropy.fill(&mut bytes);
        bytes
    });
    let counter = COUNTER.get_or_init(|| AtomicU32::new(os.entropy.next_u64() as u32));
    let seconds = (os.clock.wall_ms() / 1000) as u32;
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&seconds.to_be_bytes());
    bytes[4..9].copy_from_slice(process);
    bytes[9..].copy_from_slice(&counter.fetch_add(1, Ordering::Relaxed).to_be_bytes()[1..]);
    ObjectId::from_bytes(bytes)
}
