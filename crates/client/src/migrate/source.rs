//! Where a migration reads from: a server that the driver speaks to, one that is too old for it, or a dump.
//!
//! Always true: nothing is written to a source.

use super::facts::{Facts, Part};
use anyhow::Result;
use bson::{Bson, Document, RawDocumentBuf};

mod dump;
mod live;
mod metadata;
mod old;
mod old_login;
mod old_wire;

pub(crate) use dump::DumpSource;
pub(crate) use live::LiveSource;
pub(crate) use old::{OldAddress, OldSource, is_old};

/// The documents of a part of a collection, one after the other.
pub(crate) type Documents<'a> = Box<dyn Iterator<Item = Result<RawDocumentBuf>> + 'a>;

/// What a source gives.
pub(crate) trait Source: Send + Sync {
    /// Every collection and view, with its options and indexes; those of the server itself left out.
    fn list(&self) -> Result<Vec<Facts>>;

    /// Reads a part. Behind an error it is asked again from the last document on.
    fn read<'a>(&'a self, facts: &Facts, part: &Part) -> Result<Documents<'a>>;

    /// About so many `_id`s of a collection, in order, to split it by; empty where the source gives no sample.
    fn sample(&self, _facts: &Facts, _count: usize) -> Vec<Bson> {
        Vec::new()
    }

    /// Users and roles.
    fn accounts(&self) -> Result<Accounts>;

    /// What cannot be copied from there, and why.
    fn left_out(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The source itself, where it can tell what changes.
    fn live(&self) -> Option<&LiveSource> {
        None
    }
}

/// Users and roles, as documents.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    /// Of `admin.system.users` and `admin.system.roles`, since MongoDB 2.6.
    pub(crate) users: Vec<Document>,
    pub(crate) roles: Vec<Document>,
    /// Of each database's `system.users`, before that.
    pub(crate) old_users: Vec<(String, Document)>,
}

/// Whether a document is the one with this `_id`.
fn has_id(document: &RawDocumentBuf, id: &Bson) -> bool {
    let found = document.get("_id").ok().flatten();
    found.and_then(|found| Bson::try_from(found).ok()).is_some_and(|found| found == *id)
}

/// Leaves out the first document where reading began at one that was read before.
fn behind<'a>(documents: Documents<'a>, last: Option<&Bson>) -> Documents<'a> {
    let Some(last) = last.cloned() else { return documents };
    let mut is_first = true;
    Box::new(documents.filter(move |document| {
        let is_last = std::mem::take(&mut is_first)
            && document.as_ref().is_ok_and(|document| has_id(document, &last));
        !is_last
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn the_last_document_is_not_read_twice() {
        for (ids, last, expected) in [
            (&[1, 2, 3][..], Some(Bson::Int32(1)), &[2, 3][..]),
            (&[2, 3], Some(Bson::Int32(1)), &[2, 3]),
            (&[1, 2], None, &[1, 2]),
            (&[], Some(Bson::Int32(1)), &[]),
        ] {
            let documents: Documents<'_> =
                Box::new(ids.iter().map(|id| Ok(rawdoc! { "_id": *id })));
            let left = behind(documents, last.as_ref());
            let left: Vec<i32> = left.map(|one| one.unwrap().get_i32("_id").unwrap()).collect();
            assert_eq!(left, expected);
        }
    }
}
