//! The file over changes, crashes at every call, and damage.

use super::{FILE_NAME, KeysFile};
use crate::error::{Error, Result};
use crate::master::MasterKey;
use crate::ring::{KeyNumber, KeyRing};
use crate::slot::SLOT_BYTES;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use os::Os;
use os::sim::SimOs;
use std::path::Path;

/// More calls that change the disk than any change of the file makes.
const CALLS: u64 = 12;
const SEEDS: u64 = 40;

fn directory() -> &'static Path {
    Path::new("/data")
}

fn master(byte: u8) -> MasterKey {
    MasterKey::parse(STANDARD.encode([byte; 32]).as_bytes()).unwrap()
}

fn machine(seed: u64) -> SimOs {
    let sim = SimOs::new(seed);
    sim.os().vfs.create_dir_all(directory()).unwrap();
    sim
}

fn read(os: &Os, key: u8) -> Result<KeyRing> {
    KeysFile::read(&*os.vfs, directory(), &master(key))
}

fn file_bytes(sim: &SimOs) -> Vec<u8> {
    sim.files()[&directory().join(FILE_NAME)].clone()
}

/// A file with nine data keys, which a torn write can cut between sectors.
fn with_nine_keys(os: &Os) -> KeysFile {
    let mut file = KeysFile::create(os, directory(), &master(1)).unwrap();
    for _ in 1..9 {
        file = file.add_data_key(&master(1)).unwrap();
    }
    file
}

#[test]
fn a_file_gives_the_same_keys_to_the_same_master_alone() {
    let sim = machine(1);
    let os = sim.os();
    let made = KeysFile::create(&os, directory(), &master(1)).unwrap();
    let opened = KeysFile::open(&os, directory(), &master(1)).unwrap();
    assert_eq!(*opened.ring().keys(), *made.ring().keys());
    assert!(matches!(read(&os, 2), Err(Error::OtherMaster { .. })));
    assert!(KeysFile::create(&os, directory(), &master(1)).is_err(), "there is one");
    let other = made.add_data_key(&master(2)).map(drop);
    assert!(matches!(other, Err(Error::OtherMaster { .. })));
    assert_eq!(read(&os, 1).unwrap().newest(), KeyNumber(1));
}

#[test]
fn after_a_rotation_the_old_master_opens_no_slot() {
    let sim = machine(1);
    let os = sim.os();
    let keys = with_nine_keys(&os).rotate_master(&master(2)).unwrap().ring.keys().clone();
    assert_eq!(read(&os, 2).unwrap().keys().clone(), keys);
    for slot in [0, SLOT_BYTES] {
        sim.flip_bit(&directory().join(FILE_NAME), slot as u64 + 20, 0).unwrap();
        assert!(matches!(read(&os, 1), Err(Error::OtherMaster { .. })));
        sim.flip_bit(&directory().join(FILE_NAME), slot as u64 + 20, 0).unwrap();
    }
}

#[test]
fn a_crash_at_any_call_leaves_no_file_or_a_whole_one() {
    for (seed, call) in (0..SEEDS).flat_map(|seed| (1..CALLS).map(move |call| (seed, call))) {
        let sim = machine(seed);
        sim.crash_after(call);
        let made = KeysFile::create(&sim.os(), directory(), &master(1)).map(|file| file.ring);
        let os = sim.reboot();
        match made {
            Ok(ring) => assert_eq!(*read(&os, 1).unwrap().keys(), *ring.keys()),
            Err(_) if os.vfs.exists(&directory().join(FILE_NAME)).unwrap() => {
                read(&os, 1).unwrap();
            }
            Err(_) => drop(KeysFile::create(&os, directory(), &master(1)).unwrap()),
        }
    }
}

#[test]
fn a_crash_at_any_call_of_a_change_loses_no_key() {
    for (seed, call) in (0..SEEDS).flat_map(|seed| (1..CALLS).map(move |call| (seed, call))) {
        let sim = machine(seed);
        let file = with_nine_keys(&sim.os());
        let before = file.ring.keys().clone();
        sim.crash_after(call);
        let added = file.add_data_key(&master(1));
        let is_added = added.is_ok();
        let is_rotated = added.and_then(|file| file.rotate_master(&master(2))).is_ok();
        let os = sim.reboot();
        let found = [1, 2].map(|key| KeysFile::open(&os, directory(), &master(key)));
        let opened: Vec<KeysFile> = found.into_iter().filter_map(Result::ok).collect();
        let [opened] = &opened[..] else {
            panic!("seed {seed} call {call}: {} masters open the file", opened.len())
        };
        assert_eq!(opened.ring.keys()[..9], before[..], "seed {seed} call {call}");
        assert!(!is_added || opened.ring.len() == 10, "seed {seed} call {call}");
        assert!(!is_rotated || read(&os, 2).is_ok(), "seed {seed} call {call}");
        let bytes = file_bytes(&sim);
        assert_eq!(bytes[..SLOT_BYTES], bytes[SLOT_BYTES..], "opening writes both slots alike");
    }
}

#[test]
fn a_damaged_slot_is_written_again_and_not_with_a_wrong_master() {
    for slot in [0, SLOT_BYTES] {
        let sim = machine(3);
        let os = sim.os();
        let keys = with_nine_keys(&os).ring.keys().clone();
        let whole = file_bytes(&sim);
        sim.flip_bit(&directory().join(FILE_NAME), slot as u64 + 100, 3).unwrap();
        let damaged = file_bytes(&sim);
        assert!(KeysFile::open(&os, directory(), &master(2)).is_err());
        assert_eq!(read(&os, 1).unwrap().keys().clone(), keys);
        assert_eq!(file_bytes(&sim), damaged, "neither wrote");
        assert_eq!(*KeysFile::open(&os, directory(), &master(1)).unwrap().ring.keys(), keys);
        assert_eq!(file_bytes(&sim), whole);
    }
}

#[test]
fn a_shortened_file_opens_from_its_first_slot_or_is_damaged() {
    for length in [0, 1, 64, 4095, 4096, 5000, 8191] {
        let sim = machine(4);
        let os = sim.os();
        drop(KeysFile::create(&os, directory(), &master(1)).unwrap());
        let file = os.vfs.open(&directory().join(FILE_NAME), os::OpenOptions::default()).unwrap();
        file.set_len(length).unwrap();
        match read(&os, 1) {
            Ok(_) => assert!(length >= SLOT_BYTES as u64, "{length}"),
            Err(error) => {
                assert!(matches!(error, Error::Damaged(_)) && length < SLOT_BYTES as u64);
            }
        }
    }
}
