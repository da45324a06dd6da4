//! Crashes at every syscall of a scripted workload, and of the recovery after it.
//!
//! Commit `n` writes `n` under one key and, over several dictionaries, things that follow from
//! `n` alone. So the recovered state names its own `n`, and must then be exactly the state after
//! `n` commits: a prefix, whole transactions only. It must not be before the last commit that was
//! acknowledged as synced. Options change on the way, and a dictionary is rewritten now and then.

use crate::{open, tiny};
use engine::{
    DictionaryId, DictionaryOptions, Direction, Durability, Engine, KeyRange, Rewrite, TxnOptions,
};
use os::Os;
use os::sim::{Fault, SimOs, Survival};
use std::collections::BTreeMap;
use testkit::{CrashPlan, Failure, Gen, crash_everywhere};

const ROOT: DictionaryId = DictionaryId::ROOT;
const CLOCK: &[u8] = b"~clock";

type Contents = BTreeMap<(u64, Vec<u8>), Vec<u8>>;

/// What a commit does, from its number alone.
enum Step {
    Create(u64),
    Drop(u64),
    Reshape(u64, DictionaryOptions),
    Put(u64, Vec<u8>, Vec<u8>),
    Delete(u64, Vec<u8>),
}

/// Options that name the commit that chose them.
fn shape(n: u64) -> DictionaryOptions {
    DictionaryOptions { page_size: 4096 * n as u32, fanout: n as u16, ..Default::default() }
}

/// The options of every dictionary after `n` commits.
fn expected_shapes(n: u64) -> BTreeMap<u64, DictionaryOptions> {
    let mut shapes = BTreeMap::from([(1, DictionaryOptions::default())]);
    for step in (1..=n).flat_map(script) {
        match step {
            Step::Create(id) => drop(shapes.insert(id, DictionaryOptions::default())),
            Step::Drop(id) => drop(shapes.remove(&id)),
            Step::Reshape(id, options) => drop(shapes.insert(id, options)),
            Step::Put(..) | Step::Delete(..) => {}
        }
    }
    shapes
}

/// Dictionary ids are given in order, so a script can know them: the third commit makes 2, …
fn script(n: u64) -> Vec<Step> {
    let mut random = Gen::new(n);
    let mut steps = vec![Step::Put(1, CLOCK.to_vec(), n.to_le_bytes().to_vec())];
    match n {
        3 => steps.push(Step::Create(2)),
        5 => steps.push(Step::Create(3)),
        20 => steps.push(Step::Drop(2)),
        10 | 17 | 26 => steps.push(Step::Reshape(3, shape(n))),
        22 => steps.push(Step::Create(4)),
        _ => {}
    }
    let live = [(1, 1..u64::MAX), (2, 3..20), (3, 5..u64::MAX), (4, 22..u64::MAX)];
    // Every seventh transaction is larger than one log record.
    let count = if n.is_multiple_of(7) { 30 } else { 4 };
    for (dictionary, life) in live {
        if !life.contains(&n) {
            continue;
        }
        for _ in 0..count {
            let key = random.key(40);
            if key == CLOCK {
                continue;
            }
            if random.one_in(4) {
                steps.push(Step::Delete(dictionary, key));
            } else {
                let mut value = random.value(60);
                value.extend_from_slice(&n.to_le_bytes());
                steps.push(Step::Put(dictionary, key, value));
            }
        }
    }
    steps
}

fn expected(n: u64) -> Contents {
    let mut contents = Contents::new();
    for commit in 1..=n {
        for step in script(commit) {
            match step {
                Step::Create(_) | Step::Reshape(..) => {}
                Step::Drop(id) => contents.retain(|(dictionary, _), _| *dictionary != id),
                Step::Put(id, key, value) => {
                    contents.insert((id, key), value);
                }
                Step::Delete(id, key) => {
                    contents.remove(&(id, key));
                }
            }
        }
    }
    contents
}

fn commit(engine: &Engine, n: u64, durability: Durability) -> engine::Result<()> {
    let mut txn = engine.begin(TxnOptions::default());
    for step in script(n) {
        match step {
            Step::Create(id) => {
                let made = txn.create_dictionary(DictionaryOptions::default())?;
                assert_eq!(made, DictionaryId(id), "the script knows the ids");
            }
            Step::Drop(id) => txn.drop_dictionary(DictionaryId(id))?,
            Step::Reshape(id, options) => txn.reshape_dictionary(DictionaryId(id), options)?,
            Step::Put(id, key, value) => txn.put(DictionaryId(id), &key, &value)?,
            Step::Delete(id, key) => txn.delete(DictionaryId(id), &key)?,
        }
    }
    txn.commit(durability)?.durable().map(drop)
}

fn contents(engine: &Engine) -> engine::Result<Contents> {
    let snapshot = engine.snapshot();
    let mut found = Contents::new();
    for (dictionary, _) in engine.dictionaries() {
        let mut cursor = snapshot.cursor(dictionary, KeyRange::all(), Direction::Forward)?;
        while let Some((key, value)) = cursor.next()? {
            found.insert((dictionary.0, key.to_vec()), value.to_vec());
        }
    }
    Ok(found)
}

#[derive(Default)]
struct Acknowledged {
    /// The last commit that was acknowledged as synced.
    synced: u64,
    /// The last commit that was tried.
    tried: u64,
}

/// Commits from `first` on, with checkpoints and background work between.
fn work(
    engine: &Engine,
    acknowledged: &mut Acknowledged,
    first: u64,
    last: u64,
    checkpoint_every: u64,
) -> Result<(), Failure> {
    for n in first..=last {
        acknowledged.tried = acknowledged.tried.max(n);
        if n.is_multiple_of(3) {
            commit(engine, n, Durability::Synced)?;
            acknowledged.synced = acknowledged.synced.max(n);
        } else {
            commit(engine, n, Durability::Buffered)?;
        }
        for _ in 0..2 {
            engine.step()?;
        }
        if n.is_multiple_of(11) {
            let what = if n.is_multiple_of(2) { Rewrite::Untidy } else { Rewrite::All };
            engine.rewrite(DictionaryId(3), what, &mut |_| true)?;
        }
        if n.is_multiple_of(checkpoint_every) {
            engine.checkpoint()?;
            acknowledged.synced = acknowledged.synced.max(n);
        }
    }
    Ok(())
}

fn check(engine: &Engine, acknowledged: &Acknowledged) -> Result<u64, Failure> {
    let clock = engine.snapshot().get(ROOT, CLOCK)?;
    let n = clock.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()));
    assert!(
        n >= acknowledged.synced,
        "commit {} was acknowledged, {n} came back",
        acknowledged.synced
    );
    assert!(n <= acknowledged.tried, "commit {n} was never tried");
    assert_eq!(contents(engine)?, expected(n), "state after {n} commits");
    let shapes = engine.dictionaries().into_iter().map(|(id, options)| (id.0, options)).collect();
    assert_eq!(expected_shapes(n), shapes, "options after {n} commits");
    engine.verify_all()?;
    Ok(n)
}

/// The default stride keeps the debug run short; see the crate's `main.rs`.
fn stride(default: u64) -> u64 {
    std::env::var("FERN_CRASH_STEP").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn run(last: u64, checkpoint_every: u64, plan: &CrashPlan) {
    let report = crash_everywhere(
        plan,
        |os: &Os, acknowledged: &mut Acknowledged| {
            let engine = open(os, tiny())?;
            work(&engine, acknowledged, 1, last, checkpoint_every)?;
            engine.close()?;
            acknowledged.synced = last;
            Ok(())
        },
        |os: &Os, acknowledged: &mut Acknowledged| {
            let engine = open(os, tiny())?;
            let n = check(&engine, acknowledged)?;
            acknowledged.synced = acknowledged.synced.max(n);
            // Life goes on after a recovery, and must survive the next crash.
            work(&engine, acknowledged, n + 1, n + 1, 2)?;
            engine.sync()?;
            acknowledged.synced = acknowledged.synced.max(n + 1);
            Ok(())
        },
    );
    assert!(report.crashes > 10, "{report:?}");
}

#[test]
fn every_crash_leaves_a_prefix_of_commits() {
    let plan = CrashPlan {
        survivals: vec![Survival::Nothing, Survival::Random, Survival::Process],
        step: stride(1),
        crash_recovery: false,
        ..CrashPlan::default()
    };
    run(30, 8, &plan);
    run(70, 23, &CrashPlan { seeds: 1..2, step: stride(4), ..plan });
}

#[test]
fn every_crash_in_a_recovery_leaves_it_too() {
    let plan = CrashPlan {
        seeds: 7..8,
        survivals: vec![Survival::Random],
        step: stride(3),
        crash_recovery: true,
    };
    run(24, 9, &plan);
}

/// One failing call, at every call: the workload ends with an error or does not notice; what was
/// acknowledged is there after the power goes too.
#[test]
fn every_single_fault_keeps_what_was_acknowledged() {
    let calls = {
        let sim = SimOs::new(11);
        let engine = open(&sim.os(), tiny()).unwrap();
        work(&engine, &mut Acknowledged::default(), 1, 24, 8).unwrap();
        engine.close().unwrap();
        sim.syscalls()
    };
    let (mut noticed, mut unnoticed) = (0, 0);
    for fault in [Fault::NoSpace, Fault::Io, Fault::ShortWrite] {
        for n in (1..=calls).step_by(stride(2) as usize) {
            let sim = SimOs::new(11);
            sim.fault_at(n, fault);
            let mut acknowledged = Acknowledged::default();
            let result = open(&sim.os(), tiny()).map_err(Failure::from).and_then(|engine| {
                work(&engine, &mut acknowledged, 1, 24, 8)?;
                engine.close()?;
                acknowledged.synced = 24;
                Ok(())
            });
            *if result.is_err() { &mut noticed } else { &mut unnoticed } += 1;
            let os = sim.reboot_with(Survival::Nothing);
            let engine = open(&os, tiny()).unwrap_or_else(|e| panic!("{fault:?} at {n}: {e}"));
            check(&engine, &acknowledged).unwrap_or_else(|e| panic!("{fault:?} at {n}: {e}"));
        }
    }
    assert!(noticed > 20, "{noticed} faults were noticed, {unnoticed} were not");
}
