//! Dictionaries that are filled past the log: who sees them, what a crash at any call leaves, and what keeps them
//! from being adopted.

use crate::{open, tiny};
use engine::{
    DictionaryId, DictionaryOptions, Direction, Durability, Engine, EngineTxn, Error,
    HistoryOptions, KeyRange, Load, Loaded, Snapshot, TxnOptions,
};
use os::Os;
use os::sim::{Fault, SimOs, Survival};
use std::time::Duration;
use testkit::{CrashPlan, Failure, crash_everywhere};

const ROOT: DictionaryId = DictionaryId::ROOT;

type Row = (Vec<u8>, Vec<u8>);

/// What the load of a number holds.
fn rows(number: u64) -> Vec<Row> {
    let row = |key: u64| {
        let value = [&number.to_be_bytes()[..], &[key as u8; 40]].concat();
        (key.to_be_bytes().to_vec(), value)
    };
    (0..100 * number).map(row).collect()
}

fn begin(engine: &Engine) -> engine::Result<Load> {
    engine.start_load(engine.new_dictionary_id(), DictionaryOptions::default())
}

fn fill(engine: &Engine, number: u64) -> engine::Result<Loaded> {
    let mut load = begin(engine)?;
    for (key, value) in rows(number) {
        load.put(&key, &value)?;
    }
    load.finish()
}

fn durable(engine: &Engine, number: u64) -> engine::Result<Loaded> {
    let loaded = [fill(engine, number)?];
    engine.make_durable(&loaded)?;
    let [loaded] = loaded;
    Ok(loaded)
}

fn read(mut cursor: engine::Cursor) -> engine::Result<Vec<Row>> {
    let mut found = Vec::new();
    while let Some((key, value)) = cursor.next()? {
        found.push((key.to_vec(), value.to_vec()));
    }
    Ok(found)
}

fn contents(snapshot: &Snapshot, dictionary: DictionaryId) -> engine::Result<Vec<Row>> {
    read(snapshot.cursor(dictionary, KeyRange::all(), Direction::Forward)?)
}

fn own(txn: &EngineTxn, dictionary: DictionaryId) -> Vec<Row> {
    read(txn.cursor(dictionary, KeyRange::all(), Direction::Forward).unwrap()).unwrap()
}

#[test]
fn what_is_loaded_is_seen_from_the_adopting_commit_on_and_by_its_transaction_before() {
    let sim = SimOs::new(3);
    let engine = open(&sim.os(), tiny()).unwrap();
    let older = engine.snapshot();
    let loaded = durable(&engine, 3).unwrap();
    let id = loaded.id();
    assert!((loaded.row_count(), loaded.row_bytes()) == (300, 300 * 56));
    let mut walk = loaded.rows();
    assert_eq!(walk.next().unwrap().map(|(key, _)| key.to_vec()), Some(rows(3)[0].0.clone()));
    drop(walk);
    let between = engine.snapshot();
    let mut txn = engine.begin(TxnOptions::default());
    txn.adopt(loaded).unwrap();
    let view = txn.view();
    assert!(own(&txn, id) == rows(3));
    assert!(contents(&view, id).unwrap() == rows(3));
    // Its own writes go over it.
    let mut expected = rows(3);
    let first = expected[0].clone();
    assert!(!txn.insert(id, &first.0, b"again").unwrap(), "the key is there");
    assert_eq!(txn.get(id, &first.0).unwrap().as_deref(), Some(&first.1[..]));
    let seen = txn.get_for_update(id, &first.0).unwrap();
    assert_eq!(seen.as_deref(), Some(&first.1[..]));
    txn.delete(id, &first.0).unwrap();
    txn.put(id, b"zz", b"new").unwrap();
    expected.remove(0);
    expected.push((b"zz".to_vec(), b"new".to_vec()));
    assert!(own(&txn, id) == expected);
    assert!(matches!(contents(&engine.snapshot(), id), Err(Error::NoSuchDictionary(_))));
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    for older in [&older, &between] {
        assert!(matches!(contents(older, id), Err(Error::NoSuchDictionary(_))));
    }
    assert!(contents(&engine.snapshot(), id).unwrap() == expected);
    engine.verify_all().unwrap();
    // The log has the record, the checkpoint before it the rows.
    let engine = open(&sim.reboot_with(Survival::Nothing), tiny()).unwrap();
    assert!(contents(&engine.snapshot(), id).unwrap() == expected);
    engine.verify_all().unwrap();
    // And then a checkpoint has all of it, without a replay.
    engine.close().unwrap();
    let engine = open(&sim.reboot_with(Survival::Nothing), tiny()).unwrap();
    assert!(contents(&engine.snapshot(), id).unwrap() == expected);
    assert_eq!(engine.stats().recovered.operations, 0);
}

#[test]
fn a_dictionary_that_the_transaction_created_is_filled_by_what_it_adopts() {
    let sim = SimOs::new(5);
    let engine = open(&sim.os(), tiny()).unwrap();
    let mut txn = engine.begin(TxnOptions::default());
    let id = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    let mut load = engine.start_load(id, DictionaryOptions::default()).unwrap();
    for (key, value) in rows(2) {
        load.put(&key, &value).unwrap();
    }
    let loaded = [load.finish().unwrap()];
    engine.make_durable(&loaded).unwrap();
    let [loaded] = loaded;
    assert!(own(&txn, id).is_empty());
    let savepoint = txn.savepoint();
    txn.adopt(loaded).unwrap();
    assert!(own(&txn, id) == rows(2));
    txn.rollback_to(savepoint);
    assert!(own(&txn, id).is_empty(), "a rollback lets go of it");
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    assert!(contents(&engine.snapshot(), id).unwrap().is_empty());
}

/// Bytes of the data file that something names, once a checkpoint has let go of the rest.
fn live_bytes(engine: &Engine) -> u64 {
    engine.checkpoint().unwrap();
    engine.stats().file.live_bytes
}

#[test]
fn what_is_not_adopted_gives_its_room_back() {
    let sim = SimOs::new(4);
    let engine = open(&sim.os(), tiny()).unwrap();
    let before = live_bytes(&engine);
    // In the middle of it, finished, durable, and in a transaction that ends or is rolled back.
    let mut load = begin(&engine).unwrap();
    for (key, value) in rows(20) {
        load.put(&key, &value).unwrap();
    }
    assert!(engine.stats().file.live_bytes > before);
    drop(load);
    assert_eq!(live_bytes(&engine), before);
    drop(fill(&engine, 20).unwrap());
    assert_eq!(live_bytes(&engine), before);
    drop(durable(&engine, 20).unwrap());
    assert_eq!(live_bytes(&engine), before);
    let mut txn = engine.begin(TxnOptions::default());
    txn.adopt(durable(&engine, 20).unwrap()).unwrap();
    txn.abort();
    assert_eq!(live_bytes(&engine), before);
    // The power goes while it is named by a checkpoint.
    let loaded = durable(&engine, 20).unwrap();
    let os = sim.reboot_with(Survival::Nothing);
    let engine = open(&os, tiny()).unwrap();
    assert_eq!(live_bytes(&engine), before);
    drop(loaded);
    // Adopted and dropped again.
    let loaded = durable(&engine, 20).unwrap();
    let id = loaded.id();
    let mut txn = engine.begin(TxnOptions::default());
    txn.adopt(loaded).unwrap();
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    let mut txn = engine.begin(TxnOptions::default());
    txn.drop_dictionary(id).unwrap();
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    assert_eq!(live_bytes(&engine), before);
}

#[test]
fn nothing_is_loaded_where_the_log_is_to_have_everything() {
    let sim = SimOs::new(6);
    let mut options = tiny();
    options.history = Some(HistoryOptions { bytes: 1 << 20, min_age: Duration::ZERO });
    assert!(!open(&sim.os(), options).unwrap().may_load());
    let sim = SimOs::new(7);
    let mut options = tiny();
    options.log_archive_dir = Some("/archive".into());
    assert!(!open(&sim.os(), options).unwrap().may_load());
}

#[test]
fn a_backup_that_lacks_it_keeps_it_from_being_adopted() {
    let sim = SimOs::new(8);
    let engine = open(&sim.os(), tiny()).unwrap();
    assert!(engine.may_load());
    let before = durable(&engine, 1).unwrap();
    let during = fill(&engine, 1).unwrap();
    let backup = engine.backup().unwrap();
    assert!(!engine.may_load());
    assert!(before.is_adoptable(), "the copy has it");
    engine.make_durable(std::slice::from_ref(&during)).unwrap();
    assert!(!during.is_adoptable(), "the copy may lack it");
    drop(backup);
    assert!(engine.may_load() && during.is_adoptable());
    // What a copy has it has whole, adopted while it was made.
    let backup = engine.backup().unwrap();
    let id = before.id();
    let mut txn = engine.begin(TxnOptions::default());
    txn.adopt(before).unwrap();
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    let target = SimOs::new(9);
    backup.write_to(&target.os(), std::path::Path::new("/data"), None, &mut |_| Ok(())).unwrap();
    let copy = open(&target.os(), tiny()).unwrap();
    assert!(contents(&copy.snapshot(), id).unwrap() == rows(1));
}

/// Loads are adopted in one commit with the number of the load; every third is left behind.
fn work(engine: &Engine, acknowledged: &mut u64, from: u64, to: u64) -> Result<(), Failure> {
    for number in from..=to {
        let loaded = durable(engine, number)?;
        let id = loaded.id();
        let forgotten = fill(engine, 1)?;
        let mut txn = engine.begin(TxnOptions::default());
        txn.put(ROOT, &number.to_be_bytes(), &id.0.to_be_bytes())?;
        txn.adopt(loaded)?;
        txn.put(id, b"zz", &number.to_be_bytes())?;
        txn.commit(Durability::Synced)?.durable()?;
        *acknowledged = number;
        drop(forgotten);
        while engine.step()? {}
        if number.is_multiple_of(2) {
            engine.checkpoint()?;
        }
    }
    Ok(())
}

fn check(engine: &Engine, acknowledged: u64) -> Result<u64, Failure> {
    let snapshot = engine.snapshot();
    let loads = contents(&snapshot, ROOT)?;
    assert!(loads.len() as u64 >= acknowledged, "{} of {acknowledged} loads", loads.len());
    let there = engine.dictionaries();
    assert_eq!(there.len(), loads.len() + 1, "nothing but what was adopted is there");
    for (number, (key, id)) in (1..).zip(&loads) {
        assert_eq!(key, &u64::to_be_bytes(number));
        let id = u64::from_be_bytes(id[..].try_into().unwrap());
        let mut expected = rows(number);
        expected.push((b"zz".to_vec(), number.to_be_bytes().to_vec()));
        assert!(contents(&snapshot, DictionaryId(id))? == expected, "load {number}");
    }
    engine.verify_all()?;
    Ok(loads.len() as u64)
}

#[test]
fn every_crash_leaves_each_load_whole_or_not_at_all() {
    let step = std::env::var("FERN_CRASH_STEP").ok().and_then(|text| text.parse().ok());
    let plan = CrashPlan { step: step.unwrap_or(2), ..CrashPlan::default() };
    let report = crash_everywhere(
        &plan,
        |os: &Os, acknowledged: &mut u64| {
            let engine = open(os, tiny())?;
            work(&engine, acknowledged, 1, 4)?;
            Ok(engine.close()?)
        },
        |os: &Os, acknowledged: &mut u64| {
            let engine = open(os, tiny())?;
            let there = check(&engine, *acknowledged)?;
            *acknowledged = there;
            work(&engine, acknowledged, there + 1, there + 1)
        },
    );
    assert!(report.crashes > 20, "{report:?}");
}

/// One failing call, at every call: what was acknowledged is there, and nothing else but whole loads.
#[test]
fn every_single_fault_leaves_each_load_whole_or_not_at_all() {
    let calls = {
        let sim = SimOs::new(11);
        let engine = open(&sim.os(), tiny()).unwrap();
        work(&engine, &mut 0, 1, 3).unwrap();
        engine.close().unwrap();
        sim.syscalls()
    };
    let mut noticed = 0;
    for fault in [Fault::NoSpace, Fault::Io, Fault::ShortWrite] {
        for n in 1..=calls {
            let sim = SimOs::new(11);
            sim.fault_at(n, fault);
            let mut acknowledged = 0;
            let result = open(&sim.os(), tiny()).map_err(Failure::from).and_then(|engine| {
                work(&engine, &mut acknowledged, 1, 3)?;
                Ok(engine.close()?)
            });
            noticed += u64::from(result.is_err());
            let os = sim.reboot_with(Survival::Nothing);
            let engine = open(&os, tiny()).unwrap_or_else(|e| panic!("{fault:?} at {n}: {e}"));
            check(&engine, acknowledged).unwrap_or_else(|e| panic!("{fault:?} at {n}: {e}"));
        }
    }
    assert!(noticed > 20, "{noticed} faults were noticed");
}
