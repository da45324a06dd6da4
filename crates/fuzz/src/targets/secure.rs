//! What a stranger sends where TLS is spoken, and what somebody with the disk has changed of encrypted files.

use crate::Target;
use blockfile::format::{decrypt_root, encrypt_root};
use blockfile::{Compression, PageContext};
use crypt::{FILE_NAME, KeyRing, KeysFile, MasterKey, Nonce, Purpose};
use os::sim::SimOs;
use os::{OpenOptions, Os};
use std::path::Path;

/// The first bytes of a connection: what they are is decided once, and more of them change nothing.
pub(super) const FIRST_BYTES: Target = Target {
    name: "first-bytes",
    corpus: || {
        let hello =
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x9a\x9a\x9a\x9a\x9a\x9a".to_vec();
        let mut message = vec![0; 16];
        message[..4].copy_from_slice(&0x0103_0316_u32.to_le_bytes());
        message[12..].copy_from_slice(&2013_u32.to_le_bytes());
        vec![hello, message, b"GET / HTTP/1.1\r\n\r\n".to_vec()]
    },
    start: || {
        Box::new(|bytes| {
            let mut decided = None;
            for length in 0..=bytes.len().min(40) {
                let now = tls::sniff(&bytes[..length]);
                if let Some(before) = decided {
                    assert_eq!(now, before, "more bytes mean something else");
                }
                decided = (now != tls::Sniffed::NeedMore).then_some(now);
                assert!(decided.is_some() || length < 16, "a header decides");
            }
        })
    },
};

/// The certificate of a client, of which its name is made.
pub(super) const CERTIFICATE: Target = Target {
    name: "certificate",
    corpus: || vec![include_bytes!("certificate.der").to_vec()],
    start: || {
        Box::new(|bytes| {
            if let Ok(roles) = tls::roles(bytes) {
                let told: usize =
                    roles.iter().map(|(role, database)| role.len() + database.len()).sum();
                assert!(told <= bytes.len(), "no more roles than bytes for them");
            }
            let Some(subject) = tls::subject(bytes) else { return };
            // A log line or an audit event holds it, and a user is called so.
            assert!(
                subject.len() <= 8 * bytes.len(),
                "a name is not longer than what it is made of"
            );
        })
    },
};

const CONTEXT: PageContext = PageContext { dictionary: 7, segment: 9, page: 3 };
const DIRECTORY: &str = "/data";

/// The same keys each time.
fn keys() -> (Os, MasterKey, KeyRing) {
    let os = SimOs::new(7).os();
    let directory = Path::new(DIRECTORY);
    os.vfs.create_dir_all(directory).expect("the disk is whole");
    let master =
        MasterKey::parse(b"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=").expect("32 bytes");
    let ring = KeysFile::create(&os, directory, &master).expect("the disk is whole").into_ring();
    (os, master, ring)
}

/// A page of an encrypted file. A changed one is refused, even with the right checksum.
pub(super) const ENCRYPTED_PAGE: Target = Target {
    name: "encrypted-page",
    corpus: || encrypted_pages().1,
    start: || {
        let (ring, good) = encrypted_pages();
        Box::new(move |bytes| {
            let mut out = Vec::new();
            let _ = blockfile::check_encrypted_page(CONTEXT, bytes).is_ok();
            if let Ok(length) = blockfile::decode_page(CONTEXT, Some(&ring), None, bytes, &mut out)
            {
                let unchanged = good.iter().any(|page| page[..] == bytes[..length]);
                assert!(unchanged, "a page was accepted that nobody with the key has written");
            }
        })
    },
};

fn encrypted_pages() -> (KeyRing, Vec<Vec<u8>>) {
    let (os, _, ring) = keys();
    let raw: Vec<u8> = (0..900_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
    let pages = [Compression::None, Compression::Lz4, Compression::Zstd(3)].map(|method| {
        let key = ring.fresh(Purpose::DataFile, &*os.entropy);
        let mut out = Vec::new();
        blockfile::encode_page(CONTEXT, method.into(), Some(&key), &raw, &mut out);
        out
    });
    (ring, pages.to_vec())
}

const LINK: &[u8] = b"a link";
const GENERATION: u64 = 3;

/// The root of an encrypted file.
pub(super) const ENCRYPTED_ROOT: Target = Target {
    name: "encrypted-root",
    corpus: || vec![encrypted_root().1],
    start: || {
        let (ring, good) = encrypted_root();
        Box::new(move |bytes| {
            if decrypt_root(&ring, (LINK, GENERATION), bytes).is_ok() {
                assert!(
                    bytes == &good[..],
                    "a root was accepted that nobody with the key has written"
                );
            }
        })
    },
};

fn encrypted_root() -> (KeyRing, Vec<u8>) {
    let (os, _, ring) = keys();
    let root = encrypt_root(&ring, &*os.entropy, (LINK, GENERATION), &[5; 300]);
    (ring, root)
}

/// The file of a directory's data keys. Keys that open are those that the master key has wrapped.
pub(super) const KEYS: Target = Target {
    name: "keys",
    corpus: || {
        let (os, master, _) = keys();
        let path = Path::new(DIRECTORY).join(FILE_NAME);
        let more = KeysFile::open(&os, Path::new(DIRECTORY), &master)
            .and_then(|file| file.add_data_key(&master));
        drop(more.expect("there is room for a second key"));
        let file = os.vfs.open(&path, OpenOptions::read_only()).expect("it is there");
        let mut bytes = vec![0; crypt::FILE_BYTES];
        file.read_exact_at(&mut bytes, 0).expect("it is whole");
        vec![bytes]
    },
    start: || {
        let (os, master, ring) = keys();
        let salt = [1; crypt::SALT_BYTES];
        let of = move |ring: &KeyRing| {
            let mut bytes = [9; 32];
            let cipher = ring.cipher(crypt::KeyNumber(1), Purpose::Log, &salt).ok()?;
            cipher.encrypt(Nonce::counted(1, 0), &[], &mut bytes).ok()?;
            Some(bytes)
        };
        let expected = of(&ring).expect("a ring has its first key");
        let (directory, path) = (Path::new(DIRECTORY), Path::new(DIRECTORY).join(FILE_NAME));
        Box::new(move |bytes| {
            let options = OpenOptions { create: true, truncate: true, ..OpenOptions::default() };
            let file = os.vfs.open(&path, options).expect("the disk is whole");
            file.write_all_at(bytes, 0).expect("the disk is whole");
            file.sync_all().expect("the disk is whole");
            if let Ok(found) = KeysFile::read(&*os.vfs, directory, &master) {
                assert_eq!(of(&found), Some(expected), "another key was accepted");
            }
        })
    },
};

/// The operator's file of the master key.
pub(super) const MASTER_KEY: Target = Target {
    name: "master-key",
    corpus: || vec![b"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\n".to_vec()],
    start: || {
        Box::new(|bytes| {
            if let Ok(key) = MasterKey::parse(bytes) {
                assert_eq!(bytes.trim_ascii().len(), 44, "32 bytes have 44 characters");
                assert!(!format!("{key:?}").is_empty());
            }
        })
    },
};
