//! The catalog, kept up with what other members' commits do to `ROOT`.
//!
//! Always true: while this member leads the catalog is changed by its own commands, and by nothing here; when it
//! follows again, the catalog is read anew, because what it had written may have been taken back.

use catalog::{Catalog, Changes, Follower};
use engine::{DictionaryId, Timestamp};
use replica::{Observed, Observer};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often this member has led so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimesLed(Arc<AtomicU64>);

impl TimesLed {
    pub(crate) fn again(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

pub(crate) struct CatalogObserver {
    catalog: Arc<Catalog>,
    times_led: TimesLed,
    /// Since this member led so often; `None` before anything was observed.
    follower: Option<(u64, Follower)>,
    /// Of the commit at hand.
    changes: Changes,
    /// Read, and not visible yet.
    coming: VecDeque<(Timestamp, Changes)>,
}

fn told<T>(result: errors::Result<T>) -> Observed<T> {
    result.map_err(|error| format!("the catalog: {}", error.message()))
}

impl CatalogObserver {
    pub(crate) fn new(catalog: &Arc<Catalog>, times_led: TimesLed) -> Self {
        Self {
            catalog: Arc::clone(catalog),
            times_led,
            follower: None,
            changes: Changes::default(),
            coming: VecDeque::new(),
        }
    }

    fn follower(&mut self) -> Observed<&mut Follower> {
        let led = self.times_led.get();
        let is_current = self.follower.as_ref().is_some_and(|(since, _)| *since == led);
        if is_current {
            let follower = self.follower.as_mut().map(|(_, follower)| follower);
            return follower.ok_or_else(|| "nobody follows the catalog".to_owned());
        }
        let follower = if led == 0 {
            // The catalog was opened over this very state.
            Follower::new(&self.catalog)
        } else {
            told(Follower::again(&self.catalog))?
        };
        Ok(&mut self.follower.insert((led, follower)).1)
    }
}

impl Observer for CatalogObserver {
    fn follows(&mut self, dictionary: DictionaryId) -> Observed<bool> {
        Ok(self.follower()?.follows(dictionary))
    }

    fn read(&mut self, dictionary: DictionaryId, key: &[u8], value: Option<&[u8]>) -> Observed<()> {
        let mut changes = std::mem::take(&mut self.changes);
        let read = self.follower()?.read(&mut changes, dictionary, key, value);
        self.changes = changes;
        told(read)
    }

    fn before_visible(&mut self, commit: Timestamp) -> Observed<bool> {
        let changes = std::mem::take(&mut self.changes);
        self.follower()?.before_visible(&changes);
        let stands_alone = changes.changes_names();
        if !changes.is_empty() {
            self.coming.push_back((commit, changes));
        }
        Ok(stands_alone)
    }

    fn visible(&mut self, up_to: Timestamp) -> Observed<()> {
        while let Some((commit, changes)) = self.coming.pop_front_if(|(commit, _)| *commit <= up_to)
        {
            told(self.follower()?.after_visible(changes, commit))?;
        }
        Ok(())
    }
}
