//! A replica set's configuration: read from its document, checked as a whole, and completed.
//!
//! Always true of a [`Config`]:
//! 1. Its members have different numbers and hosts; one to fifty of them, of which one to seven vote;
//!    at least one can be primary.
//! 2. Its document has every field that `rs.conf()` shows, and reads as the same configuration again.
//! 3. Each of its write concern modes can be reached when all members that hold data have a write.
//!
//! What may become of it is in [`change`]. What this server can be a part of so far is in
//! [`Config::check_supported`]: everything else here is about sets of any size.

pub mod change;
mod fields;
pub mod member;
pub mod modes;
pub mod settings;

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use errors::{Code, Error, Result};
use fields::{Fields, invalid};
use member::Member;
use modes::Modes;
use os::Os;
use settings::Settings;

/// How many members a set has at most.
pub const MOST_MEMBERS: usize = 50;
/// How many of them vote at most.
pub const MOST_VOTERS: usize = 7;

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// As it is stored and shown.
    pub document: Document,
    /// The set's name.
    pub set: String,
    /// Grows with each change.
    pub version: i32,
    /// Of which term's primary it is.
    pub term: i64,
    /// In the order of the document.
    pub members: Vec<Member>,
    /// `settings`, completed.
    pub settings: Settings,
    /// `settings.getLastErrorModes`.
    pub modes: Modes,
}

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
        let mut fields = Fields::new("ReplSetConfig", &given);
        let name = fields.text("_id")?.ok_or_else(|| fields.missing("_id"))?;
        if name != set {
            return Err(invalid(format!(
                "Rejecting initiate with a set name that differs from command line set name, \
                 initiate set name: {name}, command line set name: {set}"
            )));
        }
        let version = fields.whole("version", 1, i64::from(i32::MAX))?.unwrap_or(1);
        let term = fields.whole("term", -1, i64::MAX)?.unwrap_or(1);
        fields.whole("protocolVersion", 1, 1)?;
        let journal = fields.flag("writeConcernMajorityJournalDefault")?.unwrap_or(true);
        if fields.flag("configsvr")?.unwrap_or(false) {
            return Err(invalid("a config server is not supported"));
        }
        let members = members(&mut fields)?;
        let settings = Settings::parse(&fields.document("settings")?.unwrap_or_default())?;
        fields.end()?;
        let modes = Modes::parse(&settings.modes, &members)?;
        let shown: Vec<Bson> =
            members.iter().map(|member| Bson::Document(member.document())).collect();
        let document = doc! {
            "_id": set,
            "version": i32::try_from(version).unwrap_or(i32::MAX),
            "term": i32::try_from(term).map_or(Bson::Int64(term), Bson::Int32),
            "members": shown,
            "protocolVersion": 1_i64,
            "writeConcernMajorityJournalDefault": journal,
            "settings": settings.document(),
        };
        let version = i32::try_from(version).unwrap_or(i32::MAX);
        Ok(Self { document, set: set.to_owned(), version, term, members, settings, modes })
    }

    /// Refuses a second arbiter, as MongoDB does.
    pub fn check_supported(&self) -> Result<()> {
        if self.members.iter().filter(|member| member.arbiter_only).count() > 1 {
            return Err(invalid(
                "Multiple arbiters are not allowed: each of them votes for what no further member has",
            ));
        }
        Ok(())
    }

    /// Refuses settings that a set of several members would not honour.
    pub fn check_settings_of_several(&self) -> Result<()> {
        let usual = Settings::parse(&Document::new())?;
        let given = &self.settings;
        for (name, differs) in [
            ("chainingAllowed", !given.chaining_allowed),
            ("heartbeatIntervalMillis", given.heartbeat_interval != usual.heartbeat_interval),
            ("heartbeatTimeoutSecs", given.heartbeat_timeout != usual.heartbeat_timeout),
            ("catchUpTimeoutMillis", given.catch_up_timeout_ms != usual.catch_up_timeout_ms),
            (
                "catchUpTakeoverDelayMillis",
                given.catch_up_takeover_delay_ms != usual.catch_up_takeover_delay_ms,
            ),
        ] {
            if differs {
                return Err(invalid(format!(
                    "settings.{name} of a set of several members cannot be another than MongoDB's default: this \
                     server does not use it"
                )));
            }
        }
        Ok(())
    }

    /// The members that vote.
    pub fn voters(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.votes)
    }

    /// The members that hold data with all indexes.
    pub fn index_bearing(&self) -> impl Iterator<Item = &Member> {
        self.data_bearing().filter(|member| member.build_indexes)
    }

    /// The members that hold data: all but arbiters.
    pub fn data_bearing(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| !member.arbiter_only)
    }

    /// How many votes elect.
    pub fn majority(&self) -> usize {
        self.voters().count() / 2 + 1
    }

    /// The member at this port: names differ from place to place, so the port alone tells this node.
    pub fn at_port(&self, port: u16) -> Option<&Member> {
        self.members.iter().find(|member| member.port() == Some(port))
    }

    /// What this node is, at its port. A node that was started at another port than the one it was
    /// configured with is the first member, which is the only one so far.
    pub fn own(&self, port: u16) -> Result<&Member> {
        self.at_port(port).or(self.members.first()).ok_or_else(|| {
            invalid("Our replica set config is invalid or we are not a member of it")
        })
    }

    /// Sets the version, in the document too.
    pub fn set_version(&mut self, version: i32) {
        self.version = version;
        self.document.insert("version", version);
    }

    /// Takes the set's identity over from the configuration before this one.
    pub fn keep_identity_of(&mut self, before: &Self) {
        if let Some(id) = before.settings.replica_set_id {
            self.settings.replica_set_id = Some(id);
            self.document.insert("settings", self.settings.document());
        }
    }
}

/// The members, each checked, and what must be true of all of them together.
fn members(fields: &mut Fields<'_>) -> Result<Vec<Member>> {
    let given = fields.array("members")?.ok_or_else(|| fields.missing("members"))?;
    if given.is_empty() || given.len() > MOST_MEMBERS {
        return Err(invalid(format!(
            "Replica set configuration contains {} members, but must have at least 1 and no more \
             than {MOST_MEMBERS}",
            given.len()
        )));
    }
    let mut members: Vec<Member> = Vec::with_capacity(given.len());
    for value in given {
        let Bson::Document(value) = value else {
            return Err(invalid("each of members must be an object"));
        };
        let member = Member::parse(value)?;
        for other in &members {
            if other.id == member.id {
                return Err(invalid(format!("Found two members with the same _id: {}", member.id)));
            }
            if other.host == member.host {
                return Err(invalid(format!(
                    "Found two members with the same host field: {}",
                    member.host
                )));
            }
        }
        members.push(member);
    }
    let local = members.iter().filter(|member| member.is_local()).count();
    if local != 0 && local != members.len() {
        return Err(invalid(format!(
            "Either all host names in a replica set configuration must be localhost references, or \
             none must be; found {local} out of {}",
            members.len()
        )));
    }
    let voters = members.iter().filter(|member| member.votes).count();
    if voters == 0 || voters > MOST_VOTERS {
        return Err(invalid(format!(
            "Replica set configuration contains {voters} voting members, but must be between 1 and \
             {MOST_VOTERS}"
        )));
    }
    if !members.iter().any(Member::is_electable) {
        return Err(invalid(
            "Replica set configuration must contain at least one non-arbiter member with \
             priority > 0",
        ));
    }
    Ok(members)
}

/// Names a set for good.
pub fn replica_set_id(os: &Os) -> bson::oid::ObjectId {
    let mut id = [0; 12];
    os.entropy.fill(&mut id);
    bson::oid::ObjectId::from_bytes(id)
}

/// The refusal of a change that the set cannot go through.
fn incompatible(message: impl Into<String>) -> Error {
    Error::new(Code::NEW_REPLICA_SET_CONFIGURATION_INCOMPATIBLE, message.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn parse(given: &Document) -> Result<Config> {
        Config::parse("rs", &RawDocumentBuf::try_from(given).unwrap())
    }

    /// A set of members at `a:1`, `b:2`, … with these fields besides.
    pub(super) fn set_of(extras: &[Document]) -> Document {
        let members: Vec<Document> = extras
            .iter()
            .zip("abcdefghijklmnopqrstuvwxyz".chars().cycle())
            .enumerate()
            .map(|(n, (extra, letter))| {
                let mut member = doc! { "_id": n as i32, "host": format!("{letter}:{}", n + 1) };
                member.extend(extra.clone());
                member
            })
            .collect();
        doc! { "_id": "rs", "members": members }
    }

    #[test]
    fn a_short_configuration_is_completed() {
        let config = parse(&doc! { "_id": "rs", "members": [{ "_id": 0, "host": "a" }] }).unwrap();
        assert_eq!((config.members[0].host.as_str(), config.version), ("a:27017", 1));
        let shown = config.document.get_document("settings").unwrap();
        assert_eq!(shown.get_i32("electionTimeoutMillis").ok(), Some(10_000));
        let again = RawDocumentBuf::try_from(&config.document).unwrap();
        assert_eq!(Config::parse("rs", &again).unwrap().document, config.document);
    }

    #[test]
    fn a_set_of_many_kinds_reads_as_itself() {
        let mut given = set_of(&[
            doc! { "priority": 2.5, "tags": { "dc": "east" } },
            doc! { "priority": 0, "hidden": true, "secondaryDelaySecs": 3600 },
            doc! { "arbiterOnly": true },
            doc! { "votes": 0, "priority": 0, "buildIndexes": false, "tags": { "dc": "west" } },
        ]);
        given.insert("settings", doc! { "getLastErrorModes": { "two": { "dc": 2 } } });
        let config = parse(&given).unwrap();
        assert_eq!((config.voters().count(), config.majority()), (3, 2));
        assert_eq!(config.data_bearing().count(), 3);
        let hosts: Vec<_> = config.members.iter().map(Member::list).collect();
        assert_eq!(
            hosts,
            [
                member::List::Hosts,
                member::List::Nowhere,
                member::List::Arbiters,
                member::List::Passives
            ]
        );
        assert!(config.members[2].priority == 0.0, "an arbiter's priority is 0");
        let again = RawDocumentBuf::try_from(&config.document).unwrap();
        assert_eq!(Config::parse("rs", &again).unwrap().document, config.document);
        config.check_supported().unwrap();
        assert!(!config.members[3].build_indexes && config.members[0].build_indexes);
        given
            .get_array_mut("members")
            .unwrap()
            .push(doc! { "_id": 4, "host": "e:5", "arbiterOnly": true }.into());
        assert_eq!(parse(&given).unwrap().check_supported().unwrap_err().code().0, 93);
    }

    #[test]
    fn what_no_set_can_be_is_refused() {
        let one = |extra: Document| set_of(&[extra]);
        let second = |extra: Document| set_of(&[doc! {}, extra]);
        let with = set_of(&[doc! {}]);
        let and = |name: &str, value: Bson| {
            let mut given = with.clone();
            given.insert(name, value);
            given
        };
        let cases = vec![
            (doc! { "foo": "bar" }, "_id"),
            (doc! { "_id": "other", "members": [{ "_id": 0, "host": "a:1" }] }, "differs"),
            (doc! { "_id": 7, "members": [] }, "_id"),
            (doc! { "_id": "rs", "members": [] }, "0 members"),
            (doc! { "_id": "rs" }, "members"),
            (doc! { "_id": "rs", "members": 1 }, "members"),
            (doc! { "_id": "rs", "members": [1] }, "object"),
            (doc! { "_id": "rs", "members": [{ "_id": 0 }] }, "host"),
            (doc! { "_id": "rs", "members": [{ "host": "a" }] }, "_id"),
            (set_of(&vec![doc! {}; 51]), "51 members"),
            (set_of(&vec![doc! {}; 8]), "8 voting"),
            (second(doc! { "_id": 0 }), "same _id"),
            (second(doc! { "host": "a:1" }), "same host"),
            (second(doc! { "host": "localhost:9" }), "localhost"),
            (second(doc! { "host": "127.0.0.1:9" }), "localhost"),
            (one(doc! { "host": "" }), "host"),
            (one(doc! { "host": "mongodb://host/?replicaSet=rs" }), "host"),
            (one(doc! { "host": "a:99999" }), "host"),
            (one(doc! { "_id": 256 }), "_id"),
            (one(doc! { "_id": -1 }), "_id"),
            (one(doc! { "_id": 0.5 }), "_id"),
            (one(doc! { "foo": 0 }), "foo"),
            (one(doc! { "horizons": { "x": "y:1" } }), "horizons"),
            (one(doc! { "newlyAdded": true }), "newlyAdded"),
            (one(doc! { "arbiterOnly": true }), "non-arbiter"),
            (one(doc! { "priority": 0 }), "priority > 0"),
            (one(doc! { "priority": -1 }), "priority"),
            (one(doc! { "priority": 1001 }), "priority"),
            (one(doc! { "priority": f64::NAN }), "priority"),
            (one(doc! { "priority": "high" }), "priority"),
            (one(doc! { "hidden": "yes" }), "hidden"),
            (one(doc! { "votes": 0 }), "non-voting"),
            (one(doc! { "votes": 2 }), "votes"),
            (set_of(&[doc! { "votes": 0, "priority": 0 }]), "0 voting"),
            (second(doc! { "hidden": true }), "hidden=true"),
            (second(doc! { "buildIndexes": false }), "buildIndexes=false"),
            (second(doc! { "buildIndexes": "no", "priority": 0 }), "buildIndexes"),
            (second(doc! { "secondaryDelaySecs": 1 }), "secondaryDelaySecs"),
            (second(doc! { "secondaryDelaySecs": -1, "priority": 0 }), "secondaryDelaySecs"),
            (
                second(doc! { "slaveDelay": 1, "secondaryDelaySecs": 2, "priority": 0 }),
                "slaveDelay",
            ),
            (second(doc! { "arbiterOnly": true, "votes": 0 }), "must vote"),
            (second(doc! { "arbiterOnly": true, "priority": 2 }), "rbiter"),
            (second(doc! { "arbiterOnly": true, "tags": { "a": "b" } }), "tags"),
            (one(doc! { "tags": { "a": 1 } }), "tags"),
            (one(doc! { "tags": 1 }), "tags"),
            (and("version", Bson::Int32(0)), "version"),
            (and("version", Bson::Int64(1 << 31)), "version"),
            (and("version", Bson::String("1".to_owned())), "version"),
            (and("protocolVersion", Bson::Int32(0)), "protocolVersion"),
            (and("configsvr", Bson::Boolean(true)), "config server"),
            (and("foo", Bson::Int32(1)), "foo"),
            (and("settings", Bson::Int32(1)), "settings"),
            (and("settings", doc! { "foo": 1 }.into()), "foo"),
            (and("settings", doc! { "electionTimeoutMillis": 0 }.into()), "electionTimeoutMillis"),
            (and("settings", doc! { "heartbeatTimeoutSecs": -1 }.into()), "heartbeatTimeoutSecs"),
            (and("settings", doc! { "catchUpTimeoutMillis": -2 }.into()), "catchUpTimeoutMillis"),
            (and("settings", doc! { "replicaSetId": "x" }.into()), "replicaSetId"),
            (
                and("settings", doc! { "getLastErrorDefaults": { "w": 2 } }.into()),
                "getLastErrorDefaults",
            ),
            (and("settings", doc! { "getLastErrorModes": { "m": 1 } }.into()), "m"),
            (and("settings", doc! { "getLastErrorModes": { "m": { "dc": 0 } } }.into()), "m"),
            (and("settings", doc! { "getLastErrorModes": { "m": { "dc": 1 } } }.into()), "m"),
        ];
        for (given, named) in cases {
            let error = parse(&given).unwrap_err();
            assert_eq!(error.code().0, 93, "{given}: {error}");
            assert!(error.message().contains(named), "{given}: {error}");
        }
    }
}
