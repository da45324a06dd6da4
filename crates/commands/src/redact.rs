//! A command without its secrets: the fields that its registration names, and the credentials of users that are
//! written as documents (`mongorestore` does). For `currentOp`, the profile, the log, the audit.
//!
//! Always true: whatever keeps or shows a command takes it from here; the name of a field stays, its value does not.

use crate::command::Command;
use bson::{RawBsonRef, RawDocument};
use dispatch::writer::Writer;
use std::borrow::Cow;

/// What stands for a secret.
const SHOWN: &str = "xxx";
/// What a user's document has its passwords' keys in.
const CREDENTIALS: &[&str] = &["credentials", "pwd"];

/// A command to a database, as it may be shown.
pub(crate) fn redacted<'a>(
    command: &Command,
    database: &str,
    body: &'a RawDocument,
) -> Cow<'a, RawDocument> {
    let (secret, depth) = match command.secret {
        [] if may_hold_users(command.name, database, body) => (CREDENTIALS, usize::MAX),
        [] => return Cow::Borrowed(body),
        secret => (secret, 2),
    };
    let mut writer = Writer::new();
    write_all(&mut writer, body, secret, depth);
    Cow::Owned(writer.finish())
}

/// Whether a command writes documents into `admin`, where users are.
fn may_hold_users(command: &str, database: &str, body: &RawDocument) -> bool {
    match command {
        "insert" | "update" | "findAndModify" => database == "admin",
        "bulkWrite" => {
            let names = body.get_array("nsInfo").into_iter().flatten().flatten();
            let name = |info: RawBsonRef<'_>| {
                let name = info.as_document()?.get_str("ns").ok()?;
                Some(name.starts_with("admin."))
            };
            names.into_iter().any(|info| name(info).unwrap_or(false))
        }
        _ => false,
    }
}

fn write_all(writer: &mut Writer, body: &RawDocument, secret: &[&str], depth: usize) {
    for element in body {
        let Ok((name, value)) = element else { return };
        write(writer, name.as_str(), value, secret, depth);
    }
}

/// Goes `depth` documents down; arrays are gone through where there is no bound.
fn write(writer: &mut Writer, name: &str, value: RawBsonRef<'_>, secret: &[&str], depth: usize) {
    match value {
        _ if secret.contains(&name.split('.').next().unwrap_or(name)) => writer.str(name, SHOWN),
        RawBsonRef::Document(inner) if depth > 0 => {
            let open = writer.begin_document(name);
            write_all(writer, inner, secret, depth - 1);
            writer.end(open);
        }
        RawBsonRef::Array(inner) if depth > usize::MAX / 2 => {
            let open = writer.begin_array(name);
            for (at, value) in inner.into_iter().flatten().enumerate() {
                write(writer, &at.to_string(), value, secret, depth - 1);
            }
            writer.end(open);
        }
        other => writer.value(name, other),
    }
}

#[cfg(test)]
mod tests {
    use super::redacted;
    use crate::registry::COMMANDS;
    use bson::{Document, RawDocumentBuf, doc};

    #[test]
    fn secrets_are_not_shown_and_all_else_is() {
        let shown = |name: &str, command: Document| {
            let body = RawDocumentBuf::try_from(&command).expect("a document");
            let known = COMMANDS.iter().find(|known| known.name == name).expect("a command");
            Document::try_from(&*redacted(known, "admin", &body)).expect("a document")
        };
        let user = |hidden: &str| doc! { "_id": "test.a", "credentials": hidden, "roles": [1] };
        for (name, command, expected) in [
            (
                "createUser",
                doc! { "createUser": "a", "pwd": "MARK", "roles": [] },
                doc! { "createUser": "a", "pwd": "xxx", "roles": [] },
            ),
            (
                "explain",
                doc! { "explain": { "createUser": "a", "pwd": "MARK" } },
                doc! { "explain": { "createUser": "a", "pwd": "xxx" } },
            ),
            (
                "insert",
                doc! { "insert": "tempusers", "documents": [user("MARK"), { "a": [user("MARK")] }] },
                doc! { "insert": "tempusers", "documents": [user("xxx"), { "a": [user("xxx")] }] },
            ),
            (
                "update",
                doc! { "update": "u", "updates": [{ "u": { "$set": { "credentials.a": "MARK" } } }] },
                doc! { "update": "u", "updates": [{ "u": { "$set": { "credentials.a": "xxx" } } }] },
            ),
            (
                "findAndModify",
                doc! { "findAndModify": "u", "update": user("MARK") },
                doc! { "findAndModify": "u", "update": user("xxx") },
            ),
            (
                "bulkWrite",
                doc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": user("MARK") }],
                "nsInfo": [{ "ns": "test.c" }, { "ns": "admin.u" }] },
                doc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": user("xxx") }],
                "nsInfo": [{ "ns": "test.c" }, { "ns": "admin.u" }] },
            ),
            (
                "find",
                doc! { "find": "c", "filter": { "pwd": "shown" } },
                doc! { "find": "c", "filter": { "pwd": "shown" } },
            ),
        ] {
            assert_eq!(shown(name, command), expected);
        }
    }

    #[test]
    fn documents_of_others_are_shown_as_they_are() {
        let command = doc! { "insert": "c", "documents": [{ "credentials": "shown" }] };
        let body = RawDocumentBuf::try_from(&command).expect("a document");
        let insert = COMMANDS.iter().find(|known| known.name == "insert").expect("a command");
        assert!(matches!(redacted(insert, "test", &body), std::borrow::Cow::Borrowed(_)));
    }
}
