//! What a source says of a collection, and how its documents are asked for; plain data.

use super::names::Name;
use bson::{Bson, Document, Timestamp, doc};

/// What a collection is to a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Read in the order of `_id`, so that reading goes on behind any document.
    Ordered,
    /// Read in its own order and from the beginning only: capped, a time series, or of a source that gives no order.
    Natural,
    /// A view: no documents of its own.
    View,
}

/// A collection of the source.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) name: Name,
    pub(crate) kind: Kind,
    /// As the source tells them.
    pub(crate) options: Document,
    pub(crate) indexes: Vec<Document>,
    /// Upper bounds of TokuMX's partitions, but the last one's.
    pub(crate) partitions: Vec<Document>,
    /// Estimates, for the progress.
    pub(crate) documents: u64,
    pub(crate) bytes: u64,
}

impl Facts {
    pub(crate) fn new(name: Name, kind: &str, options: Document) -> Self {
        let kind = match kind {
            "view" => Kind::View,
            "timeseries" => Kind::Natural,
            _ if options.contains_key("viewOn") => Kind::View,
            _ if is_true(options.get("capped")) || options.contains_key("timeseries") => {
                Kind::Natural
            }
            _ => Kind::Ordered,
        };
        let (indexes, partitions) = (Vec::new(), Vec::new());
        Self { name, kind, options, indexes, partitions, documents: 0, bytes: 0 }
    }

    /// As a source that describes a partitioned collection tells of its partitions.
    pub(crate) fn set_partitions(&mut self, reply: &Document) {
        let all = reply.get_array("partitions").map(Vec::as_slice).unwrap_or_default();
        let bounds = all.iter().filter_map(|one| one.as_document()?.get_document("max").ok());
        self.partitions = bounds.cloned().collect();
        self.partitions.truncate(all.len().saturating_sub(1));
    }
}

/// Which server, or which set, has answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Identity {
    process: Option<Bson>,
    set: Option<(Bson, Bson)>,
}

impl Identity {
    /// From the reply to `hello`; none where it tells nothing.
    pub(crate) fn of(hello: &Document) -> Option<Self> {
        let version = hello.get_document("topologyVersion").ok();
        let process = version.and_then(|version| version.get("processId").cloned());
        let set = hello.get("setName").cloned().zip(hello.get("hosts").cloned());
        (process.is_some() || set.is_some()).then_some(Self { process, set })
    }

    /// Two members of a set are one place, as two addresses of a server are.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.process.is_some() && self.process == other.process)
            || (self.set.is_some() && self.set == other.set)
    }
}

/// A yes in the loose way of old servers.
pub(crate) fn is_true(value: Option<&Bson>) -> bool {
    match value {
        Some(Bson::Boolean(yes)) => *yes,
        Some(value) => number(Some(value)) != 0.0,
        None => false,
    }
}

/// A number of any type; 0 where there is none.
pub(crate) fn number(value: Option<&Bson>) -> f64 {
    match value {
        Some(Bson::Int32(number)) => f64::from(*number),
        Some(Bson::Int64(number)) => *number as f64,
        Some(Bson::Double(number)) => *number,
        _ => 0.0,
    }
}

/// A part of a collection that is read at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Part {
    /// The first `_id` that belongs to it; all from the beginning on where there is none.
    pub(crate) from: Option<Bson>,
    /// The first `_id` behind it.
    pub(crate) until: Option<Bson>,
    /// Only what is behind this `_id`, which was read before.
    pub(crate) last: Option<Bson>,
    /// How many documents were read before, for a source that knows no `_id`s.
    pub(crate) skip: u64,
    /// As it was at this time.
    pub(crate) at: Option<Timestamp>,
}

impl Part {
    /// The bounds in the index of `_id`. Bounds and not conditions: a condition sees only values of the type that it
    /// names.
    pub(crate) fn bounds(&self) -> (Option<Document>, Option<Document>) {
        let bound = |id: &Bson| doc! { "_id": id.clone() };
        (self.last.as_ref().or(self.from.as_ref()).map(bound), self.until.as_ref().map(bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_process_and_a_set_by_its_members() {
        let of = |process: i32, set: &str| {
            let version = doc! { "processId": process, "counter": 1 };
            let hello = doc! { "topologyVersion": version, "setName": set, "hosts": ["a:1"] };
            Identity::of(&hello).unwrap()
        };
        assert!(of(1, "a").is(&of(1, "b")) && of(1, "a").is(&of(2, "a")));
        assert!(!of(1, "a").is(&of(2, "b")));
        assert_eq!(Identity::of(&doc! { "ok": 1 }), None);
    }

    #[test]
    fn kinds_follow_from_type_and_options() {
        for (kind, options, expected) in [
            ("collection", doc! {}, Kind::Ordered),
            ("collection", doc! { "capped": true, "size": 1 }, Kind::Natural),
            ("", doc! { "capped": 1.0 }, Kind::Natural),
            ("", doc! { "capped": false }, Kind::Ordered),
            ("", doc! { "viewOn": "a" }, Kind::View),
            ("view", doc! {}, Kind::View),
            ("timeseries", doc! {}, Kind::Natural),
        ] {
            assert_eq!(Facts::new(Name::new("a", "b"), kind, options).kind, expected);
        }
    }

    #[test]
    fn the_last_partition_has_no_bound_to_take_over() {
        let mut facts = Facts::new(Name::new("a", "b"), "", doc! {});
        let top = Bson::MaxKey;
        facts.set_partitions(&doc! { "numPartitions": 3, "partitions": [
            { "_id": 0, "max": { "t": 1 } }, { "_id": 1, "max": { "t": 5 } }, { "_id": 2, "max": { "t": top } } ] });
        assert_eq!(facts.partitions, [doc! { "t": 1 }, doc! { "t": 5 }]);
        facts.set_partitions(&doc! {});
        assert!(facts.partitions.is_empty());
    }

    #[test]
    fn reading_goes_on_at_the_last_document_and_not_at_the_first() {
        let part = Part { from: Some(Bson::Int32(1)), ..Part::default() };
        assert_eq!(part.bounds(), (Some(doc! { "_id": 1 }), None));
        let part = Part { last: Some(Bson::Null), until: Some(Bson::MaxKey), ..part };
        assert_eq!(part.bounds(), (Some(doc! { "_id": null }), Some(doc! { "_id": Bson::MaxKey })));
    }
}
