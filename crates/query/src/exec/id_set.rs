//! Id keys that a stage remembers, so as not to hand up a document twice.
//!
//! Always true: what a set takes is charged to the operation that made it, before it grows; where there
//! is no room left the operation fails with `ExceededMemoryLimit` (146).

use errors::Result;
use limits::{Charge, KeySet, Part};

/// What an id key costs beside its bytes.
pub(super) const KEY_BYTES: usize = 48;

/// Charged at once, so that not each key asks the account.
const STEP_BYTES: u64 = 64 << 10;

/// The keys.
#[derive(Default)]
pub(super) struct IdSet {
    keys: KeySet<Vec<u8>>,
    bytes: u64,
    /// There from the first key on: a set may be made before its operation runs.
    charge: Option<Charge>,
}

impl IdSet {
    /// Takes in a key; false where it is there already.
    pub(super) fn insert(&mut self, key: &[u8]) -> Result<bool> {
        if self.keys.contains(key) {
            return Ok(false);
        }
        self.bytes += (key.len() + KEY_BYTES) as u64;
        let charge = match &mut self.charge {
            Some(charge) => charge,
            none => none.insert(limits::charge(Part::IdSets, 0)?),
        };
        if self.bytes > charge.bytes() {
            charge.try_set(self.bytes + STEP_BYTES)?;
        }
        self.keys.insert(key.to_vec());
        Ok(true)
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.keys.contains(key)
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use errors::Code;
    use std::sync::Arc;

    struct Goes;

    impl limits::Interrupt for Goes {
        fn check(&self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_set_is_charged_for_what_it_holds_and_ends_where_the_account_does() {
        let account = limits::Account::new(1 << 20);
        let scope = limits::enter(Arc::new(Goes), Arc::clone(&account));
        let mut set = IdSet::default();
        let error = (0_u32..).find_map(|key| set.insert(&key.to_be_bytes()).err());
        assert_eq!(error.map(|error| error.code()), Some(Code::EXCEEDED_MEMORY_LIMIT));
        assert!(set.len() > 15_000, "{}", set.len());
        assert!(!set.insert(&0_u32.to_be_bytes()).unwrap() && set.contains(&1_u32.to_be_bytes()));
        assert!(account.usage().of(Part::IdSets) >= set.bytes - 100);
        drop(scope);
        drop(set);
        assert_eq!(account.total(), 0);
    }
}
