//! Names of databases and collections.
//!
//! A [`Namespace`] is `database.collection`; the first dot divides. Always true: both parts were
//! checked by MongoDB's rules when it was made, so nothing below asks again.

use errors::{Code, Error, Result};
use std::fmt;
use std::sync::Arc;

/// The longest database name in bytes.
const MAX_DATABASE_BYTES: usize = 63;
/// The longest namespace in bytes.
const MAX_NAMESPACE_BYTES: usize = 255;

/// A checked `database.collection`. Copies share the text.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace {
    full: Arc<str>,
    dot: usize,
}

impl Namespace {
    /// What sessions have done, in MongoDB's shape: stored in another form, never written by
    /// clients.
    pub const TRANSACTIONS: &str = "config.transactions";

    /// Where users and roles are stored.
    pub const ACCOUNTS: [&str; 2] = ["admin.system.users", "admin.system.roles"];

    /// What a set keeps secret from its clients.
    pub const KEYS: &str = "admin.system.keys";

    /// The oplog of a member of a replica set: read from the history, not stored.
    pub const OPLOG: &str = "local.oplog.rs";

    /// Parameters of all members. A client sets them by a command, which checks them.
    pub const CLUSTER_PARAMETERS: &str = "config.clusterParameters";

    /// The configuration of a set. A set of one stores it; in a set of several it stands in the log, and is shown from
    /// there.
    pub const SET_CONFIGURATION: &str = "local.system.replset";

    /// How far the times and the term of a set of one have come: a start goes on from there.
    pub const ELECTION: &str = "local.replset.election";

    /// Joins and checks the two parts.
    pub fn new(database: &str, collection: &str) -> Result<Self> {
        check_database(database)?;
        let mut full = String::with_capacity(database.len() + 1 + collection.len());
        full.push_str(database);
        full.push('.');
        full.push_str(collection);
        let valid = !collection.is_empty()
            && !collection.starts_with('.')
            && !collection.bytes().any(|byte| matches!(byte, b'$' | b'\0'));
        if !valid {
            return Err(invalid(format!("Invalid namespace specified '{full}'")));
        }
        if full.len() > MAX_NAMESPACE_BYTES {
            return Err(invalid(format!(
                "Fully qualified namespace is too long. Namespace: {full} Max: {MAX_NAMESPACE_BYTES}"
            )));
        }
        Ok(Self { full: full.into(), dot: database.len() })
    }

    /// Divides `database.collection` at the first dot and checks both parts.
    pub fn parse(full: &str) -> Result<Self> {
        let (database, collection) = full.split_once('.').unwrap_or((full, ""));
        if database.is_empty() {
            return Err(invalid(format!("Invalid namespace specified '{full}'")));
        }
        Self::new(database, collection)
    }

    /// Whether it is this collection of this database.
    pub fn is(&self, database: &str, collection: &str) -> bool {
        self.dot == database.len() && self.database() == database && self.collection() == collection
    }

    /// The database.
    pub fn database(&self) -> &str {
        &self.full[..self.dot]
    }

    /// The collection within its database.
    pub fn collection(&self) -> &str {
        &self.full[self.dot + 1..]
    }

    /// `database.collection`.
    pub fn as_str(&self) -> &str {
        &self.full
    }

    /// The same, to be kept by others.
    pub fn shared(&self) -> &Arc<str> {
        &self.full
    }

    /// Whether users or roles are stored there.
    pub fn holds_accounts(&self) -> bool {
        Self::ACCOUNTS.contains(&self.as_str())
    }

    /// Whether the collection is one of the server's own (`system.…`).
    pub fn is_system(&self) -> bool {
        self.collection().starts_with("system.")
    }

    /// Whether it is where MongoDB keeps the buckets of measurements, which are not made here.
    pub fn is_buckets(&self) -> bool {
        self.collection().starts_with("system.buckets.")
    }

    /// Whether the server keeps documents of its own there, under a name that is no `system.` one.
    pub fn is_kept_apart(&self) -> bool {
        [Self::TRANSACTIONS, Self::CLUSTER_PARAMETERS, Self::ELECTION].contains(&self.as_str())
    }

    /// Refuses namespaces that no client may write to. The collections of accounts are among them,
    /// in every database: what somebody put there today would be an account on the day that the
    /// server asks for one.
    pub fn check_writable(&self) -> Result<()> {
        const WRITABLE: [&str; 2] = ["system.js", "system.profile"];
        if self.is_kept_apart() || self.is_system() && !WRITABLE.contains(&self.collection()) {
            return Err(invalid(format!("cannot write to '{}'", self.full)));
        }
        Ok(())
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

/// Checks a database name by MongoDB's rules.
pub fn check_database(name: &str) -> Result<()> {
    let valid = !name.is_empty()
        && name.len() <= MAX_DATABASE_BYTES
        && !name
            .bytes()
            .any(|byte| matches!(byte, b'/' | b'\\' | b'.' | b' ' | b'"' | b'$' | b'\0'));
    if valid || name == "$external" {
        return Ok(());
    }
    Err(invalid(format!("Invalid database name: '{name}'")))
}

fn invalid(message: String) -> Error {
    Error::new(Code::INVALID_NAMESPACE, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_dot_divides() {
        let ns = Namespace::parse("db.a.b").unwrap();
        assert_eq!((ns.database(), ns.collection()), ("db", "a.b"));
        assert!(ns.is("db", "a.b"));
        assert!(
            [("db.a", "b"), ("d", "b.a.b"), ("db", "a"), ("dc", "a.b")]
                .iter()
                .all(|(d, c)| !ns.is(d, c))
        );
    }

    #[test]
    fn bad_names_are_invalid_namespaces() {
        for (database, collection) in [
            ("", "a"),
            ("a.b", "c"),
            ("a b", "c"),
            ("a", ""),
            ("a", ".b"),
            ("a", "b$c"),
            ("a", "b\0"),
        ] {
            let error = Namespace::new(database, collection).unwrap_err();
            assert_eq!(error.code(), Code::INVALID_NAMESPACE, "{database} {collection}");
        }
        assert!(Namespace::new("a", &"x".repeat(254)).is_err());
        assert!(Namespace::new("a", &"x".repeat(253)).is_ok());
    }

    #[test]
    fn system_collections_are_not_for_clients() {
        assert!(Namespace::new("a", "system.foo").unwrap().check_writable().is_err());
        assert!(Namespace::new("a", "system.js").unwrap().check_writable().is_ok());
        assert!(Namespace::new("a", "b").unwrap().check_writable().is_ok());
        let kept_apart =
            [Namespace::TRANSACTIONS, Namespace::CLUSTER_PARAMETERS, Namespace::ELECTION];
        for namespace in kept_apart {
            assert!(Namespace::parse(namespace).unwrap().check_writable().is_err(), "{namespace}");
        }
        // Security finding 12: accounts cannot be laid before there are any.
        for database in ["admin", "a", "local", "config", "$external"] {
            for name in ["users", "roles", "version", "keys", "new_users", "backup_users"] {
                let namespace = Namespace::new(database, &format!("system.{name}")).unwrap();
                let error = namespace.check_writable().unwrap_err();
                assert_eq!(error.code(), Code::INVALID_NAMESPACE, "{namespace}");
            }
        }
    }
}
