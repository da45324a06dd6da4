//! The log against a crash at every syscall, also while it recovers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a long run tells how long it was")]

use std::path::Path;
use std::sync::Arc;

use crypt::{KeyRing, KeysFile, MasterKey, NonceLog};
use os::Os;
use os::sim::Survival;
use telemetry::Registry;
use testkit::{CrashPlan, Failure, Gen, crash_everywhere};
use wal::{Lsn, Metrics, Replay, Wal, WalOptions};

const DIR: &str = "/log";
/// Bodies of 1 KiB: records of up to 700 bytes cross segments often.
const TINY: WalOptions = WalOptions { segment_bytes: 2048, recycle: 1, buffer_bytes: 1500 };

/// What was appended, in order, and how much of it was acknowledged.
#[derive(Default)]
struct Model {
    records: Vec<(Lsn, Vec<u8>)>,
    acknowledged: usize,
    /// Where replay starts: the position behind record number `.1 - 1`.
    checkpoint: (Lsn, usize),
    next: u64,
    keys: Option<Arc<KeyRing>>,
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

impl Model {
    fn append(&mut self, wal: &Wal, most: u64) -> Result<(), Failure> {
        let mut data = Gen::new(self.next);
        self.next += 1;
        let (a, b) = (data.bytes(most / 2), data.bytes(most / 2));
        let mut whole = self.next.to_le_bytes().to_vec();
        let head = whole.clone();
        whole.extend_from_slice(&a);
        whole.extend_from_slice(&b);
        // an append may fail after its bytes reached the disk, so it is a fact from here on
        self.records.push((0, whole));
        let end = wal.append(&[&head, &a, &b]);
        match end {
            Ok(end) => self.records.last_mut().unwrap().0 = end,
            Err(e) => {
                self.records.pop();
                return Err(e.into());
            }
        }
        Ok(())
    }

    fn sync(&mut self, wal: &Wal) -> Result<(), Failure> {
        wal.sync()?;
        self.acknowledged = self.records.len();
        Ok(())
    }

    fn checkpoint(&mut self, wal: &Wal) -> Result<(), Failure> {
        self.sync(wal)?;
        self.checkpoint = (self.records.last().map_or(0, |r| r.0), self.records.len());
        wal.trim(self.checkpoint.0)?;
        Ok(())
    }

    /// Replays; what is found must be a prefix of what was appended, with all that was
    /// acknowledged. From here on it is the truth.
    fn check(&mut self, replay: &mut Replay) -> Result<(), Failure> {
        let (from, first) = self.checkpoint;
        replay.seek(from)?;
        let mut found = first;
        while let Some(record) = replay.next_record()? {
            let expected =
                self.records.get(found).expect("nothing is replayed that was not appended");
            assert_eq!(record.payload, expected.1, "record {found}");
            if expected.0 != 0 {
                assert_eq!(record.end, expected.0, "record {found}");
            }
            self.records[found].0 = record.end;
            found += 1;
        }
        assert!(found >= self.acknowledged, "{found} of {} acknowledged", self.acknowledged);
        self.records.truncate(found);
        Ok(())
    }
}

fn workload(os: &Os, model: &mut Model) -> Result<(), Failure> {
    let mut data = Gen::new(99);
    for _ in 0..2 {
        let mut replay = open(os, model)?;
        model.check(&mut replay)?;
        let wal = replay.start_writing()?;
        for step in 0..14 {
            model.append(&wal, if data.one_in(3) { 700 } else { 60 })?;
            match step % 7 {
                2 => wal.write_out()?,
                3 => drop(wal.prepare()?),
                4 => model.sync(&wal)?,
                6 if data.one_in(2) => model.checkpoint(&wal)?,
                _ => {}
            }
        }
        model.sync(&wal)?;
    }
    Ok(())
}

fn verify(os: &Os, model: &mut Model) -> Result<(), Failure> {
    let mut replay = open(os, model)?;
    model.check(&mut replay)?;
    let wal = replay.start_writing()?;
    // the new epoch made all of it durable
    model.acknowledged = model.records.len();
    model.append(&wal, 300)?;
    model.append(&wal, 40)?;
    model.sync(&wal)?;
    model.append(&wal, 40)?;
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

/// With `FERN_CRASH_SEEDS` so many seeds, each at every syscall, and how many crashes that was.
#[test]
fn no_crash_loses_an_acknowledged_record_of_an_encrypted_log_or_uses_a_nonce_twice() {
    let seeds = std::env::var("FERN_CRASH_SEEDS").ok();
    let seeds: Option<u64> = seeds.map(|seeds| seeds.parse().expect("a number of seeds"));
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
