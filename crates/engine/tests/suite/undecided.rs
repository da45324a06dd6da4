//! What a member holds in memory of entries that nobody has decided, of which nothing can be drained.

use crate::held_back::{latest, member};
use crate::members::{close, restart, send};
use crate::open;
use cachetable::MemoryKind;
use engine::{
    Background, DictionaryId, DictionaryOptions, Direction, Engine, EntryKind, KeyRange, Options,
};
use os::Os;
use os::sim::SimOs;
use std::time::Duration;

const ROOT: DictionaryId = DictionaryId::ROOT;

/// A transaction of 200 KiB leaves memory.
fn options() -> Options {
    let mut options = member();
    options.cache_size = 64 << 20;
    options.sizes.chunk_bytes = 20 << 10;
    options.sizes.spill_bytes = 200 << 10;
    options.sizes.write_budget = 8 << 20;
    options.sizes.memtable_bytes = 1 << 20;
    options.sizes.log_segment_bytes = 1 << 20;
    options.sizes.log_cap = 64 << 20;
    options
}

fn memtables(engine: &Engine) -> u64 {
    engine.stats().cache.parts.of(MemoryKind::Memtables)
}

fn contents(engine: &Engine, dictionary: DictionaryId) -> Vec<(Vec<u8>, Vec<u8>)> {
    let txn = engine.begin_newest(latest());
    let mut cursor = txn.cursor(dictionary, KeyRange::all(), Direction::Forward).unwrap();
    let mut found = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        found.push((key.to_vec(), value.to_vec()));
    }
    found
}

/// Makes a dictionary and writes 4 MB to it and another one, in one transaction.
fn write_large(leader: &Engine) -> DictionaryId {
    let mut txn = leader.begin_newest(latest());
    txn.put(ROOT, b"before", b"of another commit").unwrap();
    txn.submit().unwrap().state();
    let mut txn = leader.begin_newest(latest());
    let made = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    for n in 0..400_u32 {
        let key = n.wrapping_mul(0x9E37_79B9).to_be_bytes();
        let dictionary = if n % 2 == 0 { ROOT } else { made };
        txn.put(dictionary, &key, &vec![n as u8; 10_000]).unwrap();
    }
    txn.delete(ROOT, b"before").unwrap();
    txn.submit().unwrap().state();
    made
}

#[test]
fn large_transaction_of_a_leader_is_large_in_no_followers_memory() {
    let leader = open(&SimOs::new(1).os(), options()).unwrap();
    let sim = SimOs::new(2);
    let follower = open(&sim.os(), options()).unwrap();
    let made = write_large(&leader);
    close(&leader, 1, 0);
    send(&leader, &follower);
    assert!(memtables(&follower) < 300 << 10, "{} bytes in memory", memtables(&follower));
    for dictionary in [ROOT, made] {
        assert_eq!(contents(&follower, dictionary).len(), 200);
        assert_eq!(contents(&follower, dictionary), contents(&leader, dictionary));
    }
    assert_eq!(
        follower.snapshot().get(ROOT, &0_u32.to_be_bytes()).unwrap(),
        None,
        "it is not decided"
    );
    let last = follower.complete().timestamp();
    follower.advance_commit_point(last).unwrap();
    while follower.step().unwrap() {}
    assert!(follower.stats().drains > 0, "what is visible is drained");
    assert_eq!(follower.snapshot().get(ROOT, b"before").unwrap(), None);
    for dictionary in [ROOT, made] {
        assert_eq!(contents(&follower, dictionary), contents(&leader, dictionary));
    }
    follower.sync().unwrap();
    let (_os, follower) = restart(&sim, follower, options());
    for dictionary in [ROOT, made] {
        assert_eq!(contents(&follower, dictionary), contents(&leader, dictionary));
    }
    follower.verify_all().unwrap();
}

#[test]
fn large_transaction_of_a_leader_that_is_void_leaves_nothing() {
    let leader = open(&SimOs::new(1).os(), options()).unwrap();
    let follower = open(&SimOs::new(2).os(), options()).unwrap();
    leader.close_entry((1, 1), EntryKind::Fence, b"", 0).unwrap().unwrap();
    let made = write_large(&leader);
    close(&leader, 1, 1);
    send(&leader, &follower);
    assert_eq!(contents(&follower, made).len(), 200);
    follower.cut(2).unwrap();
    assert!(follower.dictionaries().iter().all(|(id, _)| *id != made));
    assert_eq!(contents(&follower, ROOT), []);
    // And it may come again, of another leader.
    send(&leader, &follower);
    assert_eq!(contents(&follower, ROOT), contents(&leader, ROOT));
    assert_eq!(contents(&follower, made), contents(&leader, made));
}

/// Found by `tests/large_transactions_test.py`: the next leader's first entry was not taken, for want of the memory that
/// only it would have freed, and nobody took writes ever after.
#[test]
fn what_is_not_decided_leaves_room_for_what_decides_it() {
    let mut small = member();
    small.sizes.log_segment_bytes = 4 << 20;
    small.sizes.log_cap = 64 << 20;
    let leader =
        open(&SimOs::new(1).os(), Options { cache_size: 64 << 20, ..small.clone() }).unwrap();
    let disk = SimOs::new(2).os();
    let os = Os { vfs: disk.vfs, ..Os::real() };
    let background = Background::Threads;
    let follower = open(&os, Options { background, ..small }).unwrap();
    for n in 0..3000_u32 {
        let mut txn = leader.begin_newest(latest());
        txn.put(ROOT, &n.wrapping_mul(0x9E37_79B9).to_be_bytes(), &[1; 4000]).unwrap();
        txn.submit().unwrap().state();
        if n % 100 == 99 {
            close(&leader, 1, 0);
        }
    }
    send(&leader, &follower);
    let full = memtables(&follower);
    assert!(full > 8 << 20, "{full} bytes are more than the whole cache");
    let takes = || {
        (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            follower.has_room_for_entries(0)
        })
    };
    assert!(takes(), "nothing can be drained, and nothing is taken");
    let last = leader.entries().last.index + 1;
    leader.close_entry((2, last), EntryKind::Fence, b"", last).unwrap().unwrap();
    send(&leader, &follower);
    follower.commit_entries_up_to(last).unwrap();
    let is_drained = || {
        (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            memtables(&follower) < full / 4
        })
    };
    assert!(is_drained(), "{} of {full} bytes are still in memory", memtables(&follower));
    assert!(takes());
    assert_eq!(contents(&follower, ROOT).len(), 3000);
    follower.close().unwrap();
}
