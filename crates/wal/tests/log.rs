//! The log as its callers see it: order, groups, errors, damage, space.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use os::sim::{Fault, Faults, SimOs, Survival};
use os::{OpenOptions, Os};
use proptest::prelude::*;
use telemetry::{Registry, Value};
use testkit::{Gen, golden_to_decode};
use wal::format::{SegmentHeader, segment_number};
use wal::{Error, Lsn, Metrics, NewRecord, Priority, Replay, TornTail, Wal, WalOptions};

const TINY: WalOptions =
    WalOptions { segment_bytes: 2048, recycle: 2, buffer_bytes: 4096, compress_from: 100 };

fn open_at(os: &Os, dir: &Path, options: WalOptions) -> Replay {
    Wal::open(os, dir, options, Metrics::new(&Registry::new())).unwrap()
}

fn open(os: &Os) -> Replay {
    open_at(os, Path::new("/log"), TINY)
}

fn records(mut replay: Replay) -> Result<Vec<(Lsn, Vec<u8>)>, Error> {
    let mut all = Vec::new();
    while let Some(record) = replay.next_record()? {
        all.push((record.end, record.payload.to_vec()));
    }
    Ok(all)
}

/// Ten records of up to 500 bytes, each synced.
fn ten_synced(sim: &SimOs) -> (Wal, Vec<(Lsn, Vec<u8>)>) {
    let wal = open(&sim.os()).start_writing().unwrap();
    let mut data = Gen::new(3);
    let mut all = Vec::new();
    for _ in 0..10 {
        let payload = data.bytes(500);
        let end = wal.append(&[&payload]).unwrap();
        wal.sync_to(end).unwrap();
        all.push((end, payload));
    }
    (wal, all)
}

#[test]
fn records_come_back_in_order_over_segments_and_epochs() {
    let sim = SimOs::new(1);
    let (wal, mut all) = ten_synced(&sim);
    drop(wal);
    let wal = open(&sim.os()).start_writing().unwrap();
    assert_eq!(wal.next_lsn(), all.last().unwrap().0);
    let long = Gen::new(1).bytes(20_000);
    let end = wal.append(&[&long[..7], b"", &long[7..]]).unwrap();
    all.push((end, long));
    all.push((wal.append(&[]).unwrap(), Vec::new()));
    wal.sync().unwrap();
    assert_eq!(wal.synced_lsn(), wal.next_lsn());
    assert_eq!(records(open(&sim.os())).unwrap(), all);
    let mut from_the_middle = open(&sim.os());
    from_the_middle.seek(all[6].0).unwrap();
    assert_eq!(records(from_the_middle).unwrap(), all[7..]);
    let mut from_the_end = open(&sim.os());
    from_the_end.seek(all[11].0).unwrap();
    assert_eq!(records(from_the_end).unwrap(), []);
}

#[test]
fn records_that_are_appended_together_stand_as_if_one_by_one() {
    let payloads: Vec<Vec<u8>> = (0..40).map(|n| vec![n; 10 * usize::from(n)]).collect();
    let pieces: Vec<[&[u8]; 1]> = payloads.iter().map(|payload| [&payload[..]]).collect();
    let records: Vec<_> = pieces.iter().map(|pieces| NewRecord::plain(pieces)).collect();
    let (sim, one_by_one) = (SimOs::new(1), SimOs::new(1));
    let wal = open(&sim.os()).start_writing().unwrap();
    let other = open(&one_by_one.os()).start_writing().unwrap();
    let (mut next, mut calls, mut places) = (0, 0, Vec::new());
    while next < records.len() {
        calls += 1;
        places.clear();
        wal.try_append_all(&records[next..], Priority::Ordinary, |place| places.push(place))
            .unwrap();
        for (place, payload) in places.iter().zip(&payloads[next..]) {
            assert_eq!(place.end, other.append(&[payload]).unwrap());
        }
        next += places.len();
        if places.is_empty() {
            wal.make_room(&records[next], Priority::Ordinary).unwrap();
        }
    }
    assert!((3..20).contains(&calls), "as many as have room in the buffer: {calls} calls");
    assert_eq!(wal.stats().appends, records.len() as u64);
    wal.sync().unwrap();
    let found = records_of(&sim);
    assert_eq!(found, payloads);
    // One that is too long: none of them.
    let (end, long) = (wal.next_lsn(), vec![0; wal::MAX_PAYLOAD_BYTES + 1]);
    let (short, long) = ([&b"short"[..]], [&long[..]]);
    let both = [NewRecord::plain(&short), NewRecord::plain(&long)];
    let refused = wal.try_append_all(&both, Priority::Ordinary, |_| panic!("none is appended"));
    assert!(matches!(refused, Err(Error::TooLong { .. })));
    assert_eq!(wal.next_lsn(), end);
}

fn records_of(sim: &SimOs) -> Vec<Vec<u8>> {
    records(open(&sim.os())).unwrap().into_iter().map(|(_, payload)| payload).collect()
}

#[test]
fn record_longer_than_the_limit_is_refused() {
    let wal = open(&SimOs::new(1).os()).start_writing().unwrap();
    let long = vec![0; wal::MAX_PAYLOAD_BYTES + 1];
    assert!(matches!(wal.append(&[&long]), Err(Error::TooLong { .. })));
    assert_eq!(wal.next_lsn(), 0);
}

#[test]
fn buffers_take_no_more_than_their_size_and_what_a_long_record_took_is_given_back() {
    let sim = SimOs::new(1);
    let options = WalOptions {
        segment_bytes: 1 << 20,
        buffer_bytes: 100_000,
        recycle: 2,
        compress_from: 100,
    };
    let wal = open_at(&sim.os(), Path::new("/log"), options).start_writing().unwrap();
    let mut most = 0;
    for length in (0..500).map(|n| n * 37 % 9000) {
        wal.append(&[&vec![7; length]]).unwrap();
        most = most.max(wal.memory_bytes());
    }
    assert!(most > 100_000 && most <= 2 * (100_000 + 64), "two buffers: {most}");
    let end = wal.append(&[&vec![7; 900_000]]).unwrap();
    let long = wal.memory_bytes();
    assert!((900_000..=900_000 + 100_200).contains(&long), "no more than it is long: {long}");
    wal.sync_to(end).unwrap();
    wal.append(&[&[7]]).unwrap();
    assert!(wal.memory_bytes() <= 2 * (100_000 + 64), "{}", wal.memory_bytes());
}

#[test]
fn threads_share_syncs_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (os, registry) = (Os::real(), Registry::new());
    let options = WalOptions { segment_bytes: 64 << 10, ..WalOptions::default() };
    let mut replay = Wal::open(&os, dir.path(), options, Metrics::new(&registry)).unwrap();
    let wal = replay.start_writing().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let wal = &wal;
            scope.spawn(move || {
                for n in 0..50_u64 {
                    let (thread, n) = (thread.to_le_bytes(), n.to_le_bytes());
                    let end = wal.append(&[&thread, &n, &[7; 100]]).unwrap();
                    wal.sync_to(end).unwrap();
                    assert!(wal.synced_lsn() >= end);
                }
            });
        }
    });
    assert_eq!(registry.read("wal.appends"), Some(Value::Counter(400)));
    let Some(Value::Counter(syncs)) = registry.read("wal.syncs") else { panic!("a counter") };
    assert!(syncs <= 400 + 2, "{syncs}");
    let mut next = [0; 8];
    for (_, payload) in records(open_at(&os, dir.path(), options)).unwrap() {
        let thread = u64::from_le_bytes(payload[..8].try_into().unwrap()) as usize;
        assert_eq!(payload[8..16], u64::to_le_bytes(next[thread]));
        next[thread] += 1;
    }
    assert_eq!(next, [50; 8]);
}

#[test]
fn full_buffer_is_written_by_the_appender() {
    let sim = SimOs::new(1);
    let wal = open(&sim.os()).start_writing().unwrap();
    for _ in 0..100 {
        wal.append(&[&[1; 400]]).unwrap();
        assert!(wal.next_lsn() - wal.written_lsn() <= 4096 + 416);
    }
    assert!(wal.written_lsn() > 30_000);
}

#[test]
fn trim_bounds_the_files_and_reuses_them() {
    let (sim, registry) = (SimOs::new(1), Registry::new());
    let metrics = Metrics::new(&registry);
    let mut replay = Wal::open(&sim.os(), Path::new("/log"), TINY, metrics).unwrap();
    let wal = replay.start_writing().unwrap();
    for _ in 0..200 {
        let end = wal.append(&[&[1; 400]]).unwrap();
        wal.sync_to(end).unwrap();
        wal.trim(end).unwrap();
        assert!(sim.files().len() <= 4, "{}", sim.files().len());
        assert!(wal.first_lsn() <= end && wal.disk_bytes() <= 3 * 2048);
    }
    let Some(Value::Counter(made)) = registry.read("wal.segments_made") else { panic!() };
    assert!(made <= 4, "{made}");
    let end = wal.next_lsn();
    drop(wal);
    let mut replay = open(&sim.os());
    replay.seek(end).unwrap();
    assert!(matches!(replay.seek(0), Err(Error::Missing { wanted: 0, .. })));
}

#[test]
fn files_keep_their_names_while_the_directory_is_copied() {
    let sim = SimOs::new(1);
    let wal = open(&sim.os()).start_writing().unwrap();
    let write = |records: usize| {
        for _ in 0..records {
            let end = wal.append(&[&[1; 400]]).unwrap();
            wal.sync_to(end).unwrap();
            wal.trim(end).unwrap();
            wal.prepare().unwrap();
        }
    };
    write(20);
    wal.hold_names();
    let listed: Vec<PathBuf> = sim.files().into_keys().collect();
    assert!(!wal.prepare().unwrap() && wal.remove_spares().unwrap() == 0);
    assert_eq!(sim.files().into_keys().collect::<Vec<_>>(), listed, "idle, nothing changes");
    write(20);
    let after = sim.files();
    assert!(listed.iter().all(|path| after.contains_key(path)), "{listed:?}");
    assert!(after.len() > listed.len(), "what is appended gets files of its own");
    wal.release_names();
    write(1);
    assert!(sim.files().len() <= 4, "{:?}", sim.files().keys());
}

#[test]
fn prepared_file_becomes_the_next_segment() {
    let (sim, registry) = (SimOs::new(1), Registry::new());
    let metrics = Metrics::new(&registry);
    let mut replay = Wal::open(&sim.os(), Path::new("/log"), TINY, metrics).unwrap();
    let wal = replay.start_writing().unwrap();
    assert!(wal.prepare().unwrap());
    assert!(!wal.prepare().unwrap(), "one is enough");
    let mut expected = Vec::new();
    for n in 0..5 {
        let payload = vec![n; 300];
        expected.push((wal.append(&[&payload]).unwrap(), payload));
        wal.sync().unwrap();
    }
    assert_eq!(registry.read("wal.segments_made"), Some(Value::Counter(2)), "no further one");
    assert!(wal.wants_file() && wal.prepare().unwrap() && !wal.wants_file());
    let os = sim.reboot_with(Survival::Nothing);
    assert_eq!(records(open(&os)).unwrap(), expected);
    let wal = open(&os).start_writing().unwrap();
    assert_eq!(sim.files().len(), 3, "the unused one serves the new epoch or is lost");
    wal.append(&[b"x"]).unwrap();
    wal.sync().unwrap();
}

const LONG_SEGMENTS: WalOptions = WalOptions {
    segment_bytes: 8 << 20,
    recycle: 2,
    buffer_bytes: 1 << 20,
    compress_from: usize::MAX,
};

/// A log of long segments, and what fills a thirty-second of one.
fn of_long_segments(sim: &SimOs) -> (Wal, Vec<u8>) {
    let wal = open_at(&sim.os(), Path::new("/log"), LONG_SEGMENTS).start_writing().unwrap();
    (wal, vec![7; (256 << 10) - 64])
}

#[test]
fn a_file_is_filled_bit_by_bit_while_the_one_before_it_is_used() {
    let sim = SimOs::new(1);
    let (wal, payload) = of_long_segments(&sim);
    let mut calls = Vec::new();
    loop {
        wal.append(&[&payload]).unwrap();
        wal.sync().unwrap();
        let before = sim.syscalls();
        let is_made = wal.prepare_due().unwrap();
        calls.push(sim.syscalls() - before);
        if is_made {
            break;
        }
    }
    assert!((17..=21).contains(&calls.len()), "five eighths of the segment are used: {calls:?}");
    calls.pop();
    assert!(calls.iter().all(|calls| *calls <= 4), "a MiB at a time: {calls:?}");
    assert!(!wal.wants_file() && !wal.prepare_due().unwrap(), "one is enough");
}

#[test]
fn a_file_that_is_half_filled_serves_who_needs_one_or_gives_its_space_back() {
    let sim = SimOs::new(1);
    let (wal, payload) = of_long_segments(&sim);
    let prepared = Path::new("/log/log.prepared");
    let mut all = Vec::new();
    for half in [10, 70] {
        for _ in 0..half {
            all.push((wal.append(&[&payload]).unwrap(), payload.clone()));
        }
        wal.sync().unwrap();
        assert!(!wal.prepare_due().unwrap());
        assert!(sim.files().contains_key(prepared), "it is not full");
        for _ in 0..30 {
            all.push((wal.append(&[&payload]).unwrap(), payload.clone()));
        }
        wal.sync().unwrap();
        assert!(!sim.files().contains_key(prepared), "it has become a segment");
    }
    for _ in 0..4 {
        all.push((wal.append(&[&payload]).unwrap(), payload.clone()));
    }
    wal.sync().unwrap();
    assert!(!wal.prepare_due().unwrap() && sim.files().contains_key(prepared));
    assert_eq!(wal.remove_spares().unwrap(), 8 << 20);
    assert!(!sim.files().contains_key(prepared));
    let os = sim.reboot_with(Survival::Nothing);
    assert!(records(open_at(&os, Path::new("/log"), LONG_SEGMENTS)).unwrap() == all);
}

#[test]
fn spare_that_has_the_name_of_a_coming_segment_is_not_used_twice() {
    let sim = SimOs::new(1);
    let wal = open(&sim.os()).start_writing().unwrap();
    for _ in 0..12 {
        let end = wal.append(&[&[1; 400]]).unwrap();
        wal.sync_to(end).unwrap();
        wal.trim(end).unwrap();
    }
    let begin = wal.next_lsn();
    drop(wal);
    // What crashes in a row may leave: files of segments that never began, and of some long gone.
    let numbers = |path: &PathBuf| segment_number(path.file_name()?.to_str()?);
    let newest = sim.files().keys().filter_map(numbers).max().unwrap();
    for number in [1, 2, newest + 2, newest + 3] {
        let path = Path::new("/log").join(wal::format::segment_name(number));
        sim.os().vfs.open(&path, OpenOptions::create()).unwrap();
    }
    let mut replay = open(&sim.os());
    replay.seek(begin).unwrap();
    let wal = replay.start_writing().unwrap();
    let mut all = Vec::new();
    for n in 0..40_u8 {
        all.push((wal.append(&[&[n; 400]]).unwrap(), vec![n; 400]));
        wal.sync().unwrap();
        if wal.wants_file() {
            wal.prepare().unwrap();
        }
    }
    let mut replay = open(&sim.os());
    replay.seek(begin).unwrap();
    assert_eq!(records(replay).unwrap(), all);
}

#[test]
fn full_disk_refuses_appends_and_writes_whatever_it_took() {
    let sim = SimOs::new(1);
    let wal = open(&sim.os()).start_writing().unwrap();
    sim.set_faults(Faults { capacity_bytes: 8192, ..Faults::default() });
    let mut expected = Vec::new();
    let error = loop {
        let payload = vec![expected.len() as u8; 300];
        match wal.append(&[&payload]) {
            Ok(end) => expected.push((end, payload)),
            Err(e) => break e,
        }
    };
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(!expected.is_empty());
    wal.sync().expect("what was appended has a file");
    assert_eq!(records(open(&sim.os())).unwrap(), expected);
    sim.set_faults(Faults::default());
    expected.push((wal.append(&[b"after"]).unwrap(), b"after".to_vec()));
    wal.sync().unwrap();
    drop(wal);
    sim.reboot_with(Survival::Nothing);
    assert_eq!(records(open(&sim.os())).unwrap(), expected);
}

/// Bytes of the disk that files take.
fn used(sim: &SimOs) -> u64 {
    let space = sim.os().vfs.space(Path::new("/log")).unwrap();
    space.total - space.available
}

const SMALL: WalOptions =
    WalOptions { segment_bytes: 64 << 10, recycle: 1, buffer_bytes: 4096, compress_from: 100 };

fn append_urgently(wal: &Wal, payload: &[u8]) -> Result<Lsn, Error> {
    let pieces = [payload];
    let record = NewRecord::plain(&pieces);
    loop {
        if let Some(place) = wal.try_append(&record, Priority::GivesSpaceBack)? {
            return Ok(place.end);
        }
        wal.make_room(&record, Priority::GivesSpaceBack)?;
    }
}

#[test]
fn disk_without_a_free_byte_takes_start_after_start() {
    // How much of the last segment is in use when the disk becomes full.
    for records_before in [0, 1, 20, 40] {
        let sim = SimOs::new(1);
        let open = || open_at(&sim.os(), Path::new("/log"), SMALL);
        let wal = open().start_writing().unwrap();
        let mut expected = Vec::new();
        for n in 0..records_before {
            expected.push((wal.append(&[&[n; 1000]]).unwrap(), vec![n; 1000]));
        }
        wal.sync().unwrap();
        drop(wal);
        sim.set_faults(Faults { capacity_bytes: used(&sim), ..Faults::default() });
        for start in 0..30_u8 {
            let what = format!("start {start} after {records_before} records");
            sim.reboot_with(Survival::Nothing);
            let wal = open().start_writing().expect(&what);
            if start % 10 == 3 {
                // What gives space back; an ordinary record would find no room.
                let end = append_urgently(&wal, b"dropped").expect(&what);
                wal.sync().unwrap();
                expected.push((end, b"dropped".to_vec()));
            }
            assert_eq!(records(open()).unwrap(), expected, "{what}");
        }
        sim.set_faults(Faults::default());
        let wal = open().start_writing().unwrap();
        expected.push((wal.append(&[&[7; 3000]]).unwrap(), vec![7; 3000]));
        wal.sync().unwrap();
        assert_eq!(records(open()).unwrap(), expected);
    }
}

/// A start on a full disk gives the log a short segment, under a name that an older file may have had.
#[test]
fn segment_of_a_full_disk_is_not_taken_for_the_next_one() {
    for spare_bytes in [0, 512, 3000, 5000, 20_000] {
        let sim = SimOs::new(1);
        let open = || open_at(&sim.os(), Path::new("/log"), SMALL);
        let wal = open().start_writing().unwrap();
        let mut expected = vec![(wal.append(&[b"first"]).unwrap(), b"first".to_vec())];
        wal.sync().unwrap();
        drop(wal);
        // A start that was interrupted left the next segment's file, begun by nobody.
        let spare =
            sim.os().vfs.open(Path::new("/log/log.00000002.fernlog"), OpenOptions::create());
        spare.unwrap().write_all_at(&vec![0; spare_bytes], 0).unwrap();
        sim.set_faults(Faults { capacity_bytes: used(&sim), ..Faults::default() });
        let wal = open().start_writing().unwrap();
        sim.set_faults(Faults::default());
        for n in 0..200 {
            expected.push((wal.append(&[&[n; 1000]]).unwrap(), vec![n; 1000]));
            wal.sync().unwrap();
            let found = records(open()).unwrap();
            assert!(found == expected, "{spare_bytes} bytes, record {n}: {} found", found.len());
        }
    }
}

/// A start that is interrupted anywhere may have renamed the newest segment, in which nothing was: an older
/// spare with a header of its own is not the newest then.
#[test]
fn interrupted_start_leaves_no_spare_that_counts() {
    for calls in 1..25 {
        let sim = SimOs::new(calls);
        let open = || open_at(&sim.os(), Path::new("/log"), SMALL);
        let wal = open().start_writing().unwrap();
        let expected = vec![(wal.append(&[b"kept"]).unwrap(), b"kept".to_vec())];
        wal.sync().unwrap();
        let end = wal.next_lsn();
        drop(wal);
        let headers = [
            SegmentHeader {
                number: 7,
                salt: 99,
                first_lsn: 4096,
                body_bytes: 800,
                previous: 6,
                key: None,
            },
            SegmentHeader {
                number: 9,
                salt: 98,
                first_lsn: end,
                body_bytes: 63 << 10,
                previous: 1,
                key: None,
            },
        ];
        for header in headers {
            let path = PathBuf::from(format!("/log/log.{:08}.fernlog", header.number));
            let file = sim.os().vfs.open(&path, OpenOptions::create()).unwrap();
            file.write_all_at(&header.encode(), 0).unwrap();
            file.sync_all().unwrap();
        }
        sim.os().vfs.sync_dir(Path::new("/log")).unwrap();
        sim.crash_after(calls);
        let _interrupted = open().start_writing();
        sim.reboot_with(Survival::Everything);
        assert_eq!(records(open()).unwrap(), expected, "after {calls} calls");
        open().start_writing().unwrap();
        assert_eq!(records(open()).unwrap(), expected, "after {calls} calls and a start");
    }
}

/// A spare may have the header of a segment under whose name it is made ready.
#[test]
fn header_of_a_spare_does_not_count_under_the_name_it_gets() {
    let sim = SimOs::new(1);
    let open = || open_at(&sim.os(), Path::new("/log"), SMALL);
    drop(open().start_writing().unwrap());
    // Segment 2 is in use after the next start, and 3 is made ready.
    let old = SegmentHeader {
        number: 3,
        salt: 99,
        first_lsn: 0,
        body_bytes: 800,
        previous: 1,
        key: None,
    };
    for (name, bytes) in
        [("log.00000004.fernlog", [0; 1024]), ("log.00000009.fernlog", old.encode())]
    {
        let spare = sim.os().vfs.open(&Path::new("/log").join(name), OpenOptions::create());
        spare.unwrap().write_all_at(&bytes, 0).unwrap();
    }
    let wal = open().start_writing().unwrap();
    assert!(wal.prepare().unwrap(), "a spare is made ready");
    let expected = vec![(wal.append(&[b"kept"]).unwrap(), b"kept".to_vec())];
    wal.sync().unwrap();
    drop(wal);
    sim.reboot_with(Survival::Nothing);
    assert_eq!(records(open()).unwrap(), expected);
}

#[test]
fn new_files_leave_free_what_is_kept_free() {
    let sim = SimOs::new(1);
    let wal = open_at(&sim.os(), Path::new("/log"), SMALL).start_writing().unwrap();
    let room = 300 << 10;
    sim.set_faults(Faults { capacity_bytes: used(&sim) + room, ..Faults::default() });
    wal.keep_free(100 << 10);
    let refused = (0..10_000).find_map(|_| wal.append(&[&[1; 1000]]).err());
    assert!(matches!(refused, Some(Error::NoSpace { .. })), "{refused:?}");
    let free = sim.os().vfs.space(Path::new("/log")).unwrap().available;
    assert!(((100 << 10)..(164 << 10)).contains(&free), "{free}");
    append_urgently(&wal, &[2; 9000]).expect("an eighth of a file is kept for it");
    assert_eq!(sim.os().vfs.space(Path::new("/log")).unwrap().available, free);
    append_urgently(&wal, &[2; 9000]).expect("and beyond that, what is kept free");
    wal.sync().unwrap();
    wal.trim(wal.next_lsn()).unwrap();
    assert!(wal.remove_spares().unwrap() > 0);
    assert!(sim.os().vfs.space(Path::new("/log")).unwrap().available > free);
    wal.append(&[b"there is room again"]).unwrap();
}

#[test]
fn failed_sync_or_write_stops_the_log_for_good() {
    for calls in 1..=2 {
        let sim = SimOs::new(1);
        let wal = open(&sim.os()).start_writing().unwrap();
        let end = wal.append(&[b"never acknowledged"]).unwrap();
        // the first call writes, the second syncs
        sim.fault_at(sim.syscalls() + calls, Fault::Io);
        assert!(matches!(wal.sync_to(end), Err(Error::Io { .. })));
        for _ in 0..2 {
            assert!(matches!(wal.sync_to(end), Err(Error::Stopped { .. })));
            assert!(matches!(wal.append(&[b"x"]), Err(Error::Stopped { .. })));
            assert!(matches!(wal.write_out(), Err(Error::Stopped { .. })));
            assert!(matches!(wal.trim(end), Err(Error::Stopped { .. })));
        }
        assert!(wal.synced_lsn() < end);
    }
}

/// Where a record's bytes are: its file and the offset of its frame.
fn place_of(sim: &SimOs, lsn: Lsn) -> (PathBuf, u64) {
    let mut place = None;
    for (path, bytes) in sim.files() {
        let number = segment_number(path.file_name().unwrap().to_str().unwrap()).unwrap();
        let header = SegmentHeader::decode(number, &bytes).unwrap();
        if header.first_lsn <= lsn {
            place = Some((path, 1024 + lsn - header.first_lsn));
        }
    }
    place.unwrap()
}

#[test]
fn damaged_record_below_a_known_sync_is_corruption() {
    // every record but the last has a mark behind it
    for damaged in 0..9 {
        for byte in [0, 3, 4, 9, 17] {
            let sim = SimOs::new(1);
            let (_, all) = ten_synced(&sim);
            let start = if damaged == 0 { 0 } else { all[damaged - 1].0 + 24 };
            if start + 24 > all[damaged].0 {
                continue;
            }
            let (path, offset) = place_of(&sim, start);
            if offset + byte >= 2048 {
                continue;
            }
            sim.flip_bit(&path, offset + byte, 2).unwrap();
            let found = records(open(&sim.os()));
            assert!(
                matches!(found, Err(Error::Corruption { lsn, .. }) if lsn == start),
                "record {damaged}, byte {byte}: {found:?}"
            );
            assert!(open(&sim.os()).start_writing().is_err(), "damage is never written over");
        }
    }
}

#[test]
fn damaged_unsynced_tail_ends_the_log() {
    let sim = SimOs::new(1);
    let (wal, all) = ten_synced(&sim);
    let start = wal.next_lsn();
    wal.append(&[b"written, not synced"]).unwrap();
    wal.write_out().unwrap();
    let (path, offset) = place_of(&sim, start + 24);
    sim.flip_bit(&path, offset + 20, 0).unwrap();
    assert_eq!(records(open(&sim.os())).unwrap(), all);
}

#[test]
fn damaged_last_record_is_corruption_once_a_mark_says_that_it_was_synced() {
    for byte in [0, 3, 4, 9, 17] {
        let sim = SimOs::new(1);
        let (wal, all) = ten_synced(&sim);
        for _ in 0..3 {
            wal.mark_synced().unwrap();
            wal.sync().unwrap();
            assert_eq!(wal.next_lsn() - wal.data_end(), 24, "one mark, and none of a mark");
        }
        let last = all[8].0 + 24;
        let (path, offset) = place_of(&sim, last);
        sim.flip_bit(&path, offset + byte, 2).unwrap();
        let found = records(open(&sim.os()));
        assert!(
            matches!(found, Err(Error::Corruption { lsn, .. }) if lsn == last),
            "byte {byte}: {found:?}"
        );
    }
}

#[test]
fn damaged_last_record_without_a_mark_is_told_as_a_torn_tail() {
    let sim = SimOs::new(1);
    let (_, all) = ten_synced(&sim);
    let mut clean = open(&sim.os());
    clean.find_end().unwrap();
    assert_eq!(clean.torn_tail(), None);
    let last = all[8].0 + 24;
    let (path, offset) = place_of(&sim, last);
    sim.flip_bit(&path, offset + 17, 2).unwrap();
    let mut torn = open(&sim.os());
    assert_eq!(torn.find_end().unwrap(), all[8].0 + 24);
    assert_eq!(torn.torn_tail(), Some(&TornTail { lsn: last, file: path, offset }));
}

#[test]
fn damaged_record_of_an_older_epoch_is_corruption() {
    let sim = SimOs::new(1);
    let wal = open(&sim.os()).start_writing().unwrap();
    wal.append(&[b"one"]).unwrap();
    wal.sync().unwrap();
    drop(wal);
    drop(open(&sim.os()).start_writing().unwrap());
    let (path, offset) = (PathBuf::from("/log/log.00000001.fernlog"), 1024);
    sim.flip_bit(&path, offset + 16, 0).unwrap();
    assert!(matches!(records(open(&sim.os())), Err(Error::Corruption { lsn: 0, .. })));
}

#[test]
fn lost_segment_in_the_middle_is_missing() {
    let sim = SimOs::new(1);
    let (_, all) = ten_synced(&sim);
    assert!(all.last().unwrap().0 > 2048);
    sim.os().vfs.remove_file(Path::new("/log/log.00000002.fernlog")).unwrap();
    assert!(matches!(open(&sim.os()).seek(0), Err(Error::Missing { wanted: 0, .. })));
}

#[test]
fn golden_segment_replays_for_ever() {
    let sim = SimOs::new(1);
    let wal = open(&sim.os()).start_writing().unwrap();
    let end = wal.append(&[b"first record"]).unwrap();
    wal.sync_to(end).unwrap();
    wal.append(&[b"second record", b" in two pieces"]).unwrap();
    let body = b", compressed".repeat(50);
    wal.append_record(&NewRecord::new(&[b"third record"], &wal.body(&body))).unwrap();
    wal.sync().unwrap();
    let path = PathBuf::from("/log/log.00000001.fernlog");
    let written = sim.files().remove(&path).unwrap();
    let committed = golden_to_decode(env!("CARGO_MANIFEST_DIR"), "log.v3.fernlog", &written);
    let before = include_bytes!("golden/log.00000001.fernlog");
    let third = [&b"third record"[..], &body].concat();
    let all = [&b"first record"[..], b"second record in two pieces", &third];
    for (bytes, version, payloads) in [(&committed[..], 3, &all[..]), (before, 1, &all[..2])] {
        assert_eq!(bytes[8], version);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("log.00000001.fernlog"), bytes).unwrap();
        let replayed = records(open_at(&Os::real(), dir.path(), TINY)).unwrap();
        assert!(
            replayed.iter().map(|(_, payload)| payload.as_slice()).eq(payloads.iter().copied())
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn mutated_logs_never_panic_and_never_lie(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0_u8..8), 1..6),
    ) {
        let sim = SimOs::new(1);
        let (wal, all) = ten_synced(&sim);
        drop(wal);
        let files: Vec<_> = sim.files().into_iter().collect();
        for (file, offset, bit) in damage {
            let (path, bytes) = &files[file.index(files.len())];
            sim.flip_bit(path, offset % bytes.len() as u64, bit).unwrap();
        }
        let replay = Wal::open(&sim.os(), Path::new("/log"), TINY, Metrics::new(&Registry::new()));
        if let Ok(mut replay) = replay {
            let first = replay.first_lsn();
            let skip = all.iter().take_while(|(end, _)| *end < first).count();
            if first == 0 || all.iter().any(|(end, _)| *end == first) {
                while let Ok(Some(record)) = replay.next_record() {
                    let at = all.iter().position(|(end, _)| *end == record.end).unwrap();
                    prop_assert!(at >= skip);
                    prop_assert_eq!(record.payload, &all[at].1);
                }
            } else {
                while let Ok(Some(_)) = replay.next_record() {}
            }
            let _either = replay.start_writing();
        }
    }
}

/// A failed sync leaves the kernel's memory and the disk apart: what is read there is not on disk,
/// and no later sync brings it.
#[test]
fn records_shown_after_a_failed_sync_are_on_disk_before_the_next_epoch() {
    for seed in 0..16 {
        let sim = SimOs::new(seed);
        let wal = open(&sim.os()).start_writing().unwrap();
        wal.append(&[b"one"]).unwrap();
        wal.sync().unwrap();
        wal.append(&[&[7; 300]]).unwrap();
        // The write, then the sync.
        sim.fault_at(sim.syscalls() + 2, Fault::Io);
        assert!(wal.sync().is_err());
        drop(wal);
        let os = sim.reboot_with(Survival::Process);
        let shown = records(open(&os)).unwrap();
        drop(open(&os).start_writing().unwrap());
        let os = sim.reboot_with(Survival::Nothing);
        assert_eq!(records(open(&os)).unwrap(), shown, "seed {seed}");
    }
}

#[test]
fn segment_shown_after_a_failed_sync_is_on_disk_before_the_next_epoch() {
    for seed in 0..16 {
        // The first append is larger than half a segment: the sync begins another.
        for call in 1..=6 {
            let sim = SimOs::new(seed);
            let wal = open(&sim.os()).start_writing().unwrap();
            let _ = wal.append(&[&[1; 700]]).unwrap();
            let _ = wal.append(&[&[2; 700]]).unwrap();
            sim.fault_at(sim.syscalls() + call, Fault::Io);
            if wal.sync().is_ok() {
                break;
            }
            drop(wal);
            let os = sim.reboot_with(Survival::Process);
            let shown = records(open(&os)).unwrap();
            drop(open(&os).start_writing().unwrap());
            let os = sim.reboot_with(Survival::Nothing);
            assert_eq!(records(open(&os)).unwrap(), shown, "seed {seed}, call {call}");
        }
    }
}
