//! Roles: what each is made of, and what holding some of them comes to.
//!
//! Always true: the roles of users inherit without cycles, which is checked when one is changed
//! ([`closes_cycle`]); a graph that has one all the same, from a restored dump, is walked once and gives what it says.

use crate::builtin;
use crate::document::{refuse, text};
use crate::resource::{Privilege, parse_privileges};
use crate::restriction::Restrictions;
use crate::role_name::RoleName;
use bson::Document;
use errors::Result;
use std::collections::{BTreeMap, BTreeSet};

/// A role that was made by a user, as it is stored.
#[derive(Clone, Debug)]
pub struct RoleDocument {
    /// Its name.
    pub name: RoleName,
    /// What it allows by itself.
    pub privileges: Vec<Privilege>,
    /// The roles it inherits from.
    pub roles: Vec<RoleName>,
    /// From where its holders may log in.
    pub restrictions: Restrictions,
}

impl RoleDocument {
    /// Reads a document of `admin.system.roles`.
    pub fn parse(document: &Document) -> Result<Self> {
        let name = RoleName::new(text(document, "role")?, text(document, "db")?);
        if text(document, "_id")? != name.id() {
            return Err(refuse("the _id of a role is not its full name"));
        }
        if name.role.is_empty() || name.db.is_empty() {
            return Err(refuse("a role without a name"));
        }
        Ok(Self {
            privileges: parse_privileges(document, "privileges")?,
            roles: RoleName::parse_all(document)?,
            restrictions: Restrictions::parse(document)?,
            name,
        })
    }
}

/// The roles that users made.
pub type Roles = BTreeMap<RoleName, RoleDocument>;

/// What some roles come to.
#[derive(Clone, Default, Debug)]
pub struct Resolved {
    /// These roles and all they inherit from, as far as they exist.
    pub roles: BTreeSet<RoleName>,
    /// What they allow.
    pub privileges: Vec<Privilege>,
    /// The restrictions of each.
    pub restrictions: Vec<Restrictions>,
}

/// Whether a role exists.
pub fn exists(name: &RoleName, roles: &Roles) -> bool {
    builtin::built_in(name).is_some() || roles.contains_key(name)
}

/// All that holding these roles comes to. One that does not exist allows nothing.
pub fn resolve<'a>(held: impl IntoIterator<Item = &'a RoleName>, roles: &Roles) -> Resolved {
    let mut resolved = Resolved::default();
    let mut to_do: Vec<RoleName> = held.into_iter().cloned().collect();
    while let Some(name) = to_do.pop() {
        if resolved.roles.contains(&name) {
            continue;
        }
        if let Some(built_in) = builtin::built_in(&name) {
            resolved.privileges.extend(builtin::privileges_of(built_in, &name.db));
        } else if let Some(role) = roles.get(&name) {
            resolved.privileges.extend(role.privileges.iter().cloned());
            resolved.restrictions.push(role.restrictions.clone());
            to_do.extend(role.roles.iter().cloned());
        } else {
            continue;
        }
        resolved.roles.insert(name);
    }
    resolved
}

/// Whether `role` would inherit from itself if it inherited from `parents`.
pub fn closes_cycle(role: &RoleName, parents: &[RoleName], roles: &Roles) -> bool {
    parents.contains(role) || resolve(parents, roles).roles.contains(role)
}

#[cfg(test)]
mod tests {
    use super::{RoleDocument, RoleName, Roles, closes_cycle, resolve};
    use crate::grants::Grants;
    use crate::resource::Target;
    use crate::{Action, ActionSet};
    use bson::doc;

    fn role(name: &str, actions: &[&str], parents: &[&str]) -> (RoleName, RoleDocument) {
        let parents: Vec<_> =
            parents.iter().map(|parent| RoleName::new(*parent, "admin").to_document()).collect();
        let privileges = if actions.is_empty() {
            vec![]
        } else {
            vec![doc! { "resource": { "db": "d", "collection": "c" }, "actions": actions }]
        };
        let document = RoleDocument::parse(&doc! {
            "_id": format!("admin.{name}"), "role": name, "db": "admin", "privileges": privileges, "roles": parents,
        })
        .expect("fine");
        (document.name.clone(), document)
    }

    #[test]
    fn roles_inherit_over_several_steps_and_from_built_in_ones() {
        let roles: Roles = [
            role("a", &["find"], &["b", "gone"]),
            role("b", &["insert"], &["c"]),
            role("c", &["remove"], &["clusterMonitor"]),
        ]
        .into();
        let resolved = resolve(&[RoleName::new("a", "admin")], &roles);
        let grants = Grants::new(&resolved.privileges);
        let all = ActionSet::of(&[Action::Find, Action::Insert, Action::Remove]);
        assert!(grants.allow(Target::Collection("d", "c"), all));
        assert!(!grants.allow(Target::Collection("d", "other"), ActionSet::of(&[Action::Find])));
        assert!(grants.allow(Target::Cluster, ActionSet::of(&[Action::ServerStatus])));
        assert!(!resolved.roles.contains(&RoleName::new("gone", "admin")));
        assert_eq!(resolved.roles.len(), 4);
    }

    #[test]
    fn cycles_are_found_and_a_stored_one_is_walked_once() {
        let name = |name| RoleName::new(name, "admin");
        let mut roles: Roles =
            [role("a", &[], &["b"]), role("b", &[], &["c"]), role("c", &["find"], &[])].into();
        assert!(closes_cycle(&name("c"), &[name("a")], &roles));
        assert!(closes_cycle(&name("a"), &[name("a")], &roles));
        assert!(!closes_cycle(&name("a"), &[name("c")], &roles));
        roles.extend([role("c", &["find"], &["a"])]);
        assert_eq!(resolve(&[name("a")], &roles).roles.len(), 3);
    }

    #[test]
    fn documents_that_are_no_roles_are_refused() {
        for bad in [
            doc! { "_id": "admin.b", "role": "a", "db": "admin" },
            doc! { "_id": "admin.", "role": "", "db": "admin" },
            doc! { "_id": "admin.a", "role": "a", "db": "admin", "roles": ["read"] },
            doc! { "_id": "admin.a", "role": "a", "db": "admin", "privileges": [1] },
            doc! { "_id": "admin.a", "role": "a", "db": "admin", "privileges": [{ "resource": {}, "actions": ["find"] }] },
        ] {
            assert!(RoleDocument::parse(&bad).is_err(), "{bad}");
        }
    }
}
