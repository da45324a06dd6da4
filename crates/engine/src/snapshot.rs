//! A consistent read-only view: one timestamp.

use crate::cursor::Cursor;
use crate::environment::Environment;
use crate::snapshots::Pinned;
use crate::{DictionaryId, Direction, KeyRange, Result, Timestamp, Value};
use std::sync::Arc;

/// A consistent read-only view. Cheap to clone; keeps its versions alive while it or one of its
/// cursors lives.
#[derive(Clone)]
pub struct Snapshot {
    environment: Arc<Environment>,
    pinned: Arc<Pinned>,
}

impl Snapshot {
    pub(crate) fn new(environment: &Arc<Environment>) -> Self {
        Self { environment: Arc::clone(environment), pinned: environment.snapshots.take() }
    }

    /// The commit timestamp this view shows.
    pub fn timestamp(&self) -> Timestamp {
        Timestamp(self.pinned.timestamp)
    }

    /// The value of `key`, if it has one. May read the disk.
    pub fn get(&self, dictionary: DictionaryId, key: &[u8]) -> Result<Option<Value>> {
        self.environment.health.check_open()?;
        let dictionary = self.environment.directory.at(dictionary, self.pinned.timestamp)?;
        let value = dictionary.tree.get(key, self.pinned.timestamp)?;
        Ok(value.map(Value::from))
    }

    /// A cursor over `range`. It owns what it needs and may be parked between calls.
    pub fn cursor(
        &self,
        dictionary: DictionaryId,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Cursor> {
        self.environment.health.check_open()?;
        let dictionary = self.environment.directory.at(dictionary, self.pinned.timestamp)?;
        Ok(Cursor::over_tree(&dictionary, range, direction, &self.pinned, None))
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({})", self.pinned.timestamp)
    }
}
