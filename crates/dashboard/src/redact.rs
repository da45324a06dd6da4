//! Which values of clients the page shows, and to whom.
//!
//! An operation that runs, a lock that is waited for and a slow operation of the log hold what
//! clients sent: filters, documents, keys. What is always true of the redacted form: the names of
//! fields, the sizes, times and counts stay; no value that came from a client does, also none that a
//! message of an error repeats.

use serde_json::Value;

/// Whom values of clients are shown to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShowValues {
    /// Who asks from this machine, and could ask the server itself as well.
    Local,
    /// Whoever asks.
    Always,
    /// Nobody.
    Never,
}

impl ShowValues {
    /// Whether somebody who asks from this machine (`local`) or from elsewhere sees values.
    pub(crate) fn to(self, local: bool) -> bool {
        match self {
            Self::Local => local,
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// What stands in place of a value.
const HIDDEN: &str = "###";

/// Texts that say how the server works on something, not what a client has in its documents.
const PLAIN: &[&str] = &[
    "appName",
    "client",
    "currentOpTime",
    "desc",
    "errName",
    "host",
    "index",
    "msg",
    "ns",
    "op",
    "planSummary",
    "protocol",
    "remote",
    "type",
];

/// Numbers that are worth as much as a value: who knows a cursor's continues it.
const SECRET: &[&str] = &["cursorid"];

/// Documents that the server made of itself.
const OWN: &[&str] = &["clientMetadata", "locks", "progress", "storage"];

/// Hides the values in the fields of each item of a list.
pub(crate) fn hide_all(items: &mut Value) {
    if let Value::Array(items) = items {
        items.iter_mut().for_each(hide);
    }
}

/// Hides the values in what one operation, request or transaction says of itself.
pub(crate) fn hide(item: &mut Value) {
    let Value::Object(fields) = item else { return hide_leaves(item) };
    for (name, value) in fields {
        match value {
            Value::String(_) if PLAIN.contains(&name.as_str()) => {}
            Value::Object(_) if OWN.contains(&name.as_str()) => {}
            Value::Number(_) if !SECRET.contains(&name.as_str()) => {}
            Value::Bool(_) | Value::Null => {}
            // Requests and locks nest what they say of themselves once more.
            Value::Object(_) if name == "lockRequest" => hide(value),
            Value::Array(_) if name == "rowLocks" => hide_all(value),
            _ => hide_leaves(value),
        }
    }
}

/// Hides the values in the `attr` of each line of the log.
pub(crate) fn hide_lines(lines: &mut [Value]) {
    for line in lines {
        if let Some(attributes) = line.get_mut("attr") {
            hide(attributes);
        }
    }
}

fn hide_leaves(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(hide_leaves),
        Value::Array(items) => items.iter_mut().for_each(hide_leaves),
        leaf => *leaf = HIDDEN.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_and_counts_stay_and_values_go() {
        let mut operations = json!([{
            "ns": "shop.orders", "op": "query", "secs_running": 3, "active": true,
            "lsid": { "id": "secret" },
            "command": { "find": "secret", "filter": { "card": "secret", "n": [5, { "m": 7 }] } },
            "lockRequest": { "index": "card_1", "requestingTxnid": 5, "bounds": [["secret"], 9] },
            "rowLocks": [{ "index": "_id_", "bounds": ["secret"] }],
        }]);
        hide_all(&mut operations);
        assert_eq!(
            operations,
            json!([{
                "ns": "shop.orders", "op": "query", "secs_running": 3, "active": true,
                "lsid": { "id": "###" },
                "command": { "find": "###", "filter": { "card": "###", "n": ["###", { "m": "###" }] } },
                "lockRequest": { "index": "card_1", "requestingTxnid": 5, "bounds": [["###"], "###"] },
                "rowLocks": [{ "index": "_id_", "bounds": ["###"] }],
            }])
        );
    }

    #[test]
    fn messages_of_errors_and_numbers_of_cursors_are_values_too() {
        let mut lines = [json!({ "id": 51803, "attr": {
            "ns": "a.b", "durationMillis": 200, "cursorid": 77, "errName": "DuplicateKey",
            "errMsg": "dup key: { card: \"secret\" }", "planSummary": "IXSCAN { card: 1 }",
            "unheardOf": "secret",
        } })];
        hide_lines(&mut lines);
        let text = lines[0].to_string();
        assert!(!text.contains("secret") && !text.contains("77"), "{text}");
        assert!(text.contains("IXSCAN { card: 1 }") && text.contains("200"), "{text}");
    }

    #[test]
    fn values_are_shown_to_those_who_may_see_them() {
        for (show, local, elsewhere) in [
            (ShowValues::Local, true, false),
            (ShowValues::Always, true, true),
            (ShowValues::Never, false, false),
        ] {
            assert_eq!((show.to(true), show.to(false)), (local, elsewhere), "{show:?}");
        }
    }
}
