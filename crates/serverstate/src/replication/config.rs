//! A replica set's configuration document, checked and completed.
//!
//! Always true of a [`Config`]: it has exactly one member, which votes and can be primary; every
//! field MongoDB's `rs.conf()` shows is there.

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use errors::{Code, Error, Result};
use os::Os;

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// As it is stored and shown.
    pub document: Document,
    /// The set's name.
    pub set: String,
    /// Grows with each change.
    pub version: i32,
    /// `host:port` of the one member.
    pub host: String,
    /// Its number in the set.
    pub member_id: i32,
    /// The member's tags.
    pub tags: Document,
    /// `settings.getLastErrorModes`.
    pub modes: Document,
}

const MEMBER_FIELDS: [&str; 11] = [
    "_id",
    "host",
    "arbiterOnly",
    "buildIndexes",
    "hidden",
    "priority",
    "tags",
    "secondaryDelaySecs",
    "slaveDelay",
    "votes",
    "newlyAdded",
];

const FIELDS: [&str; 9] = [
    "_id",
    "version",
    "term",
    "protocolVersion",
    "members",
    "settings",
    "writeConcernMajorityJournalDefault",
    "configsvr",
    "secondaryDelaySecs",
];

impl Config {
    /// The configuration of a set of this node alone.
    pub fn of_one(set: &str, address: &str, os: &Os) -> Result<Self> {
        let mut given = doc! { "_id": set, "members": [{ "_id": 0, "host": address }] };
        given.insert("settings", doc! { "replicaSetId": replica_set_id(os) });
        Self::parse(set, &RawDocumentBuf::try_from(&given)?)
    }

    /// Checks a configuration for the set called `set` and fills in what it leaves out.
    pub fn parse(set: &str, given: &RawDocument) -> Result<Self> {
        let given = Document::try_from(given)?;
        if let Some(name) = given.keys().find(|name| !FIELDS.contains(&name.as_str())) {
            return Err(Error::location(
                40415,
                format!("BSON field 'ReplSetConfig.{name}' is an unknown field."),
            ));
        }
        match given.get("_id") {
            Some(Bson::String(name)) if name == set => {}
            Some(Bson::String(name)) => {
                return Err(invalid(format!(
                    "Rejecting initiate with a set name that differs from command line set name, \
                     initiate set name: {name}, command line set name: {set}"
                )));
            }
            Some(_) => return Err(Error::type_mismatch("the _id of a set is its name, a string")),
            None => return Err(dispatch::fields::missing("ReplSetConfig", "_id")),
        }
        if given.get_bool("configsvr").unwrap_or(false) {
            return Err(invalid("a config server is not supported".to_owned()));
        }
        let version = match given.get("version") {
            None => 1,
            Some(value) => whole(value)
                .filter(|version| *version >= 1)
                .ok_or_else(|| invalid("version must be at least 1".to_owned()))?,
        };
        if given.get("protocolVersion").is_some_and(|version| whole(version) != Some(1)) {
            return Err(invalid("Only protocolVersion 1 is supported".to_owned()));
        }
        let member = one_member(&given)?;
        let settings = match given.get("settings") {
            None => Document::new(),
            Some(Bson::Document(settings)) => settings.clone(),
            Some(_) => return Err(Error::type_mismatch("settings must be an object")),
        };
        let modes = settings.get_document("getLastErrorModes").cloned().unwrap_or_default();
        let tags = member.get_document("tags").cloned().unwrap_or_default();
        check_modes(&modes, &tags)?;
        let host = member.get_str("host").unwrap_or_default().to_owned();
        let member_id = member.get("_id").and_then(whole).unwrap_or(0);
        let document = doc! {
            "_id": set,
            "version": version,
            "term": given.get("term").and_then(whole).unwrap_or(1),
            "members": [member],
            "protocolVersion": 1_i64,
            "writeConcernMajorityJournalDefault":
                given.get_bool("writeConcernMajorityJournalDefault").unwrap_or(true),
            "settings": full_settings(&settings),
        };
        let set = set.to_owned();
        Ok(Self { document, set, version, host, member_id, tags, modes })
    }
}

fn one_member(given: &Document) -> Result<Document> {
    let members = match given.get("members") {
        Some(Bson::Array(members)) => members,
        Some(_) => return Err(Error::type_mismatch("members must be an array")),
        None => return Err(dispatch::fields::missing("ReplSetConfig", "members")),
    };
    let [Bson::Document(member)] = &members[..] else {
        return Err(invalid(format!(
            "a replica set of this server has exactly one member so far, not {}",
            members.len()
        )));
    };
    if let Some(name) = member.keys().find(|name| !MEMBER_FIELDS.contains(&name.as_str())) {
        return Err(Error::location(
            40415,
            format!("BSON field 'MemberConfig.{name}' is an unknown field."),
        ));
    }
    let Some(Bson::String(host)) = member.get("host") else {
        return Err(dispatch::fields::missing("MemberConfig", "host"));
    };
    let host = if host.contains(':') { host.clone() } else { format!("{host}:27017") };
    let id = member.get("_id").map_or(Some(0), whole).filter(|id| (0..=255).contains(id));
    let id = id.ok_or_else(|| invalid("_id field value of a member is out of range".to_owned()))?;
    let is = |name: &str| member.get(name).is_some_and(|value| number(value) != Some(0.0));
    for never in ["arbiterOnly", "hidden", "secondaryDelaySecs", "slaveDelay"] {
        let set = match member.get(never) {
            Some(Bson::Boolean(set)) => *set,
            None => false,
            Some(_) => is(never),
        };
        if set {
            return Err(invalid(format!("the only member of a set cannot have {never}")));
        }
    }
    let priority = member.get("priority").map_or(Some(1.0), number).unwrap_or(0.0);
    let votes = member.get("votes").map_or(Some(1.0), number).unwrap_or(0.0);
    if priority <= 0.0 || (votes - 1.0).abs() > f64::EPSILON {
        return Err(invalid(
            "Replica set configuration must contain at least one non-arbiter member with \
             priority > 0"
                .to_owned(),
        ));
    }
    Ok(doc! {
        "_id": id,
        "host": host,
        "arbiterOnly": false,
        "buildIndexes": true,
        "hidden": false,
        "priority": priority,
        "tags": member.get_document("tags").cloned().unwrap_or_default(),
        "secondaryDelaySecs": 0_i64,
        "votes": 1,
    })
}

/// A mode counts distinct values of tags; the one member has one value of each tag it has.
fn check_modes(modes: &Document, tags: &Document) -> Result<()> {
    for (name, wanted) in modes {
        let Bson::Document(wanted) = wanted else {
            return Err(Error::type_mismatch(format!("mode {name} must be an object")));
        };
        for (tag, count) in wanted {
            let count = whole(count).unwrap_or(0);
            if count < 1 || count > i32::from(tags.contains_key(tag)) {
                return Err(Error::new(
                    Code::UNSATISFIABLE_WRITE_CONCERN,
                    format!("write concern mode {name} cannot be satisfied by this set"),
                ));
            }
        }
    }
    Ok(())
}

fn full_settings(given: &Document) -> Document {
    let mut settings = doc! {
        "chainingAllowed": true,
        "heartbeatIntervalMillis": 2000,
        "heartbeatTimeoutSecs": 10,
        "electionTimeoutMillis": 10_000,
        "catchUpTimeoutMillis": -1,
        "catchUpTakeoverDelayMillis": 30_000,
        "getLastErrorModes": {},
        "getLastErrorDefaults": { "w": 1, "wtimeout": 0 },
    };
    settings.extend(given.clone());
    settings
}

/// Names a set for good.
pub fn replica_set_id(os: &Os) -> bson::oid::ObjectId {
    let mut id = [0; 12];
    os.entropy.fill(&mut id);
    bson::oid::ObjectId::from_bytes(id)
}

fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(number) => Some(f64::from(*number)),
        Bson::Int64(number) => Some(*number as f64),
        Bson::Double(number) => Some(*number),
        Bson::Boolean(set) => Some(f64::from(u8::from(*set))),
        _ => None,
    }
}

fn whole(value: &Bson) -> Option<i32> {
    let number = number(value).filter(|number| number.fract() == 0.0)?;
    (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number).then_some(number as i32)
}

fn invalid(message: String) -> Error {
    Error::new(Code::INVALID_REPLICA_SET_CONFIG, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(given: &Document) -> Result<Config> {
        Config::parse("rs", &RawDocumentBuf::try_from(given).unwrap())
    }

    #[test]
    fn a_short_configuration_is_completed() {
        let config = parse(&doc! { "_id": "rs", "members": [{ "_id": 0, "host": "a" }] }).unwrap();
        assert_eq!((config.host.as_str(), config.version), ("a:27017", 1));
        let shown = config.document.get_document("settings").unwrap();
        assert_eq!(shown.get_i32("electionTimeoutMillis").ok(), Some(10_000));
        let again = RawDocumentBuf::try_from(&config.document).unwrap();
        assert_eq!(Config::parse("rs", &again).unwrap().document, config.document);
    }

    #[test]
    fn what_one_node_cannot_be_is_refused() {
        let member = |extra: Document| {
            let mut member = doc! { "_id": 0, "host": "a:1" };
            member.extend(extra);
            doc! { "_id": "rs", "members": [member] }
        };
        for (given, code) in [
            (doc! { "_id": "other", "members": [{ "_id": 0, "host": "a:1" }] }, 93),
            (doc! { "_id": "rs", "members": [] }, 93),
            (
                doc! { "_id": "rs", "members": [{ "_id": 0, "host": "a" }, { "_id": 1, "host": "b" }] },
                93,
            ),
            (doc! { "_id": "rs" }, 40414),
            (doc! { "_id": "rs", "members": 1 }, 14),
            (doc! { "_id": "rs", "members": [{ "_id": 0 }] }, 40414),
            (doc! { "_id": "rs", "members": [], "foo": 1 }, 40415),
            (member(doc! { "arbiterOnly": true }), 93),
            (member(doc! { "priority": 0 }), 93),
            (member(doc! { "votes": 0 }), 93),
            (member(doc! { "_id": 256 }), 93),
            (member(doc! { "foo": 0 }), 40415),
        ] {
            let error = parse(&given).unwrap_err();
            assert_eq!(error.code().0, code, "{given}: {error}");
        }
    }
}
