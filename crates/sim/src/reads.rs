//! Snapshots that are held, cursors that live across other work, and whole comparisons.

use crate::features::Feature;
use crate::model::{Contents, Overlay};
use crate::world::World;
use anyhow::{Context, Result, ensure};
use engine::{Cursor, DictionaryId, Direction, Engine, Error, KeyRange, Snapshot};
use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};
use testkit::Gen;

/// A cursor on its way, and what it has yet to show.
pub(crate) struct Walk {
    cursor: Cursor,
    direction: Direction,
    left: VecDeque<(Vec<u8>, Vec<u8>)>,
}

impl Walk {
    fn new(cursor: Cursor, range: &KeyRange, direction: Direction, all: Contents) -> Self {
        let bounds = (range.lower.clone(), range.upper.clone());
        let inside = all.into_iter().filter(|(key, _)| bounds.contains(key));
        let mut left: VecDeque<_> = inside.collect();
        if direction == Direction::Backward {
            left.make_contiguous().reverse();
        }
        Self { cursor, direction, left }
    }

    /// Some entries further; false at the end.
    fn go_on(&mut self, random: &mut Gen, keys: u64, most: u64) -> Result<Result<bool, Error>> {
        for _ in 0..most {
            match random.below(12) {
                0 => self.cursor.park(),
                1 => {
                    let to = random.key(keys);
                    if let Err(error) = self.cursor.seek(&to) {
                        return Ok(Err(error));
                    }
                    while self.left.front().is_some_and(|(key, _)| match self.direction {
                        Direction::Forward => *key < to,
                        Direction::Backward => *key > to,
                    }) {
                        self.left.pop_front();
                    }
                }
                _ => {}
            }
            let seen = match self.cursor.next() {
                Ok(seen) => seen,
                Err(error) => return Ok(Err(error)),
            };
            let expected = self.left.pop_front();
            let same = seen == expected.as_ref().map(|(key, value)| (&key[..], &value[..]));
            ensure!(same, "a cursor shows {seen:?}, not {expected:?}");
            if expected.is_none() {
                return Ok(Ok(false));
            }
        }
        Ok(Ok(true))
    }
}

fn bound(random: &mut Gen, keys: u64) -> Bound<Vec<u8>> {
    match random.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(random.key(keys)),
        _ => Bound::Excluded(random.key(keys)),
    }
}

impl World {
    /// A cursor of a transaction (its own writes over its snapshot) or of a held snapshot.
    pub(crate) fn scan(&mut self, who: Option<usize>) -> Result<()> {
        let Some((mut walk, own)) = self.open_walk(who)? else { return Ok(()) };
        let keys = self.setup.keys;
        let most = if own { u64::MAX } else { self.random.below(20) };
        match walk.go_on(&mut self.random, keys, most)? {
            // A transaction's cursor goes with it; a snapshot's may live on.
            Ok(true) if self.walks.len() < 4 => self.walks.push(walk),
            Ok(_) => {}
            Err(error) => return self.excuse("scan", &error),
        }
        Ok(())
    }

    fn open_walk(&mut self, who: Option<usize>) -> Result<Option<(Walk, bool)>> {
        let keys = self.setup.keys;
        let all = self.model.dictionaries(self.model.newest);
        let dictionary = self.random.pick(&all).copied().unwrap_or(DictionaryId::ROOT.0);
        let direction =
            if self.random.one_in(2) { Direction::Forward } else { Direction::Backward };
        let range =
            KeyRange { lower: bound(&mut self.random, keys), upper: bound(&mut self.random, keys) };
        let none = Overlay::new();
        let id = DictionaryId(dictionary);
        let (cursor, at, own) = if let Some(who) = who {
            let client = &self.clients[who];
            let cursor = client.txn.cursor(id, range.clone(), direction);
            (cursor, client.snapshot, &client.changes.writes)
        } else {
            let Some(snapshot) = self.random.pick(&self.snapshots) else { return Ok(None) };
            let cursor = snapshot.cursor(id, range.clone(), direction);
            (cursor, snapshot.timestamp().0, &none)
        };
        match cursor {
            Ok(cursor) => {
                let visible = self.model.exists(dictionary, at);
                ensure!(visible, "dictionary {dictionary} is shown at {at}");
                let contents = self.model.contents(dictionary, at, own);
                Ok(Some((Walk::new(cursor, &range, direction, contents), who.is_some())))
            }
            Err(Error::NoSuchDictionary(_)) if !self.model.exists(dictionary, at) => Ok(None),
            Err(error) => self.excuse("open cursor", &error).map(|()| None),
        }
    }

    pub(crate) fn walk_on(&mut self) -> Result<()> {
        if self.walks.is_empty() {
            return Ok(());
        }
        let mut walk = self.walks.swap_remove(self.random.below(self.walks.len() as u64) as usize);
        let (keys, most) = (self.setup.keys, self.random.below(30));
        match walk.go_on(&mut self.random, keys, most)? {
            Ok(true) => self.walks.push(walk),
            Ok(false) => {}
            Err(error) => return self.excuse("go on with a cursor", &error),
        }
        Ok(())
    }

    pub(crate) fn hold_or_release(&mut self) -> Result<()> {
        let most = if self.features.has(Feature::Snapshots) { 6 } else { 1 };
        if self.snapshots.len() < most && !self.random.one_in(3) {
            let snapshot = self.engine()?.snapshot();
            let at = snapshot.timestamp().0;
            ensure!(at == self.model.newest, "a snapshot of now is at {at}");
            self.snapshots.push(snapshot);
        } else if !self.snapshots.is_empty() {
            let which = self.random.below(self.snapshots.len() as u64) as usize;
            drop(self.snapshots.swap_remove(which));
        }
        Ok(())
    }

    /// Everything there is now, and everything one held snapshot shows, against the model.
    pub(crate) fn compare(&mut self) -> Result<()> {
        let engine = self.engine()?;
        self.note("compare");
        let now = engine.snapshot();
        let at = now.timestamp().0;
        ensure!(at == self.model.newest, "a snapshot of now is at {at}");
        let found: Vec<u64> = engine.dictionaries().iter().map(|(id, _)| id.0).collect();
        let expected = self.model.dictionaries(at);
        ensure!(found == expected, "there are dictionaries {found:?}, not {expected:?}");
        let held = self.random.pick(&self.snapshots).cloned();
        for snapshot in [Some(now), held].into_iter().flatten() {
            let at = snapshot.timestamp().0;
            for dictionary in self.model.dictionaries(at) {
                let found = match contents(&snapshot, dictionary) {
                    Ok(found) => found,
                    Err(error) => return self.excuse("read everything", &error),
                };
                let expected = self.model.contents(dictionary, at, &Overlay::new());
                same(&found, &expected)
                    .with_context(|| format!("dictionary {dictionary} at {at}"))?;
            }
        }
        self.tally.comparisons += 1;
        if engine.stats().stopped.is_none()
            && let Err(error) = engine.verify_all()
        {
            return self.excuse("verify", &error);
        }
        self.compare_history()
    }
}

/// All of one dictionary, as a snapshot shows it.
pub(crate) fn contents(snapshot: &Snapshot, dictionary: u64) -> engine::Result<Contents> {
    let mut found = Contents::new();
    let id = DictionaryId(dictionary);
    let mut cursor = snapshot.cursor(id, KeyRange::all(), Direction::Forward)?;
    while let Some((key, value)) = cursor.next()? {
        found.insert(key.to_vec(), value.to_vec());
    }
    Ok(found)
}

/// All dictionaries of a freshly opened engine.
pub(crate) fn everything(engine: &Engine) -> engine::Result<Vec<(u64, Contents)>> {
    let snapshot = engine.snapshot();
    let all = engine.dictionaries();
    all.into_iter().map(|(id, _)| Ok((id.0, contents(&snapshot, id.0)?))).collect()
}

/// Names the first difference, not both maps.
pub(crate) fn same(found: &Contents, expected: &Contents) -> Result<()> {
    for (key, value) in expected {
        let seen = found.get(key);
        ensure!(seen.is_some(), "key {key:?} is missing");
        ensure!(seen == Some(value), "key {key:?} holds {seen:?}, not {value:?}");
    }
    for key in found.keys() {
        ensure!(expected.contains_key(key), "key {key:?} should not be there");
    }
    Ok(())
}
