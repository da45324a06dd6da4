//! The checksums of a segment's pages, one page after the other, as the segment's bytes come: for who copies it.
//!
//! A page does not say which dictionary it belongs to, and its checksum covers that. Who copies says which it is where
//! he knows, and names others that it may be.
//!
//! Always true: no more is kept than what has come of one page.

use crate::page::{PAGE_HEADER_BYTES, PageContext, PageError, check_stored_page, page_stored_len};

/// A page whose bytes are not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedPage {
    /// The dictionary that it should be of, where that is known.
    pub dictionary: Option<u64>,
    /// Its number in the segment.
    pub page: u32,
    /// Where in the segment it begins, in bytes.
    pub offset: u64,
    /// What is wrong.
    pub what: PageError,
}

/// The pages of one segment, of which some have come.
#[derive(Debug)]
pub struct StoredPages<'a> {
    segment: u64,
    is_encrypted: bool,
    owner: Option<u64>,
    /// Tried for the first page where it is not the owner's.
    others: &'a [u64],
    /// The first page belongs to none of these: nothing can be said of the segment.
    is_unknown: bool,
    /// What has come of the next page.
    begun: Vec<u8>,
    page: u32,
    /// Bytes of whole pages that have come.
    checked: u64,
    /// Bytes that the segment has.
    bytes: u64,
}

impl<'a> StoredPages<'a> {
    /// None has come yet. In an encrypted file no dictionary is needed.
    pub fn new(segment: u64, bytes: u64, owner: Option<u64>, others: &'a [u64]) -> Self {
        Self {
            segment,
            is_encrypted: false,
            owner,
            others,
            is_unknown: false,
            begun: Vec::new(),
            page: 0,
            checked: 0,
            bytes,
        }
    }

    /// In a file where each page has to be encrypted.
    #[must_use]
    pub fn encrypted(self) -> Self {
        Self { is_encrypted: true, owner: Some(0), others: &[], ..self }
    }

    /// The next bytes of the segment, as many as there are of it at most.
    ///
    /// # Errors
    /// The first page that is damaged. What comes behind it is not looked at.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), DamagedPage> {
        if self.is_unknown {
            return Ok(());
        }
        let begun = std::mem::take(&mut self.begun);
        let joined;
        let bytes = if begun.is_empty() {
            bytes
        } else {
            joined = [&begun, bytes].concat();
            &joined
        };
        let mut at = 0;
        while at < bytes.len() {
            let left = &bytes[at..];
            let length = page_stored_len(left).unwrap_or(PAGE_HEADER_BYTES);
            if self.checked.saturating_add(length as u64) > self.bytes {
                return Err(self.damaged(PageError::Short));
            }
            if length > left.len() || left.len() < PAGE_HEADER_BYTES {
                self.begun = left.to_vec();
                return Ok(());
            }
            match self.check(left) {
                Ok(_) => {}
                Err(_) if self.page == 0 && self.owner.is_none() => {
                    self.is_unknown = true;
                    return Ok(());
                }
                Err(what) => return Err(self.damaged(what)),
            }
            at += length;
            self.checked += length as u64;
            assert!(self.checked <= self.bytes, "no page goes beyond its segment");
            self.page += 1;
        }
        Ok(())
    }

    /// All bytes have come.
    ///
    /// # Errors
    /// The last page is cut short.
    pub fn finish(self) -> Result<(), DamagedPage> {
        if self.is_unknown || self.checked == self.bytes {
            return Ok(());
        }
        Err(self.damaged(PageError::Short))
    }

    fn check(&mut self, bytes: &[u8]) -> Result<usize, PageError> {
        let (segment, page, is_encrypted) = (self.segment, self.page, self.is_encrypted);
        let check = |dictionary| {
            check_stored_page(PageContext { dictionary, segment, page }, is_encrypted, bytes)
        };
        let as_owner = self.owner.map_or(Err(PageError::Checksum), check);
        if as_owner.is_ok() || page > 0 {
            return as_owner;
        }
        let other = self.others.iter().find(|other| check(**other).is_ok());
        match other {
            Some(other) => {
                self.owner = Some(*other);
                check(*other)
            }
            None => as_owner,
        }
    }

    fn damaged(&self, what: PageError) -> DamagedPage {
        let dictionary = self.owner.filter(|_| !self.is_encrypted);
        DamagedPage { dictionary, page: self.page, offset: self.checked, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::Compression;
    use crate::page::encode_page;

    const SEGMENT: u64 = 9;

    fn segment(dictionary: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for page in 0..4_u32 {
            let raw = vec![page as u8; 100 << page];
            let context = PageContext { dictionary, segment: SEGMENT, page };
            encode_page(context, Compression::None.into(), None, &raw, &mut out);
        }
        out
    }

    fn check(
        bytes: &[u8],
        piece: usize,
        owner: Option<u64>,
        others: &[u64],
    ) -> Result<(), DamagedPage> {
        let mut pages = StoredPages::new(SEGMENT, bytes.len() as u64, owner, others);
        for piece in bytes.chunks(piece) {
            pages.feed(piece)?;
        }
        pages.finish()
    }

    #[test]
    fn pages_are_checked_in_whatever_pieces_they_come() {
        let bytes = segment(5);
        for piece in [1, 7, 20, 119, 120, 121, 1000, 10_000] {
            assert_eq!(check(&bytes, piece, Some(5), &[]), Ok(()));
            assert_eq!(check(&bytes, piece, None, &[3, 5]), Ok(()));
            assert_eq!(check(&bytes, piece, Some(4), &[5]), Ok(()), "it was written as another's");
            assert_eq!(check(&bytes, piece, None, &[3]), Ok(()), "nothing is known of it");
            assert!(check(&bytes, piece, Some(4), &[3]).is_err());
        }
    }

    #[test]
    fn each_damaged_byte_is_found_and_its_page_named() {
        let bytes = segment(5);
        let ends = [120, 340, 760];
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let found = check(&damaged, 64, Some(5), &[6, 7]).unwrap_err();
            let page = ends.iter().filter(|end| **end <= at).count() as u32;
            assert_eq!((found.page, found.dictionary), (page, Some(5)), "{at}");
        }
        let cut = check(&bytes[..bytes.len() - 1], 64, Some(5), &[]).unwrap_err();
        assert_eq!((cut.page, cut.what), (3, PageError::Short));
    }
}
