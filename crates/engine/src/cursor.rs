//! A walk over a range of one dictionary: a snapshot's entries, and over them a transaction's own
//! writes as they were when the cursor was opened.
//!
//! Without own writes every call goes straight to the tree's cursor and copies nothing.

use crate::dictionary::Dictionary;
use crate::snapshots::Pinned;
use crate::txn::writeset::{Writes, step};
use crate::{Direction, KeyRange, Result};
use std::ops::Bound;
use std::sync::Arc;

/// Walks a range of one dictionary in one snapshot. Owned: no lifetime, `Send`, may be parked.
pub struct Cursor {
    walk: Walk,
    /// Keeps the versions it reads.
    _pinned: Arc<Pinned>,
}

enum Walk {
    Tree(Box<ftree::Cursor>),
    Merged(Box<Merged>),
}

impl Cursor {
    pub(crate) fn over_tree(
        dictionary: &Dictionary,
        range: KeyRange,
        direction: Direction,
        pinned: &Arc<Pinned>,
        own: Option<Arc<Writes>>,
    ) -> Self {
        let tree = dictionary.tree.cursor(range.clone(), pinned.timestamp, direction);
        let walk = match own {
            None => Walk::Tree(Box::new(tree)),
            Some(own) => Walk::Merged(Box::new(Merged::new(Some(tree), own, range, direction))),
        };
        Self { walk, _pinned: Arc::clone(pinned) }
    }

    /// Over writes alone: the dictionary is not committed yet.
    pub(crate) fn over_writes(
        own: Arc<Writes>,
        range: KeyRange,
        direction: Direction,
        pinned: &Arc<Pinned>,
    ) -> Self {
        let walk = Walk::Merged(Box::new(Merged::new(None, own, range, direction)));
        Self { walk, _pinned: Arc::clone(pinned) }
    }

    /// The next entry; the slices live until the next call. May read the disk.
    #[expect(clippy::should_implement_trait, reason = "lends from itself, so not an Iterator")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match &mut self.walk {
            Walk::Tree(cursor) => Ok(cursor.next()?),
            Walk::Merged(merged) => merged.next(),
        }
    }

    /// Skips ahead, in the cursor's direction, to the first entry at or past `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        match &mut self.walk {
            Walk::Tree(cursor) => Ok(cursor.seek(key)?),
            Walk::Merged(merged) => merged.seek(key),
        }
    }

    /// Gives back pinned memory until the next call; the place is kept.
    pub fn park(&mut self) {
        match &mut self.walk {
            Walk::Tree(cursor) => cursor.park(),
            Walk::Merged(merged) => merged.park(),
        }
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cursor")
    }
}

struct Merged {
    tree: Option<ftree::Cursor>,
    /// The tree's next entry, copied out to be compared.
    ahead: Option<(Vec<u8>, Vec<u8>)>,
    tree_ended: bool,
    own: Arc<Writes>,
    /// What is left of the range for own writes; its near end moves.
    left: KeyRange,
    direction: Direction,
    current: (Vec<u8>, Vec<u8>),
}

impl Merged {
    fn new(
        tree: Option<ftree::Cursor>,
        own: Arc<Writes>,
        range: KeyRange,
        direction: Direction,
    ) -> Self {
        Self {
            tree_ended: tree.is_none(),
            tree,
            ahead: None,
            own,
            left: range,
            direction,
            current: (Vec::new(), Vec::new()),
        }
    }

    fn is_forward(&self) -> bool {
        self.direction == Direction::Forward
    }

    fn is_before(&self, left: &[u8], right: &[u8]) -> bool {
        if self.is_forward() { left < right } else { left > right }
    }

    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        loop {
            self.fill()?;
            let own = step(
                &self.own,
                slice(&self.left.lower),
                slice(&self.left.upper),
                self.is_forward(),
            );
            let own_first = match (&own, &self.ahead) {
                (None, None) => return Ok(None),
                (None, Some(_)) => false,
                (Some(_), None) => true,
                (Some((own, _)), Some((tree, _))) => !self.is_before(tree, own),
            };
            if !own_first {
                self.current = self.ahead.take().unwrap_or_default();
                break;
            }
            let Some((key, write)) = own.map(|(key, write)| (key.to_vec(), write.clone())) else {
                return Ok(None);
            };
            // An own write hides the tree's entry of the same key.
            if self.ahead.as_ref().is_some_and(|(tree, _)| *tree == key) {
                self.ahead = None;
            }
            self.pass(key.clone());
            if let Some(value) = write {
                self.current = (key, value.to_vec());
                break;
            }
        }
        Ok(Some((&self.current.0, &self.current.1)))
    }

    fn fill(&mut self) -> Result<()> {
        if self.ahead.is_none()
            && !self.tree_ended
            && let Some(tree) = &mut self.tree
        {
            match tree.next()? {
                Some((key, value)) => self.ahead = Some((key.to_vec(), value.to_vec())),
                None => self.tree_ended = true,
            }
        }
        Ok(())
    }

    /// Own writes up to `key` are done.
    fn pass(&mut self, key: Vec<u8>) {
        if self.is_forward() {
            self.left.lower = Bound::Excluded(key);
        } else {
            self.left.upper = Bound::Excluded(key);
        }
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        if let Some((ahead, _)) = &self.ahead
            && self.is_before(ahead, key)
        {
            self.ahead = None;
        }
        if self.ahead.is_none()
            && let Some(tree) = &mut self.tree
        {
            tree.seek(key)?;
        }
        let near = if self.is_forward() { &mut self.left.lower } else { &mut self.left.upper };
        let moves = match &*near {
            Bound::Unbounded => true,
            Bound::Included(at) | Bound::Excluded(at) => match self.direction {
                Direction::Forward => &at[..] < key,
                Direction::Backward => &at[..] > key,
            },
        };
        if moves {
            *near = Bound::Included(key.to_vec());
        }
        Ok(())
    }

    fn park(&mut self) {
        if let Some(tree) = &mut self.tree {
            tree.park();
        }
    }
}

fn slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}
