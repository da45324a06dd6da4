//! The checksums of pages, looked at while their bytes are copied: a backup does not carry damage on.
//!
//! Always true: a page counts as damaged only where its dictionary is known, or the file is encrypted and so needs
//! none.

use crate::dictionary::Directory;
use crate::error::Cause;
use crate::{Error, Result};
use blockfile::{DamagedPage, StoredPages};
use std::path::PathBuf;

/// Which dictionary each segment belongs to, as far as that is known.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Segment and dictionary, ascending.
    pairs: Vec<(u64, u64)>,
    /// Ascending.
    dictionaries: Vec<u64>,
}

impl Owners {
    /// Adds what the trees are made of now.
    pub(super) fn add(&mut self, directory: &Directory) {
        for dictionary in directory.all() {
            let segments = dictionary.tree.segments().into_iter();
            self.pairs.extend(segments.map(|segment| (segment, dictionary.id)));
            self.dictionaries.push(dictionary.id);
        }
        self.pairs.sort_unstable();
        self.pairs.dedup();
        self.dictionaries.sort_unstable();
        self.dictionaries.dedup();
    }

    fn of(&self, segment: u64) -> Option<u64> {
        let at = self.pairs.binary_search_by_key(&segment, |(segment, _)| *segment).ok()?;
        Some(self.pairs[at].1)
    }
}

/// A segment that is copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) start: u64,
    pub(super) id: u64,
    pub(super) bytes: u64,
}

/// Looks at the pages of segments whose bytes come in the order of the file.
pub(super) struct PageCheck<'a> {
    file: PathBuf,
    owners: &'a Owners,
    is_encrypted: bool,
    /// By their place.
    segments: &'a [Placed],
    next: usize,
    begun: Option<StoredPages<'a>>,
}

impl<'a> PageCheck<'a> {
    pub(super) fn new(
        file: PathBuf,
        owners: &'a Owners,
        is_encrypted: bool,
        segments: &'a [Placed],
    ) -> Self {
        Self { file, owners, is_encrypted, segments, next: 0, begun: None }
    }

    /// The bytes of the file from `offset` on.
    ///
    /// # Errors
    /// [`Error::Corruption`] of the first page that is damaged.
    pub(super) fn feed(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len() as u64;
        while let Some(segment) = self.segments.get(self.next).copied() {
            let until = segment.start + segment.bytes;
            let (from, to) = (segment.start.max(offset), until.min(end));
            if from >= end {
                break;
            }
            let mut pages = self.begun.take().unwrap_or_else(|| self.begin(&segment));
            let came = &bytes[(from - offset) as usize..(to - offset) as usize];
            pages.feed(came).map_err(|damage| self.damaged(&segment, damage))?;
            if until > end {
                self.begun = Some(pages);
                break;
            }
            pages.finish().map_err(|damage| self.damaged(&segment, damage))?;
            self.next += 1;
        }
        Ok(())
    }

    /// All has come.
    pub(super) fn finish(self) {
        assert_eq!(self.next, self.segments.len(), "every segment that is copied is looked at");
    }

    fn begin(&self, segment: &Placed) -> StoredPages<'a> {
        let Owners { dictionaries, .. } = self.owners;
        let owner = self.owners.of(segment.id);
        let pages = StoredPages::new(segment.id, segment.bytes, owner, dictionaries);
        if self.is_encrypted { pages.encrypted() } else { pages }
    }

    fn damaged(&self, segment: &Placed, damage: DamagedPage) -> Error {
        let DamagedPage { dictionary, page, offset, what } = damage;
        let dictionary = dictionary.or_else(|| self.owners.of(segment.id));
        Error::Corruption(match dictionary {
            Some(tree) => Cause::Tree(ftree::Error::Corruption {
                tree,
                segment: segment.id,
                page,
                what: what.text(),
            }),
            None => Cause::Blocks(blockfile::Error::Corruption {
                file: self.file.clone(),
                offset: segment.start + offset,
                segment: segment.id,
                page,
                what: what.text(),
            }),
        })
    }
}
