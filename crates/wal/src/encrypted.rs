//! Encrypting the records of an epoch, and decrypting them.
//!
//! Always true: a record is encrypted once, when it is taken from the buffer to be written, with the key of
//! its epoch; its position is the nonce. What a full disk left unwritten is written again as it is.

use crypt::{Cipher, FreshKey, KeyRing, Nonce, Purpose, TAG_BYTES};

use crate::Lsn;
use crate::frame::{
    FRAME_HEADER_BYTES, FrameKind, claimed_kind, claimed_payload, frame_bytes, frame_header,
};
use crate::segment::EpochKey;

/// Bytes that a record of so many takes in its frame.
pub(crate) fn stored_bytes(is_encrypted: bool, payload: usize) -> usize {
    payload + if is_encrypted { TAG_BYTES } else { 0 }
}

/// Encrypts the frames of data in `frames`, which begins at `first` and ends with a whole frame. Each has room
/// for the tag behind its payload.
pub(crate) fn encrypt_frames(key: &FreshKey, salt: u64, first: Lsn, frames: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = frames.get(at..).and_then(|rest| rest.first_chunk()) {
        let lsn = first + at as u64;
        let stored = claimed_payload(header, lsn).expect("what is appended are whole frames");
        let body = at + FRAME_HEADER_BYTES;
        let kind = claimed_kind(header).expect("what is appended are known frames");
        if kind != FrameKind::Mark {
            let (payload, tag) =
                frames[body..body + stored].split_at_mut(stored.saturating_sub(TAG_BYTES));
            let made = key.cipher.encrypt(Nonce::counted(lsn, 0), &[], payload);
            tag.copy_from_slice(&made.expect("a record is shorter than what the cipher can take"));
            let crc = crc32c::crc32c(&frames[body..body + stored]);
            let header = frame_header(kind, salt, lsn, stored, crc);
            frames[at..body].copy_from_slice(&header);
        }
        at += frame_bytes(stored);
    }
    assert_eq!(at, frames.len(), "what is appended are whole frames");
}

/// The key of an epoch; `None` where the keys do not have it.
pub(crate) fn cipher_of(keys: &KeyRing, key: EpochKey) -> Option<Cipher> {
    keys.cipher(key.number, Purpose::Log, &key.salt).ok()
}

/// Puts what was appended into `plain`; false where the bytes do not decrypt.
pub(crate) fn decrypt(cipher: &Cipher, lsn: Lsn, stored: &[u8], plain: &mut Vec<u8>) -> bool {
    plain.clear();
    plain.extend_from_slice(stored);
    let length = cipher.decrypt(Nonce::counted(lsn, 0), &[], plain).map(<[u8]>::len);
    plain.truncate(length.as_ref().map_or(0, |length| *length));
    length.is_ok()
}
