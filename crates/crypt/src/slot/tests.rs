//! Slots as bytes: written, read back, damaged, forged.

use super::{HEADER_BYTES, RECORD_BYTES, SLOT_BYTES, SUM_AT, Slot, SlotBytes, encode, read};
use crate::error::Error;
use crate::master::{MasterKey, Secret};
use crate::ring::{KeyNumber, KeyRing};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use os::sim::SimOs;
use xxhash_rust::xxh3::xxh3_64;

fn master(byte: u8) -> MasterKey {
    MasterKey::parse(STANDARD.encode([byte; 32]).as_bytes()).unwrap()
}

fn ring() -> KeyRing {
    let key = |byte| Secret::from([byte; 32]);
    let keys = vec![(KeyNumber(1), key(0xa1)), (KeyNumber(2), key(0xa2))];
    KeyRing::of(*b"a data directory", keys)
}

fn slot(generation: u64) -> Box<SlotBytes> {
    encode(&ring(), &master(7), generation, &*SimOs::new(generation).os().entropy).unwrap()
}

fn with_right_sum(mut bytes: Box<SlotBytes>) -> Box<SlotBytes> {
    let sum = xxh3_64(&bytes[..SUM_AT]);
    bytes[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn a_slot_is_read_as_it_was_written_and_its_bytes_are_those_of_before() {
    let bytes = slot(5);
    let opened = Slot::decode(&bytes).unwrap().unwrap(&master(7)).unwrap();
    assert_eq!(opened.directory, ring().directory);
    assert_eq!(*opened.keys(), *ring().keys());
    assert!(!bytes.windows(8).any(|part| part == [0xa1; 8] || part == [0xa2; 8]));
    assert!(!bytes.windows(8).any(|part| part == [7; 8]));
    testkit::golden(env!("CARGO_MANIFEST_DIR"), "keys.v1.bin", &bytes[..]);
}

#[test]
fn another_master_is_told_by_both_fingerprints() {
    let error = Slot::decode(&slot(5)).unwrap().unwrap(&master(8)).unwrap_err();
    let line = error.to_string();
    assert!(matches!(error, Error::OtherMaster { .. }));
    for key in [7, 8] {
        assert!(line.contains(&master(key).fingerprint().to_string()), "{line}");
    }
}

#[test]
fn no_flipped_bit_of_either_slot_loses_a_key() {
    let whole = *slot(5);
    for bit in 0..SLOT_BYTES * 8 {
        let mut damaged = whole;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Slot::decode(&damaged).is_err(), "bit {bit}");
        // The whole of both slots' bits would take minutes; a slot that decodes is compared as bytes.
        if bit % 61 == 0 {
            let first = read(&[damaged, whole]).unwrap();
            assert_eq!((*first.newest.bytes, first.repair), (whole, Some(0)));
            let second = read(&[whole, damaged]).unwrap();
            assert_eq!((*second.newest.bytes, second.repair), (whole, Some(1)));
            assert!(read(&[damaged, damaged]).is_err());
        }
    }
}

/// Who can write the file but lacks the master can make checksums right, and nothing else.
#[test]
fn nothing_that_was_changed_opens_even_with_a_right_checksum() {
    let whole = slot(5);
    for bit in 0..(HEADER_BYTES + 2 * RECORD_BYTES) * 8 {
        let mut forged = whole.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let forged = with_right_sum(forged);
        assert!(
            Slot::decode(&forged).and_then(|slot| slot.unwrap(&master(7))).is_err(),
            "bit {bit}"
        );
    }
    let mut swapped = whole.clone();
    let (first, second) = swapped[HEADER_BYTES + 4..].split_at_mut(RECORD_BYTES);
    first[..RECORD_BYTES - 4].swap_with_slice(&mut second[..RECORD_BYTES - 4]);
    let swapped = Slot::decode(&with_right_sum(swapped)).unwrap();
    assert!(matches!(swapped.unwrap(&master(7)), Err(Error::NotAuthentic)));
}

#[test]
fn the_newer_slot_holds_and_a_newer_program_s_is_not_passed_over() {
    let (old, new) = (*slot(5), *slot(6));
    for (first, second, repair) in
        [(&old, &new, Some(0)), (&new, &old, Some(1)), (&new, &new, None)]
    {
        let found = read(&[*first, *second]).unwrap();
        assert_eq!((found.newest.generation, found.repair), (6, repair));
    }
    for (at, value) in [(8, 2), (12, 2)] {
        let mut newer = slot(6);
        newer[at] = value;
        let newer = *with_right_sum(newer);
        assert!(matches!(read(&[old, newer]), Err(Error::Newer(_))));
        assert!(matches!(read(&[newer, old]), Err(Error::Newer(_))));
    }
    let mut other = slot(5);
    other[40] ^= 1;
    assert!(matches!(read(&[old, *with_right_sum(other)]), Err(Error::Damaged(_))));
}
