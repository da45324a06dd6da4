//! Updates: writes that say how a key's value changes, without reading it.
//!
//! Always true: the write set has at most one write of a key, so an update of a key that the transaction has
//! written becomes one with that. A key that has many updates waiting on top is read once, and gets a value.

use super::writes::check_size;
use super::{EngineTxn, MAX_UPDATE_BYTES};
use crate::error::Oversized;
use crate::snapshot::own_value;
use crate::writeset::Written;
use crate::{DictionaryId, Error, Result, Value};
use ftree::{Applied, Message, UpdatePlace, Updates};
use std::sync::Arc;

/// Updates of one key that may wait on top in a memtable: each read of the key applies all of them. The next
/// one reads what they make and puts that, so that one write in so many reads.
const MOST_PENDING: usize = 64;

impl EngineTxn {
    /// Changes what `key` holds as the engine's [`Updates`] says of this argument, whatever it holds and
    /// whether it holds anything. Locks it first, as [`EngineTxn::put`] does.
    pub fn update(&mut self, dictionary: DictionaryId, key: &[u8], argument: &[u8]) -> Result<()> {
        check_size(Oversized::Value, argument.len(), MAX_UPDATE_BYTES)?;
        self.lock(dictionary, key)?;
        let handle = Arc::clone(self.pinned.handle());
        let updates = &*handle.trees.updates;
        let own = self.writes.get(dictionary.0, key)?;
        let is_written = own.is_some();
        let below = match own {
            Some(Written::Value(value)) => Some(value),
            Some(Written::Deleted) => None,
            Some(Written::Update(own)) => {
                if let Some(both) = ftree::combine_updates(updates, &own, argument)
                    && both.len() <= MAX_UPDATE_BYTES
                {
                    return self.write(dictionary, key, Message::Update(&both));
                }
                self.get_for_update(dictionary, key)?
            }
            None if self.is_created(dictionary) => own_value(self.own_tree(dictionary), key)?,
            None => {
                let found = self.find_newest(dictionary)?;
                if found.tree.pending_updates(key, MOST_PENDING) < MOST_PENDING {
                    return self.write(dictionary, key, Message::Update(argument));
                }
                self.newest_committed(dictionary, key)?
            }
        };
        let place = UpdatePlace { tree: dictionary.0, key, ts: 0 };
        match updates.apply(place, below.as_deref(), argument) {
            // What it has written stays as it is; else this is a write as any other.
            Applied::Unchanged if is_written => Ok(()),
            Applied::Unchanged => {
                let same = below.as_deref().map_or(Message::Delete, Message::Put);
                self.write(dictionary, key, same)
            }
            Applied::Value(value) => self.write(dictionary, key, Message::Put(&value)),
        }
    }
}

impl Written {
    /// What it makes of what lies below.
    pub(crate) fn over(
        self,
        updates: &dyn Updates,
        (dictionary, key): (DictionaryId, &[u8]),
        below: impl FnOnce() -> Result<Option<Value>>,
    ) -> Result<Option<Value>> {
        match self {
            Self::Value(value) => Ok(Some(value)),
            Self::Deleted => Ok(None),
            Self::Update(argument) => {
                let below = match below() {
                    // It is younger than the state that is read.
                    Err(Error::NoSuchDictionary(_)) => None,
                    below => below?,
                };
                let place = UpdatePlace { tree: dictionary.0, key, ts: 0 };
                Ok(match updates.apply(place, below.as_deref(), &argument) {
                    Applied::Unchanged => below,
                    Applied::Value(value) => Some(Value::shared(&value.into())),
                })
            }
        }
    }
}
