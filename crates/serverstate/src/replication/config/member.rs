//! One member of a set, as its configuration has it.
//!
//! Always true of a [`Member`]: it has a port; who cannot vote, is hidden, delayed or keeps no indexes has
//! priority 0; an arbiter votes, has priority 0 and no tags.

use super::fields::{Fields, invalid};
use bson::{Bson, Document, doc};
use errors::Result;
use std::net::IpAddr;

/// MongoDB's port, where a host names none.
const DEFAULT_PORT: u16 = 27017;
/// The longest delay: 366 days, as in MongoDB.
const LONGEST_DELAY_SECONDS: i64 = 366 * 24 * 3600;

/// A member.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the document, each by itself")]
pub struct Member {
    /// Its number in the set.
    pub id: i32,
    /// `host:port`, as clients and other members reach it.
    pub host: String,
    /// It votes and holds no data.
    pub arbiter_only: bool,
    /// It keeps the indexes of collections.
    pub build_indexes: bool,
    /// Clients are not told of it.
    pub hidden: bool,
    /// The greater it is, the sooner the member becomes primary; with 0 never.
    pub priority: f64,
    /// Whether it has a vote.
    pub votes: bool,
    /// How far behind it stays.
    pub delay_seconds: i64,
    /// By name and value.
    pub tags: Vec<(String, String)>,
}

/// Under which name `hello` lists a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// It may become primary.
    Hosts,
    /// It may be read only.
    Passives,
    /// It cannot be read.
    Arbiters,
    /// It is hidden.
    Nowhere,
}

impl Member {
    pub(super) fn parse(given: &Document) -> Result<Self> {
        let mut fields = Fields::new("MemberConfig", given);
        let id = fields.whole("_id", 0, 255)?.ok_or_else(|| fields.missing("_id"))?;
        let host = fields.text("host")?.ok_or_else(|| fields.missing("host"))?;
        let host = with_port(host)
            .ok_or_else(|| fields.refuse("host", "must be a host name with or without a port"))?;
        let arbiter_only = fields.flag("arbiterOnly")?.unwrap_or(false);
        let build_indexes = fields.flag("buildIndexes")?.unwrap_or(true);
        let hidden = fields.flag("hidden")?.unwrap_or(false);
        let votes = fields.whole("votes", 0, 1)?.unwrap_or(1) == 1;
        let mut priority = fields.number("priority", 0.0, 1000.0)?.unwrap_or(1.0);
        let delay = fields.whole("secondaryDelaySecs", 0, LONGEST_DELAY_SECONDS)?;
        let old_delay = fields.whole("slaveDelay", 0, LONGEST_DELAY_SECONDS)?;
        if delay.is_some() && old_delay.is_some() {
            return Err(fields.refuse("slaveDelay", "is the old name of secondaryDelaySecs"));
        }
        let delay_seconds = delay.or(old_delay).unwrap_or(0);
        let tags = tags(&fields.document("tags")?.unwrap_or_default())?;
        if fields.document("horizons")?.is_some_and(|horizons| !horizons.is_empty()) {
            return Err(fields.refuse("horizons", "is not supported"));
        }
        if fields.flag("newlyAdded")?.unwrap_or(false) {
            return Err(
                fields.refuse("newlyAdded", "is set by the members, not in a configuration")
            );
        }
        fields.end()?;
        if arbiter_only {
            // The default, also where a client says it.
            if (priority - 1.0).abs() < f64::EPSILON {
                priority = 0.0;
            }
            if !votes {
                return Err(invalid("Arbiter must vote (cannot have 0 votes)"));
            }
            if priority != 0.0 {
                return Err(invalid("Arbiter must have priority 0"));
            }
            if !tags.is_empty() {
                return Err(invalid("Cannot set tags on arbiters."));
            }
            if delay_seconds > 0 {
                return Err(invalid("secondaryDelaySecs is not for arbiters, which show nothing"));
            }
        }
        if priority != 0.0 {
            for (is_so, what) in [
                (!votes, "non-voting (votes:0)"),
                (delay_seconds > 0, "secondaryDelaySecs is used"),
                (hidden, "hidden=true"),
                (!build_indexes, "buildIndexes=false"),
            ] {
                if is_so {
                    return Err(invalid(format!("priority must be 0 when {what}")));
                }
            }
        }
        Ok(Self {
            id: i32::try_from(id).unwrap_or(0),
            host,
            arbiter_only,
            build_indexes,
            hidden,
            priority,
            votes,
            delay_seconds,
            tags,
        })
    }

    /// As `rs.conf()` shows it.
    pub(super) fn document(&self) -> Document {
        doc! {
            "_id": self.id,
            "host": &self.host,
            "arbiterOnly": self.arbiter_only,
            "buildIndexes": self.build_indexes,
            "hidden": self.hidden,
            "priority": self.priority,
            "tags": self.tags_document(),
            "secondaryDelaySecs": self.delay_seconds,
            "votes": i32::from(self.votes),
        }
    }

    /// The tags, as a document.
    pub fn tags_document(&self) -> Document {
        self.tags.iter().map(|(name, value)| (name.clone(), Bson::String(value.clone()))).collect()
    }

    /// The value of a tag.
    pub fn tag(&self, name: &str) -> Option<&str> {
        self.tags.iter().find(|(tag, _)| tag == name).map(|(_, value)| value.as_str())
    }

    /// Whether it can become primary.
    pub fn is_electable(&self) -> bool {
        !self.arbiter_only && self.priority > 0.0
    }

    /// The port of its address.
    pub fn port(&self) -> Option<u16> {
        self.host.rsplit_once(':')?.1.parse().ok()
    }

    /// Whether its address is good on one machine only.
    pub(super) fn is_local(&self) -> bool {
        let name = self.host.rsplit_once(':').map_or(self.host.as_str(), |(name, _)| name);
        let name = name.trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Where `hello` lists it.
    pub fn list(&self) -> List {
        match (self.arbiter_only, self.hidden, self.priority > 0.0) {
            (true, ..) => List::Arbiters,
            (_, true, _) => List::Nowhere,
            (_, _, true) => List::Hosts,
            (_, _, false) => List::Passives,
        }
    }
}

/// The address with a port, as a configuration has it, unless it is none.
pub fn with_port(host: &str) -> Option<String> {
    let host = host.trim();
    let (name, port) = match host.rsplit_once(':') {
        // An IPv6 address without a port: its colons are within brackets.
        Some((_, rest)) if rest.ends_with(']') => (host, None),
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let is_name = match bare {
        Some(address) => address.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()),
        None => {
            !name.is_empty()
                && !name.chars().any(|c| c.is_whitespace() || c.is_control() || ":/?@,".contains(c))
        }
    };
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => port.parse().ok().filter(|port| *port != 0)?,
    };
    is_name.then(|| format!("{name}:{port}"))
}

fn tags(given: &Document) -> Result<Vec<(String, String)>> {
    let pair = |(name, value): (&String, &Bson)| match value {
        Bson::String(value) => Ok((name.clone(), value.clone())),
        _ => Err(invalid(format!("the value of tags.{name} must be a string"))),
    };
    given.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_names_with_ports() {
        for (given, wanted) in [
            ("a", Some("a:27017")),
            (" a.example.org:1 ", Some("a.example.org:1")),
            ("10.0.0.1:5", Some("10.0.0.1:5")),
            ("[::1]", Some("[::1]:27017")),
            ("[fe80::1]:7", Some("[fe80::1]:7")),
            ("::1", None),
            ("[a]:7", None),
            ("a:", None),
            ("a:b", None),
            ("a:65536", None),
            ("a:0", None),
            ("a b:1", None),
            (":1", None),
            ("mongodb://a/", None),
            ("a,b:1", None),
        ] {
            assert_eq!(with_port(given).as_deref(), wanted, "{given}");
        }
    }
}
