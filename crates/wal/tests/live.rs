//! Reading a log that is being written: over files and epochs, behind a trim, over damage.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use os::sim::{SimOs, Survival};
use os::{OpenOptions, Os};
use proptest::prelude::*;
use telemetry::Registry;
use testkit::Gen;
use wal::{Error, LiveReader, Lsn, Metrics, Wal, WalOptions};

const TINY: WalOptions =
    WalOptions { segment_bytes: 2048, recycle: 2, buffer_bytes: 4096, compress_from: 100 };

fn start(os: &Os) -> Wal {
    let replay = Wal::open(os, Path::new("/log"), TINY, Metrics::new(&Registry::new()));
    replay.unwrap().start_writing().unwrap()
}

/// What a reader gives until it has nothing more: where each record ends, and its bytes.
fn rest(reader: &mut LiveReader, wal: &Wal) -> Result<Vec<(Lsn, Vec<u8>)>, Error> {
    let mut all = Vec::new();
    while let Some(record) = reader.next_record(wal, wal.next_lsn())? {
        all.push((record.end, record.payload.to_vec()));
    }
    Ok(all)
}

fn append(wal: &Wal, payload: &[u8]) -> (Lsn, Vec<u8>) {
    (wal.append(&[payload]).unwrap(), payload.to_vec())
}

#[test]
fn reader_sees_what_is_synced_and_goes_on_with_what_comes() {
    let sim = SimOs::new(1);
    let wal = start(&sim.os());
    let mut reader = LiveReader::at(0);
    let first = append(&wal, b"first");
    assert_eq!(rest(&mut reader, &wal).unwrap(), []);
    wal.write_out().unwrap();
    assert_eq!(rest(&mut reader, &wal).unwrap(), [], "written is not synced");
    wal.sync().unwrap();
    assert_eq!(rest(&mut reader, &wal).unwrap(), [first]);
    let second = append(&wal, b"second");
    wal.sync().unwrap();
    reader.park();
    assert_eq!(reader.memory_bytes(), 0);
    assert_eq!(rest(&mut reader, &wal).unwrap(), [second]);
    assert_eq!(rest(&mut reader, &wal).unwrap(), []);
}

#[test]
fn memory_for_a_long_record_is_given_back() {
    let sim = SimOs::new(1);
    let wal = start(&sim.os());
    append(&wal, &Gen::new(1).bytes(1 << 20));
    append(&wal, b"short");
    append(&wal, &Gen::new(2).bytes(100_000));
    append(&wal, b"short");
    wal.sync().unwrap();
    let mut reader = LiveReader::at(0);
    let mut most = 0;
    while reader.next_record(&wal, wal.synced_lsn()).unwrap().is_some() {
        most = most.max(reader.memory_bytes());
    }
    assert!(most >= 100_000);
    append(&wal, b"one more");
    wal.sync().unwrap();
    assert_eq!(rest(&mut reader, &wal).unwrap().len(), 1);
    assert!(reader.memory_bytes() <= 256 << 10, "{} bytes", reader.memory_bytes());
}

#[test]
fn torn_end_of_an_epoch_is_never_read() {
    for seed in 0..30 {
        let sim = SimOs::new(seed);
        let mut random = Gen::new(seed);
        let wal = start(&sim.os());
        let mut all = Vec::new();
        for n in 0..6_u8 {
            all.push(append(&wal, &vec![n; 10 + random.below(700) as usize]));
        }
        wal.sync().unwrap();
        for n in 0..6_u8 {
            append(&wal, &vec![100 + n; 10 + random.below(700) as usize]);
        }
        wal.write_out().unwrap();
        sim.crash();
        drop(wal);
        let os = sim.reboot_with(Survival::Random);
        let mut replay =
            Wal::open(&os, Path::new("/log"), TINY, Metrics::new(&Registry::new())).unwrap();
        let mut expected = Vec::new();
        while let Some(record) = replay.next_record().unwrap() {
            expected.push((record.end, record.payload.to_vec()));
        }
        assert!(expected.starts_with(&all));
        let wal = replay.start_writing().unwrap();
        expected.push(append(&wal, b"of the next epoch"));
        wal.sync().unwrap();
        assert_eq!(rest(&mut LiveReader::at(0), &wal).unwrap(), expected, "seed {seed}");
    }
}

#[test]
fn reader_behind_a_trim_is_told_and_reads_no_recycled_file() {
    let sim = SimOs::new(1);
    let wal = start(&sim.os());
    let mut early = LiveReader::at(0);
    for n in 0..8_u8 {
        append(&wal, &[n; 500]);
    }
    wal.sync().unwrap();
    // It has the first file open, and a part of it in memory.
    assert!(early.next_record(&wal, wal.synced_lsn()).unwrap().is_some());
    let mut parked = LiveReader::at(early.position());
    wal.trim(wal.synced_lsn()).unwrap();
    // The files of what was let go of are used again.
    for n in 0..20_u8 {
        append(&wal, &[50 + n; 500]);
        wal.sync().unwrap();
    }
    assert!(wal.stats().segments_recycled > 0);
    for reader in [&mut early, &mut parked] {
        match rest(reader, &wal) {
            // What was in memory already may be given still.
            Ok(records) => panic!("{} records over the trim", records.len()),
            Err(Error::Missing { wanted, first, .. }) => assert!(wanted < first),
            Err(other) => panic!("{other}"),
        }
    }
    let mut found = LiveReader::default();
    assert!(found.seek_frame(&wal, wal.first_lsn(), wal.synced_lsn()).unwrap());
    let records = rest(&mut found, &wal).unwrap();
    assert!(records.len() >= 20 && records.iter().all(|(_, bytes)| bytes.len() == 500));
}

/// What was trimmed may be in the chain again after a crash. It is whole then: a file that is cut to be
/// used again is no segment any more.
#[test]
fn what_a_crash_brings_back_of_a_trimmed_log_is_whole() {
    let long = WalOptions { segment_bytes: 8192, ..TINY };
    let open = |os: &Os, options| {
        Wal::open(os, Path::new("/log"), options, Metrics::new(&Registry::new())).unwrap()
    };
    let shrinks = |sim: &SimOs| -> Result<(), Error> {
        let wal = open(&sim.os(), TINY).start_writing()?;
        wal.trim(wal.synced_lsn())?;
        for n in 0..8_u8 {
            let end = wal.append(&[&[n; 900]])?;
            wal.sync_to(end)?;
            let _made = wal.prepare()?;
        }
        Ok(())
    };
    let mut brought_back = 0;
    for seed in 0..400 {
        let sim = SimOs::new(seed);
        let wal = open(&sim.os(), long).start_writing().unwrap();
        for n in 0..8_u8 {
            append(&wal, &[n; 3000]);
        }
        wal.sync().unwrap();
        let needed = wal.synced_lsn();
        drop(wal);
        sim.crash_after(1 + seed % 40);
        let _crashed = shrinks(&sim);
        sim.crash();
        let mut replay = open(&sim.reboot_with(Survival::Random), TINY);
        // As a checkpoint says: what is before may be cut anywhere.
        replay.seek(needed).unwrap();
        let wal = replay.start_writing().unwrap();
        let mut reader = LiveReader::default();
        if reader.seek_frame(&wal, wal.first_lsn(), wal.synced_lsn()).unwrap() {
            let records = rest(&mut reader, &wal).unwrap();
            brought_back += records.iter().filter(|(_, bytes)| bytes.len() == 3000).count();
        }
    }
    assert!(brought_back > 0);
}

#[test]
fn damage_is_named_with_file_and_byte() {
    let sim = SimOs::new(1);
    let wal = start(&sim.os());
    append(&wal, b"first");
    let (damaged, _) = append(&wal, b"second");
    append(&wal, b"third");
    wal.sync().unwrap();
    let path = Path::new("/log").join(wal::format::segment_name(1));
    let file = sim.os().vfs.open(&path, OpenOptions::default()).unwrap();
    let place = wal::format::HEADER_BYTES as u64 + damaged - 8;
    file.write_all_at(b"!", place).unwrap();
    let mut reader = LiveReader::at(0);
    assert!(reader.next_record(&wal, wal.synced_lsn()).unwrap().is_some());
    for _ in 0..2 {
        match reader.next_record(&wal, wal.synced_lsn()) {
            Err(Error::Corruption { file, offset, .. }) => {
                assert_eq!(file, path);
                assert!(offset < place && place < offset + 40, "{offset} for {place}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Each frame in turn is damaged, in its header or behind it: who begins at a file finds the frame that
/// begins there first, or is told of damage, and never begins at a later one.
#[test]
fn a_damaged_frame_is_not_left_out_where_a_file_begins() {
    let (mut met, mut found) = (0, 0);
    for seed in 0..40 {
        let sim = SimOs::new(seed);
        let mut random = Gen::new(seed);
        let mut wal = start(&sim.os());
        for epoch in 0..2_u8 {
            for n in 0..8_u8 {
                let len = 10 + random.below(if n == 4 { 5000 } else { 900 }) as usize;
                append(&wal, &vec![n + epoch; len]);
                wal.sync().unwrap();
            }
            drop(wal);
            wal = start(&sim.os());
        }
        let (mut starts, mut reader) = (Vec::new(), LiveReader::at(0));
        while let Some(record) = reader.next_record(&wal, wal.synced_lsn()).unwrap() {
            starts.push(record.lsn);
        }
        let bounds = wal.segment_bounds();
        let damaged = starts[random.below(starts.len() as u64) as usize];
        let file = bounds.partition_point(|first| *first <= damaged) - 1;
        let path = Path::new("/log").join(wal::format::segment_name(file as u64 + 1));
        let within = damaged + random.below(20) - bounds[file];
        if damaged + 20 > bounds[file + 1] {
            continue;
        }
        let bytes = sim.os().vfs.open(&path, OpenOptions::default()).unwrap();
        bytes.write_all_at(b"\x5a", wal::format::HEADER_BYTES as u64 + within).unwrap();
        for first in &bounds[1..bounds.len() - 1] {
            let expected = starts.iter().copied().find(|start| start >= first);
            let mut reader = LiveReader::default();
            match reader.seek_frame(&wal, *first, wal.synced_lsn()) {
                Ok(true) => {
                    found += 1;
                    // A mark may stand before the record, and behind the last one.
                    let at = reader.position();
                    assert!(expected.is_none_or(|start| at <= start), "{at} for {expected:?}");
                }
                Ok(false) => assert_eq!(expected, None, "seed {seed}"),
                Err(Error::Corruption { .. }) => met += 1,
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(met > 0 && found > 100, "{met} and {found}");
}

#[test]
fn a_first_file_with_a_damaged_header_is_told_apart_from_a_spare() {
    let open = |sim: &SimOs| {
        Wal::open(&sim.os(), Path::new("/log"), TINY, Metrics::new(&Registry::new())).unwrap()
    };
    // Zeros are what the next block leaves there, where nothing was written yet, and it lands on this one.
    for (trims, bytes) in [(false, None), (false, Some(7)), (false, Some(0)), (true, None)] {
        let damages = bytes.is_some();
        let sim = SimOs::new(1);
        let wal = start(&sim.os());
        for n in 0..8_u8 {
            append(&wal, &[n; 500]);
        }
        wal.sync().unwrap();
        let needed = wal.synced_lsn();
        if trims {
            wal.trim(needed).unwrap();
        }
        drop(wal);
        let path = Path::new("/log").join(wal::format::segment_name(1));
        if let Some(byte) = bytes {
            let file = sim.os().vfs.open(&path, OpenOptions::default()).unwrap();
            file.write_all_at(&[byte; 1024], 0).unwrap();
        }
        for _ in 0..2 {
            let mut replay = open(&sim);
            assert_eq!(replay.damaged_segment().is_some(), damages, "{trims}");
            replay.seek(needed).unwrap();
            // Spares lose their headers at a start, and are still no damage at the next one; a damaged file
            // stays, so that every start finds it.
            drop(replay.start_writing().unwrap());
        }
        if damages {
            let mut replay = open(&sim);
            replay.seek(needed).unwrap();
            let wal = replay.start_writing().unwrap();
            wal.trim(wal.next_lsn()).unwrap();
            drop(wal);
            assert!(open(&sim).damaged_segment().is_none(), "the log begins later: it is a spare");
        }
    }
}

#[test]
fn bounds_of_the_files_are_told() {
    let sim = SimOs::new(1);
    let wal = start(&sim.os());
    for n in 0..8_u8 {
        append(&wal, &[n; 500]);
    }
    wal.sync().unwrap();
    let bounds = wal.segment_bounds();
    assert!(bounds.len() > 4 && bounds.is_sorted() && bounds[0] == 0, "{bounds:?}");
    assert!(*bounds.last().unwrap() >= wal.next_lsn());
    for first in &bounds[..bounds.len() - 1] {
        let mut reader = LiveReader::default();
        if reader.seek_frame(&wal, *first, wal.synced_lsn()).unwrap() {
            assert!(reader.position() >= *first && reader.position() < first + 600);
        }
    }
}

/// Seed 50: a file in which an epoch has ended may be no longer than that epoch, as a full disk leaves it.
#[test]
fn a_copy_takes_no_more_of_a_file_than_its_epoch_has() {
    let sim = SimOs::new(1);
    let wal = start(&sim.os());
    let (end, _) = append(&wal, &[7; 300]);
    wal.sync().unwrap();
    let first = wal.synced_files(0).remove(0).path;
    drop(wal);
    let file = sim.os().vfs.open(&first, OpenOptions::default()).unwrap();
    file.set_len(wal::format::HEADER_BYTES as u64 + end).unwrap();
    let wal = start(&sim.os());
    append(&wal, &[8; 1200]);
    append(&wal, &[9; 1200]);
    wal.sync().unwrap();
    let files = wal.synced_files(0);
    assert!(files.len() > 1 && files[0].path == first, "{files:?}");
    for file in &files {
        let length = sim.os().vfs.open(&file.path, OpenOptions::read_only()).unwrap().len();
        assert!(file.bytes <= length.unwrap() && file.bytes <= file.length, "{file:?}");
    }
}

proptest! {
    /// Appends, syncs, parks and reads in any order: every record once, in order.
    #[test]
    fn nothing_is_left_out_and_nothing_comes_twice(
        steps in prop::collection::vec((0..6_u8, 0..1500_usize), 1..60)
    ) {
        let sim = SimOs::new(1);
        let mut wal = start(&sim.os());
        let (mut reader, mut appended, mut read) = (LiveReader::at(0), Vec::new(), Vec::new());
        for (n, (what, len)) in steps.into_iter().enumerate() {
            match what {
                0 | 1 => appended.push(append(&wal, &vec![n as u8; len])),
                2 => wal.sync().unwrap(),
                3 => read.extend(rest(&mut reader, &wal).unwrap()),
                4 => reader.park(),
                _ => {
                    wal.sync().unwrap();
                    drop(wal);
                    wal = start(&sim.os());
                    // A reader is of one opening.
                    reader = LiveReader::at(reader.position());
                }
            }
        }
        wal.sync().unwrap();
        read.extend(rest(&mut reader, &wal).unwrap());
        prop_assert_eq!(read, appended);
    }
}
