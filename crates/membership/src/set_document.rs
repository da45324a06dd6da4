//! The configuration of a set, as an entry of its log carries it: what `rs.conf()` shows, and which data
//! directory each member is.
//!
//! ```text
//! {v: 1, config: <as rs.conf() shows it>, members: [{_id: int, member: long}, …], logBegins: long}
//! ```
//!
//! Always true of a [`SetDocument`]: each member of the configuration has one data directory, and no two the same.

use crate::error::{Error, Result};
use bson::oid::ObjectId;
use bson::{Bson, Document, RawDocumentBuf, doc};
use links::HostAndPort;
use quorum::MemberId;
use replica::Kinds;
use std::collections::BTreeMap;

/// The version that this program writes.
const VERSION: i32 = 1;
/// How much later than the others a member campaigns that hands over what it leads: so many ranks, two election timeouts
/// in all. It is needed only where nobody else can win.
const LATE_RANK: u32 = 20;

/// One member, as far as consensus and links want to know it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listed {
    pub(crate) id: i32,
    pub(crate) member: MemberId,
    pub(crate) host: String,
    pub(crate) votes: bool,
    pub(crate) priority: f64,
    pub(crate) is_witness: bool,
    pub(crate) delay_seconds: u32,
    pub(crate) builds_indexes: bool,
}

/// A set's configuration, and who its members are.
#[derive(Clone, Debug, PartialEq)]
pub struct SetDocument {
    config: Document,
    members: Vec<Listed>,
    /// Behind which index the log of the set begins that was forced to go on; 0 where it never was.
    log_begins: u64,
}

fn wrong(what: impl Into<String>) -> Error {
    Error::Document(what.into())
}

/// A number of any of BSON's kinds.
fn number(value: Option<&Bson>) -> Option<f64> {
    match value? {
        Bson::Int32(number) => Some(f64::from(*number)),
        Bson::Int64(number) => Some(*number as f64),
        Bson::Double(number) => Some(*number),
        _ => None,
    }
}

impl SetDocument {
    /// A configuration that was checked, and the data directory of each member by its `_id`.
    ///
    /// # Errors
    /// A member without a directory, or a directory twice.
    pub fn new(config: Document, ids: &BTreeMap<i32, MemberId>) -> Result<Self> {
        let listed = config.get_array("members").map_err(|_| wrong("it has no members"))?;
        let mut members: Vec<Listed> = Vec::with_capacity(listed.len());
        for value in listed {
            let Bson::Document(value) = value else { return Err(wrong("a member is no document")) };
            let id = number(value.get("_id")).filter(|id| (0.0..256.0).contains(id));
            let id = id.ok_or_else(|| wrong("a member has no _id"))? as i32;
            let host =
                value.get_str("host").map_err(|_| wrong(format!("member {id} has no host")))?;
            host.parse::<HostAndPort>().map_err(|error| wrong(error.to_string()))?;
            let member =
                *ids.get(&id).ok_or_else(|| wrong(format!("member {id} has no directory")))?;
            if member == MemberId(0) || members.iter().any(|known| known.member == member) {
                return Err(wrong(format!("the directory {member} of member {id} is another's")));
            }
            members.push(Listed {
                id,
                member,
                host: host.to_owned(),
                votes: number(value.get("votes")).is_none_or(|votes| votes > 0.0),
                priority: number(value.get("priority")).unwrap_or(1.0),
                is_witness: value.get_bool("arbiterOnly").unwrap_or(false),
                delay_seconds: number(value.get("secondaryDelaySecs"))
                    .map_or(0, |seconds| seconds as u32),
                builds_indexes: value.get_bool("buildIndexes").unwrap_or(true),
            });
        }
        if members.len() != ids.len() {
            return Err(wrong("a directory is of no member"));
        }
        Ok(Self { config, members, log_begins: 0 })
    }

    /// Of the set that another document is of.
    #[must_use]
    pub fn following(mut self, before: &Self) -> Self {
        self.log_begins = self.log_begins.max(before.log_begins);
        self
    }

    /// Of a set that is forced to go on, with the log behind that index.
    pub(crate) fn begun_behind(mut self, index: u64) -> Self {
        self.log_begins = index;
        self
    }

    /// Behind which index the set's log begins, where the set was forced to go on without its majority: what is before it
    /// is sent to nobody, because the configuration changed there by no entry. Otherwise 0.
    pub fn log_begins(&self) -> u64 {
        self.log_begins
    }

    /// What `rs.conf()` shows.
    pub fn config(&self) -> &Document {
        &self.config
    }

    /// The set's name.
    pub fn name(&self) -> &str {
        self.config.get_str("_id").unwrap_or_default()
    }

    /// Grows with each change.
    pub fn version(&self) -> i64 {
        number(self.config.get("version")).map_or(0, |version| version as i64)
    }

    /// Whether this says of a member that knows the other document that it was removed from its set by now.
    pub(crate) fn removes(&self, member: MemberId, known: &Self) -> bool {
        self.name() == known.name()
            && self.set_id().is_some()
            && self.set_id() == known.set_id()
            && self.version() > known.version()
            && self.id_of(member).is_none()
    }

    /// The set's identity.
    pub fn set_id(&self) -> Option<ObjectId> {
        self.config.get_document("settings").ok()?.get_object_id("replicaSetId").ok()
    }

    /// `settings.electionTimeoutMillis`, where it is there.
    pub(crate) fn election_timeout_ms(&self) -> Option<u64> {
        let settings = self.config.get_document("settings").ok()?;
        number(settings.get("electionTimeoutMillis")).map(|millis| millis as u64)
    }

    /// The data directory of each member.
    pub fn ids(&self) -> BTreeMap<i32, MemberId> {
        self.members.iter().map(|listed| (listed.id, listed.member)).collect()
    }

    /// The `_id` of a data directory's member.
    pub fn id_of(&self, member: MemberId) -> Option<i32> {
        self.members.iter().find(|listed| listed.member == member).map(|listed| listed.id)
    }

    /// Where a data directory's member listens.
    pub fn host_of(&self, member: MemberId) -> Option<&str> {
        self.members
            .iter()
            .find(|listed| listed.member == member)
            .map(|listed| listed.host.as_str())
    }

    pub(crate) fn members(&self) -> &[Listed] {
        &self.members
    }

    /// Where the others listen.
    pub(crate) fn others(&self, own: MemberId) -> Vec<(MemberId, HostAndPort)> {
        let others = self.members.iter().filter(|listed| listed.member != own);
        others.filter_map(|listed| Some((listed.member, listed.host.parse().ok()?))).collect()
    }

    /// How many priorities that members have are above this one's; `None` of one that is never to lead.
    pub fn rank(&self, member: MemberId) -> Option<u32> {
        let own = self.members.iter().find(|listed| listed.member == member)?;
        let shows_all = !own.is_witness && own.delay_seconds == 0 && own.builds_indexes;
        if own.priority <= 0.0 || !own.votes || !shows_all {
            return None;
        }
        let mut above: Vec<f64> = self.members.iter().map(|listed| listed.priority).collect();
        above.retain(|priority| *priority > own.priority);
        above.sort_by(f64::total_cmp);
        above.dedup();
        u32::try_from(above.len()).ok()
    }

    /// Whether it votes and keeps the log without applying it: MongoDB's arbiter.
    pub fn is_witness(&self, member: MemberId) -> bool {
        self.members.iter().any(|listed| listed.member == member && listed.is_witness)
    }

    /// How many seconds after their commits a member shows entries.
    pub fn delay_of(&self, member: MemberId) -> u32 {
        let listed = self.members.iter().find(|listed| listed.member == member);
        listed.map_or(0, |listed| listed.delay_seconds)
    }

    /// Whether a member has indexes beside those that no order of the documents takes the place of; `None` of one that
    /// is not in it.
    pub fn builds_indexes(&self, member: MemberId) -> Option<bool> {
        let listed = self.members.iter().find(|listed| listed.member == member)?;
        Some(listed.builds_indexes)
    }

    /// What the members are.
    pub(crate) fn kinds(&self) -> Kinds {
        let all = || self.members.iter().map(|listed| listed.member);
        Kinds {
            witnesses: all().filter(|member| self.is_witness(*member)).collect(),
            delays: all()
                .map(|member| (member, self.delay_of(member)))
                .filter(|(_, seconds)| *seconds > 0)
                .collect(),
            log_begins: self.log_begins,
            ranks: all().filter_map(|member| Some((member, self.rank(member)?))).collect(),
        }
    }

    /// How late a member campaigns compared with the others; `None` of one that never does. A witness does, and a delayed
    /// member that votes, to bring a member up to date that has less than it: it never takes writes.
    pub(crate) fn campaign_rank(&self, member: MemberId) -> Option<u32> {
        let hands_over = |listed: &Listed| {
            listed.member == member
                && listed.votes
                && (listed.is_witness || listed.delay_seconds > 0)
        };
        if self.members.iter().any(hands_over) { Some(LATE_RANK) } else { self.rank(member) }
    }

    /// Its bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let member = |listed: &Listed| {
            Bson::Document(doc! { "_id": listed.id, "member": listed.member.0.cast_signed() })
        };
        let members: Vec<Bson> = self.members.iter().map(member).collect();
        let mut document = doc! { "v": VERSION, "config": self.config.clone(), "members": members };
        if self.log_begins > 0 {
            document.insert("logBegins", self.log_begins.cast_signed());
        }
        let raw = RawDocumentBuf::try_from(&document).map_err(|error| wrong(error.to_string()))?;
        Ok(raw.into_bytes())
    }

    /// Reads it. It came from a disk or from another member: everything is checked.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let raw = bson::RawDocument::from_bytes(bytes).map_err(|error| wrong(error.to_string()))?;
        let document = Document::try_from(raw).map_err(|error| wrong(error.to_string()))?;
        match document.get_i32("v") {
            Ok(VERSION) => {}
            Ok(other) => {
                return Err(wrong(format!("version {other}; this server reads {VERSION}")));
            }
            Err(_) => return Err(wrong("it has no version")),
        }
        let config = document.get_document("config").map_err(|_| wrong("it has no config"))?;
        let listed = document.get_array("members").map_err(|_| wrong("it has no members"))?;
        let mut ids = BTreeMap::new();
        for value in listed {
            let pair = value.as_document().and_then(|value| {
                let member = MemberId(value.get_i64("member").ok()?.cast_unsigned());
                Some((value.get_i32("_id").ok()?, member))
            });
            let (id, member) = pair.ok_or_else(|| wrong("a member's directory cannot be read"))?;
            if ids.insert(id, member).is_some() {
                return Err(wrong(format!("member {id} has two directories")));
            }
        }
        let log_begins = match document.get("logBegins") {
            None => 0,
            Some(Bson::Int64(index)) if *index > 0 => index.cast_unsigned(),
            Some(_) => return Err(wrong("where its log begins cannot be read")),
        };
        Ok(Self::new(config.clone(), &ids)?.begun_behind(log_begins))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Document {
        doc! {
            "_id": "rs",
            "members": [
                { "_id": 0, "host": "localhost:1", "priority": 2.0, "votes": 1 },
                { "_id": 1, "host": "localhost:2", "priority": 1.0, "votes": 1 },
                { "_id": 2, "host": "localhost:3", "priority": 1, "votes": 1 },
                { "_id": 3, "host": "localhost:4", "priority": 0.0, "votes": 0_i64 },
            ],
            "settings": { "replicaSetId": ObjectId::from_bytes([7; 12]) },
        }
    }

    fn ids() -> BTreeMap<i32, MemberId> {
        [(0, 10), (1, u64::MAX), (2, 12), (3, 13)].map(|(id, of)| (id, MemberId(of))).into()
    }

    #[test]
    fn only_a_newer_document_of_the_same_set_removes_a_member() {
        let version = |config: &Document, version: i32| {
            let mut config = config.clone();
            config.insert("version", version);
            config
        };
        let known = SetDocument::new(version(&config(), 4), &ids()).unwrap();
        let mut smaller = config();
        smaller.get_array_mut("members").unwrap().pop();
        let mut other_set = smaller.clone();
        let id = doc! { "replicaSetId": ObjectId::from_bytes([8; 12]) };
        other_set.insert("settings", id);
        let mut other_name = smaller.clone();
        other_name.insert("_id", "rs2");
        let mut left = ids();
        left.remove(&3);
        let (removed, kept) = (MemberId(13), MemberId(12));
        for (config, ids, member, removes) in [
            (version(&smaller, 5), &left, removed, true),
            (version(&smaller, 4), &left, removed, false),
            (version(&smaller, 5), &left, kept, false),
            (version(&other_set, 5), &left, removed, false),
            (version(&other_name, 5), &left, removed, false),
            (version(&config(), 5), &ids(), removed, false),
        ] {
            let told = SetDocument::new(config, ids).unwrap();
            assert_eq!(told.removes(member, &known), removes, "{told:?}");
        }
    }

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let document = SetDocument::new(config(), &ids()).unwrap();
        assert_eq!(SetDocument::decode(&document.encode().unwrap()).unwrap(), document);
        assert_eq!((document.name(), document.ids()), ("rs", ids()));
        assert_eq!(document.id_of(MemberId(u64::MAX)), Some(1));
        assert_eq!(document.set_id(), Some(ObjectId::from_bytes([7; 12])));
        let ranks = [10, u64::MAX, 12, 13, 99].map(|of| document.rank(MemberId(of)));
        assert_eq!(ranks, [Some(0), Some(1), Some(1), None, None]);
        let forced = document.clone().begun_behind(77);
        assert_eq!(SetDocument::decode(&forced.encode().unwrap()).unwrap(), forced);
        assert_eq!(document.clone().following(&forced).log_begins(), 77);
        assert_eq!(forced.clone().following(&document).log_begins(), 77);
        let others = document.others(MemberId(10));
        assert_eq!(others.len(), 3);
        assert_eq!(others[0], (MemberId(u64::MAX), HostAndPort::new("localhost", 2)));
    }

    #[test]
    fn a_witness_may_never_lead_for_clients_and_campaigns_last() {
        let mut config = config();
        let members = config.get_array_mut("members").unwrap();
        members[2].as_document_mut().unwrap().insert("arbiterOnly", true);
        let document = SetDocument::new(config, &ids()).unwrap();
        let (witness, of_data) = (MemberId(12), MemberId(u64::MAX));
        assert!(document.is_witness(witness) && !document.is_witness(of_data));
        assert_eq!((document.rank(witness), document.campaign_rank(witness)), (None, Some(20)));
        assert_eq!(document.campaign_rank(of_data), Some(1));
        assert_eq!(document.campaign_rank(MemberId(13)), None, "without a vote never");
        let kinds = document.kinds();
        assert_eq!(kinds.witnesses, [witness].into());
        assert!(kinds.delays.is_empty());
        assert_eq!(kinds.ranks, [(MemberId(10), 0), (of_data, 1)].into());
    }

    #[test]
    fn a_member_without_indexes_never_leads() {
        let mut config = config();
        let members = config.get_array_mut("members").unwrap();
        // Also where a document says what no configuration can say.
        for (at, priority) in [(0, 5.0), (2, 0.0)] {
            let member = members[at].as_document_mut().unwrap();
            member.extend(doc! { "buildIndexes": false, "priority": priority });
        }
        let document = SetDocument::new(config, &ids()).unwrap();
        for member in [10, 12].map(MemberId) {
            assert_eq!(document.builds_indexes(member), Some(false));
            assert_eq!((document.rank(member), document.campaign_rank(member)), (None, None));
        }
        assert_eq!(document.builds_indexes(MemberId(u64::MAX)), Some(true));
        assert_eq!(document.builds_indexes(MemberId(99)), None);
        assert_eq!(SetDocument::decode(&document.encode().unwrap()).unwrap(), document);
    }

    #[test]
    fn what_no_set_can_be_is_refused() {
        let with = |change: fn(&mut Document, &mut BTreeMap<i32, MemberId>)| {
            let (mut config, mut ids) = (config(), ids());
            change(&mut config, &mut ids);
            SetDocument::new(config, &ids).unwrap_err().to_string()
        };
        for (text, words) in [
            (
                with(|_, ids| {
                    ids.remove(&1);
                }),
                "has no directory",
            ),
            (
                with(|_, ids| {
                    ids.insert(1, MemberId(10));
                }),
                "another's",
            ),
            (
                with(|_, ids| {
                    ids.insert(1, MemberId(0));
                }),
                "another's",
            ),
            (
                with(|_, ids| {
                    ids.insert(9, MemberId(9));
                }),
                "of no member",
            ),
            (with(|config, _| drop(config.remove("members"))), "no members"),
            (with(|config, _| drop(config.insert("members", vec![Bson::Int32(1)]))), "no document"),
            (with(|config, _| drop(config.insert("members", vec![doc! { "_id": 0 }]))), "no host"),
        ] {
            assert!(text.contains(words), "{text}");
        }
        let bytes = SetDocument::new(config(), &ids()).unwrap().encode().unwrap();
        for cut in 0..bytes.len() {
            assert!(SetDocument::decode(&bytes[..cut]).is_err());
        }
        let newer = RawDocumentBuf::try_from(&doc! { "v": 2 }).unwrap();
        assert!(
            SetDocument::decode(newer.as_bytes()).unwrap_err().to_string().contains("version 2")
        );
    }
}
