//! Pages, plain and encrypted: what comes back, and what is refused.

use proptest::prelude::*;

use super::*;
use crypt::{KeysFile, MasterKey};
use os::sim::SimOs;
use std::path::Path;

const HERE: PageContext = PageContext { dictionary: 3, segment: 70, page: 5 };
const METHODS: [Compression; 4] =
    [Compression::None, Compression::Lz4, Compression::Zlib(6), Compression::Zstd(3)];

fn encoded(method: Compression, raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_page(HERE, method.into(), None, raw, &mut out);
    out
}

#[test]
fn every_method_returns_the_bytes() {
    let noise: Vec<u8> = (0..4000_u32).map(|i| (i.wrapping_mul(2654435761) >> 24) as u8).collect();
    for method in METHODS {
        for raw in [&b""[..], b"x", &noise, &b"ab".repeat(9000)] {
            let mut page = encoded(method, raw);
            let len = page.len();
            assert!(len <= raw.len() + PAGE_HEADER_BYTES);
            assert_eq!(page_stored_len(&page), Some(len));
            page.extend_from_slice(b"the next page");
            let mut back = Vec::new();
            assert_eq!(decode_page(HERE, None, None, &page, &mut back), Ok(len));
            assert_eq!(back, raw);
        }
    }
}

#[test]
fn incompressible_page_is_stored_raw() {
    let mut noise = vec![0; 1000];
    let mut state = 1_u64;
    for byte in &mut noise {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *byte = (state >> 56) as u8;
    }
    for method in METHODS {
        let page = encoded(method, &noise);
        assert_eq!((page[0], page.len()), (METHOD_NONE, 1000 + PAGE_HEADER_BYTES));
    }
}

#[test]
fn page_of_another_address_is_refused() {
    let page = encoded(Compression::Lz4, &[1; 500]);
    let others = [
        PageContext { dictionary: 4, ..HERE },
        PageContext { segment: 71, ..HERE },
        PageContext { page: 6, ..HERE },
    ];
    for other in others {
        let refused = decode_page(other, None, None, &page, &mut Vec::new());
        assert_eq!(refused, Err(PageError::Checksum));
    }
}

#[test]
fn every_flipped_bit_is_caught() {
    let page = encoded(Compression::Zstd(3), &b"fern".repeat(30));
    for bit in 0..page.len() * 8 {
        let mut bad = page.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_page(HERE, None, None, &bad, &mut Vec::new()).is_err(), "bit {bit}");
    }
}

/// Data keys of a directory, and a key of a segment.
fn keys(seed: u64) -> (KeyRing, FreshKey) {
    let os = SimOs::new(seed).os();
    let master = MasterKey::parse(format!("{}=", "A".repeat(43)).as_bytes()).unwrap();
    os.vfs.create_dir_all(Path::new("/d")).unwrap();
    let ring = KeysFile::create(&os, Path::new("/d"), &master).unwrap().into_ring();
    let fresh = ring.fresh(Purpose::DataFile, &*os.entropy);
    (ring, fresh)
}

fn encrypted(key: &FreshKey, raw: &[u8]) -> Vec<u8> {
    let mut page = Vec::new();
    encode_page(HERE, Compression::Zstd(3).into(), Some(key), raw, &mut page);
    page
}

#[test]
fn an_encrypted_page_comes_back_with_its_keys_alone() {
    let (ring, fresh) = keys(1);
    for raw in [&b""[..], b"x", &b"a name of somebody ".repeat(900)] {
        for method in METHODS {
            let mut page = Vec::new();
            encode_page(HERE, method.into(), Some(&fresh), raw, &mut page);
            let (len, mut back) = (page.len(), Vec::new());
            assert_eq!(decode_page(HERE, Some(&ring), None, &page, &mut back), Ok(len));
            assert_eq!(back, raw);
            assert_eq!(check_encrypted_page(HERE, &page), Ok(len));
            assert_eq!(decode_page(HERE, None, None, &page, &mut back), Err(PageError::NoKey));
        }
    }
    let stored = encrypted(&fresh, b"a name of somebody");
    assert!(!stored.windows(4).any(|bytes| bytes == b"name"));
    let refused = decode_page(HERE, Some(&keys(2).0), None, &stored, &mut Vec::new());
    assert_eq!(refused, Err(PageError::NotAuthentic), "keys of another directory");
    let plain = encoded(Compression::None, b"plain");
    let refused = decode_page(HERE, Some(&ring), None, &plain, &mut Vec::new());
    assert_eq!(refused, Err(PageError::Plain));
    assert_eq!(check_encrypted_page(HERE, &plain), Err(PageError::Plain));
}

#[test]
fn every_flipped_bit_of_an_encrypted_page_is_caught_without_a_key() {
    let (_, fresh) = keys(1);
    let page = encrypted(&fresh, &b"fern".repeat(30));
    for bit in 0..page.len() * 8 {
        let mut bad = page.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(check_encrypted_page(HERE, &bad).is_err(), "bit {bit}");
    }
}

#[test]
fn a_checksum_made_right_again_does_not_make_a_changed_page_authentic() {
    let (ring, fresh) = keys(1);
    let page = encrypted(&fresh, &b"fern".repeat(30));
    let forged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bad = page.clone();
        change(&mut bad);
        let (header, stored) = bad.split_at(PAGE_HEADER_BYTES);
        let sum = checksum(HERE, &header[..12], stored);
        bad[12..20].copy_from_slice(&sum.to_le_bytes());
        decode_page(HERE, Some(&ring), None, &bad, &mut Vec::new()).unwrap_err()
    };
    assert_eq!(forged(&|page| page[PAGE_HEADER_BYTES] ^= 1), PageError::NotAuthentic, "salt");
    assert_eq!(forged(&|page| page[50] ^= 1), PageError::NotAuthentic, "bytes");
    assert_eq!(forged(&|page| page[0] = METHOD_NONE), PageError::NotAuthentic, "method");
    assert_eq!(forged(&|page| page[8] ^= 1), PageError::NotAuthentic, "raw length");
    assert_eq!(forged(&|page| page[2] = 9), PageError::NoKey, "key");
    assert_eq!(forged(&|page| page[1] = 0), PageError::Plain, "flag");
    assert_eq!(forged(&|page| page[1] = 2), PageError::Header, "flag of no meaning");
    // What the checksum leaves out, the tag has.
    let moved = PageContext { dictionary: 4, ..HERE };
    assert_eq!(check_encrypted_page(moved, &page), Ok(page.len()));
    let refused = decode_page(moved, Some(&ring), None, &page, &mut Vec::new());
    assert_eq!(refused, Err(PageError::NotAuthentic));
    let elsewhere = PageContext { page: 6, ..HERE };
    assert_eq!(check_encrypted_page(elsewhere, &page), Err(PageError::Checksum));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _refused = decode_page(HERE, None, None, &bytes, &mut Vec::new());
        let _length = page_stored_len(&bytes);
    }

    #[test]
    fn arbitrary_stored_bytes_behind_a_right_checksum_never_panic(
        method in 0_u8..5,
        raw_len in 0_u32..2000,
        stored in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut page = vec![method, 0, 0, 0];
        page.extend_from_slice(&(stored.len() as u32).to_le_bytes());
        page.extend_from_slice(&raw_len.to_le_bytes());
        let sum = checksum(HERE, &page, &stored);
        page.extend_from_slice(&sum.to_le_bytes());
        page.extend_from_slice(&stored);
        let _either = decode_page(HERE, None, None, &page, &mut Vec::new());
    }

    #[test]
    fn any_bytes_come_back(raw in prop::collection::vec(any::<u8>(), 0..5000), m in 0_usize..4) {
        let mut back = Vec::new();
        decode_page(HERE, None, None, &encoded(METHODS[m], &raw), &mut back).unwrap();
        prop_assert_eq!(back, raw);
    }
}
