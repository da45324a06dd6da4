//! What of a line may come from clients' documents, and how it is shown where that is to stay out of the log
//! (`redactClientLogData`).
//!
//! Always true: a text or a document is shown only where its name stands in [`OF_THE_SERVER`], or where it is a free text
//! ([`FREE_TEXTS`]) of a crate that knows no documents ([`WITHOUT_DOCUMENTS`]); whatever else a line says becomes
//! [`REDACTED`], so that a new attribute is hidden until somebody has thought about it. Names, types of lines and sizes
//! stay: a number that stands by itself is the server's. The text of a line is written in the code.

use serde_json::{Map, Value};

/// The attributes that the server itself says: names of collections and of who is there, addresses, files, what it was
/// started with.
const OF_THE_SERVER: &[&str] = &[
    "address",
    "appName",
    "architecture",
    "before",
    "client",
    "cacheSize",
    "commit",
    "db",
    "dbPath",
    "endpoint",
    "errName",
    "file",
    "gitVersion",
    "host",
    "leader",
    "level",
    "masterFingerprint",
    "mechanism",
    "member",
    "namespace",
    "now",
    "ns",
    "op",
    "os",
    "path",
    "pid",
    "place",
    "planSummary",
    "protocol",
    "remote",
    "role",
    "set",
    "signal",
    "source",
    "ssl",
    "target",
    "type",
    "user",
    "version",
];

/// Sentences about what went wrong, which quote what they are about.
const FREE_TEXTS: &[&str] =
    &["backtrace", "cause", "error", "panicked", "reason", "refusal", "why"];

/// The crates below documents: what they cannot do has nothing of a document in it.
const WITHOUT_DOCUMENTS: &[&str] = &[
    "blockfile",
    "cachetable",
    "crypt",
    "engine",
    "fernd",
    "ftree",
    "history",
    "links",
    "locktree",
    "member",
    "membership",
    "net",
    "os",
    "quorum",
    "replica",
    "server",
    "tls",
    "wal",
];

/// Attributes that are documents of the client about itself, as it connects: no data.
const ABOUT_CLIENTS: &[&str] = &["doc"];

/// What is shown in place of a value, as in `mongod`.
const REDACTED: &str = "###";

/// Names by which extended JSON writes one value as a document.
const OF_VALUES: &[&str] = &[
    "$oid",
    "$date",
    "$numberInt",
    "$numberLong",
    "$numberDouble",
    "$numberDecimal",
    "$binary",
    "$uuid",
    "$timestamp",
    "$regularExpression",
    "$code",
    "$symbol",
    "$minKey",
    "$maxKey",
    "$undefined",
    "$dbPointer",
];

/// Takes what may be of clients' documents out of the attributes of a line that a crate has written.
pub(crate) fn redact(attributes: &mut Map<String, Value>, written_by: &str) {
    let knows_documents = !WITHOUT_DOCUMENTS.contains(&written_by);
    for (name, value) in attributes {
        let name = name.as_str();
        let is_number = matches!(value, Value::Number(_) | Value::Bool(_) | Value::Null);
        let shown = is_number
            || OF_THE_SERVER.contains(&name)
            || ABOUT_CLIENTS.contains(&name)
            || FREE_TEXTS.contains(&name) && !knows_documents;
        if !shown {
            hide(value);
        }
    }
}

fn hide(value: &mut Value) {
    match value {
        Value::Object(object) if !is_one_value(object) => object.values_mut().for_each(hide),
        Value::Array(list) => list.iter_mut().for_each(hide),
        value => *value = REDACTED.into(),
    }
}

fn is_one_value(object: &Map<String, Value>) -> bool {
    object.keys().next().is_some_and(|name| OF_VALUES.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::redact;
    use serde_json::{Value, json};

    #[test]
    fn names_stay_and_values_go() {
        let line = json!({
            "ns": "shop.orders",
            "command": {
                "find": "orders",
                "filter": {"card": "MARK", "at": {"$gt": {"$date": "MARK"}}, "or": [1, {"a": true}]},
            },
            "errMsg": "duplicate key MARK",
            "lockNotGranted": {"index": "card_1", "bounds": [["MARK"]]},
            "durationMillis": 7,
        });
        let Value::Object(mut line) = line else { panic!("an object") };
        redact(&mut line, "commands");
        let expected = json!({
            "ns": "shop.orders",
            "command": {
                "find": "###",
                "filter": {"card": "###", "at": {"$gt": "###"}, "or": ["###", {"a": "###"}]},
            },
            "errMsg": "###",
            "lockNotGranted": {"index": "###", "bounds": [["###"]]},
            "durationMillis": 7,
        });
        assert_eq!(Value::Object(line), expected);
    }

    #[test]
    fn what_nobody_has_thought_about_is_hidden() {
        let shown = |written_by: &str| {
            let line = json!({"new": "MARK", "error": "no space left", "text": "MARK", "count": 3});
            let Value::Object(mut line) = line else { panic!("an object") };
            redact(&mut line, written_by);
            Value::Object(line)
        };
        let expected = json!({"new": "###", "error": "no space left", "text": "###", "count": 3});
        assert_eq!(shown("engine"), expected);
        // A crate that knows documents may quote one.
        let expected = json!({"new": "###", "error": "###", "text": "###", "count": 3});
        for written_by in ["catalog", "query", "serverstate", "commands", "somewhere else"] {
            assert_eq!(shown(written_by), expected, "{written_by}");
        }
    }
}
