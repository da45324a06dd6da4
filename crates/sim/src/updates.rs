//! Updates of the runs: they append bytes, of which the last stay. The order of two makes a difference, and so
//! does what they are applied to.

use engine::{Applied, PlantedUpdateBug, UpdatePlace, Updates};
use testkit::Gen;

/// Bytes that stay of a value that is appended to, and of arguments that are combined.
const MOST: usize = 300;
/// Appends to what is there, or to nothing.
const ALWAYS: u8 = b'+';
/// Appends only to what is there.
const WHERE_THERE: u8 = b'?';
/// Cannot be applied.
const NEVER: u8 = b'!';

#[derive(Debug)]
pub(crate) struct Append {
    pub(crate) planted: Option<PlantedUpdateBug>,
}

/// The argument of an update.
pub(crate) fn argument(random: &mut Gen) -> Vec<u8> {
    let kinds = [ALWAYS, ALWAYS, ALWAYS, WHERE_THERE, NEVER];
    let kind = random.pick(&kinds).copied().unwrap_or(ALWAYS);
    [&[kind], &random.value(12)[..]].concat()
}

/// What an update makes of a value.
pub(crate) fn append(old: Option<&[u8]>, argument: &[u8]) -> Option<Vec<u8>> {
    let (kind, bytes) = argument.split_first()?;
    match (old, *kind) {
        (old, NEVER) | (old @ None, WHERE_THERE) => old.map(<[u8]>::to_vec),
        (old, _) => Some(last(&[old.unwrap_or_default(), bytes].concat())),
    }
}

fn last(bytes: &[u8]) -> Vec<u8> {
    bytes.get(bytes.len().saturating_sub(MOST)..).unwrap_or_default().to_vec()
}

impl Updates for Append {
    fn apply(&self, _: UpdatePlace<'_>, old: Option<&[u8]>, argument: &[u8]) -> Applied {
        match append(old, argument) {
            Some(value) if old != Some(&value[..]) => Applied::Value(value),
            _ => Applied::Unchanged,
        }
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let ((kind, older), (other, newer)) = (older.split_first()?, newer.split_first()?);
        let combines = kind == other && *kind != NEVER;
        combines.then(|| [&[*kind], &last(&[older, newer].concat())[..]].concat())
    }

    fn planted_bug(&self) -> Option<PlantedUpdateBug> {
        self.planted
    }
}
