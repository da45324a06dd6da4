//! What of a line comes from clients' documents, and how it is shown where that is to stay out of the log
//! (`redactClientLogData`).
//!
//! Always true: names, types of lines, sizes and times stay; every value under one of [`OF_CLIENTS`] becomes
//! [`REDACTED`].

use serde_json::{Map, Value};

/// The attributes that hold values of clients' documents.
const OF_CLIENTS: &[&str] = &[
    "command",
    "originatingCommand",
    "errMsg",
    "errInfo",
    // Keys of an index, and who holds them with his command.
    "lockNotGranted",
    "blockingOp",
];

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

/// Takes the values of clients' documents out of a line's attributes.
pub(crate) fn redact(attributes: &mut Map<String, Value>) {
    for (name, value) in attributes {
        if OF_CLIENTS.contains(&name.as_str()) {
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
        redact(&mut line);
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
}
