//! Documents on their way into the target.
//!
//! Always true: they go as the bytes that the source gave; what is there already under an `_id` is replaced; every write
//! waits until the target's log has it.

use super::{ERROR_CHARACTERS, Target};
use crate::failures::{WriteFailure, is_about_document, retried};
use crate::migrate::facts::number;
use crate::migrate::names::Name;
use anyhow::{Result, anyhow};
use bson::{Bson, Document, RawArrayBuf, RawDocumentBuf, doc, rawdoc};

pub(crate) const DUPLICATE_KEY: i32 = 11000;

/// A document that the target has refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RefusedDocument {
    /// Its place in the batch.
    pub(crate) at: usize,
    pub(crate) code: i32,
    pub(crate) error: String,
}

impl Target {
    /// Inserts a batch; what is there already is replaced. Gives back how many were there, and what is refused.
    pub(crate) fn insert(
        &self,
        name: &Name,
        batch: &[RawDocumentBuf],
        is_ordered: bool,
    ) -> Result<(u64, Vec<RefusedDocument>)> {
        let mut documents = RawArrayBuf::new();
        for document in batch {
            documents.push(document.clone());
        }
        let mut command = rawdoc! {
            "insert": &*name.collection,
            "ordered": is_ordered,
            "writeConcern": { "w": 1, "j": true },
            "documents": documents,
        };
        self.append_bypass(name, &mut command);
        let (_, errors) = self.write(name, &command)?;
        let (mut there, mut refused) = (Vec::new(), Vec::new());
        for error in errors {
            if error.code == DUPLICATE_KEY { there.push(error) } else { refused.push(error) }
        }
        if is_ordered && !(there.is_empty() && refused.is_empty()) {
            // It ended at the first: that one and those behind it are still to be written, in their order.
            let at = there.iter().chain(&refused).map(|error| error.at).min().unwrap_or(0);
            let (replaced, more) = self.replace(name, batch.get(at..).unwrap_or_default())?;
            let moved = |error: RefusedDocument| RefusedDocument { at: error.at + at, ..error };
            return Ok((replaced, more.into_iter().map(moved).collect()));
        }
        if there.is_empty() {
            return Ok((0, refused));
        }
        let places: Vec<usize> = there.iter().map(|error| error.at).collect();
        let again = places.iter().filter_map(|at| batch.get(*at).cloned());
        let again: Vec<RawDocumentBuf> = again.collect();
        let (replaced, more) = self.replace(name, &again)?;
        let moved = |error: RefusedDocument| RefusedDocument {
            at: places.get(error.at).copied().unwrap_or_default(),
            ..error
        };
        refused.extend(more.into_iter().map(moved));
        Ok((replaced, refused))
    }

    /// Puts documents in the place of those with their `_id`, or inserts them. Gives back how many were replaced, and what
    /// is refused.
    pub(crate) fn replace(
        &self,
        name: &Name,
        documents: &[RawDocumentBuf],
    ) -> Result<(u64, Vec<RefusedDocument>)> {
        let mut updates = RawArrayBuf::new();
        for document in documents {
            let Some(id) = document.get("_id")? else { continue };
            let mut equal = RawDocumentBuf::new();
            equal.append(bson::raw::cstr!("$eq"), id);
            let mut filter = RawDocumentBuf::new();
            filter.append(bson::raw::cstr!("_id"), equal);
            updates.push(rawdoc! { "q": filter, "u": document.clone(), "upsert": true });
        }
        if updates.is_empty() {
            return Ok((0, Vec::new()));
        }
        let mut command = rawdoc! {
            "update": &*name.collection,
            "ordered": false,
            "writeConcern": { "w": 1, "j": true },
            "updates": updates,
        };
        self.append_bypass(name, &mut command);
        let (reply, refused) = self.write(name, &command)?;
        let new = reply.get_array("upserted").map_or(0, Vec::len) as u64;
        let written = number(reply.get("n")) as u64;
        Ok((written.saturating_sub(new), refused))
    }

    pub(crate) fn delete(&self, name: &Name, ids: &[Bson]) -> Result<()> {
        let delete = |id: &Bson| doc! { "q": { "_id": { "$eq": id.clone() } }, "limit": 1 };
        let deletes: Vec<Document> = ids.iter().map(delete).collect();
        let command = doc! {
            "delete": &name.collection,
            "ordered": false,
            "writeConcern": { "w": 1, "j": true },
            "deletes": deletes,
        };
        let (_, errors) = self.write(name, &RawDocumentBuf::try_from(&command)?)?;
        match errors.first() {
            Some(refused) => Err(anyhow!("{name}: {}", refused.error)),
            None => Ok(()),
        }
    }

    /// Runs a write until what passes has passed. Its reply, and the errors that are about single documents; any other is
    /// one of the call, which ends there.
    fn write(
        &self,
        name: &Name,
        command: &RawDocumentBuf,
    ) -> Result<(Document, Vec<RefusedDocument>)> {
        let written = retried(&self.os, || {
            let reply = self.command(&name.database, command)?;
            let errors = judged(&reply)?;
            Ok((reply, errors))
        });
        written.map_err(|error| match error.downcast_ref::<WriteFailure>() {
            Some(failure) => anyhow!("{}: {failure}", self.shown),
            None => self.explain(error),
        })
    }
}

/// The errors of a reply that are about single documents. `Err` where one is about the server.
fn judged(reply: &Document) -> std::result::Result<Vec<RefusedDocument>, WriteFailure> {
    let errors = write_errors(reply);
    if let Some(error) = errors.iter().find(|error| !is_about_document(error.code)) {
        return Err(WriteFailure { code: error.code, message: error.error.clone() });
    }
    let Ok(error) = reply.get_document("writeConcernError") else { return Ok(errors) };
    let message = error.get_str("errmsg").unwrap_or_default().to_owned();
    Err(WriteFailure { code: error.get_i32("code").unwrap_or_default(), message })
}

fn write_errors(reply: &Document) -> Vec<RefusedDocument> {
    let errors = reply.get_array("writeErrors").map(Vec::as_slice).unwrap_or_default();
    let read = |error: &Bson| {
        let error = error.as_document()?;
        let message = error.get_str("errmsg").unwrap_or_default();
        Some(RefusedDocument {
            at: usize::try_from(error.get_i32("index").ok()?).ok()?,
            code: error.get_i32("code").unwrap_or_default(),
            error: message.chars().take(ERROR_CHARACTERS).collect(),
        })
    };
    errors.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_about_the_server_ends_the_call() {
        let of = |code: i32| doc! { "writeErrors": [{ "index": 0, "code": 121 }, { "index": 1, "code": code }] };
        assert_eq!(judged(&of(11000)).unwrap().len(), 2);
        for code in [14031, 11600, 91, 189, 10107, 13435] {
            assert_eq!(judged(&of(code)).unwrap_err().code, code);
        }
        let unsynced = doc! { "writeConcernError": { "code": 64, "errmsg": "slow" } };
        assert_eq!(judged(&unsynced).unwrap_err().to_string(), "slow (code 64)");
    }

    #[test]
    fn errors_of_writes_are_read_by_their_place() {
        let reply = doc! { "ok": 1, "n": 1, "writeErrors": [
        { "index": 1, "code": 11000, "errmsg": "there" }, { "index": 3, "code": 2 }, { "code": 1 } ] };
        let error = |at, code, text: &str| RefusedDocument { at, code, error: text.to_owned() };
        assert_eq!(write_errors(&reply), [error(1, 11000, "there"), error(3, 2, "")]);
        assert!(write_errors(&doc! { "ok": 1 }).is_empty());
    }
}
