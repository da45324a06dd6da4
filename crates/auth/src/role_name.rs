//! The name of a role, and the lists of names in which users and roles hold others.
//!
//! Always true: a name is whole: the role and its database.

use crate::document::{array, refuse, text};
use bson::{Bson, Document, doc};
use errors::Result;
use std::fmt;

/// A role of a database.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RoleName {
    /// Its database.
    pub db: String,
    /// Its name there.
    pub role: String,
}

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.role, self.db)
    }
}

impl RoleName {
    /// The role of a name in a database.
    pub fn new(role: impl Into<String>, db: impl Into<String>) -> Self {
        Self { db: db.into(), role: role.into() }
    }

    /// Whether it is the role that the members of a set have, and nobody else may.
    pub fn is_of_members(&self) -> bool {
        self.role == "__system" && self.db == "admin"
    }

    /// The `_id` of its document.
    pub fn id(&self) -> String {
        format!("{}.{}", self.db, self.role)
    }

    /// `{role, db}`.
    pub fn to_document(&self) -> Document {
        doc! { "role": &self.role, "db": &self.db }
    }

    /// Reads the stored array `roles`, whose members are all `{role, db}`.
    pub fn parse_all(document: &Document) -> Result<Vec<Self>> {
        array(document, "roles")?
            .iter()
            .map(|role| match role {
                Bson::Document(role) => Ok(Self::new(text(role, "role")?, text(role, "db")?)),
                _ => Err(refuse("a role is no document")),
            })
            .collect()
    }
}
