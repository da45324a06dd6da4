//! The dictionaries that a transaction makes, drops, changes and finds.
//!
//! Always true: an id means one dictionary for ever, so it is looked up once.

use super::EngineTxn;
use crate::dictionary::Found;
use crate::load::Loaded;
use crate::{DictionaryId, DictionaryOptions, Error, Result};
use ftree::Tree;
use std::sync::Arc;

impl EngineTxn {
    /// Creates a dictionary as part of this transaction.
    pub fn create_dictionary(&mut self, options: DictionaryOptions) -> Result<DictionaryId> {
        let id = self.environment().directory.new_id();
        self.create_dictionary_as(DictionaryId(id), options)?;
        Ok(DictionaryId(id))
    }

    /// As [`EngineTxn::create_dictionary`], under a number that was taken for it
    /// ([`crate::Engine::new_dictionary_id`]).
    pub fn create_dictionary_as(
        &mut self,
        id: DictionaryId,
        options: DictionaryOptions,
    ) -> Result<()> {
        self.check_alive()?;
        let options = crate::options::validate(options)?;
        self.created.push((id.0, options));
        Ok(())
    }

    /// Makes a dictionary that was filled before part of this transaction, which may have created it under
    /// its number and then has not written to it: it reads its rows from now on, others from its commit on.
    ///
    /// # Panics
    /// What is adopted is durable ([`Loaded::is_adoptable`]).
    pub fn adopt(&mut self, loaded: Loaded) -> Result<()> {
        self.check_alive()?;
        assert!(loaded.is_adoptable(), "what is adopted is in a checkpoint, and in every copy");
        let id = loaded.id();
        self.check_not_dropped(id)?;
        if !self.is_created(id) {
            self.created.push((id.0, loaded.options));
        }
        self.adopted.push(loaded);
        Ok(())
    }

    /// The shape of a dictionary that it has created.
    pub fn created_shape(&self, dictionary: DictionaryId) -> Option<DictionaryOptions> {
        let created = self.created.iter().find(|(id, _)| *id == dictionary.0);
        created.map(|(_, options)| *options)
    }

    /// What it has adopted under a number.
    pub(crate) fn loaded(&self, dictionary: u64) -> Option<&Loaded> {
        self.adopted.iter().find(|loaded| loaded.id().0 == dictionary)
    }

    /// The tree of a dictionary that it has created: none where it is empty but for its own writes.
    pub(super) fn own_tree(&self, dictionary: DictionaryId) -> Option<&Arc<Tree>> {
        self.loaded(dictionary.0).map(|loaded| &loaded.tree)
    }

    pub(super) fn own_trees(&self) -> Vec<(u64, Arc<Tree>)> {
        self.adopted.iter().map(|loaded| (loaded.id().0, Arc::clone(&loaded.tree))).collect()
    }

    /// Drops a dictionary as part of this transaction; older snapshots still see it. Waits for
    /// transactions that have written to it.
    pub fn drop_dictionary(&mut self, dictionary: DictionaryId) -> Result<()> {
        self.check_alive()?;
        if dictionary == DictionaryId::ROOT {
            return Err(Error::NoSuchDictionary(dictionary));
        }
        self.check_not_dropped(dictionary)?;
        if self.is_created(dictionary) {
            self.dropped.push(dictionary.0);
            return Ok(());
        }
        self.find_newest(dictionary)?;
        self.holder.lock_all(&self.pinned.handle().locks, dictionary, self.lock_timeout)?;
        // Somebody else may have dropped it while this one waited.
        self.find_newest(dictionary)?;
        self.dropped.push(dictionary.0);
        Ok(())
    }

    /// Changes the shape of a dictionary as part of this transaction: what is written from the
    /// commit on has it; what is stored keeps its own until work comes by, or
    /// [`crate::Engine::rewrite`]. Waits for another transaction that does the same.
    pub fn reshape_dictionary(
        &mut self,
        dictionary: DictionaryId,
        options: DictionaryOptions,
    ) -> Result<()> {
        let options = crate::options::validate(options)?;
        // One at a time, so that the options of the newest commit are those that stay. Which key
        // stands for all of the dictionary does not matter; it is the empty one.
        self.lock(dictionary, &[])?;
        match self.created.iter_mut().find(|(id, _)| *id == dictionary.0) {
            Some((_, shape)) => *shape = options,
            None => self.reshaped.push((dictionary.0, options)),
        }
        Ok(())
    }

    #[inline]
    pub(super) fn is_created(&self, dictionary: DictionaryId) -> bool {
        self.created.iter().any(|(id, _)| *id == dictionary.0)
    }

    /// The dictionary as the snapshot sees it.
    pub(super) fn find_visible(&self, dictionary: DictionaryId) -> Result<Found> {
        match self.used(dictionary.0) {
            Some(found) if found.visible_at(self.pinned.timestamp) => Ok(found.clone()),
            Some(_) => Err(Error::NoSuchDictionary(dictionary)),
            None => self.environment().directory.at(dictionary, self.pinned.timestamp),
        }
    }

    /// The dictionary as the newest commit left it. An id means one dictionary for ever, so it is
    /// looked up once; whether it is dropped is asked each time.
    #[inline]
    pub(super) fn find_newest(&mut self, dictionary: DictionaryId) -> Result<&Found> {
        let at = self.look_up_newest(dictionary)?;
        self.not_dropped(at)
    }

    /// The place in `used` of the dictionary, which was there at some time.
    #[inline]
    pub(super) fn look_up_newest(&mut self, dictionary: DictionaryId) -> Result<usize> {
        if let Some(at) = self.used.iter().position(|found| found.id == dictionary.0) {
            return Ok(at);
        }
        let found = self.environment().directory.newest(dictionary)?;
        self.used.push(found);
        Ok(self.used.len() - 1)
    }

    /// A dictionary that was looked up, unless it is dropped by now.
    #[inline]
    pub(super) fn not_dropped(&self, at: usize) -> Result<&Found> {
        let found = &self.used[at];
        if found.dropped().is_some() {
            return Err(Error::NoSuchDictionary(DictionaryId(found.id)));
        }
        Ok(found)
    }

    /// A dictionary it has locked or written in, unless that was made by itself.
    pub(crate) fn used(&self, dictionary: u64) -> Option<&Found> {
        self.used.iter().find(|found| found.id == dictionary)
    }

    #[inline]
    pub(super) fn check_not_dropped(&self, dictionary: DictionaryId) -> Result<()> {
        if self.dropped.contains(&dictionary.0) {
            return Err(Error::NoSuchDictionary(dictionary));
        }
        Ok(())
    }
}
