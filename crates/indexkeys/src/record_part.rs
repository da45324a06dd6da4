//! Where the record key stands in the entries of an index: for deletes of ranges of record keys, whose
//! tombstones say it in these bytes. They are a stored format: `docs/formats/catalog.md`.
//!
//! ```text
//! 0  u8  1 where the index is unique: the record key begins the value; else 0: it ends the key
//! 1  u8  how many values stand before it: those of the key, or none
//! 2  u8  of each, 1 where it descends, else 0
//! …  u8  how many values it has itself
//! …  u8  of each, 1 where it descends, else 0
//! ```

use crate::keys::KeyMaker;
use keystring::Direction;
use smallvec::SmallVec;

impl KeyMaker {
    /// What says it of this index; `None` where the values of the entries are more than record keys.
    pub fn record_part(&self) -> Option<Vec<u8>> {
        if self.holds_records() || (self.unique && self.clustering) {
            return None;
        }
        let before = if self.unique { &[][..] } else { self.directions() };
        let mut part = vec![u8::from(self.unique)];
        for directions in [before, self.record_directions()] {
            part.push(u8::try_from(directions.len()).ok()?);
            part.extend(directions.iter().map(|one| u8::from(*one == Direction::Descending)));
        }
        Some(part)
    }
}

/// The record key in an entry; `None` where the value is missing, or bytes are not what they should be.
pub fn record_part<'a>(part: &[u8], key: &'a [u8], value: Option<&'a [u8]>) -> Option<&'a [u8]> {
    let (is_unique, rest) = part.split_first()?;
    let (before, rest) = directions(rest)?;
    if *is_unique == 0 {
        let start = keystring::skip(key, &before).ok()?;
        return key.get(start..);
    }
    let (own, _) = directions(rest)?;
    let value = value?;
    let end = keystring::skip(value, &own).ok()?;
    value.get(..end)
}

fn directions(bytes: &[u8]) -> Option<(SmallVec<[Direction; 8]>, &[u8])> {
    let (count, rest) = bytes.split_first()?;
    let (own, rest) = rest.split_at_checked(usize::from(*count))?;
    let direction =
        |byte: &u8| if *byte == 0 { Direction::Ascending } else { Direction::Descending };
    Some((own.iter().map(direction).collect(), rest))
}
