//! The bytes of an argument: statements, one after the other.
//!
//! ```text
//! argument  1 u8, the version | item …
//! item      varint times | flags u8 (1 a time, 2 a seed) | time i64, timestamp u64 | seed document | update document
//! ```
//!
//! Always true: bytes that are not so end the argument: what is before them counts.

use super::MOST_TIMES;
use bson::raw::{RawBsonRef, RawDocument};
use bson::{DateTime, Timestamp};
use bsonval::raw;

const VERSION: u8 = 1;
const HAS_TIME: u8 = 1;
const HAS_SEED: u8 = 2;

/// One statement, or several that are the same.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Item<'a> {
    pub(super) times: u64,
    /// When it ran, where that matters.
    pub(super) now: Option<(DateTime, Timestamp)>,
    /// Of an upsert the `_id` of the document.
    pub(super) seed: Option<&'a RawDocument>,
    pub(super) update: &'a RawDocument,
}

/// What is added to a field.
#[derive(Clone, Copy)]
pub(super) enum Amount {
    Int32(i32),
    Int64(i64),
}

impl Amount {
    pub(super) fn number(self) -> i64 {
        match self {
            Self::Int32(number) => number.into(),
            Self::Int64(number) => number,
        }
    }

    fn fits(self, times: i64) -> bool {
        let sum = self.number().checked_mul(times);
        sum.is_some_and(|sum| matches!(self, Self::Int64(_)) || i32::try_from(sum).is_ok())
    }
}

impl<'a> Item<'a> {
    /// The same statement.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let bytes = |document: Option<&'a RawDocument>| document.map(RawDocument::as_bytes);
        self.now.is_none()
            && other.now.is_none()
            && bytes(self.seed) == bytes(other.seed)
            && self.update.as_bytes() == other.update.as_bytes()
    }

    /// Whether it only adds whole numbers, whose sums fit with so many more.
    pub(super) fn may_repeat(&self, more: u64) -> bool {
        let times = self.times.saturating_add(more);
        let Ok(signed) = i64::try_from(times) else { return false };
        let fits =
            |amounts: Vec<(&str, Amount)>| amounts.iter().all(|(_, amount)| amount.fits(signed));
        times <= MOST_TIMES && self.whole_amounts().is_some_and(fits)
    }

    /// What it adds to which fields at the top, where it does nothing else to a document that is there.
    pub(super) fn whole_amounts(&self) -> Option<Vec<(&'a str, Amount)>> {
        let mut amounts = Vec::new();
        for (operator, fields) in operators(self.update)? {
            match operator {
                "$inc" => {}
                "$setOnInsert" => continue,
                _ => return None,
            }
            for field in raw::elements(fields) {
                let field = field.ok()?;
                let amount = match field.value().ok()? {
                    RawBsonRef::Int32(number) => Amount::Int32(number),
                    RawBsonRef::Int64(number) => Amount::Int64(number),
                    _ => return None,
                };
                amounts.push((field.name(), amount));
            }
        }
        (!amounts.is_empty() && amounts.iter().all(|(name, _)| !name.contains('.')))
            .then_some(amounts)
    }

    /// Whether it sets the fields at the top that an older one sets, and both do nothing else: nothing of the
    /// older one is left then.
    pub(super) fn overwrites(&self, older: &Self) -> bool {
        let same_seed = match (self.seed, older.seed) {
            (None, None) => true,
            (Some(one), Some(other)) => one.as_bytes() == other.as_bytes(),
            _ => false,
        };
        let (Some(newer), Some(older)) = (self.set_fields(), older.set_fields()) else {
            return false;
        };
        same_seed && newer == older
    }

    fn set_fields(&self) -> Option<Vec<&'a str>> {
        let [("$set", fields)] = operators(self.update)?[..] else { return None };
        let mut names = Vec::new();
        for field in raw::elements(fields) {
            names.push(field.ok()?.name());
        }
        names.sort_unstable();
        names.iter().all(|name| !name.contains('.') && *name != "_id").then_some(names)
    }
}

fn operators(update: &RawDocument) -> Option<Vec<(&str, &RawDocument)>> {
    let mut operators = Vec::new();
    for element in raw::elements(update) {
        let element = element.ok()?;
        let RawBsonRef::Document(fields) = element.value().ok()? else { return None };
        operators.push((element.name(), fields));
    }
    Some(operators)
}

/// An argument without a statement yet.
pub(super) fn begin() -> Vec<u8> {
    vec![VERSION]
}

pub(super) fn put_item(out: &mut Vec<u8>, item: &Item<'_>) {
    let mut times = item.times;
    while times >= 0x80 {
        out.push(times as u8 | 0x80);
        times >>= 7;
    }
    out.push(times as u8);
    let time = if item.now.is_some() { HAS_TIME } else { 0 };
    out.push(time | if item.seed.is_some() { HAS_SEED } else { 0 });
    if let Some((now, timestamp)) = item.now {
        out.extend_from_slice(&now.timestamp_millis().to_le_bytes());
        let timestamp = u64::from(timestamp.time) << 32 | u64::from(timestamp.increment);
        out.extend_from_slice(&timestamp.to_le_bytes());
    }
    if let Some(seed) = item.seed {
        out.extend_from_slice(seed.as_bytes());
    }
    out.extend_from_slice(item.update.as_bytes());
}

/// The statements of an argument.
pub(super) fn items(argument: &[u8]) -> impl Iterator<Item = Item<'_>> {
    let mut rest = match argument.split_first() {
        Some((&VERSION, rest)) => rest,
        _ => &[],
    };
    std::iter::from_fn(move || {
        let item = read_item(&mut rest);
        if item.is_none() {
            rest = &[];
        }
        item
    })
}

fn read_item<'a>(rest: &mut &'a [u8]) -> Option<Item<'a>> {
    let mut times = 0_u64;
    for shift in (0..28).step_by(7) {
        let byte = take(rest, 1)?[0];
        times |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            break;
        }
    }
    let flags = take(rest, 1)?[0];
    if flags & !(HAS_TIME | HAS_SEED) != 0 || times == 0 || times > MOST_TIMES {
        return None;
    }
    let mut now = None;
    if flags & HAS_TIME != 0 {
        let millis = i64::from_le_bytes(take(rest, 8)?.try_into().ok()?);
        let timestamp = u64::from_le_bytes(take(rest, 8)?.try_into().ok()?);
        let timestamp = Timestamp { time: (timestamp >> 32) as u32, increment: timestamp as u32 };
        now = Some((DateTime::from_millis(millis), timestamp));
    }
    let seed = if flags & HAS_SEED != 0 { Some(take_document(rest)?) } else { None };
    Some(Item { times, now, seed, update: take_document(rest)? })
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(bytes)?;
    *rest = left;
    Some(taken)
}

fn take_document<'a>(rest: &mut &'a [u8]) -> Option<&'a RawDocument> {
    let length = u32::from_le_bytes(*rest.first_chunk()?);
    RawDocument::from_bytes(take(rest, usize::try_from(length).ok()?)?).ok()
}
