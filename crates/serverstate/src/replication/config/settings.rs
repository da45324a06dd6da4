//! The settings of a set: how its members watch over each other.
//!
//! Always true: what a configuration leaves out has MongoDB's defaults, and is shown.

use super::fields::Fields;
use bson::{Bson, Document, doc};
use errors::Result;
use std::time::Duration;

/// `settings`, completed.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Members may copy from secondaries.
    pub chaining_allowed: bool,
    /// How often members ask for each other's state.
    pub heartbeat_interval: Duration,
    /// After how long without an answer a member counts as unreachable.
    pub heartbeat_timeout: Duration,
    /// After how long without a primary a member wants to be it.
    pub election_timeout: Duration,
    /// Kept and shown: a new primary has nothing to catch up with.
    pub catch_up_timeout_ms: i64,
    /// Kept and shown, as the one before.
    pub catch_up_takeover_delay_ms: i64,
    /// The write concern modes, unread: [`super::modes::Modes`].
    pub modes: Document,
    /// The set's identity.
    pub replica_set_id: Option<bson::oid::ObjectId>,
}

impl Settings {
    pub(super) fn parse(given: &Document) -> Result<Self> {
        const MOST: i64 = i32::MAX as i64;
        let mut fields = Fields::new("settings", given);
        let ms = |value: Option<i64>, default: u64| {
            Duration::from_millis(value.and_then(|value| value.try_into().ok()).unwrap_or(default))
        };
        let heartbeat = fields.whole("heartbeatIntervalMillis", 1, MOST)?;
        let heartbeat_timeout = fields.whole("heartbeatTimeoutSecs", 1, MOST)?;
        let election = fields.whole("electionTimeoutMillis", 1, MOST)?;
        if let Some(defaults) = fields.document("getLastErrorDefaults")? {
            // Since MongoDB 5.0 the default write concern is set by setDefaultRWConcern alone.
            let mut concern = Fields::new("getLastErrorDefaults", &defaults);
            let is_default = concern.whole("w", 1, 1).and_then(|_| concern.whole("wtimeout", 0, 0));
            if is_default.is_err() || concern.end().is_err() {
                let why = "must be left out or { w: 1, wtimeout: 0 }: use setDefaultRWConcern";
                return Err(fields.refuse("getLastErrorDefaults", why));
            }
        }
        let settings = Self {
            chaining_allowed: fields.flag("chainingAllowed")?.unwrap_or(true),
            heartbeat_interval: ms(heartbeat, 2000),
            heartbeat_timeout: ms(heartbeat_timeout.map(|seconds| seconds * 1000), 10_000),
            election_timeout: ms(election, 10_000),
            catch_up_timeout_ms: fields.whole("catchUpTimeoutMillis", -1, MOST)?.unwrap_or(-1),
            catch_up_takeover_delay_ms: fields
                .whole("catchUpTakeoverDelayMillis", -1, MOST)?
                .unwrap_or(30_000),
            modes: fields.document("getLastErrorModes")?.unwrap_or_default(),
            replica_set_id: fields.object_id("replicaSetId")?,
        };
        fields.end()?;
        Ok(settings)
    }

    /// As `rs.conf()` shows it.
    pub(super) fn document(&self) -> Document {
        let whole = |duration: Duration, unit: u128| {
            i32::try_from(duration.as_millis() / unit).unwrap_or(i32::MAX)
        };
        let small = |value: i64| i32::try_from(value).map_or(Bson::Int64(value), Bson::Int32);
        let mut document = doc! {
            "chainingAllowed": self.chaining_allowed,
            "heartbeatIntervalMillis": whole(self.heartbeat_interval, 1),
            "heartbeatTimeoutSecs": whole(self.heartbeat_timeout, 1000),
            "electionTimeoutMillis": whole(self.election_timeout, 1),
            "catchUpTimeoutMillis": small(self.catch_up_timeout_ms),
            "catchUpTakeoverDelayMillis": small(self.catch_up_takeover_delay_ms),
            "getLastErrorModes": self.modes.clone(),
            "getLastErrorDefaults": { "w": 1, "wtimeout": 0 },
        };
        if let Some(id) = self.replica_set_id {
            document.insert("replicaSetId", id);
        }
        document
    }
}
