//! Dates as text and back: `%`-formats and free text.

use crate::agg::date::civil::{Civil, DAY_MS, days_from_iso_week, days_from_parts, days_in_month};
use crate::agg::date::zone::{Zone, fixed};
use errors::{Code, Error, Result};
use std::fmt::Write as _;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// ISO 8601 in UTC with milliseconds, as `$toString` prints dates.
pub(crate) fn iso(utc: i64) -> String {
    let c = Civil::from_millis(utc);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        c.year, c.month, c.day, c.hour, c.minute, c.second, c.millisecond
    )
}

const PRINTABLE: &str = "bBdGHjLmMSuUVwYzZ%";
const PARSEABLE: &str = "bBdGHjLmMSuVYzZ%";

/// Refuses a `$dateToString` format that could not be printed.
pub(crate) fn check_print_format(format: &str) -> Result<()> {
    check_format(format, PRINTABLE)
}

/// Refuses a `$dateFromString` format that could not be read.
pub(crate) fn check_parse_format(format: &str) -> Result<()> {
    check_format(format, PARSEABLE)
}

fn check_format(format: &str, known: &str) -> Result<()> {
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            continue;
        }
        match chars.next() {
            None => {
                return Err(Error::location(18535, "Unmatched '%' at end of format string"));
            }
            Some(c) if known.contains(c) => {}
            Some(c) => {
                return Err(Error::location(
                    18536,
                    format!("Invalid format character '%{c}' in format string"),
                ));
            }
        }
    }
    Ok(())
}

/// Prints an instant by a format.
pub(crate) fn print(format: &str, utc: i64, zone: &Zone) -> Result<String> {
    let offset = zone.offset_at(utc);
    let c = Civil::from_millis(utc.saturating_add(offset));
    let mut out = String::with_capacity(format.len() + 16);
    let mut chars = format.chars();
    while let Some(char) = chars.next() {
        if char != '%' {
            out.push(char);
            continue;
        }
        print_one(&mut out, chars.next().unwrap_or('%'), &c, offset)?;
    }
    Ok(out)
}

fn print_one(out: &mut String, specifier: char, c: &Civil, offset: i64) -> Result<()> {
    let minutes = offset / 60_000;
    let sign = if minutes < 0 { '-' } else { '+' };
    let year = |year: i64| {
        if (0..=9999).contains(&year) {
            return Ok(year);
        }
        Err(Error::location(
            18537,
            format!(
                "Could not convert date to string: date component was outside the supported \
                 range of 0-9999: {year}"
            ),
        ))
    };
    let month = MONTHS[(c.month as usize - 1).min(11)];
    let written = match specifier {
        'Y' => write!(out, "{:04}", year(c.year)?),
        'm' => write!(out, "{:02}", c.month),
        'd' => write!(out, "{:02}", c.day),
        'H' => write!(out, "{:02}", c.hour),
        'M' => write!(out, "{:02}", c.minute),
        'S' => write!(out, "{:02}", c.second),
        'L' => write!(out, "{:03}", c.millisecond),
        'j' => write!(out, "{:03}", c.day_of_year()),
        'w' => write!(out, "{}", c.weekday() + 1),
        'u' => write!(out, "{}", (c.weekday() + 6) % 7 + 1),
        'U' => write!(out, "{:02}", c.week_of_year()),
        'V' => write!(out, "{:02}", c.iso_week().1),
        'G' => write!(out, "{:04}", year(c.iso_week().0)?),
        'b' => write!(out, "{}", &month[..3]),
        'B' => write!(out, "{month}"),
        'z' => write!(out, "{sign}{:02}{:02}", minutes.abs() / 60, minutes.abs() % 60),
        'Z' => write!(out, "{sign}{:03}", minutes.abs()),
        other => write!(out, "{other}"),
    };
    written.expect("a String takes every write");
    Ok(())
}

fn failure(text: &str, reason: &str) -> Error {
    Error::new(Code::CONVERSION_FAILURE, format!("Error parsing date string '{text}'; {reason}"))
}

/// What has been read of a date.
#[derive(Default)]
struct Read {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    iso: (Option<i64>, Option<i64>, Option<i64>),
    day_of_year: Option<i64>,
    clock_ms: i64,
    offset: Option<i64>,
    zone: Option<Zone>,
}

impl Read {
    fn finish(&self, text: &str, default: &Zone) -> Result<i64> {
        let natural = self.year.or(self.month).or(self.day).or(self.day_of_year).is_some();
        let weekly = self.iso.0.or(self.iso.1).or(self.iso.2).is_some();
        if natural && weekly {
            return Err(failure(text, "Mixing of ISO dates with natural dates is not allowed"));
        }
        let invalid = || failure(text, "The parsed date was invalid");
        let days = if let (Some(year), week, day) = self.iso {
            let (week, day) = (week.unwrap_or(1), day.unwrap_or(1));
            if !(1..=53).contains(&week) || !(1..=7).contains(&day) {
                return Err(invalid());
            }
            days_from_iso_week(year, week, day)
        } else {
            let year = self.year.ok_or_else(|| {
                failure(
                    text,
                    "an incomplete date/time string has been found, with elements missing",
                )
            })?;
            if let Some(day) = self.day_of_year {
                if !(1..=366).contains(&day) {
                    return Err(invalid());
                }
                days_from_parts(year, 1, day)
            } else {
                let (month, day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
                if !(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day) {
                    return Err(invalid());
                }
                days_from_parts(year, month, day)
            }
        };
        let local = days * DAY_MS + self.clock_ms;
        Ok(match (self.offset, &self.zone) {
            (Some(offset), _) => local - offset,
            (None, Some(zone)) => zone.to_utc(local),
            (None, None) => default.to_utc(local),
        })
    }
}

/// A reader over the text; every step either advances or fails.
struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.rest().starts_with(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    /// Between `least` and `most` digits.
    fn digits(&mut self, least: usize, most: usize) -> Result<i64> {
        let len = self.rest().bytes().take(most).take_while(u8::is_ascii_digit).count();
        if len < least {
            return Err(self.unexpected());
        }
        let value = self.rest()[..len].parse().map_err(|_| self.unexpected())?;
        self.at += len;
        Ok(value)
    }

    fn word(&mut self) -> &'t str {
        let len = self.rest().bytes().take_while(u8::is_ascii_alphabetic).count();
        let word = &self.rest()[..len];
        self.at += len;
        word
    }

    /// The zone or offset that ends a text; nothing is fine too.
    fn zone(&mut self, read: &mut Read) -> Result<()> {
        let rest = self.rest().trim();
        if rest.is_empty() {
            self.at = self.text.len();
            return Ok(());
        }
        if rest.starts_with(['+', '-']) {
            read.offset = Some(fixed(rest).ok_or_else(|| self.unexpected())?);
        } else {
            let name = if rest.eq_ignore_ascii_case("z") { "UTC" } else { rest };
            read.zone = Some(Zone::parse(name).map_err(|_| self.unexpected())?);
        }
        self.at = self.text.len();
        Ok(())
    }

    fn unexpected(&self) -> Error {
        let at = self.rest().chars().next().unwrap_or(' ');
        failure(self.text, &format!("{}: Unexpected character '{at}'", self.at))
    }
}

fn month_of(word: &str) -> Option<i64> {
    if word.len() < 3 {
        return None;
    }
    let found = MONTHS.iter().position(|month| {
        month.eq_ignore_ascii_case(word)
            || (word.len() == 3 && month[..3].eq_ignore_ascii_case(word))
    })?;
    Some(found as i64 + 1)
}

/// Reads a date by a format.
pub(crate) fn parse(format: &str, text: &str, default: &Zone) -> Result<i64> {
    let mut reader = Reader { text, at: 0 };
    let mut read = Read::default();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            if !reader.eat(c) {
                return Err(reader.unexpected());
            }
            continue;
        }
        parse_one(&mut reader, &mut read, chars.next().unwrap_or('%'))?;
    }
    if !reader.rest().is_empty() {
        return Err(failure(text, "Trailing data"));
    }
    let partly = read.month.is_none() || read.day.is_none();
    if read.year.is_some() && partly && read.day_of_year.is_none() {
        return Err(failure(
            text,
            "an incomplete date/time string has been found, with elements missing",
        ));
    }
    read.finish(text, default)
}

fn parse_one(reader: &mut Reader<'_>, read: &mut Read, specifier: char) -> Result<()> {
    match specifier {
        'Y' => read.year = Some(reader.digits(4, 4)?),
        'm' => read.month = Some(reader.digits(1, 2)?),
        'd' => read.day = Some(reader.digits(1, 2)?),
        'b' | 'B' => {
            let word = reader.word();
            read.month = Some(month_of(word).ok_or_else(|| reader.unexpected())?);
        }
        'j' => read.day_of_year = Some(reader.digits(1, 3)?),
        'G' => read.iso.0 = Some(reader.digits(4, 4)?),
        'V' => read.iso.1 = Some(reader.digits(1, 2)?),
        'u' => read.iso.2 = Some(reader.digits(1, 1)?),
        'H' => read.clock_ms += bounded(reader, 1, 23)? * 3_600_000,
        'M' => read.clock_ms += bounded(reader, 2, 59)? * 60_000,
        'S' => read.clock_ms += bounded(reader, 2, 60)? * 1000,
        // Fewer digits are tenths and hundredths.
        'L' => {
            let before = reader.at;
            let value = reader.digits(1, 3)?;
            let given = (reader.at - before) as u32;
            read.clock_ms += value * 10_i64.pow(3 - given.min(3));
        }
        'z' => {
            let len = reader
                .rest()
                .bytes()
                .take(6)
                .take_while(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b':'))
                .count();
            if reader.eat('Z') {
                read.offset = Some(0);
            } else {
                let offset = fixed(&reader.rest()[..len]).ok_or_else(|| reader.unexpected())?;
                read.offset = Some(offset);
                reader.at += len;
            }
        }
        'Z' => {
            let negative = reader.eat('-');
            if !negative && !reader.eat('+') {
                return Err(reader.unexpected());
            }
            let minutes = reader.digits(1, 4)?;
            read.offset = Some(if negative { -minutes } else { minutes } * 60_000);
        }
        other => {
            if !reader.eat(other) {
                return Err(reader.unexpected());
            }
        }
    }
    Ok(())
}

fn bounded(reader: &mut Reader<'_>, least: usize, most: i64) -> Result<i64> {
    let value = reader.digits(least, 2)?;
    if value > most { Err(reader.unexpected()) } else { Ok(value) }
}

/// Reads a date without a format: ISO 8601 in its usual spellings (`2017-02-08`,
/// `2017-02-08T12:10:40.787Z`, `20170208T121040`, `2017/02/08 12:10+0200`), `July 4, 2017` and
/// `4 Jul 2017`, each with an optional time and zone.
pub(crate) fn parse_any(text: &str, default: &Zone) -> Result<i64> {
    let mut reader = Reader { text, at: text.len() - text.trim_start().len() };
    let mut read = Read::default();
    free_date(&mut reader, &mut read)?;
    if !reader.rest().is_empty() && (reader.eat('T') || reader.eat('t') || reader.eat(' ')) {
        while reader.eat(' ') {}
        if reader.rest().starts_with(|c: char| c.is_ascii_digit()) {
            free_clock(&mut reader, &mut read)?;
        }
    }
    reader.zone(&mut read)?;
    read.finish(text, default)
}

fn free_date(reader: &mut Reader<'_>, read: &mut Read) -> Result<()> {
    if reader.rest().starts_with(|c: char| c.is_ascii_alphabetic()) {
        let mut word = reader.word();
        // A weekday's name in front tells nothing new.
        if month_of(word).is_none() {
            reader.eat(',');
            reader.eat(' ');
            if reader.rest().starts_with(|c: char| c.is_ascii_digit()) {
                return day_first(reader, read);
            }
            word = reader.word();
        }
        read.month = Some(month_of(word).ok_or_else(|| reader.unexpected())?);
        reader.eat('.');
        reader.eat(' ');
        read.day = Some(reader.digits(1, 2)?);
        for suffix in ["st", "nd", "rd", "th"] {
            if reader.rest().starts_with(suffix) {
                reader.at += 2;
            }
        }
        reader.eat(',');
        reader.eat(' ');
        read.year = Some(reader.digits(4, 4)?);
        return Ok(());
    }
    let digits = reader.rest().bytes().take_while(u8::is_ascii_digit).count();
    if digits <= 2 {
        let slashed = reader.rest().as_bytes().get(digits) == Some(&b'/');
        return if slashed { american(reader, read) } else { day_first(reader, read) };
    }
    read.year = Some(reader.digits(4, 4)?);
    if digits >= 8 {
        read.month = Some(reader.digits(2, 2)?);
        read.day = Some(reader.digits(2, 2)?);
        return Ok(());
    }
    let separator = if reader.eat('/') {
        '/'
    } else if reader.eat('-') {
        '-'
    } else {
        return Err(reader.unexpected());
    };
    if separator == '-' && reader.eat('W') {
        read.iso = (read.year.take(), Some(reader.digits(2, 2)?), Some(1));
        if reader.eat('-') {
            read.iso.2 = Some(reader.digits(1, 1)?);
        }
        return Ok(());
    }
    read.month = Some(reader.digits(1, 2)?);
    if reader.eat(separator) {
        read.day = Some(reader.digits(1, 2)?);
    }
    Ok(())
}

/// `4 July 2017`, `04-Jul-2017`.
fn day_first(reader: &mut Reader<'_>, read: &mut Read) -> Result<()> {
    read.day = Some(reader.digits(1, 2)?);
    let dashed = reader.eat('-');
    if !dashed {
        reader.eat(' ');
    }
    let word = reader.word();
    read.month = Some(month_of(word).ok_or_else(|| reader.unexpected())?);
    if !(if dashed { reader.eat('-') } else { reader.eat(' ') }) {
        return Err(reader.unexpected());
    }
    read.year = Some(reader.digits(4, 4)?);
    Ok(())
}

/// `07/04/2017`: month first.
fn american(reader: &mut Reader<'_>, read: &mut Read) -> Result<()> {
    read.month = Some(reader.digits(1, 2)?);
    reader.eat('/');
    read.day = Some(reader.digits(1, 2)?);
    if !reader.eat('/') {
        return Err(reader.unexpected());
    }
    read.year = Some(reader.digits(4, 4)?);
    Ok(())
}

/// `hh[:mm[:ss[.fff]]][ am|pm]`, or `hhmmss`.
fn free_clock(reader: &mut Reader<'_>, read: &mut Read) -> Result<()> {
    let compact = reader.rest().bytes().take_while(u8::is_ascii_digit).count() >= 4;
    let mut hour = reader.digits(1, 2)?;
    let (mut minute, mut second, mut millis) = (0, 0, 0);
    if compact || reader.eat(':') {
        minute = reader.digits(2, 2)?;
        let more = reader.rest().starts_with(|c: char| c.is_ascii_digit());
        if (compact && more) || reader.eat(':') {
            second = reader.digits(2, 2)?;
            if reader.eat('.') || reader.eat(',') {
                let digits = reader.rest().bytes().take_while(u8::is_ascii_digit).count();
                let kept = digits.min(3);
                millis = reader.digits(1, 3)? * 10_i64.pow(3 - kept as u32);
                reader.at += digits - kept;
            }
        }
    }
    let rest = reader.rest().trim_start().to_ascii_lowercase();
    let alone = !rest.as_bytes().get(2).is_some_and(u8::is_ascii_alphabetic);
    if alone && (rest.starts_with("am") || rest.starts_with("pm")) {
        reader.at = reader.text.len() - reader.rest().trim_start().len() + 2;
        hour = hour % 12 + if rest.starts_with("pm") { 12 } else { 0 };
    }
    if hour > 24 || minute > 59 || second > 60 {
        return Err(reader.unexpected());
    }
    read.clock_ms = ((hour * 60 + minute) * 60 + second) * 1000 + millis;
    Ok(())
}
