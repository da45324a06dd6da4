//! What became of a connection's newest write, for clients that ask afterwards (`getLastError`).
//!
//! What is always true: it exists from a connection's first write of the old kind on; it speaks
//! of the message directly before the question, and asking does not change it.

use bson::{RawArray, RawBson, RawBsonRef, RawDocument};
use dispatch::OpKind;
use dispatch::rules::Class;
use dispatch::rules::Rules;
use errors::Error;
use parking_lot::Mutex;
use std::sync::OnceLock;

/// Where a connection keeps it; there once it wrote in the old way.
pub type LastWrites = OnceLock<Mutex<LastWrite>>;

/// What `getLastError` tells; the default is "nothing happened".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastWrite {
    /// Documents an update matched or a delete removed; an insert always tells 0.
    pub n: i64,
    /// Of an update: did it find something to change?
    pub updated_existing: Option<bool>,
    /// The `_id` of the document an update made.
    pub upserted: Option<RawBson>,
    /// The number and the text of the error.
    pub error: Option<(i32, String)>,
}

impl LastWrite {
    /// Reads what a translated message came to out of its command's reply.
    fn of(command: &Rules, reply: &RawDocument) -> Self {
        if let Some(error) = error_of(reply) {
            return Self { error: Some(error), ..Self::default() };
        }
        let n = match reply.get("n") {
            Ok(Some(value)) => dispatch::fields::as_i64(value).unwrap_or(0),
            _ => 0,
        };
        match command.name {
            "update" => {
                let upserted = upserted(reply);
                let updated_existing = Some(n > 0 && upserted.is_none());
                Self { n, updated_existing, upserted, error: None }
            }
            "delete" => Self { n, ..Self::default() },
            _ => Self::default(),
        }
    }
}

fn error_of(reply: &RawDocument) -> Option<(i32, String)> {
    // The last of several is told: what an insert that goes on after errors promises.
    let source = match reply.get_array("writeErrors") {
        Ok(errors) => last_document(errors)?,
        Err(_) => reply,
    };
    let code = source.get_i32("code").ok()?;
    Some((code, source.get_str("errmsg").unwrap_or_default().to_owned()))
}

fn last_document(list: &RawArray) -> Option<&RawDocument> {
    match list.into_iter().last()?.ok()? {
        RawBsonRef::Document(document) => Some(document),
        _ => None,
    }
}

fn upserted(reply: &RawDocument) -> Option<RawBson> {
    let one = last_document(reply.get_array("upserted").ok()?)?;
    one.get("_id").ok()?.map(RawBson::from)
}

/// Takes note of a request that ran.
pub fn note(place: &LastWrites, command: &Rules, op: OpKind, reply: &RawDocument) {
    let OpKind::Legacy { goes_on } = op else {
        // Any other message makes the write before it old news.
        if let Some(last) = place.get()
            && !command.is_legacy_protocol_only
        {
            *last.lock() = LastWrite::default();
        }
        return;
    };
    if command.name == "killCursors" {
        return;
    }
    let last = if command.class == Class::Write || command.name == "createIndexes" {
        place.get_or_init(Mutex::default)
    } else {
        match place.get() {
            Some(last) => last,
            None => return,
        }
    };
    let outcome = LastWrite::of(command, reply);
    let mut last = last.lock();
    if !(goes_on && outcome.error.is_none() && last.error.is_some()) {
        *last = outcome;
    }
}

/// Takes note of a write that could not become a command.
pub fn refused(place: &LastWrites, error: &Error) {
    let outcome = LastWrite {
        error: Some((error.code().0, error.message().to_owned())),
        ..LastWrite::default()
    };
    *place.get_or_init(Mutex::default).lock() = outcome;
}
