//! Which index is missing and which is of no use: learnt from slow operations, and from what the
//! indexes themselves count.
//!
//! Always true: each piece of advice is given once for each start of the server; what is kept of
//! operations is bounded, and holds names of fields, never values.

use bson::raw::{RawArray, RawBsonRef, RawDocument};
use catalog::{Catalog, Collection, Index, Namespace};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Different shapes that are kept; later ones are not looked at.
const MOST_SHAPES: usize = 200;
/// More fields than an index should have.
const MOST_FIELDS: usize = 4;
/// Slow operations of one shape from which it is frequent.
const FREQUENT: u64 = 5;
/// An operation that looked at fewer documents was slow for another reason.
const MANY_DOCUMENTS: u64 = 1000;
/// Documents looked at for each one found from which an index would help.
const WASTEFUL: u64 = 10;
/// An index that was not used for so long…
const LONG_UNUSED: Duration = Duration::from_hours(24);
/// …although so many entries were written to it.
const MANY_WRITES: u64 = 100_000;

/// A collection and the fields that operations look for in it: those with one value, or a few,
/// before those with a range.
type Shape = (Namespace, Vec<String>);

#[derive(Clone, Copy, Default)]
struct Seen {
    times: u64,
    examined: u64,
    found: u64,
}

/// What was learnt.
#[derive(Default)]
pub struct IndexAdvice {
    /// Guards all of it.
    learnt: Mutex<Learnt>,
}

#[derive(Default)]
struct Learnt {
    shapes: BTreeMap<Shape, Seen>,
    told: BTreeSet<String>,
}

impl IndexAdvice {
    /// A slow operation scanned so many documents of a collection, of which so many passed its
    /// filter; `command` is as it came.
    pub fn note_scan(
        &self,
        namespace: &Namespace,
        command: &RawDocument,
        examined: u64,
        found: u64,
    ) {
        if examined < MANY_DOCUMENTS || examined / found.max(1) < WASTEFUL {
            return;
        }
        let Some(fields) = filter_of(command).map(fields_of).filter(|fields| !fields.is_empty())
        else {
            return;
        };
        let mut learnt = self.learnt.lock();
        let shape = (namespace.clone(), fields);
        if learnt.shapes.len() >= MOST_SHAPES && !learnt.shapes.contains_key(&shape) {
            return;
        }
        let seen = learnt.shapes.entry(shape).or_default();
        seen.times += 1;
        seen.examined += examined;
        seen.found += found;
    }

    /// What there is to tell and was not told yet. Looks at every collection.
    pub fn news(&self, catalog: &Catalog, uptime: Duration) -> Vec<String> {
        let mut all = self.missing(catalog);
        if uptime >= LONG_UNUSED {
            all.extend(unused(catalog, uptime));
        }
        let mut learnt = self.learnt.lock();
        all.into_iter()
            .filter(|(of, _)| learnt.told.insert(of.clone()))
            .map(|(_, text)| text)
            .collect()
    }

    /// Of what, and the advice.
    fn missing(&self, catalog: &Catalog) -> Vec<(String, String)> {
        let frequent: Vec<(Shape, Seen)> = {
            let learnt = self.learnt.lock();
            let frequent = learnt.shapes.iter().filter(|(_, seen)| seen.times >= FREQUENT);
            frequent.map(|(shape, seen)| (shape.clone(), *seen)).collect()
        };
        let mut all = Vec::new();
        for ((namespace, fields), seen) in frequent {
            let Some(collection) = catalog.collection(&namespace) else { continue };
            // One that was made since, or that could not serve this.
            let mut known = collection.primary_index().into_iter().chain(collection.indexes());
            if known.any(|index| leads(index, &fields)) {
                continue;
            }
            let keys: Vec<String> = fields.iter().map(|field| format!("{field}: 1")).collect();
            let keys = keys.join(", ");
            let text = format!(
                "{namespace}: {} slow operations looked at {} documents each to find {}. An index \
                 on {{ {keys} }} would lead them there",
                seen.times,
                seen.examined / seen.times,
                seen.found.div_ceil(seen.times),
            );
            all.push((format!("missing {namespace} {keys}"), text));
        }
        all
    }
}

/// Indexes that cost writes and serve nobody.
fn unused(catalog: &Catalog, uptime: Duration) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for database in catalog.databases() {
        for collection in catalog.collections(&database) {
            let idle = collection.shown_indexes().filter(|index| is_idle(index));
            all.extend(idle.map(|index| tell_of_idle(&collection, index, uptime)));
        }
    }
    all
}

fn is_idle(index: &Index) -> bool {
    let (spec, used) = (index.spec(), index.used());
    let serves_otherwise = spec.unique || spec.expire_after_seconds.is_some() || spec.hidden;
    !serves_otherwise && used.queries == 0 && used.inserts + used.deletes >= MANY_WRITES
}

fn tell_of_idle(collection: &Collection, index: &Index, uptime: Duration) -> (String, String) {
    let (namespace, name, used) = (collection.namespace(), &index.spec().name, index.used());
    let text = format!(
        "{namespace}: no operation has used the index {name} in the {} hours since the start, and \
         {} entries were written to it. Hide it with collMod, and drop it where nobody misses it",
        uptime.as_secs() / 3600,
        used.inserts + used.deletes,
    );
    (format!("unused {namespace} {name}"), text)
}

/// Whether an index begins with one of the fields.
fn leads(index: &Index, fields: &[String]) -> bool {
    !index.spec().is_text()
        && index.spec().parts.first().is_some_and(|part| fields.contains(&part.path))
}

/// What a command, or its one statement, looks for in its collection.
fn filter_of(command: &RawDocument) -> Option<&RawDocument> {
    let of = |name: &str| command.get_document(name).ok();
    let plain = of("filter").or_else(|| of("query")).or_else(|| of("q"));
    plain.or_else(|| first_match(command.get_array("pipeline").ok()?))
}

/// Stages that look for something else somewhere else: what was scanned is not their pipeline's.
const ELSEWHERE: [&str; 4] = ["$lookup", "$graphLookup", "$unionWith", "$facet"];

/// The filter of a pipeline that begins with one.
fn first_match(pipeline: &RawArray) -> Option<&RawDocument> {
    let mut first = None;
    for (at, stage) in pipeline.into_iter().enumerate() {
        let RawBsonRef::Document(stage) = stage.ok()? else { return None };
        if at == 0 {
            first = stage.get_document("$match").ok();
        }
        let (name, _) = stage.iter().next()?.ok()?;
        if ELSEWHERE.contains(&name.as_str()) {
            return None;
        }
    }
    first
}

/// The fields that an index could be over, in the order it should have them.
fn fields_of(filter: &RawDocument) -> Vec<String> {
    let (mut equal, mut ranged) = (BTreeSet::new(), BTreeSet::new());
    gather(filter, &mut equal, &mut ranged);
    let ranged = ranged.into_iter().filter(|field| !equal.contains(field));
    let ranged: Vec<String> = ranged.collect();
    equal.into_iter().chain(ranged).take(MOST_FIELDS).collect()
}

fn gather(filter: &RawDocument, equal: &mut BTreeSet<String>, ranged: &mut BTreeSet<String>) {
    for (name, value) in filter.iter().flatten() {
        match (name.as_str(), value) {
            ("$and", RawBsonRef::Array(parts)) => {
                for part in parts.into_iter().flatten() {
                    if let RawBsonRef::Document(part) = part {
                        gather(part, equal, ranged);
                    }
                }
            }
            (name, _) if name.starts_with('$') => {}
            (name, RawBsonRef::Document(operators)) => {
                let first = operators.iter().flatten().next();
                match first.map(|(operator, _)| operator.as_str()) {
                    Some("$eq" | "$in" | "$all" | "$elemMatch") => {
                        equal.insert(name.to_owned());
                    }
                    Some("$gt" | "$gte" | "$lt" | "$lte") => {
                        ranged.insert(name.to_owned());
                    }
                    Some(operator) if operator.starts_with('$') => {}
                    _ => {
                        equal.insert(name.to_owned());
                    }
                }
            }
            (_, RawBsonRef::RegularExpression(_)) => {}
            (name, _) => {
                equal.insert(name.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn fields_with_one_value_come_before_ranges() {
        let filter = rawdoc! {
            "t": { "$gt": 5, "$lt": 9 }, "a.b": 1, "$or": [{ "x": 1 }],
            "$and": [{ "s": { "$in": [1, 2] } }, { "t": { "$lt": 7 } }],
            "n": { "$ne": 1 }, "e": { "$exists": true }, "d": { "k": 1 },
        };
        assert_eq!(fields_of(&filter), ["a.b", "d", "s", "t"]);
    }

    #[test]
    fn every_command_says_what_it_looks_for() {
        for command in [
            rawdoc! { "find": "c", "filter": { "a": 1 } },
            rawdoc! { "findAndModify": "c", "query": { "a": 1 } },
            rawdoc! { "q": { "a": 1 }, "u": { "$set": { "b": 1 } } },
            rawdoc! { "aggregate": "c", "pipeline": [{ "$match": { "a": 1 } }, { "$sort": { "b": 1 } }] },
        ] {
            assert_eq!(
                filter_of(&command).map(fields_of),
                Some(vec!["a".to_owned()]),
                "{command:?}"
            );
        }
        let pipelines = [
            rawdoc! { "pipeline": [] },
            rawdoc! { "pipeline": [{ "$sort": { "a": 1 } }, { "$match": { "a": 1 } }] },
            rawdoc! { "pipeline": [{ "$match": { "a": 1 } }, { "$lookup": { "from": "d" } }] },
        ];
        for pipeline in pipelines {
            assert_eq!(filter_of(&pipeline), None, "{pipeline:?}");
        }
    }
}
