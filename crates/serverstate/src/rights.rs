//! What a list of roles comes to: worked out once for all who hold the same one, since a login is to take little time.
//!
//! Always true: what is kept was worked out from the roles of the same [`Tables`](crate::security::Tables), which hold
//! it and are read anew after every change; at most [`KNOWN_LISTS`] lists are kept.

use auth::{Grants, Resolved, RoleName, Roles, resolve};
use bson::raw::RawArrayBuf;
use bson::rawdoc;
use os::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// So many lists of roles are kept. Most users have one of a few.
const KNOWN_LISTS: usize = 256;

/// What somebody may do.
#[derive(Debug)]
pub struct Rights {
    /// The roles that somebody holds, and all that they inherit.
    pub resolved: Resolved,
    /// The same roles as `$$USER_ROLES` tells them.
    pub shown_roles: Arc<RawArrayBuf>,
    /// What they allow, to look up.
    pub grants: Grants,
}

impl Rights {
    /// What these roles come to, by the roles that are stored.
    pub(crate) fn of(roles: &[RoleName], stored: &Roles) -> Self {
        let resolved = resolve(roles, stored);
        let mut shown_roles = RawArrayBuf::new();
        for RoleName { role, db } in &resolved.roles {
            shown_roles
                .push(rawdoc! { "_id": format!("{db}.{role}"), "role": &**role, "db": &**db });
        }
        let grants = Grants::new(&resolved.privileges);
        Self { resolved, shown_roles: Arc::new(shown_roles), grants }
    }
}

/// The rights that were worked out already.
#[derive(Default)]
pub(crate) struct KnownRights(Mutex<BTreeMap<Vec<RoleName>, Arc<Rights>>>);

impl KnownRights {
    /// What these roles come to. `stored` is the same in every call.
    pub(crate) fn of(&self, roles: &[RoleName], stored: &Roles) -> Arc<Rights> {
        if let Some(known) = self.0.lock().get(roles) {
            return Arc::clone(known);
        }
        let rights = Arc::new(Rights::of(roles, stored));
        let mut known = self.0.lock();
        if known.len() >= KNOWN_LISTS {
            known.clear();
        }
        known.insert(roles.to_vec(), Arc::clone(&rights));
        assert!(known.len() <= KNOWN_LISTS, "{} lists of roles are kept", known.len());
        rights
    }
}

#[cfg(test)]
mod tests {
    use super::{KNOWN_LISTS, KnownRights};
    use auth::{Action, ActionSet, RoleName, Roles, Target};
    use std::sync::Arc;

    #[test]
    fn the_same_list_has_the_same_rights_and_another_has_its_own() {
        let (known, stored) = (KnownRights::default(), Roles::new());
        let (reader, writer) = ([RoleName::new("read", "a")], [RoleName::new("readWrite", "a")]);
        let rights = known.of(&reader, &stored);
        assert!(Arc::ptr_eq(&rights, &known.of(&reader, &stored)));
        let may_insert = |roles: &[RoleName]| {
            let insert = ActionSet::of(&[Action::Insert]);
            known.of(roles, &stored).grants.allow(Target::Collection("a", "c"), insert)
        };
        assert_eq!((may_insert(&reader), may_insert(&writer)), (false, true));
        assert!(!may_insert(&[]));
    }

    #[test]
    fn so_many_lists_are_kept_and_no_more() {
        let (known, stored) = (KnownRights::default(), Roles::new());
        for number in 0..=KNOWN_LISTS * 2 {
            let database = format!("d{number}");
            let rights = known.of(&[RoleName::new("read", database.as_str())], &stored);
            assert!(rights.grants.knows_database(&database));
            assert!(!rights.grants.knows_database("another"));
        }
        assert_eq!(known.0.lock().len(), 1);
    }
}
