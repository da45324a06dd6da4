//! How long the log stays for the history's sake.
//!
//! A file of the log goes when nobody needs it any more, the log is above its length, and the newest
//! commit in the file is older than the least age. Where the disk is short the history goes before
//! anything else.
//!
//! Always true: a commit goes with its first chunk. So files go one after the other however many large commits lie
//! across their ends: the history is as much longer than it has to be as the longest of them, and no more.

use super::{Beginning, History};
use crate::log::Log;
use crate::records::Record;
use crate::{Cause, Error, Result};
use std::sync::atomic::Ordering;
use std::time::Duration;
use wal::LiveReader;

/// So many bytes without a point are read to find the last commit in them. There are more only where
/// nothing was read since the start.
const MOST_LOOKED_AT: u64 = 1 << 20;

/// What is known of the oldest file of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Oldest {
    /// One past its last position.
    end: u64,
    /// Bytes of it.
    bytes: u64,
    /// Bytes of log without it.
    bytes_left: u64,
    /// Bytes of those that are of no use then: up to the last commit that has chunks in the file.
    lost: u64,
    /// Seconds since 1970 of its newest commit; `None` where that is not known.
    newest_second: Option<u64>,
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rules {
    /// Redo and backups need everything from here on.
    needed: u64,
    bytes: u64,
    min_age: Duration,
    now_second: u64,
    /// The disk is short: so many bytes are to stay, whatever their age.
    short: Option<u64>,
}

/// Whether the oldest file goes.
fn goes(oldest: &Oldest, rules: &Rules) -> bool {
    if oldest.end > rules.needed {
        return false;
    }
    if let Some(stay) = rules.short
        && oldest.bytes_left.saturating_add(oldest.bytes) > stay
    {
        return true;
    }
    if oldest.bytes_left.saturating_sub(oldest.lost) < rules.bytes {
        return false;
    }
    let age = |second: u64| Duration::from_secs(rules.now_second.saturating_sub(second));
    rules.min_age.is_zero() || oldest.newest_second.is_none_or(|second| age(second) > rules.min_age)
}

/// Lets go of what neither redo nor the history wants of the log; with `short` the history wants so many
/// bytes at most. Touches the disk.
pub(crate) fn trim(log: &Log, history: Option<&History>, short: Option<u64>) -> Result<()> {
    let needed = log.may_go_before();
    let Some(history) = history else { return log.cut(needed) };
    let from = history.keep_from(needed, short);
    history.before_cut(from);
    log.cut(from)?;
    history.forget(log.wal().first_lsn());
    Ok(())
}

impl History {
    /// Where the log may begin, given that redo and backups need it from `needed` on. With `short` so
    /// many bytes are to stay at most, whatever was asked for.
    pub(crate) fn keep_from(&self, needed: u64, short: Option<u64>) -> u64 {
        let options = self.options();
        let wal = self.log.wal();
        let now = u64::try_from(self.clock.wall_ms() / 1000).unwrap_or(0);
        let rules = Rules {
            needed,
            bytes: options.bytes,
            min_age: options.min_age,
            now_second: now,
            short,
        };
        let bounds = wal.segment_bounds();
        let mut from = bounds.first().copied().unwrap_or(needed);
        let mut left = wal.disk_bytes();
        for ends in bounds.windows(2) {
            let [first, end] = *ends else { break };
            let bytes = end.saturating_sub(first);
            left = left.saturating_sub(bytes);
            let until = self.points.lock().lost_until(end);
            let newest_second = if options.min_age.is_zero() || short.is_some() || end > needed {
                None
            } else {
                self.second_before(until.saturating_add(1))
            };
            debug_assert!(until >= end, "a commit that is cut ends behind the cut");
            let lost = until.saturating_sub(end);
            if !goes(&Oldest { end, bytes, bytes_left: left, lost, newest_second }, &rules) {
                break;
            }
            from = end;
        }
        from.min(needed)
    }

    /// The second of the newest commit before a position, at most: one that is a little younger is
    /// taken for it. `None` where the log cannot be read there.
    fn second_before(&self, position: u64) -> Option<u64> {
        let known = self.points.lock().last_before(position);
        if let Some(point) = known {
            return Some(point.time >> 32);
        }
        let behind = self.time_behind(position, self.times.durable().end);
        self.or_none(behind, position).map(|time| time >> 32)
    }

    /// Damage is logged once; length alone decides then.
    fn or_none(&self, found: Result<Option<u64>>, position: u64) -> Option<u64> {
        match found {
            Ok(found) => found,
            Err(error) => {
                let is_lost =
                    matches!(error, Error::Corruption(Cause::Log(wal::Error::Missing { .. })));
                if !is_lost && self.told_damage.swap(position, Ordering::Relaxed) != position {
                    tracing::error!(%error, "the history cannot be read where its age was asked for");
                }
                None
            }
        }
    }

    /// The log will be cut at `position`, as far as whole files go: what goes is looked up first.
    pub(crate) fn before_cut(&self, position: u64) {
        let wal = self.log.wal();
        let cut = wal.segment_bounds().into_iter().rfind(|first| *first <= position);
        let Some(cut) = cut.filter(|cut| *cut > wal.first_lsn()) else { return };
        match self.last_time_before(cut) {
            Ok(None) => {}
            Ok(Some(time)) => {
                // Where it cannot be told it is looked for anew.
                if let Some(first_frame) = self.first_frame(cut) {
                    let damage = None;
                    *self.beginning.lock() = Some(Beginning { at: cut, time, first_frame, damage });
                }
            }
            Err(error) => drop(self.or_none(Err(error), cut)),
        }
    }

    /// Where the first frame at or behind a position begins, while what is before it is there.
    fn first_frame(&self, position: u64) -> Option<u64> {
        let mut reader = LiveReader::default();
        let found = reader.seek_frame(self.log.wal(), position, self.times.durable().end);
        let first = found.map(|found| found.then(|| reader.position())).map_err(Error::from);
        self.or_none(first, position)
    }

    /// The last time of the commits whose records begin before `cut`, or have chunks there; `None` where that would
    /// take long to find.
    fn last_time_before(&self, cut: u64) -> Result<Option<u64>> {
        let (wal, durable) = (self.log.wal(), self.times.durable());
        let first = self.begins_at();
        if cut <= self.floor() {
            // What goes is not history: the last time in it says nothing of commits that have none.
            return Ok(None);
        }
        let until = self.points.lock().lost_until(cut);
        let cut = if until > cut { until.saturating_add(1) } else { cut };
        if cut >= durable.end {
            return Ok(Some(durable.time));
        }
        let (mut reader, mut last) = (LiveReader::default(), None);
        if let Some(point) = self.points.lock().last_before(cut) {
            reader.seek(point.position);
        } else {
            if cut.saturating_sub(first) > MOST_LOOKED_AT {
                return Ok(None);
            }
            // Where no commit goes now, what went before is still the last that went.
            last =
                (*self.beginning.lock()).filter(|known| known.at == first).map(|known| known.time);
            // Where history begins a record does.
            if first == self.floor() {
                reader.seek(first);
            } else if !reader.seek_frame(wal, first, durable.end)? {
                return Ok(last);
            }
        }
        while reader.position() < cut {
            let Some(record) = reader.next_record(wal, durable.end)? else { break };
            if record.lsn >= cut {
                break;
            }
            let damaged = |e| Error::in_record(record.lsn, e);
            if let Record::Commit { history: Some(head), .. } =
                Record::decode(record.payload).map_err(damaged)?
                && !self.is_void(record.lsn)
            {
                last = Some(head.last_time());
            }
        }
        Ok(last)
    }

    /// The log begins at `position` now.
    pub(crate) fn forget(&self, position: u64) {
        let mut points = self.points.lock();
        points.forget(position);
        self.log.set_index_bytes(points.memory_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_file_goes_when_nobody_wants_it() {
        const RULES: Rules = Rules {
            needed: 1000,
            bytes: 300,
            min_age: Duration::from_mins(1),
            now_second: 5000,
            short: None,
        };
        const OLDEST: Oldest =
            Oldest { end: 100, bytes: 50, bytes_left: 300, lost: 0, newest_second: Some(4000) };
        let no_age = Rules { min_age: Duration::ZERO, ..RULES };
        let short = Rules { short: Some(200), ..RULES };
        for (what, oldest, rules, expected) in [
            ("long and old", OLDEST, RULES, true),
            ("needed by redo", Oldest { end: 1001, ..OLDEST }, RULES, false),
            ("just not needed", Oldest { end: 1000, ..OLDEST }, RULES, true),
            ("the rest were too short", Oldest { bytes_left: 299, ..OLDEST }, RULES, false),
            ("the rest were lost", Oldest { lost: 1, ..OLDEST }, RULES, false),
            (
                "enough besides what is lost",
                Oldest { bytes_left: 310, lost: 10, ..OLDEST },
                RULES,
                true,
            ),
            ("too young", Oldest { newest_second: Some(4940), ..OLDEST }, RULES, false),
            ("old enough", Oldest { newest_second: Some(4939), ..OLDEST }, RULES, true),
            ("from the future", Oldest { newest_second: Some(9000), ..OLDEST }, RULES, false),
            ("damaged: length decides", Oldest { newest_second: None, ..OLDEST }, RULES, true),
            ("no age", Oldest { newest_second: Some(5000), ..OLDEST }, no_age, true),
            ("no age, too short", Oldest { bytes_left: 299, ..OLDEST }, no_age, false),
            ("short disk", Oldest { newest_second: Some(5000), ..OLDEST }, short, true),
            ("short disk, short log", Oldest { bytes_left: 151, ..OLDEST }, short, true),
            ("enough is gone", Oldest { bytes_left: 150, ..OLDEST }, short, false),
            ("short disk, needed", Oldest { end: 1001, ..OLDEST }, short, false),
        ] {
            assert_eq!(goes(&oldest, &rules), expected, "{what}");
        }
    }
}
