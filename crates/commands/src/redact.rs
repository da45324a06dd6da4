//! A command without its secret fields, which its registration names: for `currentOp`, the profile, the log, the audit.
//!
//! Always true: whatever keeps or shows a command takes it from here; the name of a field stays, its value does not.

use bson::{RawBsonRef, RawDocument};
use dispatch::writer::Writer;
use std::borrow::Cow;

/// What stands for a secret.
const SHOWN: &str = "xxx";

/// A command with these secret fields, as it may be shown.
pub(crate) fn redacted<'a>(secret: &[&str], body: &'a RawDocument) -> Cow<'a, RawDocument> {
    if secret.is_empty() {
        return Cow::Borrowed(body);
    }
    let mut writer = Writer::new();
    write(&mut writer, body, secret, 0);
    Cow::Owned(writer.finish())
}

fn write(writer: &mut Writer, body: &RawDocument, secret: &[&str], depth: usize) {
    for element in body {
        let Ok((name, value)) = element else { return };
        let name = name.as_str();
        match value {
            _ if secret.contains(&name) => writer.str(name, SHOWN),
            RawBsonRef::Document(inner) if depth < 2 => {
                let open = writer.begin_document(name);
                write(writer, inner, secret, depth + 1);
                writer.end(open);
            }
            other => writer.value(name, other),
        }
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
            Document::try_from(&*redacted(known.secret, &body)).expect("a document")
        };
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
                "find",
                doc! { "find": "c", "filter": { "pwd": "shown" } },
                doc! { "find": "c", "filter": { "pwd": "shown" } },
            ),
        ] {
            assert_eq!(shown(name, command), expected);
        }
    }
}
