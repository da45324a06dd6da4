//! The interface to what keeps parts of the engine's state in memory: the catalog.

use engine::{DictionaryId, Timestamp};

/// What an observer returns: an error stops the member.
pub type Observed<T> = Result<T, String>;

/// Told what commits of other members did, and of this one before it was started again; those of this member's
/// own clients are known to who made them. In the order of the log:
///
/// ```text
///  read, read, …  one commit's writes ─► before_visible ─► readers see it ─► visible
/// ```
pub trait Observer: Send {
    /// Whether it is to be told of writes to that dictionary by the commit at hand; of others it need not be.
    fn follows(&mut self, _dictionary: DictionaryId) -> Observed<bool> {
        Ok(true)
    }

    /// A write of the commit at hand: a key's new value, or that it is gone.
    fn read(&mut self, dictionary: DictionaryId, key: &[u8], value: Option<&[u8]>) -> Observed<()>;

    /// The writes that were read are those of this commit, which readers do not see yet. Returns
    /// whether it must be shown alone: [`Observer::visible`] is called for what is before it, then
    /// for it, before anything behind it is visible.
    fn before_visible(&mut self, commit: Timestamp) -> Observed<bool>;

    /// Readers see everything up to this commit.
    fn visible(&mut self, up_to: Timestamp) -> Observed<()>;
}

/// Looks at nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Observer for Nobody {
    fn follows(&mut self, _: DictionaryId) -> Observed<bool> {
        Ok(false)
    }

    fn read(&mut self, _: DictionaryId, _: &[u8], _: Option<&[u8]>) -> Observed<()> {
        Ok(())
    }

    fn before_visible(&mut self, _: Timestamp) -> Observed<bool> {
        Ok(false)
    }

    fn visible(&mut self, _: Timestamp) -> Observed<()> {
        Ok(())
    }
}
