//! Disk space and what a checkpoint costs: full disks, dropped dictionaries, quiet ones.

use crate::members::{close, send};
use crate::{open, tiny};
use engine::{
    Background, DictionaryId, DictionaryOptions, Durability, Engine, Error, HistoryOptions,
    Options, Showing, TxnOptions,
};
use os::Os;
use os::sim::{Faults, SimOs, Survival};
use std::path::Path;
use std::time::Duration;

const ROOT: DictionaryId = DictionaryId::ROOT;

fn create(engine: &Engine) -> DictionaryId {
    let mut txn = engine.begin(TxnOptions::default());
    let id = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    id
}

fn put(engine: &Engine, dictionary: DictionaryId, n: u64) -> engine::Result<()> {
    let mut txn = engine.begin(TxnOptions::default());
    // Noise: it must not compress.
    let noise = testkit::Gen::new(n).bytes(700);
    txn.put(dictionary, &n.to_be_bytes(), &noise)?;
    txn.commit(Durability::Synced)?.durable().map(drop)
}

fn drop_dictionary(engine: &Engine, dictionary: DictionaryId) -> engine::Result<()> {
    let mut txn = engine.begin(TxnOptions::default());
    txn.drop_dictionary(dictionary)?;
    txn.put(ROOT, b"what was dropped", &dictionary.0.to_be_bytes())?;
    txn.commit(Durability::Synced)?.durable().map(drop)
}

fn used(os: &Os) -> u64 {
    let space = os.vfs.space(Path::new("/data")).unwrap();
    space.total - space.available
}

/// A few seconds in which nobody wants anything.
fn idle(sim: &SimOs, engine: &Engine, seconds: u64) {
    for _ in 0..seconds {
        sim.advance(Duration::from_secs(1));
        while engine.step().unwrap() {}
    }
}

fn fill(engine: &Engine, dictionary: DictionaryId) -> (u64, Error) {
    for n in 0.. {
        let failed = put(engine, dictionary, n).and_then(|()| engine.step().map(drop));
        if let Err(error) = failed {
            return (n, error);
        }
    }
    unreachable!("some disk is full at some time")
}

#[test]
fn full_disk_lets_a_drop_through_and_writes_come_back() {
    let sim = SimOs::new(3);
    let engine = open(&sim.os(), tiny()).unwrap();
    let (kept, large) = (create(&engine), create(&engine));
    put(&engine, kept, 1).unwrap();
    engine.checkpoint().unwrap();
    let capacity = used(&sim.os()) + (4 << 20);
    sim.set_faults(Faults { capacity_bytes: capacity, ..Faults::default() });
    let (written, error) = fill(&engine, large);
    assert!(written > 1000 && matches!(error, Error::NoSpace(_)), "{written}: {error}");
    // Nothing at all is left.
    sim.set_faults(Faults { capacity_bytes: used(&sim.os()), ..Faults::default() });
    engine.checkpoint().unwrap();
    drop_dictionary(&engine, large).unwrap();
    engine.checkpoint().unwrap();
    idle(&sim, &engine, 10);
    assert!(used(&sim.os()) < capacity - (2 << 20), "{} of {capacity}", used(&sim.os()));
    let (again, _) = fill(&engine, kept);
    assert!(again > 1000, "{again} after the drop");
    sim.set_faults(Faults { capacity_bytes: used(&sim.os()), ..Faults::default() });
    let engine = open(&sim.reboot_with(Survival::Process), tiny()).unwrap();
    assert!(engine.snapshot().get(ROOT, b"what was dropped").unwrap().is_some());
    engine.verify_all().unwrap();
}

#[test]
fn writes_come_back_where_others_than_the_maintenance_thread_made_the_log_segment() {
    let sim = SimOs::new(6);
    let os = sim.os();
    let engine = open(&os, tiny()).unwrap();
    let kept = create(&engine);
    let dropped: Vec<_> = (0..400).map(|_| create(&engine)).collect();
    engine.checkpoint().unwrap();
    let capacity = used(&os) + (1 << 20);
    sim.set_faults(Faults { capacity_bytes: capacity, ..Faults::default() });
    let refused = (0..).find_map(|n| {
        let _draining_may_fail = engine.step();
        put(&engine, kept, n).err().map(|error| error.to_string())
    });
    let refused = refused.unwrap_or_default();
    assert!(refused.contains("next segment of the log"), "{refused}");
    sim.set_faults(Faults::default());
    // There is room, and before the maintenance thread looks again a drop, which a full disk lets
    // through, has begun a segment: it is nearly empty and wants no successor yet.
    let newest = || os.vfs.list_dir(Path::new("/data/journal")).unwrap().into_iter().max();
    let full = newest();
    let mut drops = dropped.into_iter();
    while newest() == full {
        drop_dictionary(&engine, drops.next().unwrap()).unwrap();
    }
    idle(&sim, &engine, 3);
    put(&engine, kept, u64::MAX).unwrap();
}

#[test]
fn checkpoints_complete_on_a_disk_without_a_free_byte() {
    let sim = SimOs::new(4);
    let engine = open(&sim.os(), tiny()).unwrap();
    let dictionary = create(&engine);
    for n in 0..300 {
        put(&engine, dictionary, n).unwrap();
        engine.step().unwrap();
    }
    engine.checkpoint().unwrap();
    let before = engine.stats().checkpoint;
    sim.set_faults(Faults { capacity_bytes: used(&sim.os()), ..Faults::default() });
    for n in 300..330 {
        // Into memory and a log segment that is there; draining may find no room.
        put(&engine, dictionary, n).unwrap();
        let _full = engine.step();
        engine.checkpoint().unwrap();
    }
    let after = engine.stats().checkpoint;
    assert_eq!((after.count, after.failed), (before.count + 30, before.failed));
    let engine = open(&sim.reboot_with(Survival::Nothing), tiny()).unwrap();
    assert!(engine.snapshot().get(dictionary, &329_u64.to_be_bytes()).unwrap().is_some());
}

#[test]
fn dropped_dictionary_gives_its_space_back_by_itself() {
    let sim = SimOs::new(5);
    let options = Options { checkpoint_period: Duration::from_mins(1), ..tiny() };
    let engine = open(&sim.os(), options).unwrap();
    let (first, second) = (create(&engine), create(&engine));
    // Side by side in the file, so that what is dropped leaves holes.
    for n in 0..3000 {
        put(&engine, if n % 2 == 0 { first } else { second }, n).unwrap();
        engine.step().unwrap();
    }
    engine.checkpoint().unwrap();
    idle(&sim, &engine, 10);
    let (before, file) = (used(&sim.os()), engine.stats().file);
    drop_dictionary(&engine, first).unwrap();
    idle(&sim, &engine, 200);
    let (after, now) = (used(&sim.os()), engine.stats().file);
    assert!(after < before - (700 << 10), "{before} bytes on disk, {after} after the drop");
    assert!(now.file_bytes < file.file_bytes * 3 / 4, "{file:?} then {now:?}");
    engine.verify_all().unwrap();
    let engine = open(&sim.reboot_with(Survival::Nothing), tiny()).unwrap();
    assert!(engine.snapshot().get(second, &2999_u64.to_be_bytes()).unwrap().is_some());
}

#[test]
fn checkpoint_writes_what_changed_and_an_idle_engine_none() {
    let sim = SimOs::new(6);
    let options = Options { checkpoint_period: Duration::from_mins(1), ..tiny() };
    let engine = open(&sim.os(), options).unwrap();
    let all: Vec<_> = (0..200).map(|_| create(&engine)).collect();
    for (n, dictionary) in all.iter().enumerate() {
        put(&engine, *dictionary, n as u64).unwrap();
    }
    idle(&sim, &engine, 130);
    engine.checkpoint().unwrap();
    let written = |engine: &Engine| {
        let stats = engine.stats().checkpoint;
        (stats.count, stats.root_bytes, stats.table_bytes, stats.nodes)
    };
    let (count, root, table, _) = written(&engine);
    assert!(root > 200 * 60, "{root} bytes for 200 dictionaries");
    put(&engine, all[7], 1).unwrap();
    engine.checkpoint().unwrap();
    let (after, root_after, table_after, _) = written(&engine);
    assert_eq!(after, count + 1);
    assert!(root_after - root < 1000, "{} bytes of root for one tree", root_after - root);
    assert!(table_after - table < 1000, "{} bytes of table", table_after - table);
    idle(&sim, &engine, 100);
    let settled = engine.stats().checkpoint.count;
    idle(&sim, &engine, 600);
    assert_eq!(engine.stats().checkpoint.count, settled, "nothing has changed for ten minutes");
    let engine = open(&sim.reboot_with(Survival::Nothing), tiny()).unwrap();
    for (n, dictionary) in all.iter().enumerate() {
        let key = (n as u64).to_be_bytes();
        assert!(engine.snapshot().get(*dictionary, &key).unwrap().is_some(), "{n}");
    }
}

#[test]
fn maintenance_runs_while_there_is_always_work() {
    let sim = SimOs::new(7);
    let engine = open(&sim.os(), tiny()).unwrap();
    let (kept, dropped) = (create(&engine), create(&engine));
    drop_dictionary(&engine, dropped).unwrap();
    let before = engine.stats().dictionaries;
    sim.advance(Duration::from_secs(2));
    for n in 0..200 {
        put(&engine, kept, n).unwrap();
    }
    assert!(engine.step().unwrap(), "there is work");
    assert_eq!(engine.stats().dictionaries, before - 1);
    assert!(engine.stats().log.writes > 0);
}

/// Options under which a disk of some MiB has a red zone.
fn with_red_zone() -> Options {
    Options {
        fs_redzone_percent: 5,
        checkpoint_period: Duration::from_mins(1),
        ..Options { cache_size: 8 << 20, background: Background::Manual, ..Options::new("/data") }
    }
}

fn free(sim: &SimOs) -> u64 {
    sim.os().vfs.space(Path::new("/data")).unwrap().available
}

/// Writes until nothing more is taken for some seconds; answers how many were.
fn fill_for_good(sim: &SimOs, engine: &Engine, dictionary: DictionaryId, from: u64) -> u64 {
    let mut n = from;
    let mut refused = 0;
    while refused < 8 {
        let written = put_large(engine, dictionary, n);
        match written {
            Ok(()) => (n, refused) = (n + 1, 0),
            Err(Error::NoSpace(_)) => {
                refused += 1;
                sim.advance(Duration::from_secs(1));
            }
            Err(error) => panic!("{error}"),
        }
        sim.advance(Duration::from_millis(1));
        for _ in 0..4 {
            match engine.step() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => assert!(matches!(error, Error::NoSpace(_)), "{error}"),
            }
        }
    }
    n
}

fn put_large(engine: &Engine, dictionary: DictionaryId, n: u64) -> engine::Result<()> {
    let mut txn = engine.begin(TxnOptions::default());
    txn.put(dictionary, &n.to_be_bytes(), &testkit::Gen::new(n).bytes(40_000))?;
    txn.commit(Durability::Synced).map(drop)
}

/// The red zone holds while it is reached and at every time after it, at sizes of which the log's files,
/// memory and what a checkpoint holds are a large part.
#[test]
fn red_zone_holds_on_small_disks_and_starts_without_a_free_byte_succeed() {
    for mib in [24_u64, 64] {
        let sim = SimOs::new(mib);
        let total = mib << 20;
        sim.set_faults(Faults { capacity_bytes: total, ..Faults::default() });
        let engine = open(&sim.os(), with_red_zone()).unwrap();
        let (kept, large) = (create(&engine), create(&engine));
        put(&engine, kept, 1).unwrap();
        let red_zone = total / 100 * 5;
        let written = fill_for_good(&sim, &engine, large, 0);
        let left = free(&sim);
        assert!(left >= red_zone, "{left} of {total} bytes are free");
        assert!(left < red_zone + total / 4, "{left} of {total} bytes are free");
        assert!(written > mib * 10, "{written} of a disk of {mib} MiB");
        // Others take the rest, the process dies, and starts again, and again.
        sim.set_faults(Faults { capacity_bytes: used(&sim.os()), ..Faults::default() });
        for start in 0..3 {
            let os = sim.reboot_with(Survival::Nothing);
            let engine = open(&os, with_red_zone()).unwrap();
            for n in (0..written).step_by(7) {
                let found = engine.snapshot().get(large, &n.to_be_bytes()).unwrap();
                assert!(found.is_some(), "document {n} of {written}, start {start}, {mib} MiB");
            }
            assert!(matches!(put(&engine, kept, 2), Err(Error::NoSpace(_))));
        }
        let engine = open(&sim.reboot_with(Survival::Process), with_red_zone()).unwrap();
        drop_dictionary(&engine, large).unwrap();
        for _ in 0..20 {
            sim.advance(Duration::from_secs(1));
            while engine.step().unwrap() {}
        }
        assert!(free(&sim) > total / 2, "{} of {total} bytes after the drop", free(&sim));
        put(&engine, kept, 3).unwrap();
        drop(engine);
        let engine = open(&sim.reboot_with(Survival::Nothing), with_red_zone()).unwrap();
        assert!(engine.snapshot().get(kept, &3_u64.to_be_bytes()).unwrap().is_some());
        engine.verify_all().unwrap();
    }
}

/// What its leader has taken it cannot refuse, and what is not written would stay in memory.
#[test]
fn a_follower_writes_in_the_red_zone_until_it_leads() {
    const TOTAL: u64 = 64 << 20;
    let history = HistoryOptions { bytes: 0, min_age: Duration::ZERO };
    let options =
        || Options { history: Some(history), showing: Showing::Committed, ..with_red_zone() };
    let leader = open(&SimOs::new(1).os(), options()).unwrap();
    let sim = SimOs::new(2);
    sim.set_faults(Faults { capacity_bytes: TOTAL, ..Faults::default() });
    let follower = open(&sim.os(), options()).unwrap();
    follower.forbid_writes();
    let mut n = 0_u64;
    while free(&sim) > TOTAL / 100 * 5 {
        n += 1;
        assert!(n < TOTAL / 10_000, "what was sent is not on the disk: {} are free", free(&sim));
        let mut txn = leader.begin(TxnOptions::default());
        txn.put(ROOT, &n.to_be_bytes(), &testkit::Gen::new(n).bytes(40_000)).unwrap();
        let _submitted = txn.submit().unwrap();
        close(&leader, 1, n - 1);
        send(&leader, &follower);
        for engine in [&leader, &follower] {
            engine.commit_entries_up_to(n).unwrap();
            while engine.step().unwrap() {}
        }
        sim.advance(Duration::from_millis(100));
    }
    assert!(follower.snapshot().get(ROOT, &n.to_be_bytes()).unwrap().is_some());
    follower.checkpoint().unwrap();
    // It leads, and keeps it free: what the checkpoint gave back is taken, and no more.
    follower.allow_writes();
    let mut refused = 0;
    while refused < 8 {
        sim.advance(Duration::from_secs(1));
        n += 1;
        assert!(n < TOTAL / 5000, "nothing is refused: {} are free", free(&sim));
        let mut txn = follower.begin(TxnOptions::default());
        txn.put(ROOT, &n.to_be_bytes(), &testkit::Gen::new(n).bytes(40_000)).unwrap();
        match txn.submit() {
            Ok(_submitted) => {
                refused = 0;
                close(&follower, 2, 0);
                follower.commit_entries_up_to(follower.entries().last.index).unwrap();
            }
            Err(error) => {
                assert!(matches!(error, Error::NoSpace(_)), "{error}");
                refused += 1;
            }
        }
        while matches!(follower.step(), Ok(true)) {}
    }
    assert!(free(&sim) >= TOTAL / 100 * 5, "{} are free", free(&sim));
}

#[test]
fn missing_data_file_is_named_and_no_empty_database() {
    let sim = SimOs::new(8);
    let engine = open(&sim.os(), tiny()).unwrap();
    put(&engine, ROOT, 1).unwrap();
    engine.close().unwrap();
    drop(engine);
    let os = sim.reboot_with(Survival::Everything);
    os.vfs.remove_file(Path::new("/data/fern.data")).unwrap();
    for gone in ["", "/data/FERNDB", "/data/journal"] {
        match gone {
            "" => {}
            "/data/journal" => {
                for path in os.vfs.list_dir(Path::new(gone)).unwrap() {
                    os.vfs.remove_file(&path).unwrap();
                }
            }
            file => os.vfs.remove_file(Path::new(file)).unwrap(),
        }
        let opened = open(&os, tiny());
        if gone == "/data/journal" {
            opened.expect("nothing is left of the old one").close().unwrap();
        } else {
            let error = opened.err().unwrap();
            let text = error.to_string();
            assert!(
                matches!(error, Error::Corruption(_)) && text.contains("fern.data is missing"),
                "{text}"
            );
        }
    }
    os.vfs.remove_file(Path::new("/data/fern.data")).unwrap();
    assert!(open(&os, tiny()).is_err(), "a new database is marked too");
}
