//! The data file against a crash at every syscall, also while it recovers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use blockfile::{BlockFile, Compression, Metrics, Options, PageRef, Root, SegmentId};
use crypt::{KeyRing, KeysFile, MasterKey, NonceLog};
use os::Os;
use os::sim::Survival;
use telemetry::Registry;
use testkit::{CrashPlan, Failure, Gen, crash_everywhere};

const DIR: &str = "/data";
const DICTIONARY: u64 = 5;

/// A segment's pages with what was written in them.
type Content = Vec<(PageRef, Vec<u8>)>;
type Shelf = BTreeMap<SegmentId, Content>;

/// What each checkpoint held; the root blob is the index in this list.
#[derive(Default)]
struct Model {
    checkpoints: Vec<Shelf>,
    /// `checkpoints[..completed]` were acknowledged.
    completed: usize,
    round: u64,
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

/// Writes a whole segment, not yet durable.
fn write_segment(file: &BlockFile, kind: u8, bytes: &[u8]) -> Result<SegmentId, blockfile::Error> {
    let mut writer = file.start_segment(kind);
    writer.append(bytes)?;
    writer.finish()
}

fn open(os: &Os, keys: Option<Arc<KeyRing>>) -> Result<(BlockFile, Option<usize>), Failure> {
    os.vfs.create_dir_all(Path::new(DIR))?;
    let options =
        Options { grow_bytes: 16 << 10, reserve_bytes: 16 << 10, keys, ..Options::default() };
    let metrics = Metrics::new(&Registry::new());
    let (file, image) = BlockFile::open(os, Path::new(DIR), options, metrics)?;
    let index = image.map(|image| {
        // the newest part says which checkpoint it is; a change adds to the one before it
        let parts = [vec![image.root], image.changes].concat();
        let number = |part: &Vec<u8>| u64::from_le_bytes(part[..8].try_into().unwrap());
        let index = number(parts.last().unwrap());
        for (before, part) in parts.iter().map(number).rev().zip((0..=index).rev()) {
            assert_eq!(before, part);
        }
        assert_eq!(parts[0].len(), 8 + 300 * number(&parts[0]) as usize);
        assert_eq!(image.lsn, index * 10);
        index as usize
    });
    Ok((file, index))
}

fn write(file: &BlockFile, data: &mut Gen) -> Result<(SegmentId, Content), Failure> {
    let mut writer = file.start_segment(1);
    let mut content = Content::new();
    for _ in 0..=data.below(3) {
        let raw = data.value(3000);
        let method =
            *data.pick(&[Compression::Lz4, Compression::Zstd(1), Compression::None]).unwrap();
        content.push((writer.append_page(DICTIONARY, method, &raw)?, raw));
    }
    Ok((writer.finish()?, content))
}

fn check(file: &BlockFile, shelf: &Shelf) -> Result<(), Failure> {
    let mut raw = Vec::new();
    for (id, content) in shelf {
        for (page, expected) in content {
            file.read_page(DICTIONARY, *id, *page, &mut raw)?;
            assert_eq!(&raw, expected, "segment {id}");
        }
    }
    Ok(())
}

fn checkpoint(file: &BlockFile, model: &mut Model, shelf: &Shelf) -> Result<(), Failure> {
    let mark = file.begin_checkpoint();
    // a segment written between the halves must not confuse it
    write_segment(file, 9, &[9; 5000])?;
    model.checkpoints.truncate(model.completed);
    let index = model.checkpoints.len();
    model.checkpoints.push(shelf.clone());
    let mut root = (index as u64).to_le_bytes().to_vec();
    root.resize(8 + 300 * index, 7);
    let root = if file.wants_whole_root(8) { Root::Whole(&root) } else { Root::Change(&root[..8]) };
    file.finish_checkpoint(mark, root, index as u64 * 10)?;
    model.completed = index + 1;
    Ok(())
}

fn work(file: &BlockFile, model: &mut Model, mut shelf: Shelf) -> Result<(), Failure> {
    model.round += 1;
    let mut data = Gen::new(model.round);
    for step in 0..10 {
        for _ in 0..2 {
            let (id, content) = write(file, &mut data)?;
            shelf.insert(id, content);
        }
        let ids: Vec<_> = shelf.keys().copied().collect();
        let pinned = shelf.clone();
        let pin = file.pin();
        if let Some(id) = data.pick(&ids) {
            file.free(*id)?;
            shelf.remove(id);
        }
        if step % 3 == 1 {
            checkpoint(file, model, &shelf)?;
        }
        check(file, &pinned)?;
        drop(pin);
        if step == 5 {
            file.compact(20_000)?;
            file.shrink(3)?;
        }
    }
    check(file, &shelf)
}

/// The recovered checkpoint's segments, checked; everything else dropped.
fn recover(os: &Os, model: &mut Model) -> Result<(BlockFile, Shelf), Failure> {
    let (file, index) = open(os, model.keys.clone())?;
    let found = index.map_or(0, |index| index + 1);
    assert!(found >= model.completed, "checkpoint {found} found, {} completed", model.completed);
    assert!(found <= model.checkpoints.len());
    model.checkpoints.truncate(found);
    model.completed = found;
    let shelf = model.checkpoints.last().cloned().unwrap_or_default();
    check(&file, &shelf)?;
    file.retain(|info| shelf.contains_key(&info.id))?;
    let kept: Vec<_> = file.segments().iter().map(|info| info.id).collect();
    assert_eq!(kept, shelf.keys().copied().collect::<Vec<_>>());
    Ok((file, shelf))
}

fn workload(os: &Os, model: &mut Model) -> Result<(), Failure> {
    for _ in 0..2 {
        let (file, shelf) = recover(os, model)?;
        work(&file, model, shelf)?;
    }
    Ok(())
}

fn verify(os: &Os, model: &mut Model) -> Result<(), Failure> {
    let (file, mut shelf) = recover(os, model)?;
    let mut data = Gen::new(7);
    for _ in 0..2 {
        let (id, content) = write(&file, &mut data)?;
        shelf.insert(id, content);
        checkpoint(&file, model, &shelf)?;
    }
    write(&file, &mut data)?;
    check(&file, &shelf)
}

#[test]
fn no_crash_loses_a_completed_checkpoint() {
    let plan = CrashPlan { seeds: 0..1, ..CrashPlan::default() };
    let report = crash_everywhere(&plan, workload, verify);
    assert!(report.syscalls > 90, "{report:?}");
    assert!(report.recovery_crashes > report.crashes * 3, "{report:?}");
}

#[test]
fn no_crash_loses_a_checkpoint_of_an_encrypted_file_or_uses_a_nonce_twice() {
    let plan = CrashPlan { seeds: 0..1, step: 3, ..CrashPlan::default() };
    let report = crash_everywhere(
        &plan,
        |os, model| {
            encrypted(model);
            workload(os, model)
        },
        verify,
    );
    assert!(report.crashes > 30, "{report:?}");
}

#[test]
fn random_survival_with_many_seeds() {
    let plan = CrashPlan {
        seeds: 100..120,
        survivals: vec![Survival::Random],
        step: 11,
        crash_recovery: false,
    };
    crash_everywhere(&plan, workload, verify);
}

#[test]
fn space_of_freed_segments_comes_back() {
    let sim = os::sim::SimOs::new(1);
    let (file, _) = open(&sim.os(), None).unwrap();
    let mut most = 0;
    for round in 0..50_u64 {
        let ids: Vec<_> =
            (0..8).map(|_| write_segment(&file, 1, &[round as u8; 6000]).unwrap()).collect();
        file.checkpoint(&0_u64.to_le_bytes(), 0).unwrap();
        for id in ids {
            file.free(id).unwrap();
        }
        most = most.max(file.stats().used_end_bytes);
    }
    assert!(most < 3 * 8 * 8192 + 10 * 4096, "{most}");
    file.checkpoint(&0_u64.to_le_bytes(), 0).unwrap();
    file.checkpoint(&0_u64.to_le_bytes(), 0).unwrap();
    file.shrink(usize::MAX).unwrap();
    let stats = file.stats();
    assert_eq!((stats.segments, stats.dropped_bytes, stats.live_bytes), (0, 0, 0));
    // superblocks, the reserve, a table, and twice that for what went before
    assert!(stats.file_bytes <= 10 * 4096, "{stats:?}");
}
