//! What the engine's own operations cost, in instructions.
//!
//! `cargo xtask instructions` runs it under callgrind: an engine in memory, no thread, no disk, so
//! the same build counts the same everywhere. Rows have keys of 8 bytes and values of 270.

use engine::{DictionaryOptions, Direction, Durability, Engine, KeyRange, OnConflict, TxnOptions};
use testkit::Instructions;

const ROWS: u32 = 20_000;
const LATEST: TxnOptions = TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None };

fn main() -> engine::Result<()> {
    let rows = Instructions::of_arguments();
    let engine = Engine::temporary();
    let mut txn = engine.begin(LATEST);
    let dictionary = txn.create_dictionary(DictionaryOptions::default())?;
    txn.commit(Durability::Buffered)?.visible();
    let key = |number: u32| u64::from(number.wrapping_mul(0x9E37_79B1)).to_be_bytes();
    let value = [b'v'; 270];
    let load = |from: u32, to: u32| -> engine::Result<()> {
        let mut txn = engine.begin(LATEST);
        for number in from..to {
            txn.put(dictionary, &key(number), &value)?;
        }
        txn.commit(Durability::Buffered)?.visible();
        Ok(())
    };
    load(0, ROWS)?;
    rows.row("engine: commit of one put", 100, 1, |n| load(n, n + 1).expect("it commits"));
    rows.row("engine: put in a transaction of 1,000", 2, 1000, |n| {
        load(n * 1000, (n + 1) * 1000).expect("it commits");
    });
    // Out of memory, to leaves.
    rows.row("engine: drain, a row", 1, ROWS, |times| {
        if times == 0 {
            engine.checkpoint().expect("it is written");
            while engine.step().expect("a unit of work") {}
        }
    });
    rows.row("engine: get", 100, 1, |n| {
        let found = engine.snapshot().get(dictionary, &key(n * 190)).expect("it reads");
        assert!(found.is_some());
    });
    rows.row("engine: read-modify-write", 100, 1, |n| {
        let mut txn = engine.begin(LATEST);
        let found = txn.get_for_update(dictionary, &key(n * 190)).expect("it reads");
        assert!(found.is_some());
        txn.put(dictionary, &key(n * 190), &value).expect("it writes");
        txn.commit(Durability::Buffered).expect("it commits").visible();
    });
    rows.row("engine: scan, a row", 2, ROWS, |_| {
        let snapshot = engine.snapshot();
        let mut cursor =
            snapshot.cursor(dictionary, KeyRange::all(), Direction::Forward).expect("a cursor");
        let mut count = 0;
        while cursor.next().expect("it reads").is_some() {
            count += 1;
        }
        assert_eq!(count, ROWS);
    });
    Ok(())
}
