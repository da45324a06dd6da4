//! Users as MongoDB before 3.0 and TokuMX stored them, made into users of today without knowing a password: what they store
//! in its place, the MD5 of name and password, is what SCRAM-SHA-1 takes for the password.
//!
//! | schema | of | where | password | roles |
//! |---|---|---|---|---|
//! | 1 | MongoDB 2.2 | `<db>.system.users` | `pwd` | `readOnly`, or everything |
//! | 1 | MongoDB 2.4, TokuMX | `<db>.system.users` | `pwd`, or the user of another database: `userSource` | names; in `admin` those of others by `otherDBRoles` |
//! | 3 | MongoDB 2.6 | `admin.system.users` | `credentials["MONGODB-CR"]` | `{role, db}` |
//!
//! Always true: what is not understood is refused in a sentence and makes nobody; the digest, which stands for the password,
//! is in no text and not in what is made.

use crate::document::{array, refuse, text};
use crate::role_name::RoleName;
use crate::scram::{Credentials, Mechanism};
use crate::secret::Secret;
use crate::user::UserName;
use bson::{Bson, Document, doc};
use errors::Result;

/// The database of users who are known by something else than a password of ours.
const EXTERNAL: &str = "$external";
/// Characters of a digest.
const DIGEST_LENGTH: usize = 32;
/// The field of credentials in which schema 3 keeps the digest.
const MONGODB_CR: &str = "MONGODB-CR";

/// An old user.
#[derive(Debug)]
pub struct OldUser {
    /// Its name; the database is the one that knows its password.
    pub name: UserName,
    /// What it logs in by.
    pub login: OldLogin,
    /// The roles that it held, as today's are called. Whether they exist is not known here.
    pub roles: Vec<RoleName>,
    /// What an application kept with it.
    pub custom: Option<Document>,
}

/// What an old user logs in by.
#[derive(Debug)]
pub enum OldLogin {
    /// MD5 of name and password.
    Digest(Secret),
    /// The document only grants roles to a user whom another database stores.
    Elsewhere,
    /// Something outside of the server.
    External,
}

impl OldUser {
    /// Reads a document of schema 1 that was stored in a database, or one of schema 3.
    ///
    /// # Errors
    /// It is neither, or has what there is no equal for.
    pub fn parse(document: &Document, database: &str) -> Result<Self> {
        let user = if document.contains_key("credentials") {
            schema_3(document)?
        } else {
            schema_1(document, database)?
        };
        let UserName { user: name, db } = &user.name;
        if name.is_empty() || name.contains('\0') || name == "__system" {
            return Err(refuse(&format!("'{name}' is no name of a user")));
        }
        if db.is_empty() || db.contains('@') || db == "local" {
            return Err(refuse(&format!("there are no users in the database '{db}'")));
        }
        Ok(user)
    }

    /// The document that is stored today. Takes milliseconds: that is what the iterations are for. `None` where another
    /// database has the password.
    pub fn to_document(&self, user_id: Bson, salt: Vec<u8>, iterations: u32) -> Option<Document> {
        let credentials = match &self.login {
            OldLogin::Digest(digest) => credentials_of(digest, salt, iterations),
            OldLogin::External => doc! { "external": true },
            OldLogin::Elsewhere => return None,
        };
        let mut document = doc! {
            "_id": self.name.id(),
            "userId": user_id,
            "user": &self.name.user,
            "db": &self.name.db,
            "credentials": credentials,
        };
        if let Some(custom) = &self.custom {
            document.insert("customData", custom.clone());
        }
        let roles: Vec<Bson> = self.roles.iter().map(|role| role.to_document().into()).collect();
        document.insert("roles", roles);
        Some(document)
    }
}

/// The digest of a document of schema 3, or of one of a time when both were kept.
pub fn digest_of(document: &Document) -> Result<Option<Secret>> {
    let Some(Bson::Document(credentials)) = document.get("credentials") else { return Ok(None) };
    match credentials.get(MONGODB_CR) {
        None => Ok(None),
        Some(Bson::String(digest)) => digest_from(digest).map(Some),
        Some(_) => Err(refuse("the digest of a user is no text")),
    }
}

/// Puts credentials of today in the place of a digest. Those that are there stay. Takes milliseconds.
pub fn replace_digest(document: &mut Document, digest: &Secret, salt: Vec<u8>, iterations: u32) {
    let Some(Bson::Document(credentials)) = document.get_mut("credentials") else { return };
    credentials.remove(MONGODB_CR);
    if !credentials.contains_key(Mechanism::Sha1.name()) {
        credentials.extend(credentials_of(digest, salt, iterations));
    }
}

fn credentials_of(digest: &Secret, salt: Vec<u8>, iterations: u32) -> Document {
    let text = std::str::from_utf8(digest.bytes()).expect("a digest is made of hex digits");
    let credentials = Credentials::derive(Mechanism::Sha1, text, salt, iterations);
    doc! { Mechanism::Sha1.name(): credentials.to_document() }
}

fn digest_from(text: &str) -> Result<Secret> {
    let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if text.len() != DIGEST_LENGTH || !is_hex {
        return Err(refuse("the password of a user is no MD5 digest"));
    }
    Ok(Secret::new(text.as_bytes().to_vec()))
}

fn schema_3(document: &Document) -> Result<OldUser> {
    let name = UserName::new(text(document, "user")?, text(document, "db")?);
    let credentials = document.get_document("credentials");
    let is_external =
        credentials.is_ok_and(|of| matches!(of.get("external"), Some(Bson::Boolean(true))));
    let login = match digest_of(document)? {
        Some(digest) => OldLogin::Digest(digest),
        None if is_external => OldLogin::External,
        None => return Err(refuse("a user without a digest: it is of a later version")),
    };
    let custom = match document.get("customData") {
        Some(Bson::Document(custom)) => Some(custom.clone()),
        _ => None,
    };
    Ok(OldUser { name, login, roles: RoleName::parse_all(document)?, custom })
}

fn schema_1(document: &Document, database: &str) -> Result<OldUser> {
    let user = text(document, "user")?;
    let source = match document.get("userSource") {
        None | Some(Bson::Null) => None,
        Some(Bson::String(source)) => Some(source.as_str()),
        Some(_) => return Err(refuse("'userSource' is no text")),
    };
    let login = match (document.get("pwd"), source) {
        (Some(Bson::String(digest)), None) => OldLogin::Digest(digest_from(digest)?),
        (None | Some(Bson::Null), Some(EXTERNAL)) => OldLogin::External,
        (None | Some(Bson::Null), Some(_)) => OldLogin::Elsewhere,
        (Some(Bson::String(_)), Some(_)) => {
            return Err(refuse("a user has both 'pwd' and 'userSource'"));
        }
        (None | Some(Bson::Null), None) => return Err(refuse("a user without a password")),
        (Some(_), _) => return Err(refuse("'pwd' is no text")),
    };
    let name = UserName::new(user, source.unwrap_or(database));
    Ok(OldUser { name, login, roles: roles_of(document, database)?, custom: None })
}

/// The roles of a document of schema 1.
fn roles_of(document: &Document, database: &str) -> Result<Vec<RoleName>> {
    if !document.contains_key("roles") {
        // Before 2.4 one might do everything in the database, or everything but write; in `admin` so everywhere.
        let reads_only = match document.get("readOnly") {
            None | Some(Bson::Null | Bson::Boolean(false)) => false,
            Some(Bson::Boolean(true)) => true,
            Some(_) => return Err(refuse("'readOnly' is no boolean")),
        };
        let role = match (database, reads_only) {
            ("admin", true) => "readAnyDatabase",
            ("admin", false) => "root",
            (_, true) => "read",
            (_, false) => "dbOwner",
        };
        return Ok(vec![RoleName::new(role, database)]);
    }
    let mut roles = named(array(document, "roles")?, database)?;
    match document.get("otherDBRoles") {
        None | Some(Bson::Null) => {}
        Some(Bson::Document(others)) if database == "admin" => {
            for (other, listed) in others {
                let Bson::Array(listed) = listed else {
                    return Err(refuse("'otherDBRoles' has what is no array"));
                };
                roles.extend(named(listed, other)?);
            }
        }
        Some(Bson::Document(_)) => {
            return Err(refuse("'otherDBRoles' counts in the database admin only"));
        }
        Some(_) => return Err(refuse("'otherDBRoles' is no document")),
    }
    Ok(roles)
}

fn named(listed: &[Bson], database: &str) -> Result<Vec<RoleName>> {
    listed
        .iter()
        .map(|role| match role {
            Bson::String(role) => Ok(RoleName::new(role, database)),
            _ => Err(refuse("a role is no text")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scram::digest;
    use crate::user::UserDocument;
    use bson::Binary;
    use bson::spec::BinarySubtype;

    /// The digest of `u` and `pencil`.
    fn pwd() -> String {
        digest("u", "pencil").to_string()
    }

    fn roles(document: &Document, database: &str) -> std::result::Result<Vec<String>, String> {
        OldUser::parse(document, database)
            .map(|user| user.roles.iter().map(ToString::to_string).collect())
            .map_err(|error| error.message().to_owned())
    }

    #[test]
    fn roles_of_old_users_are_todays() {
        let with = |more: Document| {
            let mut document = doc! { "user": "u", "pwd": pwd() };
            document.extend(more);
            document
        };
        let other = doc! { "roles": ["clusterAdmin"], "otherDBRoles": { "shop": ["read"], "log": ["readWrite", "dbAdmin"] } };
        for (document, database, expected) in [
            (with(doc! {}), "shop", &["dbOwner@shop"][..]),
            (with(doc! { "readOnly": false }), "shop", &["dbOwner@shop"]),
            (with(doc! { "readOnly": true }), "shop", &["read@shop"]),
            (with(doc! {}), "admin", &["root@admin"]),
            (with(doc! { "readOnly": true }), "admin", &["readAnyDatabase@admin"]),
            (with(doc! { "roles": [] }), "shop", &[]),
            (
                with(doc! { "roles": ["read", "userAdmin"] }),
                "shop",
                &["read@shop", "userAdmin@shop"],
            ),
            (
                with(other),
                "admin",
                &["clusterAdmin@admin", "read@shop", "readWrite@log", "dbAdmin@log"],
            ),
        ] {
            let expected: Vec<String> = expected.iter().map(|role| (*role).to_owned()).collect();
            assert_eq!(roles(&document, database), Ok(expected), "{document}");
        }
    }

    #[test]
    fn what_is_not_understood_makes_nobody() {
        for document in [
            doc! { "user": "u" },
            doc! { "user": "", "pwd": pwd() },
            doc! { "user": "__system", "pwd": pwd() },
            doc! { "pwd": pwd() },
            doc! { "user": "u", "pwd": "pencil" },
            doc! { "user": "u", "pwd": pwd().to_uppercase() },
            doc! { "user": "u", "pwd": 1 },
            doc! { "user": "u", "pwd": pwd(), "userSource": "other" },
            doc! { "user": "u", "pwd": pwd(), "roles": "read" },
            doc! { "user": "u", "pwd": pwd(), "roles": [1] },
            doc! { "user": "u", "pwd": pwd(), "readOnly": "yes" },
            doc! { "user": "u", "pwd": pwd(), "roles": [], "otherDBRoles": { "a": ["read"] } },
            doc! { "user": "u", "userSource": "local", "roles": [] },
            doc! { "user": "u", "db": "d", "credentials": { "SCRAM-SHA-1": {} }, "roles": [] },
            doc! { "user": "u", "db": "d", "credentials": { "MONGODB-CR": "x" }, "roles": [] },
        ] {
            assert!(roles(&document, "shop").is_err(), "{document}");
        }
    }

    #[test]
    fn a_user_is_carried_over_with_its_password_and_without_its_digest() {
        let id = Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] });
        let schema_1 = doc! { "user": "u", "pwd": pwd(), "roles": ["read"] };
        let schema_3 = doc! { "_id": "shop.u", "user": "u", "db": "shop", "credentials": { "MONGODB-CR": pwd() },
        "roles": [{ "role": "read", "db": "shop" }], "customData": { "a": 1 } };
        for document in [&schema_1, &schema_3] {
            let user = OldUser::parse(document, "shop").expect("fine");
            let made = user.to_document(id.clone(), vec![1; 16], 5000).expect("it has a password");
            assert!(!made.to_string().contains(&pwd()) && !format!("{user:?}").contains(&pwd()));
            let stored = UserDocument::parse(&made).expect("a user of today");
            assert_eq!(stored.name, UserName::new("u", "shop"));
            assert!(stored.credentials[&Mechanism::Sha1].matches_password(Mechanism::Sha1, &pwd()));
        }
        let elsewhere = doc! { "user": "u", "userSource": "accounts", "roles": ["read"] };
        let user = OldUser::parse(&elsewhere, "shop").expect("fine");
        assert_eq!(
            (user.name.to_string(), user.roles[0].to_string()),
            ("u@accounts".to_owned(), "read@shop".to_owned())
        );
        assert!(user.to_document(id.clone(), vec![1; 16], 5000).is_none());
        let external = doc! { "user": "u", "userSource": "$external", "roles": ["read"] };
        let user = OldUser::parse(&external, "shop").expect("fine");
        let made = user.to_document(id, vec![1; 16], 5000).expect("known elsewhere");
        assert!(UserDocument::parse(&made).expect("fine").credentials.is_empty());
    }

    #[test]
    fn a_digest_gives_way_to_credentials_in_its_place() {
        let mut old = doc! { "credentials": { "MONGODB-CR": pwd() } };
        let digest = digest_of(&old).expect("fine").expect("there is one");
        replace_digest(&mut old, &digest, vec![1; 16], 5000);
        assert!(!old.to_string().contains(&pwd()));
        let credentials = old.get_document("credentials").expect("fine").clone();
        assert_eq!(credentials.keys().collect::<Vec<_>>(), ["SCRAM-SHA-1"]);
        // What is there already stays, and there is no digest any more.
        assert!(digest_of(&old).expect("fine").is_none());
        let mut both = old.clone();
        both.get_document_mut("credentials").expect("fine").insert("MONGODB-CR", pwd());
        replace_digest(&mut both, &digest, vec![2; 16], 6000);
        assert_eq!(both, old);
    }
}
