//! The proleptic Gregorian calendar over all of BSON's date range (±292 million years).
//!
//! Day numbers count from 1970-01-01; the conversions are Howard Hinnant's public-domain
//! era-based algorithms.

use errors::{Code, Error, Result};

/// Milliseconds in a day.
pub(crate) const DAY_MS: i64 = 86_400_000;

/// A moment as calendar and clock fields, in whatever zone the milliseconds were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// Year; 0 is 1 BC.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
    /// 0 to 59.
    pub second: u32,
    /// 0 to 999.
    pub millisecond: u32,
}

impl Civil {
    /// Splits local milliseconds.
    pub fn from_millis(millis: i64) -> Self {
        let (days, rest) = (millis.div_euclid(DAY_MS), millis.rem_euclid(DAY_MS) as u32);
        let (year, month, day) = from_days(days);
        Self {
            year,
            month,
            day,
            hour: rest / 3_600_000,
            minute: rest / 60_000 % 60,
            second: rest / 1000 % 60,
            millisecond: rest % 1000,
        }
    }

    pub(crate) fn days(&self) -> i64 {
        days_from_civil(self.year, i64::from(self.month), i64::from(self.day))
    }

    /// 0 is Sunday.
    pub(crate) fn weekday(&self) -> u32 {
        weekday(self.days())
    }

    pub(crate) fn day_of_year(&self) -> i64 {
        self.days() - days_from_civil(self.year, 1, 1) + 1
    }

    /// Weeks begin on Sundays; days before the first Sunday are in week 0.
    pub(crate) fn week_of_year(&self) -> i64 {
        (self.day_of_year() - 1 + 7 - i64::from(self.weekday())) / 7
    }

    /// ISO 8601 year and week.
    pub(crate) fn iso_week(&self) -> (i64, i64) {
        let days = self.days();
        // The Thursday of this week decides the year.
        let monday_based = i64::from((self.weekday() + 6) % 7);
        let thursday = days - monday_based + 3;
        let (year, _, _) = from_days(thursday);
        (year, (thursday - days_from_civil(year, 1, 1)) / 7 + 1)
    }
}

/// 0 is Sunday; 1970-01-01 was a Thursday.
pub(crate) fn weekday(days: i64) -> u32 {
    (days + 4).rem_euclid(7) as u32
}

/// The day number of a date; month and day must be in range.
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted = (month + 9) % 12;
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The day number of a date whose month and day may lie outside their ranges.
pub(crate) fn days_from_parts(year: i64, month: i64, day: i64) -> i64 {
    let months = month - 1;
    days_from_civil(year + months.div_euclid(12), months.rem_euclid(12) + 1, 1) + day - 1
}

/// The day number of an ISO week date.
pub(crate) fn days_from_iso_week(year: i64, week: i64, day: i64) -> i64 {
    let fourth = days_from_civil(year, 1, 4);
    let monday = fourth - i64::from((weekday(fourth) + 6) % 7);
    monday + (week - 1) * 7 + day - 1
}

fn from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * shifted + 2) / 5 + 1) as u32;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 } as u32;
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// How many days a month has; the month must be in range.
pub(crate) fn days_in_month(year: i64, month: i64) -> i64 {
    days_from_parts(year, month + 1, 1) - days_from_parts(year, month, 1)
}

/// A span of the calendar or the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Unit {
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
}

impl Unit {
    /// Reads a unit's name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "millisecond" => Self::Millisecond,
            "second" => Self::Second,
            "minute" => Self::Minute,
            "hour" => Self::Hour,
            "day" => Self::Day,
            "week" => Self::Week,
            "month" => Self::Month,
            "quarter" => Self::Quarter,
            "year" => Self::Year,
            _ => return None,
        })
    }

    /// Milliseconds, for units of fixed length.
    pub fn fixed_ms(self) -> Option<i64> {
        Some(match self {
            Self::Millisecond => 1,
            Self::Second => 1000,
            Self::Minute => 60_000,
            Self::Hour => 3_600_000,
            Self::Day => DAY_MS,
            Self::Week => 7 * DAY_MS,
            Self::Month | Self::Quarter | Self::Year => return None,
        })
    }

    pub(crate) fn months(self) -> i64 {
        match self {
            Self::Month => 1,
            Self::Quarter => 3,
            Self::Year => 12,
            _ => 0,
        }
    }
}

/// Local milliseconds moved by `amount` units; a day that the month lacks becomes its last.
pub fn add_units(millis: i64, unit: Unit, amount: i64) -> Result<i64> {
    let overflow = || Error::location(5166406, "$dateAdd overflowed".to_owned());
    if let Some(span) = unit.fixed_ms() {
        return span.checked_mul(amount).and_then(|by| millis.checked_add(by)).ok_or_else(overflow);
    }
    let civil = Civil::from_millis(millis);
    let months = unit.months().checked_mul(amount).ok_or_else(overflow)?;
    // Half a billion years is past every BSON date, and small enough for what follows.
    if months.abs() > 6_000_000_000 {
        return Err(overflow());
    }
    let months = civil.year * 12 + i64::from(civil.month) - 1 + months;
    let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
    let day = i64::from(civil.day).min(days_in_month(year, month));
    days_from_civil(year, month, day)
        .checked_mul(DAY_MS)
        .and_then(|ms| ms.checked_add(millis.rem_euclid(DAY_MS)))
        .ok_or_else(overflow)
}

/// An unknown unit's error.
pub(crate) fn unknown_unit(name: &str, op: &str) -> Error {
    Error::new(
        Code::FAILED_TO_PARSE,
        format!(
            "{op} parameter 'unit' value parsing failed :: caused by :: unknown time unit value: \
             {name}"
        ),
    )
}
