//! The users and roles that are stored, read as a whole: they are few, and asked for by every login.
//!
//! Always true: tables are as of one snapshot; a document that is not understood is left out of them, and told of in
//! the log once for each time that they are read.

use crate::host::{LogEvent, Severity};
use crate::rights::KnownRights;
use crate::security::Tables;
use crate::state::ServerState;
use auth::{RoleDocument, Roles, UserDocument};
use bson::{Document, RawDocument};
use catalog::{Namespace, from_engine};
use engine::{Direction, KeyRange, Snapshot};
use errors::Result;
use std::collections::BTreeMap;

/// Reads all of them.
pub(super) fn load(state: &ServerState, generation: u64) -> Result<Tables> {
    let snapshot = state.catalog.snapshot();
    let mut tables = Tables {
        users: BTreeMap::new(),
        names: Vec::new(),
        roles: Roles::new(),
        is_empty: true,
        rights: KnownRights::default(),
        generation,
    };
    each(state, &snapshot, "system.users", |document| {
        tables.is_empty = false;
        let user = UserDocument::parse(document)?;
        tables.users.insert(user.name.clone(), user);
        Ok(())
    })?;
    each(state, &snapshot, "system.roles", |document| {
        tables.is_empty = false;
        let role = RoleDocument::parse(document)?;
        tables.roles.insert(role.name.clone(), role);
        Ok(())
    })?;
    let with_passwords = tables.users.values().filter(|user| !user.credentials.is_empty());
    tables.names = with_passwords.map(|user| user.name.clone()).collect();
    Ok(tables)
}

/// Takes each document of a collection of `admin`; tells of those that are not understood.
fn each(
    state: &ServerState,
    snapshot: &Snapshot,
    name: &str,
    mut take: impl FnMut(&Document) -> Result<()>,
) -> Result<()> {
    let namespace = Namespace::new("admin", name)?;
    let Some(collection) = state.catalog.collection(&namespace) else { return Ok(()) };
    let cursor = snapshot.cursor(collection.primary(), KeyRange::all(), Direction::Forward);
    let mut cursor = cursor.map_err(from_engine)?;
    while let Some((_, bytes)) = cursor.next().map_err(from_engine)? {
        let document = Document::try_from(RawDocument::from_bytes(bytes)?)?;
        if let Err(error) = take(&document) {
            let mut attributes = Document::new();
            attributes.insert("ns", namespace.as_str());
            if let Some(id) = document.get("_id") {
                attributes.insert("id", id.clone());
            }
            attributes.insert("reason", error.message());
            state.host.log(&LogEvent {
                severity: Severity::Warning,
                component: "ACCESS",
                id: 9_016_770,
                context: "security",
                message: "A stored user or role is not understood, and is none",
                attributes,
            });
        }
    }
    Ok(())
}
