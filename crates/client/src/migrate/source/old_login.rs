//! Logins at servers from before SCRAM: MONGODB-CR, of TokuMX and MongoDB up to 2.6.
//!
//! Always true: the password does not go over the wire; what stands for it is a digest with the server's random number.

use super::old_wire::Connection;
use anyhow::{Context, Result, anyhow};
use bson::doc;
use md5::{Digest, Md5};
use std::fmt::Write as _;

/// Who logs in.
#[derive(Clone)]
pub(crate) struct OldUser {
    pub(crate) name: String,
    pub(crate) password: String,
    pub(crate) database: String,
}

fn hex_md5(text: &str) -> String {
    Md5::digest(text).iter().fold(String::new(), |mut hex, byte| {
        let _never_fails = write!(hex, "{byte:02x}");
        hex
    })
}

/// What stands for the password in one login.
fn key(user: &OldUser, nonce: &str) -> String {
    let kept = hex_md5(&format!("{}:mongo:{}", user.name, user.password));
    hex_md5(&format!("{nonce}{}{kept}", user.name))
}

/// Logs in on a connection.
pub(super) fn log_in(connection: &mut Connection, user: &OldUser) -> Result<()> {
    let failed = |error: String| {
        anyhow!(
            "the login of {}@{} failed ({error}); look at the user, the password and authSource",
            user.name,
            user.database
        )
    };
    let reply = connection.command(&user.database, &doc! { "getnonce": 1 })?.map_err(failed)?;
    let nonce = reply.get_str("nonce").context("the server gave no nonce")?;
    let login = doc! {
        "authenticate": 1, "user": &user.name, "nonce": nonce, "key": key(user, nonce),
    };
    connection.command(&user.database, &login)?.map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_of_nonce_name_and_password() {
        let user = OldUser { name: "user".into(), password: "pencil".into(), database: "x".into() };
        assert_eq!(hex_md5("user:mongo:pencil"), "1c33006ec1ffd90f9cadcbcc0e118200");
        let inner = "2375531c32080ae8user1c33006ec1ffd90f9cadcbcc0e118200";
        assert_eq!(key(&user, "2375531c32080ae8"), hex_md5(inner));
    }
}
