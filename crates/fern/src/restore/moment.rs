//! Moments as operators write them.

use anyhow::{Result, bail};
use bson::DateTime;
use std::str::FromStr;

/// Up to when a log is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Target {
    /// All there is.
    #[default]
    End,
    /// What was on disk at this moment, in milliseconds since 1970.
    Moment(i64),
    /// Commits up to and with this cluster time: seconds in the upper half, a counter in the lower.
    ClusterTime(u64),
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some((second, counter)) = text.split_once(',')
            && let (Ok(second), Ok(counter)) =
                (second.parse::<u32>(), counter.trim().parse::<u32>())
        {
            return Ok(Self::ClusterTime(u64::from(second) << 32 | u64::from(counter)));
        }
        if let Ok(seconds) = text.parse::<f64>()
            && (0.0..=f64::from(u32::MAX)).contains(&seconds)
        {
            return Ok(Self::Moment((seconds * 1000.0).round() as i64));
        }
        match DateTime::parse_rfc3339_str(text.replacen(' ', "T", 1)) {
            Ok(moment) => Ok(Self::Moment(moment.timestamp_millis())),
            Err(_) => bail!(
                "{text:?} is no time: 2026-11-28T14:05:07Z, 2026-11-28T15:05:07.250+01:00, seconds since 1970, or a \
                 cluster time as SECONDS,COUNTER"
            ),
        }
    }
}

/// A moment for people, and for `--to`.
pub(super) fn shown(wall_ms: i64) -> String {
    let text = DateTime::from_millis(wall_ms).try_to_rfc3339_string();
    text.unwrap_or_else(|_| format!("{wall_ms} ms"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_they_are_written() {
        let second = 1_795_874_707_000;
        for (text, expected) in [
            ("2026-11-28T14:05:07Z", Target::Moment(second)),
            ("2026-11-28 14:05:07Z", Target::Moment(second)),
            ("2026-11-28T15:05:07.250+01:00", Target::Moment(second + 250)),
            ("1795874707", Target::Moment(second)),
            ("1795874707.25", Target::Moment(second + 250)),
            ("7,3", Target::ClusterTime(7 << 32 | 3)),
        ] {
            assert_eq!(text.parse::<Target>().unwrap(), expected, "{text}");
        }
        for wrong in ["", "noon", "-1", "2026-11-28", "2026-11-28T14:05:07", "1,2,3", "nan"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
        assert_eq!(shown(second), "2026-11-28T14:05:07Z");
    }
}
