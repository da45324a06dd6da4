//! The data file: superblocks, blobs, translation table, pages.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use blockfile::format::{
    BlobPointer, Chunk, Entry, Extent, Link, MAX_CHUNK_PAYLOAD, SUPERBLOCK_BYTES, Superblock,
    decrypt_root, fold_tables,
};
use blockfile::{
    DictionaryDecompressor, PageContext, PageRef, UNIT, check_encrypted_page, decode_page,
    page_stored_len,
};
use crypt::KeyRing;
use engine::format::{RootFacts, read_root};
use ftree::format::SegmentFacts;
use os::{File, OpenOptions};
use xxhash_rust::xxh3::xxh3_64;

use crate::directory::DataDirectory;
use crate::findings::{Damage, Findings};

/// The kind of a compression dictionary's segment in the block file.
pub(crate) const DICTIONARY_KIND: u8 = 6;

/// Units before the first extent: the superblocks.
const RESERVED: Extent = Extent { unit: 0, units: 2 };

/// The data file, as far as it can be read.
pub(crate) struct DataFile {
    pub(crate) path: PathBuf,
    file: Option<Arc<dyn File>>,
    pub(crate) bytes: u64,
    /// Both slots.
    pub(crate) slots: [Option<Superblock>; 2],
    /// The superblock that counts.
    pub(crate) superblock: Option<Superblock>,
    /// Segment → where it is.
    pub(crate) table: BTreeMap<u64, Entry>,
    /// The table was read: what is not in it is not there.
    pub(crate) table_known: bool,
    pub(crate) root: Option<RootFacts>,
    /// Units of the table's and the root's chunks.
    pub(crate) blobs: Vec<Extent>,
    keys: Option<Arc<KeyRing>>,
}

/// One blob of a chain.
struct ChainPart {
    link: Link,
    generation: u64,
    bytes: Vec<u8>,
}

impl DataFile {
    /// Reads what the newest superblock names.
    pub(crate) fn read(directory: &DataDirectory, findings: &mut Findings) -> Self {
        let path = directory.data_file();
        let mut data = Self {
            path,
            file: None,
            bytes: 0,
            slots: [None; 2],
            superblock: None,
            table: BTreeMap::new(),
            table_known: false,
            root: None,
            blobs: Vec::new(),
            keys: directory.keys.clone(),
        };
        let opened = directory.os.vfs.open(&data.path, OpenOptions::read_only());
        match opened.and_then(|file| Ok((file.len()?, file))) {
            Ok((bytes, file)) => (data.bytes, data.file) = (bytes, Some(file)),
            Err(e) => {
                findings.damage(Damage::of(&data.path, format!("cannot be read: {e}")));
                return data;
            }
        }
        data.read_superblocks(findings);
        if let Some(superblock) = data.superblock {
            data.read_table(&superblock, findings);
            data.read_root(&superblock, findings);
            data.check_extents(&superblock, findings);
        }
        data
    }

    /// Whether it is encrypted, and there is no key: then roots and pages have checksums and no meaning.
    pub(crate) fn is_closed(&self) -> bool {
        self.keys.is_none() && self.superblock.is_some_and(|superblock| superblock.encrypted)
    }

    /// Whether a checkpoint should be there.
    pub(crate) fn has_checkpoint(&self) -> bool {
        self.superblock.is_some_and(|superblock| !superblock.root.is_none())
    }

    fn read_superblocks(&mut self, findings: &mut Findings) {
        let mut empty = [false; 2];
        for (slot, empty) in empty.iter_mut().enumerate() {
            let offset = (slot * SUPERBLOCK_BYTES) as u64;
            let bytes = match self.read_bytes(offset, SUPERBLOCK_BYTES as u64) {
                Ok(bytes) => bytes,
                Err(what) => {
                    findings.damage(Damage::of(&self.path, what).at(offset));
                    continue;
                }
            };
            *empty = bytes.iter().all(|byte| *byte == 0);
            let found = Superblock::decode(&bytes);
            let here = |found: &Superblock| found.generation % 2 == slot as u64;
            self.slots[slot] = found.filter(here);
            if found.is_some() && self.slots[slot].is_none() {
                let what = "a superblock of the other slot was written here";
                findings.damage(Damage::of(&self.path, what).at(offset));
            } else if found.is_none() && !*empty {
                let version = match bytes.first_chunk::<12>() {
                    Some([b'F', b'E', b'R', b'N', b'D', b'A', b'T', b'A', v @ ..]) if v[0] != 1 => {
                        format!(" (it says version {})", u32::from_le_bytes(*v))
                    }
                    _ => String::new(),
                };
                let what = format!("the superblock's checksum or version differs{version}");
                findings.damage(Damage::of(&self.path, what).at(offset));
            }
        }
        self.superblock =
            self.slots.iter().flatten().max_by_key(|superblock| superblock.generation).copied();
        match self.superblock {
            None => findings.damage(Damage::of(&self.path, "no valid superblock").at(0)),
            // only a file without a checkpoint has an empty slot
            Some(newest) if newest.generation > 1 => {
                for (slot, _) in empty.iter().enumerate().filter(|(_, empty)| **empty) {
                    let offset = (slot * SUPERBLOCK_BYTES) as u64;
                    findings.damage(Damage::of(&self.path, "the superblock is empty").at(offset));
                }
            }
            Some(_) => {}
        }
        if let [Some(even), Some(odd)] = &self.slots
            && even.file_id != odd.file_id
        {
            findings.damage(Damage::of(&self.path, "the superblocks are of two files").at(0));
        }
    }

    fn read_table(&mut self, superblock: &Superblock, findings: &mut Findings) {
        self.table_known = superblock.table.is_none();
        let parts = self.read_chain(superblock, superblock.table, "table", findings);
        let Some(parts) = parts else { return };
        let parts: Vec<_> = parts.into_iter().map(|part| part.bytes).collect();
        match fold_tables(&parts) {
            Ok(entries) => {
                self.table = entries.into_iter().map(|(id, entry)| (id.0, entry)).collect();
                self.table_known = true;
            }
            Err(what) => {
                let offset = superblock.table.unit.saturating_mul(UNIT);
                findings.damage(Damage::of(&self.path, what).at(offset));
            }
        }
    }

    fn read_root(&mut self, superblock: &Superblock, findings: &mut Findings) {
        let parts = self.read_chain(superblock, superblock.root, "root", findings);
        let Some(parts) = parts.filter(|_| !self.is_closed()) else { return };
        let keys = self.keys.clone().filter(|_| superblock.encrypted);
        let plain = parts.into_iter().map(|part| match &keys {
            Some(keys) => {
                let place = (&part.link.encode()[..], part.generation);
                decrypt_root(keys, place, &part.bytes).map_err(str::to_owned)
            }
            None => Ok(part.bytes),
        });
        let plain: Result<Vec<_>, String> = plain.collect();
        match plain.and_then(|parts| read_root(&parts).map_err(ToString::to_string)) {
            Ok(root) => self.root = Some(root),
            Err(what) => {
                let offset = superblock.root.unit.saturating_mul(UNIT);
                let what = format!("checkpoint root: {what}");
                findings.damage(Damage::of(&self.path, what).at(offset));
            }
        }
    }

    /// A whole blob and the changes since, in their order.
    fn read_chain(
        &mut self,
        superblock: &Superblock,
        newest: BlobPointer,
        name: &str,
        findings: &mut Findings,
    ) -> Option<Vec<ChainPart>> {
        let mut next = Link { previous: newest, generation: superblock.generation };
        let mut parts = Vec::new();
        while !next.previous.is_none() {
            let Link { previous: pointer, generation } = next;
            let blob = self.read_blob(generation, pointer, name, findings)?;
            let Some((link, bytes)) = Link::split(generation, &blob) else {
                let offset = pointer.unit.saturating_mul(UNIT);
                let what = format!("{name}: the link to the blob before is invalid");
                findings.damage(Damage::of(&self.path, what).at(offset));
                return None;
            };
            parts.push(ChainPart { link, generation, bytes: bytes.to_vec() });
            next = link;
        }
        parts.reverse();
        (!parts.is_empty()).then_some(parts)
    }

    /// The chunks of a blob, put together.
    fn read_blob(
        &mut self,
        generation: u64,
        pointer: BlobPointer,
        name: &str,
        findings: &mut Findings,
    ) -> Option<Vec<u8>> {
        let mut next = Some(Extent { unit: pointer.unit, units: u64::from(pointer.units) });
        let mut payload = Vec::new();
        let mut number = 0;
        while let Some(extent) = next {
            let offset = extent.unit.saturating_mul(UNIT);
            let mut broken = |what: &str| {
                let what = format!("{name}, chunk {number}: {what}");
                findings.damage(Damage::of(&self.path, what).at(offset));
                None
            };
            let length = extent.units.saturating_mul(UNIT);
            if length > MAX_CHUNK_PAYLOAD as u64 + 2 * UNIT {
                return broken("longer than a chunk can be");
            }
            let bytes = match self.read_bytes(offset, length) {
                Ok(bytes) => bytes,
                Err(what) => return broken(&what),
            };
            let Some(chunk) = Chunk::decode(generation, number, &bytes) else {
                return broken("checksum or place in the chain differs");
            };
            payload.extend_from_slice(chunk.payload);
            next = chunk.next;
            if payload.len() as u64 > pointer.bytes || next.is_some() && chunk.payload.is_empty() {
                return broken("the chain is longer than its pointer says");
            }
            self.blobs.push(extent);
            number += 1;
        }
        if payload.len() as u64 != pointer.bytes || xxh3_64(&payload) != pointer.checksum {
            let what = format!("{name}: length or checksum differs from its pointer");
            let offset = pointer.unit.saturating_mul(UNIT);
            findings.damage(Damage::of(&self.path, what).at(offset));
            return None;
        }
        Some(payload)
    }

    /// Extents lie in the file and do not overlap; ids were given out.
    fn check_extents(&self, superblock: &Superblock, findings: &mut Findings) {
        let mut extents = vec![(RESERVED, None)];
        extents.extend(self.blobs.iter().map(|extent| (*extent, None)));
        extents.extend(self.table.iter().map(|(id, entry)| (entry.extent(), Some(*id))));
        extents.sort_unstable_by_key(|(extent, id)| (extent.unit, *id));
        let mut taken = 0;
        for (extent, id) in extents {
            let offset = extent.unit.saturating_mul(UNIT);
            let mut damage = |what| {
                let damage = Damage::of(&self.path, what).at(offset);
                findings.damage(match id {
                    Some(id) => damage.segment(id),
                    None => damage,
                });
            };
            if extent.unit < taken {
                damage("its extent overlaps another one");
            }
            match extent.end() {
                Some(end) if end <= self.bytes / UNIT => taken = taken.max(end),
                _ => damage("its extent lies outside the file"),
            }
            if id.is_some_and(|id| id >= superblock.next_segment) {
                damage("its segment id was never given out");
            }
        }
    }

    /// Bytes of the file, which must all be there.
    fn read_bytes(&self, offset: u64, length: u64) -> Result<Vec<u8>, String> {
        let file = self.file.as_ref().ok_or("the file is not open")?;
        if offset.checked_add(length).is_none_or(|end| end > self.bytes) {
            return Err("the file ends before its content".to_owned());
        }
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, offset).map_err(|e| format!("cannot be read: {e}"))?;
        Ok(bytes)
    }

    /// Bytes of a segment.
    pub(crate) fn read_in(
        &self,
        entry: &Entry,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, String> {
        if offset.checked_add(length).is_none_or(|end| end > entry.bytes) {
            return Err("it is said to lie behind the end of its segment".to_owned());
        }
        let start = entry.unit.checked_mul(UNIT).and_then(|start| start.checked_add(offset));
        self.read_bytes(start.ok_or("it lies outside the file")?, length)
    }

    /// A page that needs no compression dictionary, decoded. It takes exactly the bytes its reference says.
    pub(crate) fn page(
        &self,
        tree: u64,
        segment: u64,
        entry: &Entry,
        page: PageRef,
    ) -> Result<Vec<u8>, String> {
        self.compressed_page(tree, segment, entry, page, None)
    }

    /// The same, compressed with the dictionary that its segment names.
    pub(crate) fn compressed_page(
        &self,
        tree: u64,
        segment: u64,
        entry: &Entry,
        page: PageRef,
        dictionary: Option<&DictionaryDecompressor>,
    ) -> Result<Vec<u8>, String> {
        let stored = self.read_in(entry, page.offset, u64::from(page.len))?;
        let mut raw = Vec::new();
        let context = PageContext { dictionary: tree, segment, page: page.page };
        let taken = decode_page(context, self.page_keys(), dictionary, &stored, &mut raw)
            .map_err(|e| e.to_string())?;
        if taken != stored.len() {
            return Err("page is shorter than its reference says".to_owned());
        }
        Ok(raw)
    }

    /// The compression dictionary that a segment of a tree names, where it names one.
    pub(crate) fn dictionary(
        &self,
        tree: u64,
        facts: &SegmentFacts,
    ) -> Result<Option<DictionaryDecompressor>, String> {
        let Some(at) = facts.dictionary else { return Ok(None) };
        let missing = || "its compression dictionary is not in the translation table".to_owned();
        let entry = self.table.get(&at.segment).ok_or_else(missing)?;
        if entry.kind != DICTIONARY_KIND {
            let kind = entry.kind;
            return Err(format!(
                "its compression dictionary should be of kind {DICTIONARY_KIND} and is of kind {kind}"
            ));
        }
        let bytes = self.page(tree, at.segment, entry, at.block.page);
        let bytes = bytes.map_err(|what| format!("its compression dictionary: {what}"))?;
        if bytes.len() != at.block.raw_len as usize {
            return Err("its compression dictionary's decoded length differs".to_owned());
        }
        let dictionary = DictionaryDecompressor::new(&bytes);
        dictionary.map(Some).ok_or_else(|| "its compression dictionary is not one".to_owned())
    }

    /// The keys that pages need, where they are encrypted.
    fn page_keys(&self) -> Option<&KeyRing> {
        let encrypted = self.superblock.is_some_and(|superblock| superblock.encrypted);
        self.keys.as_deref().filter(|_| encrypted)
    }

    /// Walks the pages of a segment by their checksums alone: how many there are, and how many bytes.
    /// Nothing is known of the tree that it belongs to.
    pub(crate) fn check_stored_pages(
        &self,
        segment: u64,
        entry: &Entry,
        findings: &mut Findings,
    ) -> (u64, u64) {
        let damage = |offset: u64, page: u32, what: String| {
            let place = entry.unit.saturating_mul(UNIT).saturating_add(offset);
            Damage::of(&self.path, what).segment(segment).page(page).at(place)
        };
        let stored = match self.read_in(entry, 0, entry.bytes) {
            Ok(stored) => stored,
            Err(what) => {
                findings.damage(damage(0, 0, what));
                return (0, 0);
            }
        };
        let (mut at, mut page) = (0, 0);
        while at < stored.len() {
            let context = PageContext { dictionary: 0, segment, page };
            match check_encrypted_page(context, &stored[at..]) {
                Ok(length) => at += length,
                Err(what) => {
                    findings.damage(damage(at as u64, page, what.to_string()));
                    // How long it is may be part of the damage.
                    match page_stored_len(&stored[at..]) {
                        Some(length) if at + length <= stored.len() => at += length,
                        _ => break,
                    }
                }
            }
            page += 1;
        }
        (u64::from(page), at as u64)
    }

    /// Damage in a segment of a tree, at a byte of the segment.
    pub(crate) fn damage_in(
        &self,
        tree: u64,
        segment: u64,
        offset: u64,
        what: impl Into<String>,
    ) -> Damage {
        let damage = Damage::of(&self.path, what).tree(tree).segment(segment);
        match self.table.get(&segment) {
            Some(entry) => damage.at(entry.unit.saturating_mul(UNIT).saturating_add(offset)),
            None => damage,
        }
    }
}
