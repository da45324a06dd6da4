//! A walk over a range of one dictionary: a snapshot's entries, and over them a transaction's own
//! writes as they were when the cursor was opened.
//!
//! Without own writes every call goes straight to the tree's cursor and copies nothing.

use crate::buried::Buried;
use crate::dictionary::Dictionary;
use crate::snapshots::Pinned;
use crate::writes::Writes;
use crate::writeset::{Own, step};
use crate::{Direction, KeyRange, Result};
use ftree::{Applied, Message, SpillCursor, Tree, UpdatePlace, Updates};
use std::ops::Bound;
use std::sync::Arc;

/// Walks a range of one dictionary in one snapshot. Owned: no lifetime, `Send`, may be parked.
pub struct Cursor {
    walk: Walk,
    /// Keeps the versions it reads.
    _pinned: Pinned,
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
        pinned: &Pinned,
        (own, buried): (Option<Own>, Option<Buried>),
    ) -> Self {
        let tree = dictionary.tree.cursor(range.clone(), pinned.timestamp, direction);
        let walk = if own.is_none() && buried.is_none() {
            Walk::Tree(Box::new(tree))
        } else {
            let own = own.unwrap_or_else(|| Own::Memory(Writes::default()));
            let mut merged = Merged::new(Some(tree), own, range, direction);
            let updates = Arc::clone(&dictionary.tree.context().updates);
            merged.updates = Some((updates, dictionary.tree.id()));
            merged.buried = buried;
            Walk::Merged(Box::new(merged))
        };
        Self { walk, _pinned: pinned.clone() }
    }

    /// Over what a transaction has adopted, and its writes.
    pub(crate) fn over_loaded(
        tree: &Arc<Tree>,
        range: KeyRange,
        direction: Direction,
        pinned: &Pinned,
        own: Option<Own>,
    ) -> Self {
        let tree = tree.cursor(range.clone(), u64::MAX - 1, direction);
        let walk = match own {
            None => Walk::Tree(Box::new(tree)),
            Some(own) => Walk::Merged(Box::new(Merged::new(Some(tree), own, range, direction))),
        };
        Self { walk, _pinned: pinned.clone() }
    }

    /// Over writes alone: the dictionary is not committed yet.
    pub(crate) fn over_writes(
        own: Option<Own>,
        range: KeyRange,
        direction: Direction,
        pinned: &Pinned,
    ) -> Self {
        let own = own.unwrap_or_else(|| Own::Memory(Writes::default()));
        let walk = Walk::Merged(Box::new(Merged::new(None, own, range, direction)));
        Self { walk, _pinned: pinned.clone() }
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
    /// What the transaction has deleted by ranges.
    buried: Option<Buried>,
    own: OwnWalk,
    /// What its own updates mean, and in which dictionary; a new dictionary has none.
    updates: Option<(Arc<dyn Updates>, u64)>,
    direction: Direction,
    current: (Vec<u8>, Vec<u8>),
}

/// Own writes that are still to come.
enum OwnWalk {
    Memory {
        writes: Writes,
        /// What is left of the range; its near end moves.
        left: KeyRange,
        direction: Direction,
    },
    Spilled(Box<SpillCursor>),
}

impl OwnWalk {
    fn new(own: Own, left: KeyRange, direction: Direction) -> Self {
        match own {
            Own::Memory(writes) => Self::Memory { writes, left, direction },
            Own::Spilled(walk) => Self::Spilled(walk),
        }
    }

    /// The next own write. A spilled one may read the disk.
    fn peek(&mut self) -> Result<Option<(&[u8], Message<'_>)>> {
        match self {
            Self::Memory { writes, left, direction } => {
                let forward = *direction == Direction::Forward;
                let next = step(writes, slice(&left.lower), slice(&left.upper), forward);
                Ok(next.map(|(key, write)| (&**key, write.message())))
            }
            Self::Spilled(walk) => Ok(walk.peek()?),
        }
    }

    /// Goes behind the write at `key`, the one that was peeked at.
    fn pass(&mut self, key: &[u8]) {
        match self {
            Self::Memory { left, direction: Direction::Forward, .. } => {
                left.lower = Bound::Excluded(key.to_vec());
            }
            Self::Memory { left, direction: Direction::Backward, .. } => {
                left.upper = Bound::Excluded(key.to_vec());
            }
            Self::Spilled(walk) => walk.pass(),
        }
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let (left, direction) = match self {
            Self::Memory { left, direction, .. } => (left, *direction),
            Self::Spilled(walk) => return Ok(walk.seek(key)?),
        };
        let forward = direction == Direction::Forward;
        let near = if forward { &mut left.lower } else { &mut left.upper };
        let moves = match &*near {
            Bound::Unbounded => true,
            Bound::Included(at) | Bound::Excluded(at) if forward => &at[..] < key,
            Bound::Included(at) | Bound::Excluded(at) => &at[..] > key,
        };
        if moves {
            *near = Bound::Included(key.to_vec());
        }
        Ok(())
    }
}

impl Merged {
    fn new(tree: Option<ftree::Cursor>, own: Own, range: KeyRange, direction: Direction) -> Self {
        Self {
            tree_ended: tree.is_none(),
            tree,
            ahead: None,
            buried: None,
            own: OwnWalk::new(own, range, direction),
            updates: None,
            direction,
            current: (Vec::new(), Vec::new()),
        }
    }

    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        loop {
            self.fill()?;
            let own = self.own.peek()?;
            let own_first = match (&own, &self.ahead) {
                (None, None) => return Ok(None),
                (None, Some(_)) => false,
                (Some(_), None) => true,
                (Some((own, _)), Some((tree, _))) => !is_before(self.direction, tree, own),
            };
            let Some((key, message)) = own.filter(|_| own_first) else {
                self.current = self.ahead.take().unwrap_or_default();
                break;
            };
            let below = self.ahead.as_ref().filter(|(tree, _)| tree == key);
            let below = below.map(|(_, value)| &value[..]);
            let applied;
            let value = match (message, &self.updates) {
                (Message::Update(argument), Some((updates, tree))) => {
                    let place = UpdatePlace { tree: *tree, key, ts: 0 };
                    applied = updates.apply(place, below, argument);
                    match &applied {
                        Applied::Unchanged => below,
                        Applied::Value(value) => Some(&value[..]),
                    }
                }
                _ => message.value(),
            };
            let means = self.updates.is_some() || !matches!(message, Message::Update(_));
            assert!(means, "in a new dictionary updates are applied at once");
            let is_put = value.is_some();
            let (current_key, current_value) = &mut self.current;
            replace(current_key, key);
            replace(current_value, value.unwrap_or_default());
            // An own write hides the tree's entry of the same key.
            if self.ahead.as_ref().is_some_and(|(tree, _)| tree == current_key) {
                self.ahead = None;
            }
            self.own.pass(current_key);
            if is_put {
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
            loop {
                match tree.next()? {
                    Some((key, value))
                        if self.buried.as_ref().is_some_and(|buried| buried.has(key, value)) => {}
                    Some((key, value)) => {
                        self.ahead = Some((key.to_vec(), value.to_vec()));
                        break;
                    }
                    None => {
                        self.tree_ended = true;
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        if let Some((ahead, _)) = &self.ahead
            && is_before(self.direction, ahead, key)
        {
            self.ahead = None;
        }
        if self.ahead.is_none()
            && let Some(tree) = &mut self.tree
        {
            tree.seek(key)?;
        }
        self.own.seek(key)
    }

    fn park(&mut self) {
        if let Some(tree) = &mut self.tree {
            tree.park();
        }
        if let OwnWalk::Spilled(walk) = &mut self.own {
            walk.park();
        }
    }
}

fn is_before(direction: Direction, left: &[u8], right: &[u8]) -> bool {
    match direction {
        Direction::Forward => left < right,
        Direction::Backward => left > right,
    }
}

fn replace(bytes: &mut Vec<u8>, with: &[u8]) {
    bytes.clear();
    bytes.extend_from_slice(with);
}

fn slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}
