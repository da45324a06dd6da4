//! Raw BSON read element by element and written without a tree of values in between.
//!
//! Always true:
//! 1. [`Writer`] never checks what it copies; what it is given came out of a valid document, so what
//!    it yields is one.
//! 2. Going over elements or values polls at each: a loop over a client's data ends soon after its
//!    operation is stopped.

use bson::raw::{
    CStr, RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, RawElement, RawIter,
};
use bson::spec::{BinarySubtype, ElementType};
use errors::{Code, Error, Result};
use serde::Deserialize;
use serde::de::value::BorrowedBytesDeserializer;

/// One field of a document, with the bytes it is written as.
#[derive(Clone)]
pub struct Element<'a> {
    /// Of an [`ElementType`].
    kind: u8,
    /// UTF-8 without NUL.
    name: &'a [u8],
    /// Type byte, name, NUL and value.
    bytes: &'a [u8],
    value: Reader<'a>,
}

/// Who reads a value.
#[derive(Clone)]
enum Reader<'a> {
    /// We do, when it is asked for: it is plain (see [`plain_size`]).
    Plain,
    /// The `bson` crate does, of what is not plain.
    Crate(Box<RawElement<'a>>),
}

impl<'a> Element<'a> {
    /// The field's name.
    #[inline]
    pub fn name(&self) -> &'a str {
        std::str::from_utf8(self.name).expect("a name was looked at when it was cut")
    }

    /// The bytes of the field's name: for looking at many of which few matter.
    #[inline]
    pub fn name_bytes(&self) -> &'a [u8] {
        self.name
    }

    /// The field's name as keys of documents are.
    pub fn key(&self) -> &'a CStr {
        self.name().try_into().expect("a name ends at the first NUL, and holds none")
    }

    /// The field's type.
    #[inline]
    pub fn element_type(&self) -> ElementType {
        ElementType::from(self.kind).expect("a type was looked at when it was cut")
    }

    /// Whether its type is this one.
    #[inline]
    pub fn is_of(&self, kind: ElementType) -> bool {
        self.kind == kind as u8
    }

    /// Whether it holds a document or an array.
    #[inline]
    pub fn is_nested(&self) -> bool {
        self.kind == DOCUMENT || self.kind == ARRAY
    }

    /// Whether its value can be read whatever its bytes are: it is of a type whose values are all of one size.
    #[inline]
    pub fn is_surely_readable(&self) -> bool {
        matches!(self.value, Reader::Plain) && SIZES[usize::from(self.kind)] != VARYING
    }

    /// Whether its value can be read and holds no others; of a value that is not plain it says no. A string is looked at.
    #[inline]
    pub fn is_readable_leaf(&self) -> bool {
        const STRING: u8 = ElementType::String as u8;
        const SYMBOL: u8 = ElementType::Symbol as u8;
        const CODE: u8 = ElementType::JavaScriptCode as u8;
        matches!(self.value, Reader::Plain)
            && match self.kind {
                DOCUMENT | ARRAY => false,
                STRING | SYMBOL | CODE => text(self.body()).is_some(),
                _ => true,
            }
    }

    /// The field's value.
    #[inline]
    pub fn value(&self) -> Result<RawBsonRef<'a>> {
        match &self.value {
            Reader::Plain => plain_value(self.kind, self.body()).ok_or_else(|| self.refusal()),
            Reader::Crate(checked) => Ok(checked.value()?),
        }
    }

    /// What the `bson` crate says of a plain value that is none: a string that is not UTF-8.
    #[cold]
    fn refusal(&self) -> Error {
        let length = (self.bytes.len() + 5) as u32;
        let document = [&length.to_le_bytes(), self.bytes, &[0]].concat();
        let element = RawDocument::from_bytes(&document).map(|document| document.iter().next());
        match element {
            Ok(Some(Err(error))) | Err(error) => error.into(),
            Ok(_) => Error::new(Code::INVALID_BSON, "a value that cannot be read"),
        }
    }

    /// The whole field as bytes.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The value's bytes.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[1 + self.name.len() + 1..]
    }
}

/// The fields of a document in order.
pub struct Elements<'a> {
    cuts: Cuts<'a>,
}

/// Iterates over the fields of a document.
#[inline]
pub fn elements(document: &RawDocument) -> Elements<'_> {
    Elements { cuts: Cuts::new(document.as_bytes(), Source::Document(document)) }
}

/// Iterates over the elements of an array as fields named `0`, `1`, ...
#[inline]
pub fn array_elements(array: &RawArray) -> Elements<'_> {
    Elements { cuts: Cuts::new(array.as_bytes(), Source::Array(array)) }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // A field is cut in place: as a result of a result it would be moved twice.
        let element = match self.cuts.next_plain() {
            Some(element) => element,
            None if self.cuts.is_at_end() => return None,
            None => match self.cuts.next_checked()? {
                Ok(element) => element,
                Err(error) => return Some(Err(error)),
            },
        };
        match limits::poll_work(1 + element.bytes.len() / limits::BYTES_PER_UNIT) {
            Ok(()) => Some(Ok(element)),
            Err(stopped) => Some(Err(stopped)),
        }
    }
}

impl<'a> Elements<'a> {
    /// The next field whose name is `wanted`, which is asked about each name once. The fields before it are cut, and
    /// no more; those that are not plain are checked as ever.
    #[inline]
    pub fn next_wanted(
        &mut self,
        mut wanted: impl FnMut(&'a [u8]) -> bool,
    ) -> Option<Result<Element<'a>>> {
        self.next_of(|element| wanted(element.name))
    }

    /// As [`Elements::next_wanted`], where the whole field is looked at.
    #[inline]
    pub fn next_of(
        &mut self,
        mut wanted: impl FnMut(&Element<'a>) -> bool,
    ) -> Option<Result<Element<'a>>> {
        loop {
            let Some((cut, rest)) = plain_cut_here(self.cuts.rest) else {
                if self.cuts.is_at_end() {
                    return None;
                }
                match self.next()? {
                    Ok(element) if !wanted(&element) => continue,
                    found => return Some(found),
                }
            };
            let is_wanted = wanted(&cut);
            if let Err(stopped) = limits::poll_work(1 + cut.bytes.len() / limits::BYTES_PER_UNIT) {
                return Some(Err(stopped));
            }
            self.cuts.rest = rest;
            self.cuts.behind += 1;
            if is_wanted {
                return Some(Ok(cut));
            }
        }
    }

    /// The bytes that are left: those of the fields that were not cut yet, and the NUL behind them.
    #[inline]
    pub fn left(&self) -> usize {
        self.cuts.rest.len()
    }
}

/// Passes over the fields that both documents have next, as long as these have the same bytes; tells the name of each.
/// What is behind them both have to say.
pub fn pass_same<'a>(
    one: &mut Elements<'a>,
    other: &mut Elements<'_>,
    mut passed: impl FnMut(&'a [u8]),
) -> Result<()> {
    while let Some((cut, rest)) = plain_element(one.cuts.rest) {
        let Some(rest_of_other) = other.cuts.rest.strip_prefix(cut.bytes) else { break };
        limits::poll_work(1 + cut.bytes.len() / limits::BYTES_PER_UNIT)?;
        passed(cut.name);
        (one.cuts.rest, other.cuts.rest) = (rest, rest_of_other);
        one.cuts.behind += 1;
        other.cuts.behind += 1;
    }
    Ok(())
}

/// The names of a document's fields, in order; of fields that a reader of values refuses, too.
pub fn names(document: &RawDocument) -> impl Iterator<Item = Result<&[u8]>> {
    let mut cuts = Cuts::new(document.as_bytes(), Source::Document(document));
    std::iter::from_fn(move || cuts.next().map(|element| Ok(element?.name)))
}

/// What the fields are cut from.
#[derive(Clone, Copy)]
enum Source<'a> {
    Document(&'a RawDocument),
    Array(&'a RawArray),
}

/// Cuts a document's bytes into its fields: plain ones at once, others as the `bson` crate does, which
/// goes over each field once at most.
struct Cuts<'a> {
    rest: &'a [u8],
    source: Source<'a>,
    /// The crate's walk, once it was needed, and how many fields it is behind `rest`.
    checked: Option<RawIter<'a>>,
    behind: usize,
}

impl<'a> Cuts<'a> {
    #[inline]
    fn new(bytes: &'a [u8], source: Source<'a>) -> Self {
        Self { rest: bytes.get(4..).unwrap_or_default(), source, checked: None, behind: 0 }
    }

    #[inline]
    fn next(&mut self) -> Option<Result<Element<'a>>> {
        match self.next_plain() {
            Some(element) => Some(Ok(element)),
            None if self.is_at_end() => None,
            None => self.next_checked(),
        }
    }

    /// The next field where it is plain; `None` at the end, too.
    #[inline]
    fn next_plain(&mut self) -> Option<Element<'a>> {
        let (element, rest) = plain_element(self.rest)?;
        self.rest = rest;
        self.behind += 1;
        Some(element)
    }

    #[inline]
    fn is_at_end(&self) -> bool {
        self.rest == [0]
    }

    /// The same for a field that is not plain, or damaged; for the end of a damaged document, too.
    #[cold]
    fn next_checked(&mut self) -> Option<Result<Element<'a>>> {
        let iter = self.checked.get_or_insert_with(|| match self.source {
            Source::Document(document) => document.iter_elements(),
            Source::Array(array) => array.iter_elements(),
        });
        let rest = std::mem::take(&mut self.rest);
        let checked = match iter.nth(std::mem::take(&mut self.behind))? {
            Ok(checked) => checked,
            Err(error) => return Some(Err(error.into())),
        };
        let name = checked.key().as_str().as_bytes();
        let (bytes, rest) = rest.split_at(1 + name.len() + 1 + checked.size());
        self.rest = rest;
        let kind = checked.element_type() as u8;
        Some(Ok(Element { kind, name, bytes, value: Reader::Crate(Box::new(checked)) }))
    }
}

/// The first of the fields that `rest` begins with, and what is behind it. `None` where its value is not
/// plain, or anything is wrong with it.
#[inline]
fn plain_element(rest: &[u8]) -> Option<(Element<'_>, &[u8])> {
    plain_cut_here(rest)
}

/// The same for a loop over fields most of which are passed over: to give one back would take a third of the time.
#[expect(clippy::inline_always, reason = "such a loop is made of this")]
#[inline(always)]
fn plain_cut_here(rest: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (kind, after) = rest.split_first()?;
    let (end, is_ascii) = name_end(after)?;
    let (name, value) = after.split_at(end);
    let size = plain_size(*kind, &value[1..])?;
    if !is_ascii && std::str::from_utf8(name).is_err() {
        return None;
    }
    let (bytes, rest) = rest.split_at_checked(1 + end + 1 + size)?;
    Some((Element { kind: *kind, name, bytes, value: Reader::Plain }, rest))
}

const ARRAY: u8 = ElementType::Array as u8;
const DOCUMENT: u8 = ElementType::EmbeddedDocument as u8;

/// Where the first NUL is, and whether all before it is ASCII, as most names are. Looks at eight bytes at once.
#[inline]
pub fn name_end(bytes: &[u8]) -> Option<(usize, bool)> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = LOW << 7;
    let (mut at, mut seen) = (0, 0);
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*chunk);
        // The lowest bit that is set is of the first byte that is 0.
        let zeros = word.wrapping_sub(LOW) & !word & HIGH;
        if zeros != 0 {
            let before = zeros.trailing_zeros() - 7;
            seen |= word & ((1 << before) - 1);
            return Some((at + before as usize / 8, seen & HIGH == 0));
        }
        seen |= word;
        at += 8;
    }
    for byte in bytes.get(at..)? {
        if *byte == 0 {
            return Some((at, seen & HIGH == 0));
        }
        seen |= u64::from(*byte);
        at += 1;
    }
    None
}

/// The value of a document's field. Looking for it goes over the fields before it, and counts as the work
/// of going over all.
pub fn field<'a>(document: &'a RawDocument, name: &str) -> Result<Option<RawBsonRef<'a>>> {
    limits::poll_work(1 + document.as_bytes().len() / limits::BYTES_PER_UNIT)?;
    field_by_bytes(document, name)
}

/// The same for who must find what is there whether or not an operation goes on: nothing is polled.
pub fn field_by_bytes<'a>(document: &'a RawDocument, name: &str) -> Result<Option<RawBsonRef<'a>>> {
    match plain_field(document.as_bytes(), name.as_bytes()) {
        Some(found) => Ok(found),
        None => Ok(document.get(name)?),
    }
}

/// The value of the first field of this name, where it and the fields before it are of the usual types
/// and well formed. `None`: whoever checks everything must look for it.
#[expect(clippy::option_option, reason = "not found, and not known, are two things")]
fn plain_field<'a>(document: &'a [u8], name: &[u8]) -> Option<Option<RawBsonRef<'a>>> {
    let mut rest = document.get(4..)?;
    loop {
        let (kind, after) = rest.split_first()?;
        if *kind == 0 {
            return after.is_empty().then_some(None);
        }
        // What is not ASCII would have to be checked.
        let (end, true) = name_end(after)? else { return None };
        let (key, value) = after.split_at(end);
        let value = &value[1..];
        let size = plain_size(*kind, value)?;
        let (value, following) = value.split_at_checked(size)?;
        if key == name {
            return plain_value(*kind, value).map(Some);
        }
        rest = following;
    }
}

/// The bytes of values by their type, where all of a type are of one size; else [`VARYING`].
const SIZES: [u8; 256] = {
    let mut sizes = [VARYING; 256];
    sizes[ElementType::Double as usize] = 8;
    sizes[ElementType::Undefined as usize] = 0;
    sizes[ElementType::ObjectId as usize] = 12;
    sizes[ElementType::DateTime as usize] = 8;
    sizes[ElementType::Null as usize] = 0;
    sizes[ElementType::Int32 as usize] = 4;
    sizes[ElementType::Timestamp as usize] = 8;
    sizes[ElementType::Int64 as usize] = 8;
    sizes[ElementType::Decimal128 as usize] = 16;
    sizes[ElementType::MaxKey as usize] = 0;
    sizes[ElementType::MinKey as usize] = 0;
    sizes
};
const VARYING: u8 = u8::MAX;

/// The bytes that a value of a usual type takes. Of what it knows, [`plain_value`] makes a value, but for
/// strings that are not UTF-8.
#[inline]
fn plain_size(kind: u8, value: &[u8]) -> Option<usize> {
    match SIZES[usize::from(kind)] {
        VARYING => varying_size(ElementType::from(kind)?, value),
        size => Some(usize::from(size)),
    }
}

fn varying_size(kind: ElementType, value: &[u8]) -> Option<usize> {
    match kind {
        ElementType::Boolean => (*value.first()? < 2).then_some(1),
        ElementType::String | ElementType::Symbol | ElementType::JavaScriptCode => {
            let length = length(value).filter(|length| *length > 0)?;
            ended(value, length.checked_add(4)?)
        }
        ElementType::EmbeddedDocument | ElementType::Array => {
            ended(value, length(value).filter(|length| *length >= 5)?)
        }
        ElementType::Binary => match BinarySubtype::from(*value.get(4)?) {
            BinarySubtype::BinaryOld => None,
            _ => length(value)?.checked_add(5),
        },
        _ => None,
    }
}

/// So many bytes, of which the last is a NUL.
#[inline]
fn ended(value: &[u8], size: usize) -> Option<usize> {
    (value.get(size - 1) == Some(&0)).then_some(size)
}

#[inline]
fn length(value: &[u8]) -> Option<usize> {
    let length = i32::from_le_bytes(*value.first_chunk()?);
    usize::try_from(length).ok()
}

/// The value that these bytes, as long as [`plain_size`] says, are.
#[inline]
fn plain_value(kind: u8, bytes: &[u8]) -> Option<RawBsonRef<'_>> {
    Some(match ElementType::from(kind)? {
        ElementType::Null => RawBsonRef::Null,
        ElementType::Undefined => RawBsonRef::Undefined,
        ElementType::MinKey => RawBsonRef::MinKey,
        ElementType::MaxKey => RawBsonRef::MaxKey,
        ElementType::Boolean => match bytes {
            [0] => RawBsonRef::Boolean(false),
            [1] => RawBsonRef::Boolean(true),
            _ => return None,
        },
        ElementType::Int32 => RawBsonRef::Int32(i32::from_le_bytes(*bytes.first_chunk()?)),
        ElementType::Int64 => RawBsonRef::Int64(i64::from_le_bytes(*bytes.first_chunk()?)),
        ElementType::Double => RawBsonRef::Double(f64::from_le_bytes(*bytes.first_chunk()?)),
        ElementType::DateTime => {
            let millis = i64::from_le_bytes(*bytes.first_chunk()?);
            RawBsonRef::DateTime(bson::DateTime::from_millis(millis))
        }
        ElementType::Timestamp => RawBsonRef::Timestamp(bson::Timestamp {
            increment: u32::from_le_bytes(*bytes.first_chunk()?),
            time: u32::from_le_bytes(*bytes.last_chunk()?),
        }),
        ElementType::ObjectId => {
            RawBsonRef::ObjectId(bson::oid::ObjectId::from_bytes(*bytes.first_chunk()?))
        }
        ElementType::Decimal128 => {
            RawBsonRef::Decimal128(bson::Decimal128::from_bytes(*bytes.first_chunk()?))
        }
        ElementType::String => RawBsonRef::String(text(bytes)?),
        ElementType::Symbol => RawBsonRef::Symbol(text(bytes)?),
        ElementType::JavaScriptCode => RawBsonRef::JavaScriptCode(text(bytes)?),
        ElementType::EmbeddedDocument => RawBsonRef::Document(RawDocument::from_bytes(bytes).ok()?),
        ElementType::Array => RawBsonRef::Array(array_of(bytes)?),
        ElementType::Binary => {
            let (subtype, bytes) = bytes.get(4..)?.split_first()?;
            let subtype = BinarySubtype::from(*subtype);
            RawBsonRef::Binary(bson::RawBinaryRef { subtype, bytes })
        }
        _ => return None,
    })
}

/// These bytes as an array. The `bson` crate makes one of bytes by its `serde` form alone.
#[inline]
fn array_of(bytes: &[u8]) -> Option<&RawArray> {
    let bytes = BorrowedBytesDeserializer::<serde::de::value::Error>::new(bytes);
    Deserialize::deserialize(bytes).ok()
}

#[inline]
fn text(bytes: &[u8]) -> Option<&str> {
    let (_, text) = bytes.get(4..)?.split_last()?;
    std::str::from_utf8(text).ok()
}

/// Roughly the bytes of a value in a document.
pub fn size_of(value: &RawBson) -> usize {
    size_of_ref(value.as_raw_bson_ref())
}

/// Roughly the bytes of a value in BSON, borrowed; no fewer than a fixed part.
pub fn size_of_ref(value: RawBsonRef<'_>) -> usize {
    match value {
        RawBsonRef::String(s) | RawBsonRef::Symbol(s) | RawBsonRef::JavaScriptCode(s) => {
            s.len() + 5
        }
        RawBsonRef::Document(document) => document.as_bytes().len(),
        RawBsonRef::Array(array) => array.as_bytes().len(),
        RawBsonRef::Binary(binary) => binary.bytes.len() + 5,
        RawBsonRef::JavaScriptCodeWithScope(code) => {
            code.code.len() + code.scope.as_bytes().len() + 5
        }
        _ => 8,
    }
}

/// The values of an array.
pub fn values(array: &RawArray) -> impl Iterator<Item = Result<RawBsonRef<'_>>> {
    array_elements(array).map(|element| element?.value())
}

/// Builds a document by appending bytes.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

/// A document begun with [`Writer::begin`] and not yet ended.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Open(usize);

impl Writer {
    /// A writer that has room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity) }
    }

    /// Begins a document (or an array's body): its length is filled in by [`Self::end`].
    pub fn begin(&mut self) -> Open {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        Open(start)
    }

    /// Begins a field that holds a document.
    pub fn begin_document(&mut self, name: &str) -> Open {
        self.header(ElementType::EmbeddedDocument, name);
        self.begin()
    }

    /// Begins a field that holds an array.
    pub fn begin_array(&mut self, name: &str) -> Open {
        self.header(ElementType::Array, name);
        self.begin()
    }

    /// Ends what `open` began.
    pub fn end(&mut self, open: Open) {
        self.bytes.push(0);
        let length = (self.bytes.len() - open.0) as u32;
        self.bytes[open.0..open.0 + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Writes a field's type and name; its value must follow.
    pub fn header(&mut self, kind: ElementType, name: &str) {
        self.bytes.push(kind as u8);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
    }

    /// Copies a field.
    pub fn element(&mut self, element: &Element<'_>) {
        self.bytes.extend_from_slice(element.bytes());
    }

    /// Copies a field under another name.
    pub fn element_as(&mut self, name: &str, element: &Element<'_>) {
        self.header(element.element_type(), name);
        self.bytes.extend_from_slice(element.body());
    }

    /// Writes a field.
    pub fn value(&mut self, name: &str, value: RawBsonRef<'_>) {
        self.header(value.element_type(), name);
        put_value(&mut self.bytes, value);
    }

    /// Copies a value's bytes behind a [`Self::header`].
    pub fn bytes(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
    }

    /// How many bytes stand written.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing is written yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes back everything after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// The bytes after the first `len`, which must be one finished value.
    pub fn since(&self, len: usize) -> &[u8] {
        &self.bytes[len..]
    }

    /// The bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The document, once the outermost `begin` was ended.
    pub fn finish(self) -> Result<RawDocumentBuf> {
        Ok(RawDocumentBuf::from_bytes(self.bytes)?)
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

fn put_value(out: &mut Vec<u8>, value: RawBsonRef<'_>) {
    match value {
        RawBsonRef::Double(v) => out.extend_from_slice(&v.to_le_bytes()),
        RawBsonRef::String(v) | RawBsonRef::Symbol(v) | RawBsonRef::JavaScriptCode(v) => {
            put_text(out, v);
        }
        RawBsonRef::Array(v) => out.extend_from_slice(v.as_bytes()),
        RawBsonRef::Document(v) => out.extend_from_slice(v.as_bytes()),
        RawBsonRef::Boolean(v) => out.push(u8::from(v)),
        RawBsonRef::Null | RawBsonRef::Undefined | RawBsonRef::MinKey | RawBsonRef::MaxKey => {}
        RawBsonRef::RegularExpression(v) => {
            for text in [v.pattern, v.options] {
                out.extend_from_slice(text.as_str().as_bytes());
                out.push(0);
            }
        }
        RawBsonRef::Int32(v) => out.extend_from_slice(&v.to_le_bytes()),
        RawBsonRef::Int64(v) => out.extend_from_slice(&v.to_le_bytes()),
        RawBsonRef::Timestamp(v) => {
            out.extend_from_slice(&v.increment.to_le_bytes());
            out.extend_from_slice(&v.time.to_le_bytes());
        }
        RawBsonRef::Binary(v) => {
            let old = v.subtype == BinarySubtype::BinaryOld;
            let inner = v.bytes.len() as u32;
            out.extend_from_slice(&(if old { inner + 4 } else { inner }).to_le_bytes());
            out.push(v.subtype.into());
            if old {
                out.extend_from_slice(&inner.to_le_bytes());
            }
            out.extend_from_slice(v.bytes);
        }
        RawBsonRef::ObjectId(v) => out.extend_from_slice(&v.bytes()),
        RawBsonRef::DateTime(v) => out.extend_from_slice(&v.timestamp_millis().to_le_bytes()),
        RawBsonRef::Decimal128(v) => out.extend_from_slice(&v.bytes()),
        // The crate keeps the inside of these to itself: let it write them.
        RawBsonRef::JavaScriptCodeWithScope(_) | RawBsonRef::DbPointer(_) => {
            let mut document = RawDocumentBuf::new();
            document.append(bson::raw::cstr!(""), value);
            let bytes = document.as_bytes();
            out.extend_from_slice(&bytes[6..bytes.len() - 1]);
        }
    }
}

/// An array of these values.
pub fn array<'a>(values: impl IntoIterator<Item = RawBsonRef<'a>>) -> RawBson {
    RawBson::Array(values.into_iter().collect())
}

/// A document of one field, for messages and tests.
pub fn document_of(name: &str, value: RawBsonRef<'_>) -> RawDocumentBuf {
    let mut writer = Writer::default();
    let open = writer.begin();
    writer.value(name, value);
    writer.end(open);
    writer.finish().expect("a document of one field is well formed")
}

/// Whether a document's first field has a `$` name.
pub fn starts_with_dollar(document: &RawDocument) -> bool {
    first(document).is_some_and(|first| first.is_ok_and(|first| first.name.starts_with(b"$")))
}

/// The name of a document's first field.
pub fn first_name(document: &RawDocument) -> Option<&str> {
    first(document)?.ok().map(|element| element.name())
}

/// A document's only field, where it has one and no more, and that is plain: nothing odd or damaged.
#[inline]
pub fn only_plain(document: &RawDocument) -> Option<Element<'_>> {
    let mut cuts = Cuts::new(document.as_bytes(), Source::Document(document));
    let first = cuts.next_plain()?;
    cuts.is_at_end().then_some(first)
}

/// The bytes of the name of a document's first field, where that is plain.
#[inline]
pub fn plain_first_name(document: &RawDocument) -> Option<&[u8]> {
    let (first, _) = plain_cut_here(document.as_bytes().get(4..)?)?;
    Some(first.name)
}

/// A document's first field.
pub fn first(document: &RawDocument) -> Option<Result<Element<'_>>> {
    elements(document).cuts.next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::raw::cstr;
    use bson::{Bson, doc};

    /// A document with a field of every type, named by its position.
    fn of_all_types() -> RawDocumentBuf {
        let values: Vec<Bson> = vec![
            Bson::Double(1.5),
            Bson::String("text \u{e4}".to_owned()),
            Bson::Document(doc! {"a": 1, "b": {"a": 2}}),
            Bson::Array(vec![Bson::Int32(1), Bson::Null]),
            Bson::Binary(bson::Binary { subtype: BinarySubtype::Generic, bytes: vec![1, 2] }),
            Bson::Undefined,
            Bson::ObjectId(bson::oid::ObjectId::from_bytes([7; 12])),
            Bson::Boolean(true),
            Bson::DateTime(bson::DateTime::from_millis(-5)),
            Bson::Null,
            Bson::RegularExpression(bson::Regex {
                pattern: "a".try_into().unwrap(),
                options: "i".try_into().unwrap(),
            }),
            Bson::JavaScriptCode("f".to_owned()),
            Bson::Symbol("s".to_owned()),
            Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
                code: "f".to_owned(),
                scope: doc! {"x": 1},
            }),
            Bson::Int32(-3),
            Bson::Timestamp(bson::Timestamp { time: 1, increment: 2 }),
            Bson::Int64(1 << 40),
            Bson::Decimal128("1.25".parse().unwrap()),
            Bson::MinKey,
            Bson::MaxKey,
        ];
        let mut document = bson::Document::new();
        for (at, value) in values.into_iter().enumerate() {
            document.insert(at.to_string(), value);
        }
        RawDocumentBuf::try_from(&document).unwrap()
    }

    #[test]
    fn a_field_is_what_the_bson_crate_finds() {
        let document = of_all_types();
        let fields = document.iter().count();
        for name in (0..=fields).map(|at| at.to_string()).chain([String::new(), "1\0".to_owned()]) {
            let (ours, theirs) = (field(&document, &name).unwrap(), document.get(&name).unwrap());
            assert_eq!(ours, theirs, "{name}");
            assert_eq!(ours.is_some(), name.parse::<usize>().is_ok_and(|at| at < fields), "{name}");
        }
        for name in ["2", "3"] {
            let found = plain_field(document.as_bytes(), name.as_bytes());
            assert!(found.is_some(), "documents and arrays are found without the crate");
        }
        let twice = RawDocumentBuf::from_bytes(
            [&[19, 0, 0, 0][..], b"\x10a\0\x01\0\0\0\x10a\0\x02\0\0\0\0"].concat(),
        );
        assert_eq!(field(&twice.unwrap(), "a").unwrap(), Some(RawBsonRef::Int32(1)), "the first");
    }

    #[test]
    fn a_field_of_damaged_bytes_is_what_the_bson_crate_says() {
        let whole = of_all_types().into_bytes();
        let mut damaged = 0;
        for at in 4..whole.len() - 1 {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let Ok(document) = RawDocument::from_bytes(&bytes) else { continue };
                for name in ["0", "1", "2", "3", "7", "9", "14", "19", "absent"] {
                    match (field(document, name), document.get(name)) {
                        (Ok(ours), Ok(theirs)) => {
                            let same = format!("{ours:?}") == format!("{theirs:?}");
                            assert!(same, "{at} {bit} {name}");
                        }
                        (Err(_), Err(_)) => damaged += 1,
                        (ours, theirs) => panic!("{at} {bit} {name}: {ours:?}, {theirs:?}"),
                    }
                }
            }
        }
        assert!(damaged > 100, "{damaged}");
    }
    /// What iterating gives, as text: names, types, bytes of values and values.
    fn shown(document: &RawDocument) -> Vec<String> {
        elements(document)
            .map(|element| match element {
                Ok(one) => {
                    let value = one.value().map_err(|_| ());
                    assert!(value.is_ok() || !one.is_surely_readable());
                    assert!(!one.is_readable_leaf() || (value.is_ok() && !one.is_nested()));
                    format!("{} {:?} {:?} {value:?}", one.name(), one.element_type(), one.body())
                }
                Err(_) => "refused".to_owned(),
            })
            .collect()
    }

    /// The same by the `bson` crate alone.
    fn shown_by_crate(document: &RawDocument) -> Vec<String> {
        let mut at = 4;
        document
            .iter_elements()
            .map(|element| match element {
                Ok(one) => {
                    let (key, value) = (one.key().as_str(), one.value().map_err(|_| ()));
                    let start = at + key.len() + 2;
                    at = start + one.size();
                    let body = &document.as_bytes()[start..at];
                    format!("{key} {:?} {body:?} {value:?}", one.element_type())
                }
                Err(_) => "refused".to_owned(),
            })
            .collect()
    }

    /// Looking for names finds what going over all fields does, and errors where a field is looked at or has to be
    /// checked.
    fn shows_what_is_wanted(document: &RawDocument) {
        let end = document.as_bytes().len();
        let mut all = Vec::new();
        let mut walk = elements(document);
        while let Some(one) = walk.next() {
            all.push((
                one.map(|one| (one.name().to_owned(), one.bytes().to_vec())).ok(),
                walk.left(),
            ));
        }
        for only in [None, Some("0"), Some("3"), Some("13"), Some("absent")] {
            let is_wanted = |name: &[u8]| only.is_none_or(|only| only.as_bytes() == name);
            let (mut walk, mut asked) = (elements(document), 0);
            let mut expected = all.iter().filter(|(one, _)| match one {
                Some((name, _)) => is_wanted(name.as_bytes()),
                None => true,
            });
            while let Some(found) = walk.next_wanted(|name| {
                asked += 1;
                is_wanted(name)
            }) {
                let (one, left) = expected.next().unwrap();
                let found = found.map(|one| (one.name().to_owned(), one.bytes().to_vec())).ok();
                assert_eq!((&found, walk.left()), (one, *left));
                if let Some((_, bytes)) = &found {
                    let at = end - walk.left();
                    assert_eq!(&document.as_bytes()[at - bytes.len()..at], bytes);
                }
                if found.is_none() {
                    break;
                }
            }
            let is_whole = all.iter().all(|(one, _)| one.is_some());
            assert!(!is_whole || (expected.next().is_none() && asked == all.len()));
        }
    }

    #[test]
    fn elements_are_what_the_bson_crate_finds_also_of_damaged_bytes() {
        let whole = of_all_types().into_bytes();
        let mut refused = 0;
        for at in 4..whole.len() - 1 {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let Ok(document) = RawDocument::from_bytes(&bytes) else { continue };
                let (ours, theirs) = (shown(document), shown_by_crate(document));
                assert_eq!(ours, theirs, "{at} {bit}");
                refused += usize::from(ours.iter().any(|one| one == "refused"));
                shows_what_is_wanted(document);
                assert!(only_plain(document).is_none());
                let ours: Vec<_> = names(document).map(Result::ok).collect();
                let their = |one: RawElement<'_>| one.key().as_str().as_bytes().to_owned();
                let theirs = document.iter_elements().map(|one| one.ok().map(their));
                assert!(
                    ours.iter()
                        .copied()
                        .eq(theirs.collect::<Vec<_>>().iter().map(Option::as_deref))
                );
            }
        }
        assert!(refused > 100, "{refused}");
        let document = RawDocument::from_bytes(&whole).unwrap();
        assert_eq!(shown(document), shown_by_crate(document));
        assert!(elements(document).all(|one| one.unwrap().key().as_str().len() < 3));
        let nested = |one: &Element<'_>| {
            matches!(one.element_type(), ElementType::EmbeddedDocument | ElementType::Array)
        };
        assert!(elements(document).map(Result::unwrap).all(|one| one.is_nested() == nested(&one)));
        let sure = elements(document).filter(|one| one.as_ref().unwrap().is_surely_readable());
        assert_eq!(sure.count(), 11);
        let leaves = elements(document).filter(|one| one.as_ref().unwrap().is_readable_leaf());
        assert_eq!(leaves.count(), 16, "all but those that hold others, and a regular expression");
    }

    #[test]
    fn an_only_field_is_found_where_it_is_plain() {
        let of = |document| RawDocumentBuf::try_from(&document).unwrap();
        let one = of(doc! { "a": "x" });
        let only = only_plain(&one).unwrap();
        assert_eq!((only.name(), only.value().unwrap()), ("a", RawBsonRef::String("x")));
        let regex = bson::Regex { pattern: cstr!("x").into(), options: cstr!("").into() };
        for other in [doc! {}, doc! { "a": 1, "b": 2 }, doc! { "a": regex }] {
            assert!(only_plain(&of(other)).is_none());
        }
        let damaged = RawDocument::from_bytes(b"\x0b\0\0\0\x10a\0\x01\0\0\0").unwrap();
        assert!(only_plain(damaged).is_none(), "its end is the value's");
    }

    #[test]
    fn a_string_that_is_no_text_is_refused_as_by_the_bson_crate() {
        let bytes = b"\x0f\0\0\0\x02s\0\x03\0\0\0\xff\xff\0\0";
        let document = RawDocument::from_bytes(bytes).unwrap();
        let ours = elements(document).next().unwrap().unwrap().value().unwrap_err();
        let theirs: Error = document.iter().next().unwrap().unwrap_err().into();
        assert_eq!((ours.code(), ours.message()), (theirs.code(), theirs.message()));
    }

    #[test]
    fn a_name_ends_at_the_first_nul() {
        for length in 0..20 {
            for behind in 0..12 {
                for odd in [None, Some(0), Some(length / 2), Some(length)] {
                    let mut bytes = vec![b'a'; length];
                    bytes.push(0);
                    bytes.extend(std::iter::repeat_n(0xff, behind));
                    if let Some(at) = odd.filter(|at| *at < length) {
                        bytes[at] = 0x80;
                    }
                    let is_ascii = odd.is_none_or(|at| at >= length);
                    assert_eq!(name_end(&bytes), Some((length, is_ascii)), "{bytes:?}");
                    assert_eq!(name_end(&bytes[..length]), None);
                }
            }
        }
    }
}
