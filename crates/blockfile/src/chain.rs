//! Chains: a table, or a root, is one whole blob and the changes written since, each of which
//! names the blob it adds to. The superblock names the newest.
//!
//! ```text
//!  superblock → change → change → … → whole
//! ```
//!
//! Before a blob's own bytes stands its link:
//!
//! ```text
//! 0   [28] the blob this one adds to (blob pointer); all zero: this one is whole
//! 28  u64  the generation that blob was written in, less than this one's; 0 for a whole one
//! 36  …    table or root
//! ```
//!
//! A checkpoint writes what changed. Once the changes together are as long as the whole, or too
//! many, the whole is rewritten and the old chain is let go, so that nothing is read twice its
//! length and nothing is written much more often than it changes.
//!
//! On disk: `docs/formats/superblock.md`, section "chains".

use crypt::KeyRing;

use crate::allocator::Extent;
use crate::blob::BlobPointer;
use crate::encrypted_root::decrypt_root;
use crate::error::Result;
use crate::inner::Inner;

/// Bytes before a blob's own.
pub const LINK_BYTES: usize = 36;
/// Changes behind one whole blob; opening reads them one by one.
const MOST_CHANGES: usize = 64;
/// A chain longer than this is damage: on a full disk a change is written where a whole finds no
/// room, but not for ever.
const LONGEST: usize = 4096;

/// What a blob adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The blob before; none where this one is whole.
    pub previous: BlobPointer,
    /// The generation it was written in.
    pub generation: u64,
}

impl Link {
    /// Of a whole blob.
    pub const WHOLE: Self = Self { previous: BlobPointer::NONE, generation: 0 };

    /// The link's bytes.
    pub fn encode(&self) -> [u8; LINK_BYTES] {
        let mut out = [0; LINK_BYTES];
        out[..28].copy_from_slice(&self.previous.encode());
        out[28..].copy_from_slice(&self.generation.to_le_bytes());
        out
    }

    /// Splits a blob of `generation` into its link and its own bytes; `None` where the link cannot
    /// be one: it leads to an older blob or to none.
    pub fn split(generation: u64, blob: &[u8]) -> Option<(Self, &[u8])> {
        let (link, rest) = blob.split_first_chunk::<LINK_BYTES>()?;
        let previous = BlobPointer::decode(link.first_chunk()?);
        let before = u64::from_le_bytes(*link.last_chunk()?);
        let sound = if previous.is_none() {
            previous == BlobPointer::NONE && before == 0
        } else {
            before < generation
        };
        sound.then_some((Self { previous, generation: before }, rest))
    }
}

/// What the newest completed checkpoint says of a table or a root.
#[derive(Default)]
pub(crate) struct Chain {
    /// The newest blob; `None` before the first checkpoint.
    newest: Option<(BlobPointer, u64)>,
    whole_bytes: u64,
    changes_bytes: u64,
    changes: usize,
    /// Of all its blobs.
    extents: Vec<Extent>,
}

/// A blob as written, not yet named by a superblock.
pub(crate) struct Written {
    pub(crate) pointer: BlobPointer,
    generation: u64,
    whole: bool,
    extents: Vec<Extent>,
}

impl Chain {
    /// Whether `change` more bytes of changes are too much, or the chain lies behind `compact_end`,
    /// where it keeps a file full of holes long.
    pub(crate) fn wants_whole(&self, change: usize, compact_end: Option<u64>) -> bool {
        let after = self.changes_bytes + change as u64;
        let far = |end| self.extents.iter().any(|extent| extent.unit >= end);
        self.newest.is_none()
            || self.changes >= MOST_CHANGES
            || after > self.whole_bytes
            || compact_end.is_some_and(far)
    }

    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// What the next change adds to.
    pub(crate) fn link(&self) -> Link {
        let newest = self.newest.map(|(previous, generation)| Link { previous, generation });
        newest.unwrap_or(Link::WHOLE)
    }

    /// The checkpoint that names `written` is complete; answers the extents nobody names any more.
    pub(crate) fn completed(&mut self, written: Written) -> Vec<Extent> {
        let older = self.newest.is_none_or(|(_, newest)| newest < written.generation);
        assert!(older, "the generations of a chain ascend");
        self.newest = Some((written.pointer, written.generation));
        if written.whole {
            self.whole_bytes = written.pointer.bytes;
            (self.changes, self.changes_bytes) = (0, 0);
            return std::mem::replace(&mut self.extents, written.extents);
        }
        self.changes += 1;
        self.changes_bytes += written.pointer.bytes;
        self.extents.extend(written.extents);
        Vec::new()
    }
}

impl Inner {
    /// Writes a blob behind its link. What a failure leaves is given back.
    pub(crate) fn write_link(&self, link: Link, generation: u64, bytes: &[u8]) -> Result<Written> {
        assert!(link.generation < generation, "a blob adds to an older one");
        let whole = link == Link::WHOLE;
        let mut blob = Vec::with_capacity(LINK_BYTES + bytes.len());
        blob.extend_from_slice(&link.encode());
        blob.extend_from_slice(bytes);
        let mut extents = Vec::new();
        match self.write_blob(generation, &blob, &mut extents) {
            Ok(pointer) => Ok(Written { pointer, generation, whole, extents }),
            Err(e) => {
                self.give_back_all(extents);
                Err(e)
            }
        }
    }

    /// Nobody will name it.
    pub(crate) fn unwrite(&self, written: Written) {
        self.give_back_all(written.extents);
    }

    fn give_back_all(&self, extents: Vec<Extent>) {
        for extent in extents {
            self.give_back(extent);
        }
    }

    /// Reads a chain from its newest blob on: the whole first, then the changes in their order. With
    /// keys it is of an encrypted root.
    pub(crate) fn read_chain(
        &self,
        newest: BlobPointer,
        generation: u64,
        keys: Option<&KeyRing>,
    ) -> Result<(Chain, Vec<Vec<u8>>)> {
        let mut chain = Chain::default();
        let mut parts = Vec::new();
        let mut next = Link { previous: newest, generation };
        while !next.previous.is_none() {
            let Link { previous: pointer, generation } = next;
            let blob = self.read_blob(generation, pointer, &mut chain.extents)?;
            let split = Link::split(generation, &blob).filter(|_| parts.len() < LONGEST);
            let Some((link, bytes)) = split else {
                return Err(self.corruption(pointer.unit, "a blob's link is invalid"));
            };
            if link.previous.is_none() {
                chain.whole_bytes = pointer.bytes;
            } else {
                chain.changes += 1;
                chain.changes_bytes += pointer.bytes;
            }
            parts.push(match keys {
                None => bytes.to_vec(),
                Some(keys) => decrypt_root(keys, (&link.encode(), generation), bytes)
                    .map_err(|what| self.corruption(pointer.unit, what))?,
            });
            next = link;
        }
        if !parts.is_empty() {
            chain.newest = Some((newest, generation));
        }
        parts.reverse();
        Ok((chain, parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_comes_back_and_never_leads_forward() {
        let previous = BlobPointer { unit: 7, units: 1, bytes: 40, checksum: 9 };
        let link = Link { previous, generation: 5 };
        let blob = [&link.encode()[..], b"rest"].concat();
        assert_eq!(Link::split(6, &blob), Some((link, &b"rest"[..])));
        assert_eq!(Link::split(5, &blob), None);
        assert_eq!(Link::split(6, &blob[..LINK_BYTES - 1]), None);
        assert_eq!(Link::split(1, &Link::WHOLE.encode()), Some((Link::WHOLE, &b""[..])));
    }

    #[test]
    fn whole_is_wanted_when_the_changes_are_as_long() {
        let mut chain = Chain::default();
        assert!(chain.wants_whole(0, None));
        let mut generation = 1;
        let mut written = |bytes, whole| {
            generation += 1;
            Written {
                pointer: BlobPointer { unit: 1, units: 1, bytes, checksum: 0 },
                generation,
                whole,
                extents: vec![Extent { unit: bytes, units: 1 }],
            }
        };
        assert_eq!(chain.completed(written(100, true)), []);
        assert!(!chain.wants_whole(100, None) && chain.wants_whole(101, None));
        assert_eq!(chain.completed(written(60, false)), []);
        assert!(!chain.wants_whole(40, None) && chain.wants_whole(41, None));
        assert_eq!(chain.completed(written(10, true)).len(), 2);
        assert_eq!(chain.extents(), [Extent { unit: 10, units: 1 }]);
        assert!(!chain.wants_whole(1, Some(11)) && chain.wants_whole(1, Some(10)));
    }
}
