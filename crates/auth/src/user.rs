//! Users, as they are stored in `admin.system.users`.
//!
//! Always true: a document that is not wholly understood is no user: nobody logs in by it.

use crate::document::{refuse, text};
use crate::restriction::Restrictions;
use crate::role_name::RoleName;
use crate::scram::{Credentials, Mechanism};
use bson::spec::BinarySubtype;
use bson::{Bson, Document};
use errors::Result;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;

/// A user of a database.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UserName {
    /// Its database.
    pub db: String,
    /// Its name there.
    pub user: String,
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.user, self.db)
    }
}

impl UserName {
    /// The database of users that are known by something else than a password of ours.
    pub const EXTERNAL: &str = "$external";

    /// The user of a name in a database.
    pub fn new(user: impl Into<String>, db: impl Into<String>) -> Self {
        Self { db: db.into(), user: user.into() }
    }

    /// The `_id` of its document.
    pub fn id(&self) -> String {
        format!("{}.{}", self.db, self.user)
    }

    /// What sessions and cursors are bound to: SHA-256 of `user@db`.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.to_string().as_bytes()).into()
    }
}

/// A stored user.
#[derive(Clone, Debug)]
pub struct UserDocument {
    /// Its name.
    pub name: UserName,
    /// A user that is dropped and made again has another.
    pub id: [u8; 16],
    /// What passwords are checked by; none where another database knows them (`$external`).
    pub credentials: BTreeMap<Mechanism, Credentials>,
    /// The roles it holds.
    pub roles: Vec<RoleName>,
    /// From where it may log in.
    pub restrictions: Restrictions,
}

impl UserDocument {
    /// Reads a document of `admin.system.users`.
    pub fn parse(document: &Document) -> Result<Self> {
        let name = UserName::new(text(document, "user")?, text(document, "db")?);
        if text(document, "_id")? != name.id() {
            return Err(refuse("the _id of a user is not its full name"));
        }
        if name.user.is_empty() || name.db.is_empty() {
            return Err(refuse("a user without a name"));
        }
        if name.db.contains('@') {
            return Err(refuse("the database of a user has an @ in its name"));
        }
        let id = match document.get("userId") {
            Some(Bson::Binary(id)) if id.subtype == BinarySubtype::Uuid => id
                .bytes
                .as_slice()
                .try_into()
                .map_err(|_| refuse("the userId of a user is no UUID"))?,
            // Before 4.0 users had none.
            None => [0; 16],
            Some(_) => return Err(refuse("the userId of a user is no UUID")),
        };
        let Some(Bson::Document(stored)) = document.get("credentials") else {
            return Err(refuse("a user without credentials"));
        };
        let mut credentials = BTreeMap::new();
        for (of, value) in stored {
            match (Mechanism::parse(of), value) {
                (Some(mechanism), Bson::Document(value)) => {
                    credentials.insert(mechanism, Credentials::parse(mechanism, value)?);
                }
                (None, Bson::Boolean(true)) if of == "external" => {}
                // Of the time before SCRAM: nobody logs in by it.
                (None, Bson::String(_)) if of == "MONGODB-CR" => {}
                _ => return Err(refuse(&format!("credentials of an unknown kind '{of}'"))),
            }
        }
        Ok(Self {
            id,
            credentials,
            roles: RoleName::parse_all(document)?,
            restrictions: Restrictions::parse(document)?,
            name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{UserDocument, UserName};
    use crate::scram::{Credentials, Mechanism};
    use bson::spec::BinarySubtype;
    use bson::{Binary, Document, doc};

    fn stored() -> Document {
        let credentials = Credentials::derive(Mechanism::Sha256, "p", vec![1; 28], 15000);
        doc! {
            "_id": "admin.a",
            "userId": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] },
            "user": "a",
            "db": "admin",
            "credentials": { "SCRAM-SHA-256": credentials.to_document() },
            "roles": [{ "role": "root", "db": "admin" }],
            "customData": { "any": 1 },
            "authenticationRestrictions": [{ "clientSource": ["127.0.0.1"] }],
        }
    }

    #[test]
    fn a_stored_user_is_read() {
        let user = UserDocument::parse(&stored()).expect("fine");
        assert_eq!(user.name, UserName::new("a", "admin"));
        assert_eq!(user.id, [7; 16]);
        assert!(user.credentials.contains_key(&Mechanism::Sha256));
        assert_eq!(user.roles[0].to_string(), "root@admin");
    }

    #[test]
    fn every_field_that_is_wrong_makes_it_nobody() {
        for (field, value) in [
            ("_id", bson::bson!("admin.b")),
            ("_id", bson::bson!(1)),
            ("userId", bson::bson!(1)),
            ("user", bson::bson!("")),
            ("db", bson::bson!(1)),
            ("credentials", bson::bson!(1)),
            ("credentials", bson::bson!({ "SCRAM-SHA-256": { "salt": 1 } })),
            ("credentials", bson::bson!({ "other": {} })),
            ("roles", bson::bson!("root")),
            ("roles", bson::bson!([{ "role": "root" }])),
            ("authenticationRestrictions", bson::bson!([{}])),
        ] {
            let mut bad = stored();
            bad.insert(field, value);
            assert!(UserDocument::parse(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_digest_tells_users_apart() {
        let digest = |user: &str, db: &str| UserName::new(user, db).digest();
        assert_eq!(digest("a", "b"), digest("a", "b"));
        assert_ne!(digest("a", "b"), digest("b", "a"));
        assert_ne!(digest("a", "b"), digest("", ""));
    }
}
