//! Dictionaries that are filled with sorted rows in parts: on one thread as on several, and what errors leave.

use crate::{open, tiny};
use engine::{
    Background, DictionaryOptions, Direction, Durability, Engine, Error, FillError, FillTarget,
    KeyRange, Loaded, PutRow, Sizes, Sorted, Twice, TxnOptions,
};
use os::Os;
use os::sim::{Fault, SimOs};
use std::collections::BTreeMap;
use std::sync::Arc;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// How many rows the spaces 5 and 9 have: more than fit in memory for sorting. Those of 9 whose number can be
/// divided by 7 lie in place before.
fn rows(threads: bool) -> u32 {
    if threads { 120_000 } else { 4000 }
}

fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(0x9e37_79b1).to_be_bytes()
}

fn value(number: u32) -> Vec<u8> {
    // Now and then one that lies by itself.
    let length = if number.is_multiple_of(30_000) { 3000 } else { 60 };
    [&number.to_be_bytes()[..], &vec![number as u8; length]].concat()
}

/// An engine with threads of its own, or without any and with everything tiny.
fn start(sim: &SimOs, threads: bool) -> Engine {
    let mut options = tiny();
    if !threads {
        let engine = open(&sim.os(), options).unwrap();
        engine.adjustable().set_loader_max_memory(100_000);
        return engine;
    }
    options.background = Background::Threads;
    options.cache_size = 64 << 20;
    options.sizes = Sizes::default();
    open(&Os { vfs: sim.os().vfs, ..Os::real() }, options).unwrap()
}

fn sort(engine: &Engine, rows: u32, twice: Option<u32>) -> engine::Result<Arc<Sorted>> {
    let mut sorter = engine.sorter();
    for number in 0..rows {
        sorter.put(5, &key(number), &value(number))?;
        if !number.is_multiple_of(7) {
            sorter.put(9, &key(number), &value(number))?;
        }
    }
    if let Some(number) = twice {
        sorter.put(5, &key(number), b"again")?;
    }
    Ok(Arc::new(sorter.finish()?))
}

fn targets(engine: &Engine, rows: u32) -> engine::Result<Vec<FillTarget>> {
    let options = DictionaryOptions::default();
    let mut ascending: Vec<u32> = (0..rows).filter(|number| number.is_multiple_of(7)).collect();
    ascending.sort_by_key(|number| key(*number));
    let id = engine.new_dictionary_id();
    let mut load = engine.start_load_behind(id, options, engine.sorter(), Arc::new(none_follow))?;
    for number in ascending {
        load.put(&key(number), &value(number), false)?;
    }
    let beside = Some(load.finish()?.0);
    let first = FillTarget { space: 5, id: engine.new_dictionary_id(), options, beside: None };
    Ok(vec![first, FillTarget { space: 9, id, options, beside }])
}

#[expect(clippy::unnecessary_wraps, reason = "what makes rows may fail")]
fn none_follow(_: &[u8], _: &[u8], _: &mut PutRow<'_>) -> engine::Result<()> {
    Ok(())
}

fn none_are(_: u32, _: &[u8], _: &[u8], _: &[u8]) -> bool {
    false
}

fn contents(loaded: &Loaded) -> Rows {
    let mut found = Rows::new();
    let mut walk = loaded.rows();
    while let Some((key, value)) = walk.next().unwrap() {
        assert!(found.insert(key.to_vec(), value.to_vec()).is_none(), "a row stands twice");
    }
    found
}

fn live_bytes(engine: &Engine) -> u64 {
    engine.checkpoint().unwrap();
    engine.stats().file.live_bytes
}

#[test]
fn rows_fill_their_dictionaries_on_one_thread_as_on_several() {
    for threads in [true, false] {
        let sim = SimOs::new(21);
        let (engine, rows) = (start(&sim, threads), rows(threads));
        let before = live_bytes(&engine);
        let row = |number| (key(number).to_vec(), value(number));
        let expected: Rows = (0..rows).map(row).collect();
        let sorted = sort(&engine, rows, None).unwrap();
        assert!(live_bytes(&engine) > before, "more than memory holds");
        assert_eq!(sorted.row_count(), u64::from(rows) * 2 - u64::from(rows.div_ceil(7)));
        let mut told = 0;
        let mut go_on = |rows| {
            assert!(rows >= told, "what is done does not become less");
            told = rows;
            true
        };
        let targets = targets(&engine, rows).unwrap();
        let loaded = engine.fill(&sorted, targets, Arc::new(none_are), &mut go_on).unwrap();
        drop(sorted);
        assert!(!threads || told > u64::from(rows), "{told} rows were told");
        let bytes: usize = expected.iter().map(|(key, value)| key.len() + value.len()).sum();
        for loaded in &loaded {
            assert!(contents(loaded) == expected, "threads: {threads}");
            assert_eq!((loaded.row_count(), loaded.row_bytes()), (u64::from(rows), bytes as u64));
        }
        engine.make_durable(&loaded).unwrap();
        let mut txn = engine.begin(TxnOptions::default());
        let mut ids = Vec::new();
        for loaded in loaded {
            ids.push(loaded.id());
            txn.adopt(loaded).unwrap();
        }
        txn.commit(Durability::Synced).unwrap().durable().unwrap();
        engine.verify_all().unwrap();
        let snapshot = engine.snapshot();
        for id in &ids {
            let mut cursor = snapshot.cursor(*id, KeyRange::all(), Direction::Backward).unwrap();
            let mut count = 0;
            while cursor.next().unwrap().is_some() {
                count += 1;
            }
            assert_eq!(count, rows);
        }
        drop(snapshot);
        let mut txn = engine.begin(TxnOptions::default());
        for id in ids {
            txn.drop_dictionary(id).unwrap();
        }
        txn.commit(Durability::Synced).unwrap().durable().unwrap();
        for _ in 0..100 {
            if live_bytes(&engine) == before {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(live_bytes(&engine), before, "threads: {threads}");
        engine.close().unwrap();
    }
}

#[test]
fn two_rows_with_one_key_are_told_or_left_out() {
    for threads in [true, false] {
        let sim = SimOs::new(22);
        let (engine, rows) = (start(&sim, threads), rows(threads));
        let before = live_bytes(&engine);
        let sorted = sort(&engine, rows, Some(77)).unwrap();
        let filled =
            engine
                .fill(&sorted, targets(&engine, rows).unwrap(), Arc::new(none_are), &mut |_| true);
        match filled {
            Err(FillError::Twice(Twice { space: 5, key: twice, mut values })) => {
                values.sort();
                assert_eq!(twice, key(77));
                assert_eq!(values, [value(77), b"again".to_vec()]);
            }
            other => panic!("a row that stands twice was taken: {other:?}"),
        }
        let are_same = |space, twice: &[u8], _: &[u8], _: &[u8]| space == 5 && twice == key(77);
        let loaded = engine
            .fill(&sorted, targets(&engine, rows).unwrap(), Arc::new(are_same), &mut |_| true)
            .unwrap();
        assert_eq!(loaded[0].row_count(), u64::from(rows));
        drop((loaded, sorted));
        assert_eq!(live_bytes(&engine), before, "nothing stays");
        engine.close().unwrap();
    }
}

#[test]
fn who_is_told_to_stop_leaves_nothing() {
    let sim = SimOs::new(23);
    let (engine, rows) = (start(&sim, true), rows(true));
    let before = live_bytes(&engine);
    let sorted = sort(&engine, rows, None).unwrap();
    let mut left = 3;
    let mut go_on = |_| {
        left -= 1;
        left > 0
    };
    let filled =
        engine.fill(&sorted, targets(&engine, rows).unwrap(), Arc::new(none_are), &mut go_on);
    assert!(matches!(filled, Err(FillError::Stopped)), "{filled:?}");
    // One that is given up in the middle of a row's way, too.
    let (id, options) = (engine.new_dictionary_id(), DictionaryOptions::default());
    let sorter = engine.sorter();
    let mut load = engine.start_load_behind(id, options, sorter, Arc::new(none_follow)).unwrap();
    for number in 0..rows {
        load.sort(1, &key(number), &value(number), false).unwrap();
        load.put(&number.to_be_bytes(), &value(number), true).unwrap();
    }
    drop((load, sorted));
    assert_eq!(live_bytes(&engine), before, "nothing stays");
    engine.close().unwrap();
}

/// What is only read so that others follow from it goes nowhere, on a thread as without one.
#[test]
fn rows_that_are_made_behind_a_reader_are_all_sorted() {
    for threads in [true, false] {
        let sim = SimOs::new(26);
        let (engine, rows) = (start(&sim, threads), rows(threads));
        let before = live_bytes(&engine);
        let twice = |key: &[u8], value: &[u8], put: &mut PutRow<'_>| {
            if value == b"none" {
                return Err(Error::Stopped("no row follows".to_owned()));
            }
            put(1, &value[..4], key)?;
            put(2, key, value)
        };
        let mut behind = engine.sort_behind(engine.sorter(), Arc::new(twice));
        for number in 0..rows {
            behind.put(&key(number), &value(number)).unwrap();
        }
        let sorted = behind.finish().unwrap().finish().unwrap();
        assert_eq!(sorted.row_count(), 2 * u64::from(rows));
        let mut walk = sorted.walk(1).unwrap();
        for number in 0..rows {
            let row = walk.next().unwrap();
            assert_eq!(row, Some((&number.to_be_bytes()[..], &key(number)[..])));
        }
        assert_eq!(walk.next().unwrap(), None);
        drop((walk, sorted));
        let mut behind = engine.sort_behind(engine.sorter(), Arc::new(twice));
        let put = behind.put(b"b", b"none");
        let error = put.and_then(|()| behind.finish().map(drop)).unwrap_err();
        assert!(error.to_string().contains("no row follows"), "{error}");
        assert_eq!(live_bytes(&engine), before, "nothing stays");
        engine.close().unwrap();
    }
}

/// Rows that follow from others are sorted, on a thread as without one; where one cannot be made, that is told.
#[test]
fn rows_that_follow_from_others_are_sorted() {
    for threads in [true, false] {
        let sim = SimOs::new(25);
        let (engine, rows) = (start(&sim, threads), rows(threads));
        let before = live_bytes(&engine);
        let (id, options) = (engine.new_dictionary_id(), DictionaryOptions::default());
        let backwards = |key: &[u8], value: &[u8], put: &mut PutRow<'_>| {
            if value == b"none" {
                return Err(Error::Stopped("no row follows".to_owned()));
            }
            let reversed: Vec<u8> = key.iter().rev().copied().collect();
            put(1, &reversed, b"one")?;
            put(2, &reversed, value)
        };
        let begin = || {
            let derive = Arc::new(backwards);
            engine.start_load_behind(id, options, engine.sorter(), derive).unwrap()
        };
        let mut load = begin();
        for number in 0..rows {
            let (key, value) = (number.to_be_bytes(), value(number));
            match number % 3 {
                0 => load.put(&key, &value, true).unwrap(),
                1 => load.put(&key, &value, false).unwrap(),
                _ => load.sort(2, &key, &value, true).unwrap(),
            }
        }
        let (loaded, sorter) = load.finish().unwrap();
        assert_eq!(loaded.row_count(), u64::from(rows - rows / 3));
        let sorted = sorter.finish().unwrap();
        let derived = u64::from(rows.div_ceil(3) + rows / 3);
        assert_eq!(sorted.row_count(), u64::from(rows / 3) + 2 * derived);
        let mut walk = sorted.walk(1).unwrap();
        let (mut count, mut last) = (0, Vec::new());
        while let Some((key, value)) = walk.next().unwrap() {
            let number = key.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
            assert!(number % 3 != 1 && last.as_slice() < key && value == b"one");
            count += 1;
            last = key.to_vec();
        }
        assert_eq!(count, derived);
        drop((walk, sorted, loaded));
        let mut load = begin();
        load.put(b"a", b"none", false).unwrap();
        let handed_over = load.put(b"b", b"none", true);
        let error = handed_over.and_then(|()| load.finish().map(drop)).unwrap_err();
        assert!(matches!(&error, Error::Stopped(text) if text == "no row follows"), "{error:?}");
        assert_eq!(live_bytes(&engine), before, "nothing stays");
        engine.close().unwrap();
    }
}

/// Calls fail in the thread behind: who puts rows in, or finishes, is told.
#[test]
fn what_fails_behind_is_told() {
    let (rows, mut failed) = (20_000, [0; 3]);
    for call in 0..30 {
        let sim = SimOs::new(24);
        let engine = start(&sim, true);
        let before = live_bytes(&engine);
        engine.adjustable().set_loader_max_memory(3 << 20);
        sim.fault_at(sim.syscalls() + 1 + call, Fault::NoSpace);
        let targets = targets(&engine, rows);
        failed[0] += u32::from(targets.is_err());
        let sorted = sort(&engine, rows, None);
        failed[1] += u32::from(sorted.is_err());
        if let (Ok(sorted), Ok(targets)) = (&sorted, targets) {
            match engine.fill(sorted, targets, Arc::new(none_are), &mut |_| true) {
                Ok(loaded) => assert_eq!(contents(&loaded[1]).len(), rows as usize),
                Err(FillError::Engine(_)) => failed[2] += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        drop(sorted);
        // Where nothing has failed so far it is a checkpoint that does, or the close; the engine stops where
        // that is a sync.
        if (0..3).any(|_| engine.checkpoint().is_ok()) {
            let live = engine.stats().file.live_bytes;
            assert_eq!(live, before, "nothing stays, call {call}");
        }
        let _closed_or_failed = engine.close();
    }
    assert!(failed.iter().all(|failed| *failed > 0), "{failed:?}");
}
