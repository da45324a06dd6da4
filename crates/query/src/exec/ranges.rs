//! Bounds of an index's parts as ranges of key bytes.
//!
//! The leading parts that are lists of values are multiplied out; the first part that is a range
//! ends the prefix; the parts after it are checked entry by entry, and a mismatch tells where to
//! skip to.
//!
//! Always true: the ranges ascend in key order and are disjoint; together with the checks they
//! hold exactly the keys whose every part lies in its intervals.

use crate::plan::KeyLimits;
use bounds::{Interval, Intervals};
use bson::raw::RawBson;
use engine::KeyRange;
use errors::{Code, Error, Result};
use keystring::{Collation, Direction, Discriminator, KeyBuilder};
use std::ops::Bound;

/// How many prefixes are multiplied out before the rest is checked entry by entry.
const MAX_PREFIXES: usize = 4096;

/// An interval of one part, as bytes in key order.
#[derive(Clone, Debug)]
struct ByteInterval {
    low: Vec<u8>,
    low_open: bool,
    high: Vec<u8>,
    high_open: bool,
}

/// The ranges of one scan.
#[derive(Clone, Debug)]
pub(crate) struct Ranges {
    parts: Vec<Vec<ByteInterval>>,
    directions: Vec<Direction>,
    /// Parts before this one are multiplied out.
    prefix: usize,
    /// The last part that is checked, plus one; 0 where none is.
    checked: usize,
    backward: bool,
    limits: KeyLimits,
    /// Which combination is next: one position per part of the range.
    next: Option<Vec<usize>>,
}

/// The one range of keys whose parts all lie in their bounds; `None` where there are several, or where keys of it
/// have to be checked.
pub(crate) fn one_range(
    bounds: &[Intervals],
    directions: &[Direction],
    collation: Option<&Collation>,
) -> Result<Option<KeyRange>> {
    let mut ranges = Ranges::new(bounds, directions, false, (None, None), collation)?;
    let Some(first) = ranges.next().filter(|_| ranges.checked == 0) else { return Ok(None) };
    Ok(if ranges.next().is_none() { Some(first) } else { None })
}

/// What a check of an entry says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// It lies inside.
    Inside,
    /// It does not; in the direction of the scan nothing does before this key.
    SeekTo(Vec<u8>),
}

impl Ranges {
    pub(crate) fn new(
        bounds: &[Intervals],
        directions: &[Direction],
        backward: bool,
        limits: KeyLimits,
        collation: Option<&Collation>,
    ) -> Result<Self> {
        let parts = bounds
            .iter()
            .zip(directions)
            .map(|(intervals, direction)| part(intervals, *direction, collation))
            .collect::<Result<Vec<_>>>()?;
        let mut prefix = 0;
        let mut product = 1_usize;
        for (at, intervals) in bounds.iter().enumerate() {
            product = product.saturating_mul(intervals.as_slice().len());
            if !intervals.is_points() || (at > 0 && product > MAX_PREFIXES) {
                break;
            }
            prefix = at + 1;
        }
        let checked = (prefix + 1..bounds.len())
            .rev()
            .find(|at| !bounds[*at].is_all())
            .map_or(0, |at| at + 1);
        let mut ranges = Self {
            parts,
            directions: directions.to_vec(),
            prefix,
            checked,
            backward,
            limits,
            next: None,
        };
        if ranges.parts.iter().all(|part| !part.is_empty()) {
            let width = (prefix + 1).min(ranges.parts.len());
            let start = |part: &Vec<ByteInterval>| if backward { part.len() - 1 } else { 0 };
            ranges.next = Some(ranges.parts[..width].iter().map(start).collect());
        }
        Ok(ranges)
    }

    /// The next range, in the direction of the scan.
    pub(crate) fn next(&mut self) -> Option<KeyRange> {
        loop {
            let at = self.next.clone()?;
            self.step();
            let range = self.range(&at);
            let empty = matches!((&range.lower, &range.upper),
                (Bound::Included(low), Bound::Excluded(high)) if low >= high);
            if !empty {
                return Some(range);
            }
        }
    }

    /// Whether each range is the values of all parts.
    pub(crate) fn are_points(&self) -> bool {
        self.prefix == self.parts.len()
    }

    /// The values of the next ranges, where they are ranges of that kind: so many at most, and of about so many
    /// bytes. They stay the next ones.
    pub(crate) fn points_ahead(&mut self, most: usize, most_bytes: usize) -> Vec<Vec<u8>> {
        debug_assert!(self.are_points(), "a range of several values is no key");
        let place = self.next.clone();
        let (mut points, mut bytes) = (Vec::new(), 0);
        while points.len() < most
            && bytes < most_bytes
            && let Some(range) = self.next()
        {
            if let Bound::Included(values) = range.lower {
                bytes += values.len();
                points.push(values);
            }
        }
        self.next = place;
        points
    }

    /// Turns the odometer.
    fn step(&mut self) {
        let Some(next) = &mut self.next else { return };
        for (position, part) in next.iter_mut().zip(&self.parts).rev() {
            if self.backward {
                if *position > 0 {
                    *position -= 1;
                    return;
                }
                *position = part.len() - 1;
            } else {
                if *position + 1 < part.len() {
                    *position += 1;
                    return;
                }
                *position = 0;
            }
        }
        self.next = None;
    }

    fn range(&self, at: &[usize]) -> KeyRange {
        let mut start = Vec::new();
        for (part, position) in self.parts[..self.prefix].iter().zip(at) {
            start.extend_from_slice(&part[*position].low);
        }
        let mut end = start.clone();
        match self.parts.get(self.prefix) {
            Some(part) => {
                let interval = &part[at[self.prefix]];
                start.extend_from_slice(&interval.low);
                if interval.low_open {
                    start = after(&start);
                }
                end.extend_from_slice(&interval.high);
                if !interval.high_open {
                    end = after(&end);
                }
            }
            None => end = after(&end),
        }
        if let Some(min) = &self.limits.0
            && *min > start
        {
            start.clone_from(min);
        }
        if let Some(max) = &self.limits.1
            && *max < end
        {
            end.clone_from(max);
        }
        KeyRange { lower: Bound::Included(start), upper: Bound::Excluded(end) }
    }

    /// Whether a key inside a range lies inside the bounds of the remaining parts too.
    pub(crate) fn check(&self, key: &[u8]) -> Result<Check> {
        if self.checked == 0 {
            return Ok(Check::Inside);
        }
        let mut start = 0;
        for at in 0..self.checked {
            let direction = self.directions[at];
            let length = keystring::skip(&key[start..], &[direction]).map_err(damaged)?;
            let value = &key[start..start + length];
            if at >= self.prefix {
                let prefix = &key[..start];
                let miss = if self.backward {
                    miss_backward(&self.parts[at], value)
                } else {
                    miss_forward(&self.parts[at], value)
                };
                match miss {
                    None => {}
                    Some(None) if self.backward => return Ok(Check::SeekTo(prefix.to_vec())),
                    Some(None) => return Ok(Check::SeekTo(after(prefix))),
                    Some(Some((target, past))) => {
                        let target = [prefix, target].concat();
                        return Ok(Check::SeekTo(if past { after(&target) } else { target }));
                    }
                }
            }
            start += length;
        }
        Ok(Check::Inside)
    }
}

/// Where a part must go on: `None` inside, `Some(None)` nowhere, else to these bytes, or past
/// every key that begins with them.
type Miss<'a> = Option<Option<(&'a [u8], bool)>>;

fn miss_forward<'a>(intervals: &'a [ByteInterval], value: &[u8]) -> Miss<'a> {
    let reaches = |i: &&ByteInterval| value < &i.high[..] || (!i.high_open && value == &i.high[..]);
    let Some(interval) = intervals.iter().find(reaches) else { return Some(None) };
    let inside = value > &interval.low[..] || (!interval.low_open && value == &interval.low[..]);
    (!inside).then_some(Some((&interval.low, interval.low_open)))
}

fn miss_backward<'a>(intervals: &'a [ByteInterval], value: &[u8]) -> Miss<'a> {
    let reaches = |i: &&ByteInterval| value > &i.low[..] || (!i.low_open && value == &i.low[..]);
    let Some(interval) = intervals.iter().rev().find(reaches) else { return Some(None) };
    let inside = value < &interval.high[..] || (!interval.high_open && value == &interval.high[..]);
    (!inside).then_some(Some((&interval.high, !interval.high_open)))
}

fn part(
    intervals: &Intervals,
    direction: Direction,
    collation: Option<&Collation>,
) -> Result<Vec<ByteInterval>> {
    let mut out = intervals
        .as_slice()
        .iter()
        .map(|interval| byte_interval(interval, direction, collation))
        .collect::<Result<Vec<_>>>()?;
    if direction == Direction::Descending {
        out.reverse();
    }
    Ok(out)
}

fn byte_interval(
    interval: &Interval,
    direction: Direction,
    collation: Option<&Collation>,
) -> Result<ByteInterval> {
    let low = encode(&interval.low, direction, collation)?;
    let high = encode(&interval.high, direction, collation)?;
    Ok(match direction {
        Direction::Ascending => ByteInterval {
            low,
            low_open: !interval.low_inclusive,
            high,
            high_open: !interval.high_inclusive,
        },
        Direction::Descending => ByteInterval {
            low: high,
            low_open: !interval.high_inclusive,
            high: low,
            high_open: !interval.low_inclusive,
        },
    })
}

fn encode(value: &RawBson, direction: Direction, collation: Option<&Collation>) -> Result<Vec<u8>> {
    let mut builder = KeyBuilder::new();
    builder.append_under(value.as_raw_bson_ref(), direction, collation).map_err(damaged)?;
    Ok(builder.into_bytes())
}

/// Past every key that begins with these bytes.
fn after(bytes: &[u8]) -> Vec<u8> {
    let mut builder = KeyBuilder::new();
    builder.append_bytes(bytes);
    builder.append_discriminator(Discriminator::After);
    builder.into_bytes()
}

#[expect(clippy::needless_pass_by_value, reason = "map_err hands it over")]
pub(super) fn damaged(error: keystring::Error) -> Error {
    Error::new(Code::INTERNAL_ERROR, error.to_string())
}
