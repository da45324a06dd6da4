//! The archive against a crash at every syscall: what the log has let go of is in it, and it belongs to one log.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a long run tells how long it was")]

#[path = "support/log_model.rs"]
mod support;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use os::Os;
use os::sim::SimOs;
use support::{LogModel, TINY, seeds_asked_for};
use telemetry::Registry;
use testkit::{CrashPlan, Failure, Gen, crash_everywhere};
use wal::archive::{Archive, Files, PlantedArchiveBug};
use wal::{Error, Metrics, Wal};

const LOG: &str = "/log";
const ARCHIVE: &str = "/archive";
const DATA_FILE: u128 = 0x1234;

/// The log, and what is wrong with its archive.
#[derive(Default)]
struct Model {
    log: LogModel,
    planted: Option<PlantedArchiveBug>,
}

fn metrics() -> Metrics {
    Metrics::new(&Registry::new())
}

impl Model {
    /// Opens the log as a start does.
    fn open(&mut self, os: &Os) -> Result<Wal, Failure> {
        let mut replay = Wal::open(os, Path::new(LOG), TINY, metrics())?;
        self.log.check(&mut replay)?;
        Ok(replay.start_writing()?)
    }

    fn archive(&self, os: &Os, wal: &Wal) -> Result<Archive, Failure> {
        let archive = Archive::open(os, Path::new(ARCHIVE), DATA_FILE, wal)?;
        Ok(archive.planted(self.planted))
    }

    /// A checkpoint: the log goes as far as it is archived.
    fn trim(&mut self, wal: &Wal, archive: &Archive) -> Result<(), Failure> {
        wal.trim(self.log.checkpoint(wal)?.min(archive.archived()))?;
        Ok(())
    }

    /// Archive and log together hold every record from the first one on.
    fn check(&self, os: &Os) -> Result<(), Failure> {
        let mut files: BTreeMap<u64, PathBuf> = BTreeMap::new();
        let archived = os.vfs.exists(&Path::new(ARCHIVE).join("ARCHIVE"))?;
        if archived {
            let found = Files::read(os, Path::new(ARCHIVE))?;
            files.extend(found.files.into_iter().map(|file| (file.header.number, file.path)));
        }
        // What the log still has is there as a whole.
        if os.vfs.exists(Path::new(LOG))? {
            let found = Files::of_log(os, Path::new(LOG))?;
            files.extend(found.into_iter().map(|file| (file.header.number, file.path)));
        }
        let files = files.into_values().collect();
        let mut replay = Wal::open_files(os, Path::new(ARCHIVE), files, TINY, metrics())?;
        assert_eq!(replay.first_lsn(), 0, "the log is there from its beginning");
        let mut found = 0;
        while let Some(record) = replay.next_record()? {
            assert_eq!(record.payload, self.log.records[found].1, "record {found}");
            found += 1;
        }
        assert!(
            found >= self.log.acknowledged,
            "{found} of {} acknowledged",
            self.log.acknowledged
        );
        if archived {
            self.check_moments(os)?;
        }
        Ok(())
    }

    /// The archive alone has the records before each of its moments.
    fn check_moments(&self, os: &Os) -> Result<(), Failure> {
        let Files { files, moments, .. } = Files::read(os, Path::new(ARCHIVE))?;
        let newest = files.last().map(|file| file.header.number);
        let last = moments.iter().rfind(|(number, _)| Some(*number) == newest);
        let Some((_, last)) = last else { return Ok(()) };
        let paths = files.into_iter().map(|file| file.path).collect();
        let mut replay = Wal::open_files(os, Path::new(ARCHIVE), paths, TINY, metrics())?;
        let mut found = 0;
        loop {
            match replay.next_record() {
                Ok(Some(_)) => found += 1,
                Ok(None) => break,
                // What was copied behind the last moment need not be on disk.
                Err(Error::Corruption { lsn, .. }) if lsn >= last.position => break,
                Err(e) => return Err(e.into()),
            }
        }
        let before = self.log.records.iter().filter(|(end, _)| *end != 0 && *end <= last.position);
        assert!(found >= before.count(), "{found} records before {last:?}");
        Ok(())
    }
}

fn workload(os: &Os, model: &mut Model) -> Result<(), Failure> {
    let mut data = Gen::new(7);
    for _ in 0..2 {
        let wal = model.open(os)?;
        let mut archive = model.archive(os, &wal)?;
        for step in 0..18 {
            model.log.append(&wal, if data.one_in(3) { 700 } else { 60 })?;
            match step % 6 {
                1 => model.log.sync(&wal)?,
                2 | 4 => archive.round(&wal)?,
                3 => drop(wal.prepare()?),
                5 => model.trim(&wal, &archive)?,
                _ => {}
            }
        }
        model.log.sync(&wal)?;
        archive.round(&wal)?;
    }
    Ok(())
}

fn verify(os: &Os, model: &mut Model) -> Result<(), Failure> {
    model.check(os)?;
    let wal = model.open(os)?;
    model.log.acknowledged = model.log.records.len();
    let mut archive = model.archive(os, &wal)?;
    model.log.append(&wal, 300)?;
    model.log.sync(&wal)?;
    archive.round(&wal)?;
    model.trim(&wal, &archive)?;
    model.check(os)
}

fn planted(planted: PlantedArchiveBug) -> impl Fn(&Os, &mut Model) -> Result<(), Failure> {
    move |os, model| {
        model.planted = Some(planted);
        workload(os, model)
    }
}

/// With `FERN_CRASH_SEEDS` so many seeds, each with crashes of the recovery too.
#[test]
fn no_crash_leaves_a_hole_in_the_archive() {
    let seeds = seeds_asked_for();
    let crash_recovery = seeds.is_some();
    let plan = CrashPlan { seeds: 0..seeds.unwrap_or(1), crash_recovery, ..CrashPlan::default() };
    let report = crash_everywhere(&plan, workload, verify);
    assert!(report.syscalls > 150, "{report:?}");
    if seeds.is_some() {
        println!("{report:?}");
    }
}

/// Planted: what is missing then is what the model has.
#[test]
fn copies_that_count_before_they_are_on_disk_are_found() {
    for (bug, missing) in [
        (PlantedArchiveBug::RenamesUnsynced, "belongs to another log"),
        (PlantedArchiveBug::CountsUnsynced, "a record of an earlier epoch is damaged"),
    ] {
        let plan = CrashPlan { seeds: 0..4, crash_recovery: false, ..CrashPlan::default() };
        let found =
            catch_unwind(AssertUnwindSafe(|| crash_everywhere(&plan, planted(bug), verify)));
        let panic = found.expect_err("it is seen");
        let text = panic.downcast_ref::<String>().map_or("", |text| text);
        assert!(text.contains(missing), "{bug:?}: {text}");
    }
}

/// A log with some records, in a directory.
fn log_in(os: &Os, dir: &str, records: u64) -> Wal {
    let mut replay = Wal::open(os, Path::new(dir), TINY, metrics()).unwrap();
    let wal = replay.start_writing().unwrap();
    for number in 0..records {
        wal.append(&[&Gen::new(number).bytes(300)]).unwrap();
    }
    wal.sync().unwrap();
    wal
}

fn refusal(opened: wal::Result<Archive>) -> String {
    match opened {
        Err(e @ Error::Archive { .. }) => e.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_archive_of_another_log_is_refused() {
    let os = SimOs::new(3).os();
    let wal = log_in(&os, LOG, 9);
    let open = |dir: &str, id, wal: &Wal| Archive::open(&os, Path::new(dir), id, wal);
    let mut archive = open(ARCHIVE, 1, &wal).unwrap();
    assert!(refusal(open(ARCHIVE, 1, &wal)).contains("in use"));
    archive.round(&wal).unwrap();
    assert_eq!(archive.archived(), wal.synced_lsn());
    drop(archive);
    assert!(refusal(open(ARCHIVE, 2, &wal)).contains("another data directory"));
    let other = log_in(&os, "/other", 9);
    assert!(refusal(open(ARCHIVE, 1, &other)).contains("another log"));
    let shorter = log_in(&os, "/shorter", 1);
    assert!(refusal(open(ARCHIVE, 1, &shorter)).contains("later state"));
    assert!(refusal(open("/other", 1, &wal)).contains("no archive"));
    // Its own goes on.
    assert_eq!(open(ARCHIVE, 1, &wal).unwrap().archived(), wal.synced_lsn());
}

#[test]
fn a_log_that_was_cut_behind_a_restore_does_not_go_on_in_the_archive() {
    let os = SimOs::new(4).os();
    let wal = log_in(&os, LOG, 2);
    let mut archive = Archive::open(&os, Path::new(ARCHIVE), 1, &wal).unwrap();
    archive.round(&wal).unwrap();
    drop((archive, wal));
    // The first record alone.
    let name = wal::format::segment_name(1);
    let file = os.vfs.open(&Path::new(LOG).join(name), os::OpenOptions::default()).unwrap();
    let end = wal::format::frame_bytes(300) as u64;
    file.set_len(wal::format::HEADER_BYTES as u64 + end).unwrap();
    drop(file);
    let wal = log_in(&os, LOG, 0);
    let opened = Archive::open(&os, Path::new(ARCHIVE), 1, &wal);
    assert!(refusal(opened).contains("later state"));
}
