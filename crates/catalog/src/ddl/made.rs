//! What a thread has made of names, for who tells of it: a write makes a collection without a word of it in the command.
//!
//! Always true: nothing is kept unless somebody has asked for it on this thread, and it is kept until that is taken.

use crate::metadata::namespace::Namespace;
use std::cell::RefCell;

/// What became of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MadeName {
    /// A collection or view was created, and with it the database, where it is the only one of that.
    Created(Namespace, bool),
    /// A collection was renamed.
    Renamed(Namespace, Namespace),
}

thread_local! {
    static MADE: RefCell<Option<Vec<MadeName>>> = const { RefCell::new(None) };
}

/// From here on keeps what this thread makes of names. What was kept before is forgotten.
pub fn keep_made_names() {
    MADE.replace(Some(Vec::new()));
}

/// What the thread has made since it was asked last.
pub fn take_made_names() -> Vec<MadeName> {
    MADE.with_borrow_mut(|made| made.as_mut().map(std::mem::take).unwrap_or_default())
}

/// Whether the thread has made something since it was asked last.
pub fn has_made_names() -> bool {
    MADE.with_borrow(|made| made.as_ref().is_some_and(|made| !made.is_empty()))
}

pub(crate) fn note(made: impl FnOnce() -> MadeName) {
    MADE.with_borrow_mut(|all| {
        if let Some(all) = all {
            all.push(made());
        }
    });
}
