//! The data file as its callers see it: pins, damage, full disks, stops, direct I/O.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use blockfile::format::Superblock;
use blockfile::{BlockFile, CheckpointImage, Compression, Error, Metrics, Options, Root};
use os::sim::{Fault, Faults, SimOs, Survival};
use os::{OpenOptions, Os};
use proptest::prelude::*;
use telemetry::Registry;
use testkit::Gen;

const DIR: &str = "/data";
const FILE: &str = "/data/fern.data";

fn try_open(os: &Os) -> Result<(BlockFile, Option<CheckpointImage>), Error> {
    os.vfs.create_dir_all(Path::new(DIR)).unwrap();
    let options = Options { grow_bytes: 16 << 10, reserve_bytes: 0, ..Options::default() };
    BlockFile::open(os, Path::new(DIR), options, Metrics::new(&Registry::new()))
}

fn open(os: &Os) -> BlockFile {
    try_open(os).unwrap().0
}

fn bytes_of(file: &BlockFile, id: blockfile::SegmentId) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; file.segment(id).map_or(1, |info| info.bytes) as usize];
    file.read(id, 0, &mut bytes)?;
    Ok(bytes)
}

/// Writes a whole segment, not yet durable.
fn write_segment(file: &BlockFile, kind: u8, bytes: &[u8]) -> Result<blockfile::SegmentId, Error> {
    let mut writer = file.start_segment(kind);
    writer.append(bytes)?;
    writer.finish()
}

#[test]
fn new_file_has_no_image_and_keeps_its_identity() {
    let sim = SimOs::new(1);
    let (file, image) = try_open(&sim.os()).unwrap();
    assert_eq!(image, None);
    file.checkpoint(b"", 7).unwrap();
    let (again, image) = try_open(&sim.os()).unwrap();
    assert_eq!(again.file_id(), file.file_id());
    let image = image.unwrap();
    assert_eq!((image.lsn, image.root, image.generation), (7, Vec::new(), 2));
}

#[test]
fn long_root_and_many_segments_come_back() {
    let sim = SimOs::new(1);
    let file = open(&sim.os());
    let root = Gen::new(1).bytes(5 << 20);
    let ids: Vec<_> = (0..300).map(|n| write_segment(&file, 2, &[n as u8; 10]).unwrap()).collect();
    file.checkpoint(&root, 1).unwrap();
    let (file, image) = try_open(&sim.reboot_with(Survival::Nothing)).unwrap();
    assert_eq!(image.unwrap().root, root);
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(bytes_of(&file, *id).unwrap(), [n as u8; 10]);
        assert_eq!(file.segment(*id).unwrap().kind, 2);
    }
}

#[test]
fn streamed_segment_longer_than_the_gather_buffer_is_whole() {
    let sim = SimOs::new(1);
    let file = open(&sim.os());
    let mut writer = file.start_segment(0);
    let mut pages = Vec::new();
    let noise = Gen::new(5).bytes(40_000);
    while writer.len() < 21 << 20 {
        let raw = [&noise[..], &writer.len().to_le_bytes()].concat();
        pages.push((writer.append_page(1, Compression::None, &raw).unwrap(), raw));
    }
    let bytes = writer.len();
    let id = writer.finish().unwrap();
    let mut back = Vec::new();
    for (page, raw) in &pages {
        file.read_page(1, id, *page, &mut back).unwrap();
        assert_eq!(&back, raw);
    }
    let stats = file.stats();
    assert_eq!(stats.live_bytes, bytes.next_multiple_of(4096));
    assert_eq!(stats.live_bytes + stats.free_bytes + 8192, stats.used_end_bytes);
}

#[test]
fn abandoned_writer_gives_its_space_back() {
    let sim = SimOs::new(1);
    let file = open(&sim.os());
    let mut writer = file.start_segment(0);
    writer.append(&vec![1; 9 << 20]).unwrap();
    drop(writer);
    assert_eq!(file.stats().used_end_bytes, 8192);
}

#[test]
fn pinned_segment_stays_readable_until_the_pin_goes() {
    let sim = SimOs::new(1);
    let file = open(&sim.os());
    let id = write_segment(&file, 1, b"pinned").unwrap();
    file.checkpoint(b"", 1).unwrap();
    let pin = file.pin();
    file.free(id).unwrap();
    assert!(matches!(file.free(id), Err(Error::Corruption { .. })), "freed once");
    for _ in 0..3 {
        file.checkpoint(b"", 1).unwrap();
        write_segment(&file, 1, &[0xff; 4096]).unwrap();
    }
    assert_eq!(bytes_of(&file, id).unwrap(), b"pinned");
    let later = file.pin();
    drop(pin);
    assert!(matches!(bytes_of(&file, id), Err(Error::Corruption { .. })));
    drop(later);
}

/// A hot backup reads the superblock first and the rest while checkpoints go on.
#[test]
fn pinned_checkpoint_can_be_copied_while_later_ones_are_written() {
    let sim = SimOs::new(1);
    let file = open(&sim.os());
    file.checkpoint(b"first", 1).unwrap();
    let pin = file.pin();
    let begin = sim.files()[Path::new(FILE)][..8192].to_vec();
    for number in 0..4_u8 {
        file.checkpoint(&[number; 40], 1).unwrap();
    }
    let rest = sim.files()[Path::new(FILE)][8192..].to_vec();
    drop(pin);
    let copy = SimOs::new(2);
    drop(open(&copy.os()));
    let handle = copy.os().vfs.open(Path::new(FILE), OpenOptions::default()).unwrap();
    handle.write_all_at(&[begin, rest].concat(), 0).unwrap();
    let (_, image) = try_open(&copy.os()).unwrap();
    assert_eq!(image.unwrap().root, b"first");
    file.checkpoint(b"", 1).unwrap();
    let stats = file.stats();
    assert_eq!(stats.dropped_bytes, 0, "without a pin they are free at once");
}

#[test]
fn segment_freed_after_the_mark_is_in_the_checkpoint() {
    let sim = SimOs::new(1);
    let file = open(&sim.os());
    let id = write_segment(&file, 1, b"captured").unwrap();
    let mark = file.begin_checkpoint();
    file.free(id).unwrap();
    let later = write_segment(&file, 1, b"too late").unwrap();
    file.finish_checkpoint(mark, b"root", 5).unwrap();
    let file = open(&sim.reboot_with(Survival::Nothing));
    assert_eq!(bytes_of(&file, id).unwrap(), b"captured");
    assert!(file.segment(later).is_none());
}

#[test]
fn ids_of_lost_segments_are_not_given_again() {
    let sim = SimOs::new(1);
    let file = open(&sim.os());
    file.checkpoint(b"", 1).unwrap();
    let lost = write_segment(&file, 1, b"lost").unwrap();
    let file = open(&sim.reboot_with(Survival::Nothing));
    assert!(write_segment(&file, 1, b"new").unwrap() > lost);
}

#[test]
fn reference_past_the_end_of_a_segment_is_corruption() {
    let sim = SimOs::new(1);
    let file = open(&sim.os());
    let id = write_segment(&file, 1, &[1; 100]).unwrap();
    for (offset, len) in [(1, 100), (101, 0), (u64::MAX, 2), (100, 1)] {
        let result = file.read(id, offset, &mut vec![0; len]);
        assert!(matches!(result, Err(Error::Corruption { .. })), "{offset} {len}");
    }
    let far = blockfile::PageRef { page: 0, offset: 0, len: u32::MAX };
    assert!(file.read_page(1, id, far, &mut Vec::new()).is_err());
}

#[test]
fn misdirected_lost_or_flipped_write_is_caught() {
    for fault in [Fault::Misdirected, Fault::Dropped, Fault::WriteFlip] {
        let sim = SimOs::new(1);
        let file = open(&sim.os());
        write_segment(&file, 1, &[0; 9000]).unwrap();
        let mut writer = file.start_segment(1);
        let page = writer.append_page(1, Compression::None, &[5; 4000]).unwrap();
        // the file was extended before, so that finishing is one write
        sim.fault_at(sim.syscalls() + 1, fault);
        let id = writer.finish().unwrap();
        let result = file.read_page(1, id, page, &mut Vec::new());
        let caught = matches!(result, Err(Error::Corruption { segment, .. }) if segment == id.0);
        // one bit may have hit the padding behind the page
        let padding = fault == Fault::WriteFlip && result.is_ok();
        assert!(caught || padding, "{fault:?} {result:?}");
    }
}

#[test]
fn swapped_page_of_the_same_segment_is_caught() {
    let sim = SimOs::new(1);
    let file = open(&sim.os());
    let mut writer = file.start_segment(1);
    let first = writer.append_page(1, Compression::None, b"first").unwrap();
    let second = writer.append_page(1, Compression::None, b"other").unwrap();
    let id = writer.finish().unwrap();
    let lie = blockfile::PageRef { page: first.page, ..second };
    assert!(matches!(
        file.read_page(1, id, lie, &mut Vec::new()),
        Err(Error::Corruption { page: 0, .. })
    ));
    assert!(file.read_page(2, id, first, &mut Vec::new()).is_err(), "another dictionary");
}

#[test]
fn damaged_newest_superblock_gives_the_older_checkpoint() {
    let sim = SimOs::new(1);
    let file = open(&sim.os());
    file.checkpoint(b"two", 2).unwrap();
    file.checkpoint(b"three", 3).unwrap();
    let slot = |generation: u64| (generation % 2) * 4096;
    sim.flip_bit(Path::new(FILE), slot(3) + 40, 1).unwrap();
    let (_, image) = try_open(&sim.os()).unwrap();
    assert_eq!(image.unwrap().root, b"two");
    sim.flip_bit(Path::new(FILE), slot(2) + 40, 1).unwrap();
    assert!(matches!(try_open(&sim.os()), Err(Error::Corruption { .. })));
}

#[test]
fn damaged_table_or_root_is_corruption() {
    let sim = SimOs::new(1);
    let file = open(&sim.os());
    let id = write_segment(&file, 1, &[1; 100]).unwrap();
    file.checkpoint(b"root", 1).unwrap();
    let bytes = sim.files()[&PathBuf::from(FILE)].clone();
    let superblock = Superblock::decode(&bytes).unwrap();
    for pointer in [superblock.table, superblock.root] {
        sim.flip_bit(Path::new(FILE), pointer.unit * 4096 + 33, 1).unwrap();
        assert!(matches!(try_open(&sim.os()), Err(Error::Corruption { .. })));
        sim.flip_bit(Path::new(FILE), pointer.unit * 4096 + 33, 1).unwrap();
    }
    assert_eq!(bytes_of(&open(&sim.os()), id).unwrap(), [1; 100]);
}

#[test]
fn full_disk_changes_nothing_and_the_same_call_works_later() {
    let sim = SimOs::new(1);
    let file = open(&sim.os());
    let first = write_segment(&file, 1, &[1; 9000]).unwrap();
    file.checkpoint(b"one", 1).unwrap();
    sim.set_faults(Faults { capacity_bytes: 40 << 10, ..Faults::default() });
    let mut fit = Vec::new();
    let error = loop {
        match write_segment(&file, 1, &[2; 6000]) {
            Ok(id) => fit.push(id),
            Err(e) => break e,
        }
    };
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(!fit.is_empty());
    let root = vec![7; 30_000];
    let result = file.checkpoint(&root, 2);
    assert!(matches!(result, Err(Error::NoSpace { .. })), "{result:?}");
    let before = file.stats();
    sim.set_faults(Faults::default());
    file.checkpoint(&root, 2).unwrap();
    let (file, image) = try_open(&sim.reboot_with(Survival::Nothing)).unwrap();
    assert_eq!(image.unwrap().root, root);
    assert_eq!(file.stats().segments, before.segments);
    assert_eq!(bytes_of(&file, first).unwrap(), [1; 9000]);
    for id in fit {
        assert_eq!(bytes_of(&file, id).unwrap(), [2; 6000]);
    }
}

#[test]
fn what_is_kept_free_stays_free_but_for_a_checkpoint() {
    let sim = SimOs::new(1);
    let options = Options { reserve_bytes: 512 << 10, ..Options::default() };
    let metrics = Metrics::new(&Registry::new());
    sim.os().vfs.create_dir_all(Path::new(DIR)).unwrap();
    let (file, _) = BlockFile::open(&sim.os(), Path::new(DIR), options, metrics).unwrap();
    let free = || sim.os().vfs.space(Path::new(DIR)).unwrap().available;
    let used = sim.os().vfs.space(Path::new(DIR)).unwrap();
    let room = 20 << 20;
    let capacity_bytes = used.total - used.available + room;
    sim.set_faults(Faults { capacity_bytes, ..Faults::default() });
    let kept = 2 << 20;
    file.keep_free(kept);
    let fill = || {
        let mut written = Vec::new();
        loop {
            match write_segment(&file, 1, &vec![7; 100_000]) {
                Ok(id) => written.push(id),
                Err(error) => {
                    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
                    return written;
                }
            }
        }
    };
    let written = fill();
    assert!((kept..kept + (128 << 10)).contains(&free()), "{} are free", free());
    // Every second one becomes a hole that has no space of its own.
    file.checkpoint(b"root", 1).unwrap();
    for id in written.iter().step_by(2) {
        file.free(*id).unwrap();
    }
    file.checkpoint(b"root", 2).unwrap();
    while file.shrink(64).unwrap() > 0 {}
    assert!(free() > room / 3, "{} are free", free());
    fill();
    assert!((kept..kept + (256 << 10)).contains(&free()), "{} are free", free());
    // Others have taken some of it, and there are holes without space: none of them is filled.
    file.checkpoint(b"root", 3).unwrap();
    for id in written.iter().skip(1).step_by(2) {
        file.free(*id).unwrap();
    }
    file.checkpoint(b"root", 4).unwrap();
    while file.shrink(64).unwrap() > 0 {}
    let before = free();
    file.keep_free(before + (1 << 20));
    assert_eq!((fill().len(), free()), (0, before), "below what stays free nothing is taken");
    file.keep_free(kept);
    fill();
    // Others have taken what was to stay free.
    let used = sim.os().vfs.space(Path::new(DIR)).unwrap();
    let capacity_bytes = used.total - used.available + (100 << 10);
    sim.set_faults(Faults { capacity_bytes, ..Faults::default() });
    assert!(write_segment(&file, 1, &vec![7; 100_000]).is_err());
    file.checkpoint(vec![3; 60_000].as_slice(), 5).unwrap();
    file.checkpoint(vec![4; 60_000].as_slice(), 6).unwrap();
}

#[test]
fn failed_sync_stops_the_file_and_recovery_shows_a_checkpoint() {
    let sim = SimOs::new(1);
    let file = open(&sim.os());
    file.checkpoint(b"one", 1).unwrap();
    let id = write_segment(&file, 1, &[1; 100]).unwrap();
    // grows the file now, so that the checkpoint's calls are: table, root, sync
    file.free(write_segment(&file, 1, &[1; 16_000]).unwrap()).unwrap();
    sim.fault_at(sim.syscalls() + 3, Fault::Io);
    assert!(matches!(file.checkpoint(b"two", 2), Err(Error::Io { operation: "sync", .. })));
    assert!(matches!(file.checkpoint(b"two", 2), Err(Error::Stopped { .. })));
    assert!(matches!(write_segment(&file, 1, b"x"), Err(Error::Stopped { .. })));
    assert!(matches!(file.shrink(1), Err(Error::Stopped { .. })));
    assert_eq!(bytes_of(&file, id).unwrap(), [1; 100], "reading goes on");
    let (_, image) = try_open(&sim.reboot_with(Survival::Nothing)).unwrap();
    assert_eq!(image.unwrap().root, b"one");
}

#[test]
fn compaction_moves_segments_down_and_returns_the_tail() {
    let sim = SimOs::new(1);
    let file = open(&sim.os());
    let ids: Vec<_> = (0..40).map(|n| write_segment(&file, 1, &[n; 8192]).unwrap()).collect();
    file.checkpoint(b"", 1).unwrap();
    for id in &ids[..30] {
        file.free(*id).unwrap();
    }
    file.checkpoint(b"", 2).unwrap();
    let before = file.stats();
    assert_eq!(file.compact(u64::MAX).unwrap(), 10 * 8192);
    file.checkpoint(b"", 3).unwrap();
    file.checkpoint(b"", 4).unwrap();
    file.shrink(usize::MAX).unwrap();
    let after = file.stats();
    assert!(after.file_bytes < before.file_bytes / 2, "{before:?} {after:?}");
    let check = |file: &BlockFile| {
        for (n, id) in ids.iter().enumerate().skip(30) {
            assert_eq!(bytes_of(file, *id).unwrap(), [n as u8; 8192]);
        }
    };
    check(&file);
    check(&open(&sim.reboot_with(Survival::Nothing)));
}

#[test]
fn readers_see_right_bytes_while_others_write_free_and_compact() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { grow_bytes: 64 << 10, reserve_bytes: 64 << 10, ..Options::default() };
    let metrics = Metrics::new(&Registry::new());
    let (file, _) = BlockFile::open(&Os::real(), dir.path(), options, metrics).unwrap();
    let keep: Vec<_> = (0..20).map(|n| write_segment(&file, 1, &[n; 5000]).unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let file = &file;
            scope.spawn(move || {
                let mut data = Gen::new(thread);
                for _ in 0..60 {
                    let id =
                        write_segment(file, 2, &vec![9; 1 + data.below(40_000) as usize]).unwrap();
                    file.free(id).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for n in 0..15 {
                file.checkpoint(b"root", n).unwrap();
                file.compact(30_000).unwrap();
                file.shrink(4).unwrap();
            }
        });
        for _ in 0..40 {
            for (n, id) in keep.iter().enumerate() {
                assert_eq!(bytes_of(&file, *id).unwrap(), [n as u8; 5000]);
            }
        }
    });
}

#[test]
fn direct_io_reads_what_it_wrote_at_any_offset() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let options = Options { direct: true, ..Options::default() };
        let metrics = Metrics::new(&Registry::new());
        BlockFile::open(&Os::real(), dir.path(), options, metrics).unwrap()
    };
    let (file, _) = open();
    let bytes = Gen::new(2).bytes(100_000);
    let id = write_segment(&file, 1, &bytes).unwrap();
    file.checkpoint(b"root", 1).unwrap();
    drop(file);
    let (file, image) = open();
    assert_eq!(image.unwrap().root, b"root");
    for (from, to) in [(0, 1), (1, 5000), (4096, 8192), (4095, 4097), (0, bytes.len())] {
        let (from, to) = (from.min(bytes.len()), to.min(bytes.len()));
        let mut part = vec![0; to - from];
        file.read(id, from as u64, &mut part).unwrap();
        assert_eq!(part, bytes[from..to]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn mutated_files_never_panic_and_never_lie(
        damage in prop::collection::vec((any::<u64>(), 0_u8..8), 1..6),
    ) {
        let sim = SimOs::new(1);
        let file = open(&sim.os());
        let mut pages = Vec::new();
        for n in 0..3_u8 {
            let mut writer = file.start_segment(1);
            let raw = vec![n; 5000];
            pages.push((writer.append_page(1, Compression::Lz4, &raw).unwrap(), raw));
            let id = writer.finish().unwrap();
            file.checkpoint(&id.0.to_le_bytes(), 1).unwrap();
        }
        let ids: Vec<_> = file.segments().iter().map(|info| info.id).collect();
        let len = sim.files()[&PathBuf::from(FILE)].len() as u64;
        for (offset, bit) in damage {
            // most damage in the first pages, where the structures are
            let offset = if bit < 4 { offset % 4096.min(len) } else { offset % len };
            sim.flip_bit(Path::new(FILE), offset, bit).unwrap();
        }
        if let Ok((file, _)) = try_open(&sim.os()) {
            for (id, (page, raw)) in ids.iter().zip(&pages) {
                let mut back = Vec::new();
                if file.read_page(1, *id, *page, &mut back).is_ok() {
                    prop_assert_eq!(&back, raw);
                }
            }
        }
    }
}

/// A failed sync leaves the kernel's memory and the disk apart: what is read there is not on disk,
/// and no later sync brings it.
#[test]
fn checkpoint_shown_after_a_failed_sync_is_on_disk_once_the_file_is_open() {
    let calls = {
        let sim = SimOs::new(0);
        let file = open(&sim.os());
        file.checkpoint(b"one", 1).unwrap();
        let before = sim.syscalls();
        file.checkpoint(b"two", 2).unwrap();
        sim.syscalls() - before
    };
    for (seed, call) in (0..16).flat_map(|seed| (1..=calls).map(move |call| (seed, call))) {
        let sim = SimOs::new(seed);
        let file = open(&sim.os());
        file.checkpoint(b"one", 1).unwrap();
        sim.fault_at(sim.syscalls() + call, Fault::Io);
        let _failed = file.checkpoint(b"two", 2);
        drop(file);
        let (file, shown) = try_open(&sim.reboot_with(Survival::Process)).unwrap();
        drop(file);
        let (_, kept) = try_open(&sim.reboot_with(Survival::Nothing)).unwrap();
        assert_eq!(kept, shown, "seed {seed}, call {call}");
    }
}

/// Keys of a data directory.
fn keys() -> std::sync::Arc<crypt::KeyRing> {
    let os = SimOs::new(77).os();
    os.vfs.create_dir_all(Path::new(DIR)).unwrap();
    let master = crypt::MasterKey::parse(format!("{}=", "A".repeat(43)).as_bytes()).unwrap();
    crypt::KeysFile::create(&os, Path::new(DIR), &master).unwrap().into_ring().into()
}

fn open_with(os: &Os, encrypted: bool) -> Result<(BlockFile, Option<CheckpointImage>), Error> {
    os.vfs.create_dir_all(Path::new(DIR)).unwrap();
    let options = Options { keys: encrypted.then(keys), ..Options::default() };
    BlockFile::open(os, Path::new(DIR), options, Metrics::new(&Registry::new()))
}

fn stored_bytes(os: &Os) -> Vec<u8> {
    let file = os.vfs.open(Path::new(FILE), OpenOptions::read_only()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn encrypted_file_shows_nothing_and_opens_with_its_keys_alone() {
    const MARKER: &[u8] = b"a name of somebody";
    let marked = |bytes: &[u8]| bytes.windows(MARKER.len()).any(|part| part == MARKER);
    for encrypted in [false, true] {
        let sim = SimOs::new(1);
        let (file, _) = open_with(&sim.os(), encrypted).unwrap();
        let mut writer = file.start_segment(1);
        let page = writer.append_page(7, Compression::None, MARKER).unwrap();
        let id = writer.finish().unwrap();
        file.checkpoint(&MARKER.repeat(100), 0).unwrap();
        file.checkpoint(Root::Change(MARKER), 8).unwrap();
        drop(file);
        let before = stored_bytes(&sim.os());
        assert_eq!(marked(&before), !encrypted);
        // The other way is refused, and nothing is written.
        let refused = open_with(&sim.os(), !encrypted).unwrap_err();
        assert!(matches!(&refused, Error::Keys { is_encrypted, .. } if *is_encrypted == encrypted));
        let line = refused.to_string();
        assert!(
            line.contains(if encrypted { "no key was given" } else { "not encrypted" }),
            "{line}"
        );
        assert_eq!(stored_bytes(&sim.os()), before);
        let (file, image) = open_with(&sim.os(), encrypted).unwrap();
        let image = image.unwrap();
        assert_eq!((image.root, image.changes), (MARKER.repeat(100), vec![MARKER.to_vec()]));
        let mut raw = Vec::new();
        file.read_page(7, id, page, &mut raw).unwrap();
        assert_eq!(raw, MARKER);
    }
}

#[test]
fn keys_of_another_directory_open_nothing() {
    let sim = SimOs::new(1);
    let (file, _) = open_with(&sim.os(), true).unwrap();
    file.checkpoint(b"root", 0).unwrap();
    drop(file);
    let os = SimOs::new(78).os();
    os.vfs.create_dir_all(Path::new(DIR)).unwrap();
    let master = crypt::MasterKey::parse(format!("{}=", "A".repeat(43)).as_bytes()).unwrap();
    let other = crypt::KeysFile::create(&os, Path::new(DIR), &master).unwrap().into_ring();
    let options = Options { keys: Some(other.into()), ..Options::default() };
    let metrics = Metrics::new(&Registry::new());
    let refused = BlockFile::open(&sim.os(), Path::new(DIR), options, metrics).unwrap_err();
    assert!(refused.to_string().contains("does not decrypt"), "{refused}");
}
