//! What a pipeline needs: the collection it reads, and what its stages reach beyond that.
//!
//! Always true: a stage that is not known needs what nobody has, so that a pipeline never gets further than was judged.
//! A view is read by who may read the view: what it is made of was judged when it was made.

use crate::needs::{Asked, MOST_DEPTH, Required, is_unique};
use auth::{Action, Target};
use bson::{RawArray, RawBsonRef, RawDocument};
use pipeline::stage::{Access, access};

/// What a pipeline over a collection needs, or over a database (`collection` is empty).
pub(super) fn pipeline(
    asked: &Asked<'_>,
    collection: &str,
    stages: Option<RawBsonRef<'_>>,
    required: &mut Required<'_>,
) {
    let Some(RawBsonRef::Array(stages)) = stages else {
        // The command refuses it; until then it reads the collection.
        read(asked, collection, required);
        return;
    };
    if !makes_its_own(stages) {
        read(asked, collection, required);
    }
    all(asked, asked.database, collection, stages, 0, required);
}

fn read(asked: &Asked<'_>, collection: &str, required: &mut Required<'_>) {
    if collection.is_empty() {
        required.database(asked.database, &[Action::Find]);
    } else {
        required.collection(asked.database, collection, &[Action::Find]);
    }
}

/// Whether the first stage is the source: the collection itself is not read then.
fn makes_its_own(stages: &RawArray) -> bool {
    let Some(Ok(RawBsonRef::Document(first))) = stages.into_iter().next() else { return false };
    let Some(Ok((name, _))) = first.iter().next() else { return false };
    match access(name.as_str()) {
        Some(
            Access::Documents
            | Access::ChangeStream
            | Access::CollStats
            | Access::IndexStats
            | Access::PlanCacheStats
            | Access::CurrentOp
            | Access::ListSessions
            | Access::ListCatalog
            | Access::ListClusterCatalog
            | Access::QuerySettings
            | Access::QueryStats,
        ) => true,
        Some(
            Access::Nothing
            | Access::Refused
            | Access::From
            | Access::Union
            | Access::Facet
            | Access::Fusion
            | Access::Out
            | Access::Merge,
        )
        | None => false,
    }
}

fn all(
    asked: &Asked<'_>,
    database: &str,
    collection: &str,
    stages: &RawArray,
    depth: usize,
    required: &mut Required<'_>,
) {
    if depth > MOST_DEPTH {
        required.internal();
        return;
    }
    for stage in stages {
        let Ok(RawBsonRef::Document(stage)) = stage else {
            required.internal();
            continue;
        };
        for element in stage {
            match element {
                Ok((name, value)) => {
                    one(asked, (database, collection), name.as_str(), value, depth, required);
                }
                Err(_) => required.internal(),
            }
        }
    }
}

/// A pipeline within a stage, over another collection or none.
fn inner(
    asked: &Asked<'_>,
    at: (&str, &str),
    stages: Option<RawBsonRef<'_>>,
    depth: usize,
    required: &mut Required<'_>,
) {
    match stages {
        Some(RawBsonRef::Array(stages)) => all(asked, at.0, at.1, stages, depth + 1, required),
        None => {}
        Some(_) => required.internal(),
    }
}

fn field<'a>(document: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    document.get(name).ok().flatten()
}

/// A collection that a stage names: `"name"`, or `{db, coll}`.
fn named<'a>(database: &'a str, value: Option<RawBsonRef<'a>>) -> Option<(&'a str, &'a str)> {
    match value {
        Some(RawBsonRef::String(name)) => Some((database, name)),
        Some(RawBsonRef::Document(both)) if is_unique(both) => {
            let text = |name: &str| match field(both, name) {
                Some(RawBsonRef::String(text)) => Some(text),
                _ => None,
            };
            Some((text("db").unwrap_or(database), text("coll")?))
        }
        _ => None,
    }
}

fn on(target: Option<(&str, &str)>, actions: &[Action], required: &mut Required<'_>) {
    match target {
        Some((database, name)) => required.collection(database, name, actions),
        // It names nothing that could be judged; the stage refuses it.
        None => required.internal(),
    }
}

fn one(
    asked: &Asked<'_>,
    (database, collection): (&str, &str),
    name: &str,
    value: RawBsonRef<'_>,
    depth: usize,
    required: &mut Required<'_>,
) {
    let document = match value {
        RawBsonRef::Document(document) => Some(document),
        _ => None,
    };
    if document.is_some_and(|document| !is_unique(document)) {
        return required.internal();
    }
    let here = |actions: &[Action], required: &mut Required<'_>| {
        if collection.is_empty() {
            required.database(database, actions);
        } else {
            required.collection(database, collection, actions);
        }
    };
    let Some(kind) = access(name) else {
        // Unknown: the pipeline's parser says so to who may read the collection.
        return;
    };
    match kind {
        Access::Nothing | Access::Refused | Access::Documents => {}
        Access::From => {
            let Some(document) = document else { return required.internal() };
            let from = field(document, "from");
            let stages = field(document, "pipeline");
            match named(database, from) {
                Some(at) => {
                    on(Some(at), &[Action::Find], required);
                    inner(asked, at, stages, depth, required);
                }
                // Over documents that the pipeline makes itself.
                None if from.is_none() => {
                    inner(asked, (database, collection), stages, depth, required);
                }
                None => required.internal(),
            }
        }
        Access::Union => {
            let (at, stages) = match document {
                None => (named(database, Some(value)), None),
                Some(document) => {
                    let of = match field(document, "db") {
                        Some(RawBsonRef::String(db)) => db,
                        _ => database,
                    };
                    (named(of, field(document, "coll")), field(document, "pipeline"))
                }
            };
            match at {
                Some(at) => {
                    on(Some(at), &[Action::Find], required);
                    inner(asked, at, stages, depth, required);
                }
                None if document.is_some_and(|d| field(d, "coll").is_none()) => {
                    inner(asked, (database, collection), stages, depth, required);
                }
                None => required.internal(),
            }
        }
        Access::Facet => {
            let Some(document) = document else { return required.internal() };
            each(asked, (database, collection), document, depth, required);
        }
        Access::Fusion => {
            let pipelines = document.and_then(|document| match field(document, "input") {
                Some(RawBsonRef::Document(input)) if is_unique(input) => field(input, "pipelines"),
                _ => None,
            });
            let Some(RawBsonRef::Document(pipelines)) = pipelines else {
                return required.internal();
            };
            each(asked, (database, collection), pipelines, depth, required);
        }
        Access::Out => {
            let at = named(database, Some(value));
            on(at, &[Action::Insert, Action::Remove], required);
            if asked.is_set("bypassDocumentValidation") {
                on(at, &[Action::BypassDocumentValidation], required);
            }
        }
        Access::Merge => {
            let into = match document {
                Some(document) => field(document, "into"),
                None => Some(value),
            };
            let text = |name: &str| match document.and_then(|document| field(document, name)) {
                Some(RawBsonRef::String(text)) => Some(text),
                _ => None,
            };
            let at = named(database, into);
            if !matches!(text("whenMatched"), Some("fail" | "keepExisting")) {
                on(at, &[Action::Update], required);
            }
            if !matches!(text("whenNotMatched"), Some("fail" | "discard")) {
                on(at, &[Action::Insert], required);
            }
            on(at, &[], required);
            if asked.is_set("bypassDocumentValidation") {
                on(at, &[Action::BypassDocumentValidation], required);
            }
        }
        Access::ChangeStream => {
            let whole = document.is_some_and(|document| {
                !matches!(
                    field(document, "allChangesForCluster"),
                    None | Some(RawBsonRef::Boolean(false))
                )
            });
            let actions = [Action::Find, Action::ChangeStream];
            if whole {
                required.on(Target::AnyNormal, &actions);
            } else {
                here(&actions, required);
            }
        }
        Access::CollStats => here(&[Action::CollStats], required),
        Access::IndexStats => here(&[Action::IndexStats], required),
        Access::PlanCacheStats => here(&[Action::PlanCacheRead], required),
        // One's own without more.
        Access::CurrentOp => {
            if document.is_none_or(|document| {
                !matches!(field(document, "allUsers"), None | Some(RawBsonRef::Boolean(false)))
            }) {
                required.cluster(&[Action::Inprog]);
            }
        }
        Access::ListSessions => {
            if document.is_none_or(|document| {
                !matches!(field(document, "allUsers"), None | Some(RawBsonRef::Boolean(false)))
                    || field(document, "users").is_some()
            }) {
                required.cluster(&[Action::ListSessions]);
            }
        }
        Access::ListCatalog => {
            if collection.is_empty() {
                required.cluster(&[Action::ListDatabases]);
                required.on(Target::AnyNormal, &[Action::ListCollections, Action::ListIndexes]);
            } else {
                here(&[Action::ListCollections, Action::ListIndexes], required);
            }
        }
        Access::ListClusterCatalog => {
            if database == "admin" {
                required.on(Target::AnyNormal, &[Action::ListCollections]);
            } else {
                required.database(database, &[Action::ListCollections]);
            }
        }
        Access::QuerySettings => required.cluster(&[Action::QuerySettings]),
        Access::QueryStats => {
            let action = match document.and_then(|document| field(document, "transformIdentifiers"))
            {
                None => Action::QueryStatsRead,
                Some(_) => Action::QueryStatsReadTransformed,
            };
            required.cluster(&[action]);
        }
    }
}

/// Each field of a document is a pipeline over what comes in.
fn each(
    asked: &Asked<'_>,
    at: (&str, &str),
    pipelines: &RawDocument,
    depth: usize,
    required: &mut Required<'_>,
) {
    for element in pipelines {
        match element {
            Ok((_, stages)) => inner(asked, at, Some(stages), depth, required),
            Err(_) => required.internal(),
        }
    }
}
