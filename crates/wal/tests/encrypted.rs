//! An encrypted log: what is on disk, what opens it, what is told of damage.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crypt::{KeyRing, KeysFile, MasterKey, NonceLog};
use os::Os;
use os::sim::{Fault, SimOs, Survival};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use telemetry::Registry;
use testkit::golden_to_decode;
use wal::{Error, LiveReader, Lsn, Metrics, NewRecord, Place, Priority, Replay, Wal, WalOptions};

const TINY: WalOptions =
    WalOptions { segment_bytes: 2048, recycle: 2, buffer_bytes: 4096, compress_from: 100 };
const MARKER: &[u8] = b"a name of somebody";

/// The keys of a data directory that the seed tells apart.
fn keys(seed: u64) -> Arc<KeyRing> {
    let os = SimOs::new(seed).os();
    os.vfs.create_dir_all(Path::new("/d")).unwrap();
    let master = MasterKey::parse(format!("{}=", "A".repeat(43)).as_bytes()).unwrap();
    KeysFile::create(&os, Path::new("/d"), &master).unwrap().into_ring().into()
}

fn replay(os: &Os) -> Replay {
    Wal::open(os, Path::new("/log"), TINY, Metrics::new(&Registry::new())).unwrap()
}

fn start(os: &Os, keys: &Arc<KeyRing>) -> Wal {
    replay(os).with_keys(Some(Arc::clone(keys))).unwrap().start_writing().unwrap()
}

fn records(mut replay: Replay) -> Result<Vec<(Lsn, Vec<u8>)>, Error> {
    let mut all = Vec::new();
    while let Some(record) = replay.next_record()? {
        all.push((record.end, record.payload.to_vec()));
    }
    Ok(all)
}

fn is_marked(sim: &SimOs) -> bool {
    let has = |bytes: &Vec<u8>| bytes.windows(MARKER.len()).any(|part| part == MARKER);
    sim.files().values().any(has)
}

/// Records of all lengths around a multiple of eight, over several segments.
fn fill(wal: &Wal) -> Vec<(Lsn, Vec<u8>)> {
    let record = |number: usize| MARKER.repeat(1 + number % 7)[number % 9..].to_vec();
    let all: Vec<Vec<u8>> = (0..60).map(record).chain([Vec::new(), MARKER.repeat(500)]).collect();
    let appended = |payload: Vec<u8>| {
        let (front, back) = payload.split_at(payload.len() / 3);
        let (head, body) = ([front], wal.body(back));
        let record = NewRecord::new(&head, &body);
        wal.make_room(&record, Priority::Ordinary).unwrap();
        let Place { begin, end } = wal.try_append(&record, Priority::Ordinary).unwrap().unwrap();
        assert_eq!((begin % 8, end % 8), (0, 0));
        if payload.len().is_multiple_of(3) {
            wal.sync_to(end).unwrap();
            let mut reader = LiveReader::at(begin);
            let found = reader.next_record(wal, end).unwrap().unwrap();
            assert_eq!((found.lsn, found.end, found.payload), (begin, end, &payload[..]));
        }
        (end, payload)
    };
    all.into_iter().map(appended).collect()
}

#[test]
fn records_come_back_over_segments_and_epochs_and_are_nowhere_on_disk() {
    let (sim, keys) = (SimOs::new(1), keys(1));
    let mut all = Vec::new();
    for _ in 0..3 {
        let wal = start(&sim.os(), &keys);
        all.extend(fill(&wal));
        wal.sync().unwrap();
        let mut reader = LiveReader::at(0);
        let mut live = Vec::new();
        while let Some(record) = reader.next_record(&wal, wal.next_lsn()).unwrap() {
            live.push((record.end, record.payload.to_vec()));
        }
        assert_eq!(live, all);
    }
    assert!(!is_marked(&sim));
    let found = records(replay(&sim.os()).with_keys(Some(Arc::clone(&keys))).unwrap()).unwrap();
    assert_eq!(found, all);
}

/// Simulator, seed 71057.
#[test]
fn what_a_reader_has_in_memory_is_decrypted_also_where_its_file_was_trimmed() {
    let (sim, keys) = (SimOs::new(1), keys(1));
    let wal = start(&sim.os(), &keys);
    let first = wal.append(&[MARKER]).unwrap();
    for _ in 0..100 {
        wal.append(&[MARKER]).unwrap();
    }
    wal.sync().unwrap();
    let mut reader = LiveReader::default();
    assert!(reader.seek_frame(&wal, 0, first).unwrap());
    wal.trim(wal.synced_lsn()).unwrap();
    assert!(wal.first_lsn() > first, "the file is gone");
    let record = reader.next_record(&wal, first).unwrap().unwrap();
    assert_eq!((record.lsn, record.payload), (0, MARKER));
    let missing = reader.next_record(&wal, wal.synced_lsn());
    assert!(matches!(missing, Ok(Some(_)) | Err(Error::Missing { .. })), "{missing:?}");
}

#[test]
fn a_plain_log_shows_what_an_encrypted_one_hides() {
    let sim = SimOs::new(1);
    let wal = replay(&sim.os()).start_writing().unwrap();
    fill(&wal);
    wal.sync().unwrap();
    assert!(is_marked(&sim));
}

#[test]
fn without_keys_or_with_others_no_record_is_given_and_nothing_is_written() {
    let (sim, keys_here) = (SimOs::new(1), keys(1));
    let wal = start(&sim.os(), &keys_here);
    let end = fill(&wal).last().unwrap().0;
    wal.sync().unwrap();
    drop(wal);
    let before = sim.files();
    let mut blind = replay(&sim.os());
    assert!(blind.is_encrypted());
    assert_eq!(blind.find_end().unwrap(), end, "where records are is seen without a key");
    let refused = records(blind.again()).unwrap_err();
    assert!(matches!(refused, Error::Keys { is_encrypted: true, .. }), "{refused}");
    let refused = blind.start_writing().unwrap_err();
    assert!(refused.to_string().contains("encrypted, and no key was given"), "{refused}");
    let others = replay(&sim.os()).with_keys(Some(keys(2))).unwrap();
    let refused = records(others).unwrap_err();
    assert!(refused.to_string().contains("does not decrypt"), "{refused}");
    assert_eq!(sim.files(), before);
}

#[test]
fn keys_for_a_plain_log_are_refused() {
    let sim = SimOs::new(1);
    let wal = replay(&sim.os()).start_writing().unwrap();
    wal.append(&[b"plain"]).unwrap();
    wal.sync().unwrap();
    let refused = replay(&sim.os()).with_keys(Some(keys(1))).unwrap_err();
    assert!(matches!(refused, Error::Keys { is_encrypted: false, .. }), "{refused}");
}

#[test]
fn a_record_whose_checksum_was_made_right_again_is_damage() {
    let (sim, keys) = (SimOs::new(1), keys(1));
    let wal = start(&sim.os(), &keys);
    let end = wal.append(&[MARKER]).unwrap();
    wal.append(&[b"the next"]).unwrap();
    wal.sync().unwrap();
    drop(wal);
    let path = PathBuf::from("/log/log.00000001.fernlog");
    let bytes = sim.files().remove(&path).unwrap();
    let header = wal::format::SegmentHeader::decode(1, &bytes).unwrap();
    let mut stored = bytes[1024 + 16..1024 + end as usize].to_vec();
    stored.truncate(MARKER.len() + crypt::TAG_BYTES);
    stored[3] ^= 1;
    let mut forged = Vec::new();
    let kind = wal::format::FrameKind::Data;
    wal::format::encode_frame(kind, header.salt, 0, &stored, &mut forged);
    let file = sim.os().vfs.open(&path, os::OpenOptions::default()).unwrap();
    file.write_all_at(&forged, 1024).unwrap();
    let refused = records(replay(&sim.os()).with_keys(Some(keys)).unwrap()).unwrap_err();
    assert!(matches!(refused, Error::Corruption { lsn: 0, .. }), "{refused}");
}

#[test]
fn what_a_full_disk_left_unwritten_is_written_as_it_was_encrypted() {
    let log = NonceLog::default();
    let keys: Arc<KeyRing> = keys(1).watched_by(&log).into();
    let sim = SimOs::new(1);
    let wal = start(&sim.os(), &keys);
    let first = wal.append(&[MARKER]).unwrap();
    sim.fault_at(sim.syscalls() + 1, Fault::NoSpace);
    assert!(matches!(wal.sync_to(first), Err(Error::NoSpace { .. })));
    let second = wal.append(&[b"the next"]).unwrap();
    wal.sync().unwrap();
    assert_eq!(log.len(), 2, "each record is encrypted once");
    drop(wal);
    sim.reboot_with(Survival::Nothing);
    let found = records(replay(&sim.os()).with_keys(Some(keys)).unwrap()).unwrap();
    assert_eq!(found, [(first, MARKER.to_vec()), (second, b"the next".to_vec())]);
}

#[test]
fn golden_encrypted_segment_replays_for_ever() {
    let slot = include_bytes!("../../crypt/tests/golden/keys.v1.bin");
    let sim = SimOs::new(1);
    let os = sim.os();
    os.vfs.create_dir_all(Path::new("/d")).unwrap();
    let file = os.vfs.open(Path::new("/d/fern.keys"), os::OpenOptions::create()).unwrap();
    file.write_all_at(slot, 0).unwrap();
    let master = MasterKey::parse(b"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=").unwrap();
    let keys = Arc::new(KeysFile::read(&*os.vfs, Path::new("/d"), &master).unwrap());
    let wal = start(&os, &keys);
    let end = wal.append(&[b"first record"]).unwrap();
    wal.sync_to(end).unwrap();
    wal.append(&[b"second record", b" in two pieces"]).unwrap();
    let body = b", compressed".repeat(50);
    wal.append_record(&NewRecord::new(&[b"third record"], &wal.body(&body))).unwrap();
    wal.sync().unwrap();
    let written = sim.files().remove(Path::new("/log/log.00000001.fernlog")).unwrap();
    let committed = golden_to_decode(env!("CARGO_MANIFEST_DIR"), "encrypted.v4.fernlog", &written);
    let before = include_bytes!("golden/encrypted.fernlog");
    let third = [&b"third record"[..], &body].concat();
    let all = [&b"first record"[..], b"second record in two pieces", &third];
    for (bytes, version, payloads) in [(&committed[..], 4, &all[..]), (before, 2, &all[..2])] {
        assert_eq!(bytes[8], version);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("log.00000001.fernlog"), bytes).unwrap();
        let metrics = Metrics::new(&Registry::new());
        let replay = Wal::open(&Os::real(), dir.path(), TINY, metrics).unwrap();
        let found = records(replay.with_keys(Some(Arc::clone(&keys))).unwrap()).unwrap();
        assert!(found.iter().map(|(_, payload)| payload.as_slice()).eq(payloads.iter().copied()));
    }
}
