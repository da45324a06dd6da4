//! A block's bytes before compression: rows turned into columns of differences.
//!
//! ```text
//!   times ─ column 0 ─ column 1 ─ …     each: the first value, then the differences
//! ```
//!
//! Every number is a zigzag varint. Always true: `decode(encode(rows)) == rows`, and any other bytes
//! are refused without a panic.

use crate::Number;

/// One moment: a value for each column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) at_ms: i64,
    pub(crate) values: Vec<i64>,
}

/// What a column is called and how its numbers are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// In thousandths.
    pub(crate) real: bool,
}

impl Column {
    pub(crate) fn of((name, number): &(String, Number)) -> Self {
        Self { name: name.clone(), real: matches!(number, Number::Real(_)) }
    }

    pub(crate) fn is_of(&self, (name, number): &(String, Number)) -> bool {
        self.name == *name && self.real == matches!(number, Number::Real(_))
    }

    /// A kept value as it is shown.
    pub(crate) fn shown(&self, kept: i64) -> f64 {
        if self.real { kept as f64 / 1000.0 } else { kept as f64 }
    }
}

impl Number {
    /// As it is kept.
    pub(crate) fn kept(self) -> i64 {
        match self {
            Self::Whole(number) => number,
            Self::Real(number) => (number * 1000.0).round() as i64,
        }
    }
}

/// The rows as columns of differences.
pub(crate) fn encode(rows: &[Row]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let width = rows.first().map_or(0, |row| row.values.len());
    put_column(&mut bytes, rows.iter().map(|row| row.at_ms));
    for at in 0..width {
        put_column(&mut bytes, rows.iter().map(|row| row.values[at]));
    }
    bytes
}

/// `count` rows of `width` columns; `None` where the bytes are anything else.
pub(crate) fn decode(mut bytes: &[u8], count: usize, width: usize) -> Option<Vec<Row>> {
    let times = take_column(&mut bytes, count)?;
    let mut rows: Vec<Row> =
        times.into_iter().map(|at_ms| Row { at_ms, values: Vec::with_capacity(width) }).collect();
    for _ in 0..width {
        for (row, value) in rows.iter_mut().zip(take_column(&mut bytes, count)?) {
            row.values.push(value);
        }
    }
    bytes.is_empty().then_some(rows)
}

fn put_column(bytes: &mut Vec<u8>, values: impl Iterator<Item = i64>) {
    let mut before = 0;
    for value in values {
        put(bytes, value.wrapping_sub(before));
        before = value;
    }
}

fn take_column(bytes: &mut &[u8], count: usize) -> Option<Vec<i64>> {
    let mut before = 0_i64;
    (0..count)
        .map(|_| {
            before = before.wrapping_add(take(bytes)?);
            Some(before)
        })
        .collect()
}

fn put(bytes: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

fn take(bytes: &mut &[u8]) -> Option<i64> {
    let mut all = 0_u64;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if shift == 63 && *byte > 1 {
            return None;
        }
        all |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((all >> 1) as i64 ^ -((all & 1) as i64));
        }
    }
    None
}
