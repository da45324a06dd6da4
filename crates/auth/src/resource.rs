//! Resources: what a privilege is about, and what a command is about.
//!
//! A [`Resource`] is written into a role, a [`Target`] is what a request touches. Always true: no resource but
//! `anyResource` and those that name a `system.` collection covers one; `{db: "", collection: ""}` covers nothing
//! in `local` and `config`.

use crate::action::{Action, ActionSet};
use crate::document::{array, refuse};
use bson::{Bson, Document, doc};
use errors::Result;

/// What a privilege is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Resource {
    /// The server, or the cluster.
    Cluster,
    /// Everything there is; for what is internal only.
    Any,
    /// Every collection that is not a `system.` one, of every database but `local` and `config`.
    AnyNormal,
    /// A database, and its collections that are not `system.` ones.
    Database(String),
    /// The collection of this name in every database.
    Named(String),
    /// One collection.
    Collection(String, String),
    /// The buckets of time series: database and collection, either of them empty for all.
    Buckets(String, String),
}

/// What a request touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target<'a> {
    /// The server, or the cluster.
    Cluster,
    /// A database as a whole.
    Database(&'a str),
    /// One collection.
    Collection(&'a str, &'a str),
    /// Every collection that a resource of the same name covers.
    AnyNormal,
    /// Everything: only who holds `anyResource` covers it.
    Any,
}

impl Target<'_> {
    /// The resource that covers this and nothing more.
    pub fn to_resource(self) -> Resource {
        match self {
            Target::Cluster => Resource::Cluster,
            Target::Database(db) => Resource::Database(db.to_owned()),
            Target::Collection(db, name) => Resource::Collection(db.to_owned(), name.to_owned()),
            Target::AnyNormal => Resource::AnyNormal,
            Target::Any => Resource::Any,
        }
    }
}

/// The prefix of collections that only a privilege naming them covers.
pub(crate) const SYSTEM: &str = "system.";
pub(crate) const BUCKETS: &str = "system.buckets.";

/// Databases that no privilege over all databases covers.
pub(crate) fn is_internal(database: &str) -> bool {
    matches!(database, "local" | "config")
}

impl Resource {
    /// Reads `{cluster: true}`, `{anyResource: true}`, `{db, collection}` or `{db, system_buckets}`.
    pub fn parse(document: &Document) -> Result<Self> {
        let flag = |name: &str| matches!(document.get(name), Some(Bson::Boolean(true)));
        let of = |name: &str| match document.get(name) {
            Some(Bson::String(text)) => Some(text.clone()),
            _ => None,
        };
        let resource = match document.len() {
            1 if flag("cluster") => Some(Self::Cluster),
            1 if flag("anyResource") => Some(Self::Any),
            2 => match (of("db"), of("collection"), of("system_buckets")) {
                (Some(db), Some(collection), None) => {
                    Some(match (db.is_empty(), collection.is_empty()) {
                        (true, true) => Self::AnyNormal,
                        (true, false) => Self::Named(collection),
                        (false, true) => Self::Database(db),
                        (false, false) => Self::Collection(db, collection),
                    })
                }
                (Some(db), None, Some(buckets)) => Some(Self::Buckets(db, buckets)),
                _ => None,
            },
            _ => None,
        };
        resource.ok_or_else(|| refuse(&format!("resource {document} is of no known form")))
    }

    /// As it is stored and shown.
    pub fn to_document(&self) -> Document {
        match self {
            Self::Cluster => doc! { "cluster": true },
            Self::Any => doc! { "anyResource": true },
            Self::AnyNormal => doc! { "db": "", "collection": "" },
            Self::Database(db) => doc! { "db": db, "collection": "" },
            Self::Named(collection) => doc! { "db": "", "collection": collection },
            Self::Collection(db, collection) => doc! { "db": db, "collection": collection },
            Self::Buckets(db, collection) => doc! { "db": db, "system_buckets": collection },
        }
    }

    /// Whether it lies wholly in one database, which a role outside `admin` is held to.
    pub fn is_within(&self, database: &str) -> bool {
        match self {
            Self::Database(db) | Self::Collection(db, _) | Self::Buckets(db, _) => db == database,
            Self::Cluster | Self::Any | Self::AnyNormal | Self::Named(_) => false,
        }
    }
}

/// A resource and what may be done with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Privilege {
    /// What it is about.
    pub resource: Resource,
    /// What may be done.
    pub actions: ActionSet,
}

impl Privilege {
    /// Reads `{resource, actions}`. An action of no known name is an error.
    pub fn parse(document: &Document) -> Result<Self> {
        let Some(Bson::Document(resource)) = document.get("resource") else {
            return Err(refuse("a privilege has no document 'resource'"));
        };
        let mut actions = ActionSet::EMPTY;
        for action in array(document, "actions")? {
            let Bson::String(name) = action else {
                return Err(refuse("an action of a privilege is no text"));
            };
            let known = Action::parse(name)
                .ok_or_else(|| refuse(&format!("Unrecognized action privilege string: {name}")))?;
            actions = actions.union(match known {
                Action::AnyAction => ActionSet::all(),
                other => ActionSet::of(&[other]),
            });
        }
        if actions.is_empty() {
            return Err(refuse("a privilege without actions"));
        }
        if let Some(other) =
            document.keys().find(|key| !matches!(key.as_str(), "resource" | "actions"))
        {
            return Err(refuse(&format!("a privilege has no field '{other}'")));
        }
        Ok(Self { resource: Resource::parse(resource)?, actions })
    }

    /// As it is stored and shown.
    pub fn to_document(&self) -> Document {
        let actions: Vec<&str> = if self.actions == ActionSet::all() {
            vec![Action::AnyAction.name()]
        } else {
            self.actions.iter().map(Action::name).collect()
        };
        doc! { "resource": self.resource.to_document(), "actions": actions }
    }
}

/// Reads an array of privileges.
pub(crate) fn parse_privileges(document: &Document, name: &str) -> Result<Vec<Privilege>> {
    array(document, name)?
        .iter()
        .map(|privilege| match privilege {
            Bson::Document(privilege) => Privilege::parse(privilege),
            _ => Err(refuse("a privilege is no document")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Privilege, Resource};
    use crate::action::ActionSet;
    use bson::doc;

    #[test]
    fn resources_are_written_as_they_are_read() {
        for document in [
            doc! { "cluster": true },
            doc! { "anyResource": true },
            doc! { "db": "", "collection": "" },
            doc! { "db": "a", "collection": "" },
            doc! { "db": "", "collection": "c" },
            doc! { "db": "a", "collection": "c" },
            doc! { "db": "a", "system_buckets": "c" },
        ] {
            assert_eq!(Resource::parse(&document).expect("known").to_document(), document);
        }
        for document in [
            doc! {},
            doc! { "cluster": false },
            doc! { "cluster": true, "db": "a" },
            doc! { "db": "a" },
            doc! { "collection": "a" },
            doc! { "db": "a", "collection": 1 },
            doc! { "db": "a", "collection": "c", "x": 1 },
            doc! { "db": "a", "system_buckets": "c", "collection": "d" },
        ] {
            assert!(Resource::parse(&document).is_err(), "{document}");
        }
    }

    #[test]
    fn privileges_name_known_actions_and_at_least_one() {
        let of = |actions: bson::Bson| {
            Privilege::parse(&doc! { "resource": { "cluster": true }, "actions": actions })
        };
        assert!(of(bson::bson!(["find", "insert"])).is_ok());
        assert_eq!(of(bson::bson!(["anyAction"])).expect("known").actions, ActionSet::all());
        assert!(of(bson::bson!([])).is_err());
        assert!(of(bson::bson!(["findd"])).is_err());
        assert!(of(bson::bson!([1])).is_err());
        assert!(of(bson::bson!("find")).is_err());
    }
}
