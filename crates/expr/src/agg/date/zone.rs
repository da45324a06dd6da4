//! Time zones: UTC, a fixed offset, or a name from the bundled tz database.
//!
//! The database is compiled in (`jiff`'s `tzdb-bundle-always`), so no file is read and every
//! machine knows the same zones.

use errors::{Error, Result};
use jiff::Timestamp;
use jiff::civil::DateTime as JiffDateTime;
use jiff::tz::TimeZone;

/// A time zone.
#[derive(Clone, Debug)]
pub(crate) enum Zone {
    Utc,
    /// Milliseconds east of Greenwich.
    Fixed(i64),
    Named(TimeZone),
}

/// Milliseconds that `jiff` can hold, less a day for any offset.
const JIFF_LOW: i64 = -377_705_030_401_000;
const JIFF_HIGH: i64 = 253_402_207_200_000 - 86_400_000;

impl Zone {
    /// Reads `UTC`, `+hh`, `+hhmm`, `+hh:mm` or a name such as `Europe/Berlin`.
    pub(crate) fn parse(name: &str) -> Result<Self> {
        if matches!(name, "UTC" | "GMT" | "Z") {
            return Ok(Self::Utc);
        }
        if name.starts_with(['+', '-']) {
            return fixed(name).map(Self::Fixed).ok_or_else(|| unrecognized(name));
        }
        // An empty name or one with odd characters never names a zone; the database would accept
        // some (POSIX strings).
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'-' | b'+');
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(unrecognized(name));
        }
        TimeZone::get(name).map(Self::Named).map_err(|_| unrecognized(name))
    }

    pub(crate) fn is_utc(&self) -> bool {
        matches!(self, Self::Utc)
    }

    /// Milliseconds east of Greenwich at an instant.
    pub(crate) fn offset_at(&self, utc: i64) -> i64 {
        match self {
            Self::Utc => 0,
            Self::Fixed(offset) => *offset,
            Self::Named(zone) => {
                let clamped = utc.clamp(JIFF_LOW, JIFF_HIGH);
                Timestamp::from_millisecond(clamped)
                    .map_or(0, |at| i64::from(zone.to_offset(at).seconds()) * 1000)
            }
        }
    }

    /// Instant to wall clock.
    pub(crate) fn to_local(&self, utc: i64) -> i64 {
        utc.saturating_add(self.offset_at(utc))
    }

    /// Wall clock to instant: a time that happens twice is the first, one that never happens is
    /// read with the offset from before the gap.
    pub(crate) fn to_utc(&self, local: i64) -> i64 {
        match self {
            Self::Utc => local,
            Self::Fixed(offset) => local.saturating_sub(*offset),
            Self::Named(zone) => {
                let exact = Timestamp::from_millisecond(local)
                    .ok()
                    .filter(|_| (JIFF_LOW..JIFF_HIGH).contains(&local))
                    .map(|at| -> JiffDateTime { TimeZone::UTC.to_datetime(at) })
                    .and_then(|wall| zone.to_ambiguous_timestamp(wall).compatible().ok());
                match exact {
                    Some(at) => at.as_millisecond(),
                    None => local.saturating_sub(self.offset_at(local)),
                }
            }
        }
    }
}

/// `+hh`, `+hhmm`, `+hh:mm` in milliseconds.
pub(crate) fn fixed(text: &str) -> Option<i64> {
    let negative = text.starts_with('-');
    let digits = text.strip_prefix(['-', '+'])?;
    let (hours, minutes) = match digits.len() {
        1 | 2 => (digits, "0"),
        4 => digits.split_at_checked(2)?,
        5 => digits.split_once(':').filter(|(h, m)| h.len() == 2 && m.len() == 2)?,
        _ => return None,
    };
    let read = |part: &str| {
        part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse::<i64>().ok()).flatten()
    };
    let total = (read(hours)? * 60 + read(minutes)?) * 60_000;
    Some(if negative { -total } else { total })
}

fn unrecognized(name: &str) -> Error {
    Error::location(40485, format!("unrecognized time zone identifier: \"{name}\""))
}
