//! The notes of a commit: what its operations were, beside the rows that it writes.
//!
//! A note names documents by their key among the record's rows. Only what the rows do not hold is in
//! the notes: a diff, an `_id` that went, a value that the same commit overwrites later.
//!
//! ```text
//! notes    the concatenation of a record's notes; each begins with a version byte and ends between items
//! item     1 wall         i64 LE, milliseconds
//!          2 name         varint dictionary │ uuid 16 │ text       the next slot
//!          3 insert       slot │ key
//!          4 insert again key                                      in the slot of the item before
//!          5 update       slot │ key │ bytes diff
//!          6 replace      slot │ key
//!          7 delete       slot │ key │ bytes document with `_id`
//!          8 overwritten  slot │ key │ bytes document              what stood there until here
//!          9 pre-image    bytes document                           of the operation that follows
//!         10 command      flags u8 │ text ns │ [uuid 16] │ bytes o │ [bytes o2]
//!         11 session      id 16 │ uid 32 │ i64 LE number
//!         12 statements   varint first operation │ varint count │ varint statement of the first
//!         13 break        a new entry of the transaction begins
//! key      varint shared with the key before │ varint length │ rest
//! text, bytes   varint length │ bytes
//! ```
//!
//! On disk: `docs/formats/notes.md`.
//!
//! Always true: any bytes decode to items or to an error.

use crate::damaged;
use bson::raw::RawDocument;
use errors::Result;
use smallvec::SmallVec;
use std::ops::Range;

/// The first byte of each note.
pub const VERSION: u8 = 1;

/// Room that is made at once for the notes of a short commit.
const FIRST_BYTES: usize = 256;
/// A note that has so many bytes ends.
const NOTE_BYTES: usize = 64 << 10;
/// The most a transaction's entry holds before the next one begins.
pub const ENTRY_BYTES: usize = 12 << 20;
/// What an operation takes in an entry beside its documents, about.
const OPERATION_BYTES: usize = 160;
/// A longer key than the engine takes is none.
const MAX_KEY_BYTES: usize = 1 << 20;

mod tag {
    pub(super) const WALL: u8 = 1;
    pub(super) const NAME: u8 = 2;
    pub(super) const INSERT: u8 = 3;
    pub(super) const INSERT_AGAIN: u8 = 4;
    pub(super) const UPDATE: u8 = 5;
    pub(super) const REPLACE: u8 = 6;
    pub(super) const DELETE: u8 = 7;
    pub(super) const OVERWRITTEN: u8 = 8;
    pub(super) const PRE_IMAGE: u8 = 9;
    pub(super) const COMMAND: u8 = 10;
    pub(super) const SESSION: u8 = 11;
    pub(super) const STATEMENTS: u8 = 12;
    pub(super) const BREAK: u8 = 13;
}

const HAS_UUID: u8 = 1;
const HAS_O2: u8 = 2;

/// A collection that operations of a commit are about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// The dictionary of its documents.
    pub dictionary: u64,
    /// Its identity.
    pub uuid: [u8; 16],
    /// `database.collection`, as it was called then.
    pub ns: String,
}

/// Whose commit it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// The session's UUID.
    pub id: [u8; 16],
    /// The hash of its user.
    pub user: [u8; 32],
    /// The number of the transaction or of the retryable write.
    pub number: i64,
}

/// A change of collections or indexes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Command<'a> {
    /// `database.$cmd`.
    pub ns: &'a str,
    /// The collection that it is about.
    pub uuid: Option<[u8; 16]>,
    /// The command.
    pub object: &'a RawDocument,
    /// What it was before.
    pub object2: Option<&'a RawDocument>,
}

/// One item; keys and bytes are lent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Item<'a> {
    /// When it was committed, in milliseconds.
    Wall(i64),
    /// The collection of the next slot.
    Name {
        /// The dictionary of its documents.
        dictionary: u64,
        /// Its identity.
        uuid: [u8; 16],
        /// Its name.
        ns: &'a str,
    },
    /// An operation on the document under the key.
    Insert(usize),
    /// An update, with its diff.
    Update(usize, &'a RawDocument),
    /// A new document in the place of another.
    Replace(usize),
    /// A document went; its `_id`.
    Delete(usize, &'a RawDocument),
    /// What stood under the key until here, as this commit wrote it.
    Overwritten(usize, &'a RawDocument),
    /// What the document of the next operation was.
    PreImage(&'a RawDocument),
    /// A change of collections.
    Command(Command<'a>),
    /// Whose commit it is.
    Session(Session),
    /// Operations of statements of a retryable write, one each.
    Statements {
        /// The first, in the order of the notes.
        first: u64,
        /// How many.
        count: u64,
        /// The statement of the first.
        statement: u64,
    },
    /// A new entry of the transaction begins.
    Break,
}

impl Item<'_> {
    /// Whether it is an operation: what has a time of its own in a plain commit.
    pub fn is_operation(&self) -> bool {
        matches!(
            self,
            Self::Insert(_)
                | Self::Update(..)
                | Self::Replace(_)
                | Self::Delete(..)
                | Self::Command(_)
        )
    }
}

/// Where the notes of a commit stood, to go back to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    bytes: usize,
    ends: usize,
    names: usize,
    operations: u64,
    assigned: u64,
    entries: u32,
    entry_bytes: usize,
}

/// Gathers the notes of a commit.
#[derive(Debug, Default)]
pub struct Notes {
    bytes: Vec<u8>,
    /// Where notes end, but for the last one.
    ends: Vec<usize>,
    /// The collections that have a slot; their names stand here in `bytes`.
    names: SmallVec<[([u8; 16], Range<usize>); 1]>,
    key: SmallVec<[u8; 32]>,
    slot: Option<usize>,
    operations: u64,
    /// Operations that belong to a statement already.
    assigned: u64,
    /// Entries that were ended.
    entries: u32,
    entry_bytes: usize,
    splits: bool,
}

impl Notes {
    /// None yet. A client's transaction splits them into entries.
    pub fn new(splits: bool) -> Self {
        Self { splits, ..Self::default() }
    }

    /// Whether there is no operation.
    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// How many times the commit takes.
    pub fn span(&self) -> u32 {
        if self.splits {
            self.entries + 1
        } else {
            u32::try_from(self.operations.max(1)).unwrap_or(u32::MAX)
        }
    }

    /// A place to go back to.
    pub fn mark(&self) -> Mark {
        Mark {
            bytes: self.bytes.len(),
            ends: self.ends.len(),
            names: self.names.len(),
            operations: self.operations,
            assigned: self.assigned,
            entries: self.entries,
            entry_bytes: self.entry_bytes,
        }
    }

    /// Forgets what came since `mark`.
    pub fn truncate(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.ends.truncate(mark.ends);
        self.names.truncate(mark.names);
        self.operations = mark.operations;
        self.assigned = mark.assigned;
        self.entries = mark.entries;
        self.entry_bytes = mark.entry_bytes;
        self.key.clear();
        self.slot = None;
    }

    /// The slot of a collection.
    pub fn slot(&mut self, dictionary: u64, uuid: [u8; 16], ns: &str) -> usize {
        let is_it = |(id, name): &([u8; 16], Range<usize>)| {
            *id == uuid && self.bytes.get(name.clone()) == Some(ns.as_bytes())
        };
        if let Some(at) = self.names.iter().position(is_it) {
            return at;
        }
        self.begin(tag::NAME);
        varint(&mut self.bytes, dictionary);
        self.bytes.extend_from_slice(&uuid);
        self.put_bytes(ns.as_bytes());
        self.slot = None;
        self.names.push((uuid, self.bytes.len() - ns.len()..self.bytes.len()));
        self.names.len() - 1
    }

    /// A document was inserted under a key.
    pub fn insert(&mut self, slot: usize, key: &[u8], document_bytes: usize) {
        self.operation(document_bytes);
        if self.slot == Some(slot) {
            self.begin(tag::INSERT_AGAIN);
        } else {
            self.begin(tag::INSERT);
            varint(&mut self.bytes, slot as u64);
        }
        self.put_key(key);
        self.slot = Some(slot);
    }

    /// A document was changed.
    pub fn update(&mut self, slot: usize, key: &[u8], diff: &RawDocument) {
        self.operation(diff.as_bytes().len());
        self.at_key(tag::UPDATE, slot, key);
        self.put_bytes(diff.as_bytes());
    }

    /// A document took the place of another.
    pub fn replace(&mut self, slot: usize, key: &[u8], document_bytes: usize) {
        self.operation(document_bytes);
        self.at_key(tag::REPLACE, slot, key);
    }

    /// A document went.
    pub fn delete(&mut self, slot: usize, key: &[u8], id: &RawDocument) {
        self.operation(id.as_bytes().len());
        self.at_key(tag::DELETE, slot, key);
        self.put_bytes(id.as_bytes());
    }

    /// What this commit wrote under a key, and overwrites next.
    pub fn overwritten(&mut self, slot: usize, key: &[u8], document: &RawDocument) {
        self.at_key(tag::OVERWRITTEN, slot, key);
        self.put_bytes(document.as_bytes());
    }

    /// What the document of the next operation was.
    pub fn pre_image(&mut self, document: &RawDocument) {
        self.begin(tag::PRE_IMAGE);
        self.put_bytes(document.as_bytes());
    }

    /// A change of collections or indexes.
    pub fn command(&mut self, command: &Command<'_>) {
        let object2 = command.object2.map_or(0, |o2| o2.as_bytes().len());
        self.operation(command.object.as_bytes().len() + object2);
        self.begin(tag::COMMAND);
        let uuid = if command.uuid.is_some() { HAS_UUID } else { 0 };
        let o2 = if command.object2.is_some() { HAS_O2 } else { 0 };
        self.bytes.push(uuid | o2);
        self.put_bytes(command.ns.as_bytes());
        if let Some(uuid) = &command.uuid {
            self.bytes.extend_from_slice(uuid);
        }
        self.put_bytes(command.object.as_bytes());
        if let Some(o2) = command.object2 {
            self.put_bytes(o2.as_bytes());
        }
    }

    /// Whose commit it is. Said once.
    pub fn session(&mut self, session: &Session) {
        self.begin(tag::SESSION);
        self.bytes.extend_from_slice(&session.id);
        self.bytes.extend_from_slice(&session.user);
        self.bytes.extend_from_slice(&session.number.to_le_bytes());
    }

    /// The next `count` operations that belong to no statement, or what there is of them, are those
    /// of this statement and of the ones that follow it, one each.
    pub fn statements(&mut self, statement: u64, count: u64) {
        let count = count.min(self.operations.saturating_sub(self.assigned));
        if count == 0 {
            return;
        }
        self.begin(tag::STATEMENTS);
        varint(&mut self.bytes, self.assigned);
        varint(&mut self.bytes, count);
        varint(&mut self.bytes, statement);
        self.assigned += count;
    }

    /// When it is committed. Said once.
    pub fn wall(&mut self, milliseconds: i64) {
        self.begin(tag::WALL);
        self.bytes.extend_from_slice(&milliseconds.to_le_bytes());
    }

    /// The only note, which is taken out; `None` where there are several.
    pub fn take_only(&mut self) -> Option<Vec<u8>> {
        self.ends.is_empty().then(|| std::mem::take(&mut self.bytes))
    }

    /// The notes, each as it goes into the record.
    pub fn each(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ends = self.ends.iter().copied().chain([self.bytes.len()]);
        starts.zip(ends).filter_map(|(from, to)| self.bytes.get(from..to))
    }

    fn operation(&mut self, bytes: usize) {
        let bytes = bytes + OPERATION_BYTES;
        if self.splits && self.entry_bytes > 0 && self.entry_bytes + bytes > ENTRY_BYTES {
            self.begin(tag::BREAK);
            self.entries += 1;
            self.entry_bytes = 0;
        }
        self.entry_bytes += bytes;
        self.operations += 1;
    }

    /// Begins an item; in a new note where this one is long.
    fn begin(&mut self, tag: u8) {
        let start = self.ends.last().copied().unwrap_or(0);
        if self.bytes.len() - start >= NOTE_BYTES {
            self.ends.push(self.bytes.len());
            self.bytes.push(VERSION);
        } else if self.bytes.is_empty() {
            self.bytes.reserve(FIRST_BYTES);
            self.bytes.push(VERSION);
        }
        self.bytes.push(tag);
    }

    fn at_key(&mut self, tag: u8, slot: usize, key: &[u8]) {
        self.begin(tag);
        varint(&mut self.bytes, slot as u64);
        self.put_key(key);
        self.slot = Some(slot);
    }

    fn put_key(&mut self, key: &[u8]) {
        let shared = self.key.iter().zip(key).take_while(|(a, b)| a == b).count();
        let rest = key.get(shared..).unwrap_or_default();
        varint(&mut self.bytes, shared as u64);
        varint(&mut self.bytes, rest.len() as u64);
        self.bytes.extend_from_slice(rest);
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        varint(&mut self.bytes, bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }
}

/// Notes read one after the other: those of one commit, in order.
#[derive(Debug, Default)]
pub struct Decoder {
    key: Vec<u8>,
    slot: Option<usize>,
}

impl Decoder {
    /// The key of the item that was read last, where it has one.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Reads one note, item by item: `see` is given each, with its key where it has one.
    pub fn read(
        &mut self,
        note: &[u8],
        mut see: impl FnMut(Item<'_>, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut input = Input::of(note)?;
        while let Some(item) = self.next(&mut input)? {
            see(item, &self.key)?;
        }
        Ok(())
    }

    /// The next item of a note; `None` at its end. Its key is [`Decoder::key`].
    pub fn next<'a>(&mut self, input: &mut Input<'a>) -> Result<Option<Item<'a>>> {
        if input.0.is_empty() {
            return Ok(None);
        }
        let tag = input.byte()?;
        let item = match tag {
            tag::WALL => Item::Wall(i64::from_le_bytes(*input.array()?)),
            tag::NAME => {
                self.slot = None;
                let dictionary = input.varint()?;
                let uuid = *input.array()?;
                Item::Name { dictionary, uuid, ns: input.text()? }
            }
            tag::INSERT => {
                let slot = self.slot_and_key(input)?;
                Item::Insert(slot)
            }
            tag::INSERT_AGAIN => {
                let slot = self.slot.ok_or_else(|| damaged("an insert into no collection"))?;
                self.read_key(input)?;
                Item::Insert(slot)
            }
            tag::UPDATE => Item::Update(self.slot_and_key(input)?, input.document()?),
            tag::REPLACE => Item::Replace(self.slot_and_key(input)?),
            tag::DELETE => Item::Delete(self.slot_and_key(input)?, input.document()?),
            tag::OVERWRITTEN => Item::Overwritten(self.slot_and_key(input)?, input.document()?),
            tag::PRE_IMAGE => Item::PreImage(input.document()?),
            tag::COMMAND => {
                let flags = input.byte()?;
                let ns = input.text()?;
                let uuid = if flags & HAS_UUID != 0 { Some(*input.array()?) } else { None };
                let object = input.document()?;
                let object2 = if flags & HAS_O2 != 0 { Some(input.document()?) } else { None };
                Item::Command(Command { ns, uuid, object, object2 })
            }
            tag::SESSION => Item::Session(Session {
                id: *input.array()?,
                user: *input.array()?,
                number: i64::from_le_bytes(*input.array()?),
            }),
            tag::STATEMENTS => Item::Statements {
                first: input.varint()?,
                count: input.varint()?,
                statement: input.varint()?,
            },
            tag::BREAK => Item::Break,
            _ => return Err(damaged("an unknown item")),
        };
        Ok(Some(item))
    }

    fn slot_and_key(&mut self, input: &mut Input<'_>) -> Result<usize> {
        let slot = input.length()?;
        self.read_key(input)?;
        self.slot = Some(slot);
        Ok(slot)
    }

    fn read_key(&mut self, input: &mut Input<'_>) -> Result<()> {
        let shared = input.length()?;
        if shared > self.key.len() {
            return Err(damaged("a key shares more than there is"));
        }
        let rest = input.bytes()?;
        if shared + rest.len() > MAX_KEY_BYTES {
            return Err(damaged("a key is too long"));
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
        Ok(())
    }
}

/// Bytes of a note that are read from the front.
#[derive(Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// The items of a note. Refuses a version that this program does not know.
    pub fn of(note: &'a [u8]) -> Result<Self> {
        match note.split_first() {
            Some((&VERSION, rest)) => Ok(Self(rest)),
            _ => Err(damaged("a version this program does not know")),
        }
    }

    /// Bytes that are not read yet.
    pub fn left(&self) -> usize {
        self.0.len()
    }

    /// Goes on where so many bytes are left.
    pub fn skip_to(&mut self, left: usize) -> Result<()> {
        let at = self.0.len().checked_sub(left);
        self.0 = at.and_then(|at| self.0.get(at..)).ok_or_else(|| damaged("a place outside"))?;
        Ok(())
    }

    fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.0.split_first().ok_or_else(|| damaged("they end too early"))?;
        self.0 = rest;
        Ok(*first)
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N]> {
        let cut = self.0.split_first_chunk();
        let (first, rest) = cut.ok_or_else(|| damaged("they end too early"))?;
        self.0 = rest;
        Ok(first)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(damaged("a number beyond 64 bits"))
    }

    fn length(&mut self) -> Result<usize> {
        usize::try_from(self.varint()?).map_err(|_| damaged("a length beyond memory"))
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.length()?;
        let cut = self.0.split_at_checked(length);
        let (first, rest) = cut.ok_or_else(|| damaged("they end too early"))?;
        self.0 = rest;
        Ok(first)
    }

    fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| damaged("a name is not UTF-8"))
    }

    fn document(&mut self) -> Result<&'a RawDocument> {
        RawDocument::from_bytes(self.bytes()?).map_err(|_| damaged("no document"))
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests;
