//! Secret fields: what of a command nobody is shown, in `currentOp`, the profile, the log.
//!
//! Always true: whatever keeps or shows a command takes it from here; the name of a field stays, its value does not.

use bson::{RawBsonRef, RawDocument};
use dispatch::writer::Writer;
use std::borrow::Cow;

/// What stands for a secret.
const SHOWN: &str = "xxx";

/// The secret fields of a command.
pub(crate) fn secret_fields(command: &str) -> &'static [&'static str] {
    match command {
        "saslStart" | "saslContinue" => &["payload"],
        "hello" | "isMaster" => &["speculativeAuthenticate"],
        "authenticate" => &["key", "nonce", "pwd"],
        "createUser" | "updateUser" => &["pwd"],
        // Another command inside.
        "explain" => &["payload", "pwd", "key", "speculativeAuthenticate"],
        _ => &[],
    }
}

/// A command as it may be shown.
pub(crate) fn redacted<'a>(command: &str, body: &'a RawDocument) -> Cow<'a, RawDocument> {
    let secret = secret_fields(command);
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
    use bson::{Document, RawDocumentBuf, doc};

    #[test]
    fn secrets_are_not_shown_and_all_else_is() {
        let shown = |name: &str, command: Document| {
            let body = RawDocumentBuf::try_from(&command).expect("a document");
            Document::try_from(&*redacted(name, &body)).expect("a document")
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
