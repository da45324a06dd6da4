//! The versions of one key with updates among them, as a merge meets them.
//!
//! A merge hands over what it meets of such a key, newest first, and gets what is to be written: versions that
//! no snapshot tells apart have become one, a put where their base was there or the merge writes leaves,
//! updates combined as far as that goes where it was not.
//!
//! Always true: what is combined is nowhere below, not even as a part of something. After a crash a replay brings
//! again what a lower level may have already, and a read tells by the timestamp: a lower level that has a version
//! has all that is not newer. Combined with something newer it could not be told any more. So only updates are
//! combined that are newer than everything below.

use crate::error::Result;
use crate::message::{Entry, Message, Visibility};
use crate::tombstones::Tombstones;
use crate::updates::{Applied, PlantedUpdateBug, Updates, apply_all, combine};

/// The versions of one key from its newest update on; without a key between two of them.
#[derive(Default)]
pub(crate) struct KeyUpdates {
    is_open: bool,
    key: Vec<u8>,
    /// Newest first.
    versions: Vec<(u64, Content)>,
    /// The oldest source that had one of them.
    deepest: usize,
    /// What came: versions and their weight.
    came: (u64, u64),
}

/// What a version is, on its own.
#[derive(Clone)]
enum Content {
    Put(Vec<u8>),
    Delete,
    Large(Vec<u8>),
    Update(Vec<u8>),
}

impl Content {
    fn of(message: Message<'_>) -> Self {
        match message {
            Message::Put(value) => Self::Put(value.to_vec()),
            Message::Delete => Self::Delete,
            Message::Large(reference) => Self::Large(reference.to_vec()),
            Message::Update(argument) => Self::Update(argument.to_vec()),
        }
    }

    fn message(&self) -> Message<'_> {
        match self {
            Self::Put(value) => Message::Put(value),
            Self::Delete => Message::Delete,
            Self::Large(reference) => Message::Large(reference),
            Self::Update(argument) => Message::Update(argument),
        }
    }
}

/// Says of a key a timestamp at or above all that lies below what a merge writes; `None` where nothing does.
pub(crate) type NewestBelow<'a> = &'a dyn Fn(&[u8]) -> Option<u64>;

/// What a merge knows besides the versions.
pub(crate) struct MergeRules<'a> {
    pub(crate) updates: &'a dyn Updates,
    pub(crate) tree: u64,
    pub(crate) visibility: &'a Visibility,
    /// Where ranges were deleted.
    pub(crate) tombstones: Option<&'a Tombstones>,
    pub(crate) below: NewestBelow<'a>,
}

impl KeyUpdates {
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether a key's versions are gathered, and are those of this one.
    pub(crate) fn is_of(&self, key: &[u8]) -> bool {
        self.is_open && self.key == key
    }

    /// Begins with an update that is kept, of a source.
    pub(crate) fn open(&mut self, update: Entry<'_>, source: usize) {
        self.key.clear();
        self.key.extend_from_slice(update.key);
        (self.is_open, self.deepest, self.came) = (true, source, (1, update.weight()));
        self.versions.clear();
        self.versions.push((update.ts, Content::of(update.message)));
    }

    /// The key's next version; sources count from the newest.
    pub(crate) fn push(&mut self, rules: &MergeRules<'_>, entry: Entry<'_>, source: usize) {
        self.came = (self.came.0 + 1, self.came.1 + entry.weight());
        let again = rules.updates.planted_bug() == Some(PlantedUpdateBug::AppliesReplayAgain);
        if source < self.deepest && !again {
            // What lies lower has a newer one: this one is a replay of what is in it, or below it.
            return;
        }
        // The same version in two sources: the lower one may have more in it.
        if self.versions.last().is_some_and(|(ts, _)| *ts == entry.ts) {
            self.versions.pop();
        }
        self.deepest = self.deepest.max(source);
        self.versions.push((entry.ts, Content::of(entry.message)));
    }

    /// Makes of the versions those that are to be written; `load` reads a value that lies by itself. Says how
    /// many versions went, and their weight.
    pub(crate) fn close(
        &mut self,
        rules: &MergeRules<'_>,
        load: impl Fn(&[u8]) -> Result<Vec<u8>>,
    ) -> Result<(u64, u64)> {
        self.is_open = false;
        let versions = std::mem::take(&mut self.versions);
        // Oldest first.
        let mut kept: Vec<(u64, Content)> = Vec::new();
        // What the key has below the versions at hand, where that is known.
        let newest_below = (rules.below)(&self.key);
        let bottom = newest_below.is_none();
        let mut below = bottom.then_some(Content::Delete);
        let mut end = versions.len();
        for start in told_apart(&versions, rules.visibility).into_iter().rev() {
            let apart = newest_below.unwrap_or(0);
            // What is older than a tombstone is nothing to what is not. Nobody sees it either, unless a snapshot lies
            // between.
            let floor = rules
                .tombstones
                .map_or(0, |tombstones| tombstones.newest_of_key(&self.key, versions[start].0));
            let alive = versions[start..end].iter().take_while(|(ts, _)| *ts >= floor).count();
            if versions.get(start + alive).is_some_and(|(ts, _)| *ts < floor) {
                below = Some(Content::Delete);
            }
            let alive = &versions[start..start + alive];
            self.resolve(alive, (&mut below, apart), &mut kept, rules, &load)?;
            if !bottom {
                // A snapshot lies between: what is above may go further down as an update.
                below = None;
            }
            end = start;
        }
        if bottom {
            let oldest = rules.visibility.oldest();
            kept.retain(|(ts, content)| *ts > oldest || !matches!(content, Content::Delete));
        }
        if let Some(tombstones) = rules.tombstones {
            let (key, oldest) = (&self.key[..], rules.visibility.oldest());
            kept.retain(|(ts, content)| {
                let entry = Entry { key, ts: *ts, message: content.message() };
                !tombstones.may_drop(entry, oldest, bottom)
            });
        }
        kept.reverse();
        self.versions = kept;
        let written: u64 = self.entries().map(|entry| entry.weight()).sum();
        let gone = self.came.0.saturating_sub(self.versions.len() as u64);
        Ok((gone, self.came.1.saturating_sub(written)))
    }

    /// What [`KeyUpdates::close`] has made, newest first.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let key = &self.key;
        self.versions.iter().map(|(ts, content)| Entry { key, ts: *ts, message: content.message() })
    }

    /// Versions, newest first, that nobody tells apart. What is not newer than `apart` is not combined.
    fn resolve(
        &self,
        versions: &[(u64, Content)],
        (below, apart): (&mut Option<Content>, u64),
        kept: &mut Vec<(u64, Content)>,
        rules: &MergeRules<'_>,
        load: impl Fn(&[u8]) -> Result<Vec<u8>>,
    ) -> Result<()> {
        let Some((newest, _)) = versions.first() else { return Ok(()) };
        let is_base = |(_, content): &(u64, Content)| !matches!(content, Content::Update(_));
        let updates = versions.iter().position(is_base).unwrap_or(versions.len());
        if let Some((_, base)) = versions.get(updates) {
            *below = Some(base.clone());
        }
        let oldest_first = versions[..updates].iter().rev().filter_map(|(ts, content)| {
            let Content::Update(argument) = content else { return None };
            Some((*ts, &argument[..]))
        });
        let again = rules.updates.planted_bug() == Some(PlantedUpdateBug::AppliesReplayAgain);
        let Some(base) = below else {
            let first = kept.len();
            for (ts, argument) in oldest_first {
                if kept.len() > first
                    && let Some((last_ts, Content::Update(last))) = kept.last_mut()
                    && (*last_ts > apart || again)
                    && let Some(both) = combine(rules.updates, last, argument)
                {
                    (*last_ts, *last) = (ts, both);
                } else {
                    kept.push((ts, Content::Update(argument.to_vec())));
                }
            }
            return Ok(());
        };
        let loaded;
        let old = match &*base {
            Content::Put(value) => Some(&value[..]),
            Content::Large(reference) => {
                loaded = load(reference)?;
                Some(&loaded[..])
            }
            Content::Delete | Content::Update(_) => None,
        };
        if let Applied::Value(value) =
            apply_all(rules.updates, (rules.tree, &self.key), old, oldest_first)
        {
            *base = Content::Put(value);
        }
        kept.push((*newest, base.clone()));
        Ok(())
    }
}

/// Where versions begin, newest first, between which some snapshot lies.
fn told_apart(versions: &[(u64, Content)], visibility: &Visibility) -> Vec<usize> {
    let mut starts = vec![0];
    let mut newest = versions.first().map_or(0, |(ts, _)| *ts);
    for (at, (ts, _)) in versions.iter().enumerate().skip(1) {
        if visibility.sees_between(*ts, newest) {
            starts.push(at);
            newest = *ts;
        }
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::KeyRange;
    use crate::tombstones::{Tombstone, no_parts};
    use crate::updates::UpdatePlace;

    /// Appends; refuses what begins with `!`, and begins nothing with `?`.
    #[derive(Debug)]
    struct Append;

    impl Updates for Append {
        fn apply(&self, _: UpdatePlace<'_>, old: Option<&[u8]>, argument: &[u8]) -> Applied {
            match (old, argument.first()) {
                (_, Some(b'!')) | (None, Some(b'?')) => Applied::Unchanged,
                (old, _) => Applied::Value([old.unwrap_or_default(), argument].concat()),
            }
        }

        fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
            let plain = |argument: &[u8]| argument.iter().all(u8::is_ascii_lowercase);
            (plain(older) && plain(newer)).then(|| [older, newer].concat())
        }
    }

    /// Versions as `ts=value`, `ts-` or `ts+argument`, with `@` and their source behind.
    fn merged(versions: &str, live: &[u64], bottom: bool) -> String {
        merged_over(versions, live, (!bottom).then_some(0))
    }

    fn merged_over(versions: &str, live: &[u64], below: Option<u64>) -> String {
        merged_under(versions, live, below, &[])
    }

    /// The same where the key was deleted by tombstones.
    fn merged_under(versions: &str, live: &[u64], below: Option<u64>, deleted: &[u64]) -> String {
        let visibility = Visibility::new(100, live);
        let (visibility, below) = (&visibility, &|_: &[u8]| below);
        let list = deleted.iter().map(|ts| Tombstone::new(*ts, &KeyRange::all(), &[]));
        let tombstones = Tombstones::new(list.collect(), no_parts, None);
        let tombstones = tombstones.as_ref();
        let rules = MergeRules { updates: &Append, tree: 1, visibility, tombstones, below };
        let mut key = KeyUpdates::default();
        for version in versions.split_whitespace() {
            let (version, source) = version.split_once('@').unwrap_or((version, "0"));
            let at = version.find(['=', '-', '+']).unwrap();
            let payload = &version.as_bytes()[at + 1..];
            let message = match version.as_bytes()[at] {
                b'=' => Message::Put(payload),
                b'-' => Message::Delete,
                _ => Message::Update(payload),
            };
            let entry = Entry { key: b"k", ts: version[..at].parse().unwrap(), message };
            let source = source.parse().unwrap();
            if key.is_of(b"k") { key.push(&rules, entry, source) } else { key.open(entry, source) }
        }
        key.close(&rules, |reference| Ok(reference.to_vec())).unwrap();
        let text = key.entries().map(|entry| {
            let payload = String::from_utf8_lossy(entry.message.payload()).into_owned();
            let sign = match entry.message {
                Message::Put(_) | Message::Large(_) => '=',
                Message::Delete => '-',
                Message::Update(_) => '+',
            };
            format!("{}{sign}{payload}", entry.ts)
        });
        text.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn updates_without_their_base_are_combined() {
        assert_eq!(merged("9+c 7+b 5+a", &[], false), "9+abc");
        assert_eq!(merged("9+c 7+B 5+a", &[], false), "9+c 7+B 5+a");
        assert_eq!(merged("9+d 8+c 7+b 5+a", &[7], false), "9+cd 7+ab");
        assert_eq!(merged("120+d 110+c 9+b 5+a", &[], false), "120+d 110+c 9+ab");
    }

    #[test]
    fn updates_are_folded_where_they_meet_their_base() {
        assert_eq!(merged("9+c 7+b 5=a 3=x", &[], false), "9=abc");
        assert_eq!(merged("9+c 7+b 5-", &[], false), "9=bc");
        assert_eq!(merged("9+c 7+b 5=a", &[7], false), "9+c 7=ab");
        assert_eq!(merged("9+c 7+b 5=a", &[7], true), "9=abc 7=ab");
        assert_eq!(merged("9+c 7+b", &[], true), "9=bc");
        assert_eq!(merged("9+!c 7+?b", &[], true), "");
        assert_eq!(merged("9+!c 7+?b", &[8], true), "9-");
        assert_eq!(merged("9+!c 5=a", &[], true), "9=a");
        assert_eq!(merged("9+!c 5-", &[4], true), "9-");
    }

    #[test]
    fn what_a_tombstone_has_deleted_is_no_base() {
        let under = |versions, live, below| merged_under(versions, live, below, &[8]);
        assert_eq!(under("9+c 7+b 5=a", &[], Some(0)), "9=c");
        assert_eq!(under("9+c 8+b 5=a", &[], None), "9=bc");
        assert_eq!(
            under("9+c", &[], Some(0)),
            "9+c",
            "what is below may be newer than the tombstone"
        );
        assert_eq!(under("9+?c 7=b", &[], Some(0)), "9-");
        assert_eq!(under("9+c 7+b 5=a", &[7], Some(0)), "9=c 7=ab");
        assert_eq!(under("9+c 7+b 5=a", &[8], Some(0)), "9=c", "it is dead for that snapshot");
        assert_eq!(under("9+d 7+c 5=b 3=a", &[4, 6], None), "9=d 5=b 3=a");
        let twice = merged_under("12+d 9+c 7+b 5=a", &[], Some(0), &[6, 10]);
        assert_eq!(twice, "12=d");
    }

    #[test]
    fn what_may_be_below_already_is_not_combined() {
        assert_eq!(merged_over("12+d 9+c 7+b 5+a", &[], Some(7)), "12+cd 7+b 5+a");
        assert_eq!(merged_over("12+d 9+c", &[], Some(9)), "12+d 9+c");
        assert_eq!(merged_over("12+d 9=c", &[], Some(9)), "12=cd");
    }

    #[test]
    fn what_a_replay_brings_again_is_applied_once() {
        // The lower source has combined or folded what the upper one brings again.
        assert_eq!(merged("9+c@0 9+abc@1 7+b@0 5+a@0 3=x@2", &[], false), "9=xabc");
        assert_eq!(merged("9+c@0 9=abc@1 7+b@0 5=a@0", &[], true), "9=abc");
        assert_eq!(merged("12+d@0 9+c@0 9+abc@1 7+b@0 5+a@0", &[], true), "12=abcd");
        assert_eq!(merged("9+c@0 7+b@0 7+ab@1 5+a@0", &[], true), "9=abc");
    }
}
