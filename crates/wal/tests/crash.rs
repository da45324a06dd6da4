//! The log against a crash at every syscall, also while it recovers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a long run tells how long it was")]

#[path = "support/log_model.rs"]
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crypt::{KeyRing, KeysFile, MasterKey, NonceLog};
use os::Os;
use os::sim::Survival;
use support::{LogModel, TINY, seeds_asked_for};
use telemetry::Registry;
use testkit::{CrashPlan, Failure, Gen, crash_everywhere};
use wal::{Lsn, Metrics, PlantedSyncBug, Replay, SyncWatch, Wal};

const DIR: &str = "/log";
/// The log, and what it is encrypted with.
#[derive(Default)]
struct Model {
    log: LogModel,
    keys: Option<Arc<KeyRing>>,
    planted: Option<PlantedSyncBug>,
}

/// Keys that no crash touches.
fn encrypted(model: &mut Model) {
    model.keys.get_or_insert_with(|| {
        let os = os::sim::SimOs::new(77).os();
        os.vfs.create_dir_all(Path::new(DIR)).unwrap();
        let master = MasterKey::parse(format!("{}=", "A".repeat(43)).as_bytes()).unwrap();
        let keys = KeysFile::create(&os, Path::new(DIR), &master).unwrap().into_ring();
        Arc::new(keys.watched_by(&NonceLog::default()))
    });
}

fn open(os: &Os, model: &Model) -> Result<Replay, Failure> {
    let replay = Wal::open(os, Path::new(DIR), TINY, Metrics::new(&Registry::new()))?;
    Ok(replay.with_keys(model.keys.clone())?)
}

fn workload(os: &Os, model: &mut Model) -> Result<(), Failure> {
    let mut data = Gen::new(99);
    for _ in 0..2 {
        let mut replay = open(os, model)?;
        model.log.check(&mut replay)?;
        let wal = replay.start_writing()?;
        for step in 0..14 {
            model.log.append(&wal, if data.one_in(3) { 700 } else { 60 })?;
            match step % 7 {
                2 => wal.write_out()?,
                3 => drop(wal.prepare()?),
                5 => drop(wal.prepare_due()?),
                4 => model.log.sync(&wal)?,
                6 if data.one_in(2) => wal.trim(model.log.checkpoint(&wal)?)?,
                _ => {}
            }
        }
        model.log.sync(&wal)?;
    }
    Ok(())
}

fn verify(os: &Os, model: &mut Model) -> Result<(), Failure> {
    let mut replay = open(os, model)?;
    model.log.check(&mut replay)?;
    let wal = replay.start_writing()?;
    // the new epoch made all of it durable
    model.log.acknowledged = model.log.records.len();
    model.log.append(&wal, 300)?;
    model.log.append(&wal, 40)?;
    model.log.sync(&wal)?;
    model.log.append(&wal, 40)?;
    wal.write_out()?;
    Ok(())
}

#[test]
fn no_crash_loses_what_was_synced() {
    let plan = CrashPlan { seeds: 0..3, ..CrashPlan::default() };
    let report = crash_everywhere(&plan, workload, verify);
    assert!(report.syscalls > 150, "{report:?}");
    assert!(report.recovery_crashes > report.crashes * 5, "{report:?}");
}

#[test]
fn random_survival_with_many_seeds() {
    let plan = CrashPlan {
        seeds: 100..140,
        survivals: vec![Survival::Random],
        step: 7,
        crash_recovery: false,
    };
    crash_everywhere(&plan, workload, verify);
}

/// One that waits without a thread: how many records it tells of, and where the last of them ends.
struct Waiting {
    records: usize,
    end: Lsn,
    is_called: Arc<AtomicBool>,
    _watch: Option<SyncWatch>,
}

impl Waiting {
    fn begin(wal: &Wal, model: &Model) -> Self {
        let is_called = Arc::new(AtomicBool::new(false));
        let called = Arc::clone(&is_called);
        let end = wal.next_lsn();
        let call: os::Call = Arc::new(move || called.store(true, Ordering::Relaxed));
        let watch = wal.watch_sync(end, &call);
        Self { records: model.log.records.len(), end, is_called, _watch: watch }
    }

    /// As whoever is called: asks again, and acknowledges.
    fn look(&self, wal: &Wal, model: &mut Model) {
        if self.is_called.load(Ordering::Relaxed) && wal.synced_lsn() >= self.end {
            model.log.acknowledged = model.log.acknowledged.max(self.records);
        }
    }
}

/// Several wait for each sync; who is called acknowledges at once, also where the sync fails.
fn workload_of_waiting(os: &Os, model: &mut Model) -> Result<(), Failure> {
    let mut replay = open(os, model)?;
    model.log.check(&mut replay)?;
    let wal = replay.start_writing()?.planted(model.planted);
    wal.begin_serving(Arc::new(|| ()));
    for _ in 0..5 {
        let mut waiting = Vec::new();
        for _ in 0..3 {
            model.log.append(&wal, 200)?;
            waiting.push(Waiting::begin(&wal, model));
        }
        os.clock.sleep(Duration::from_millis(1));
        let result = wal.sync_for_waiters();
        for waiting in &waiting {
            waiting.look(&wal, model);
        }
        result?;
    }
    Ok(())
}

#[test]
fn no_crash_loses_what_was_acknowledged_without_a_thread() {
    let plan = CrashPlan { seeds: 0..3, ..CrashPlan::default() };
    let report = crash_everywhere(&plan, workload_of_waiting, verify);
    assert!(report.crashes > 20, "{report:?}");
}

#[test]
fn an_acknowledgement_before_the_sync_is_found() {
    let plan = CrashPlan { seeds: 0..1, crash_recovery: false, ..CrashPlan::default() };
    let found = catch_unwind(AssertUnwindSafe(|| {
        let planted = |os: &Os, model: &mut Model| {
            model.planted = Some(PlantedSyncBug::CountsWhatIsWritten);
            workload_of_waiting(os, model)
        };
        crash_everywhere(&plan, planted, verify)
    }));
    assert!(found.is_err(), "what was only written counts as acknowledged");
}

/// With `FERN_CRASH_SEEDS` so many seeds, each at every syscall, and how many crashes that was.
#[test]
fn no_crash_loses_an_acknowledged_record_of_an_encrypted_log_or_uses_a_nonce_twice() {
    let seeds = seeds_asked_for();
    let step = if seeds.is_some() { 1 } else { 2 };
    let plan = CrashPlan { seeds: 0..seeds.unwrap_or(1), step, ..CrashPlan::default() };
    let report = crash_everywhere(
        &plan,
        |os, model| {
            encrypted(model);
            workload(os, model)
        },
        verify,
    );
    assert!(report.crashes > 30, "{report:?}");
    if seeds.is_some() {
        println!("{report:?}");
    }
}
