//! The user that a task logs in as, where the connection string names none.
//!
//! Always true: the password is asked for and never an argument, which other users of the machine could see.

use anyhow::{Context, Result};
use clap::Args;
use mongodb::options::Credential;

/// As whom a task logs in.
#[derive(Args, Clone, Debug, Default)]
pub struct Login {
    /// Log in as this user; the password is asked for, or is the first line of a standard input that is no terminal.
    #[arg(long, value_name = "USER")]
    pub username: Option<String>,
    /// The database that the user was created in.
    #[arg(
        long = "authenticationDatabase",
        value_name = "DATABASE",
        default_value = "admin",
        requires = "username"
    )]
    pub database: String,
}

impl Login {
    /// The user with the password, which is asked for now; none where nobody is named.
    ///
    /// # Errors
    /// The password cannot be read.
    pub fn ask(&self) -> Result<Option<Credential>> {
        let Some(username) = &self.username else { return Ok(None) };
        let prompt = format!("password of {username}@{}: ", self.database);
        let password = os::read_password(&prompt).context("the password")?;
        let (username, database) = (username.clone(), self.database.clone());
        let named = Credential::builder().username(username).source(database);
        Ok(Some(named.password(password).build()))
    }
}

/// The two places where a user may be named.
pub const NAMED_TWICE: &str =
    "the connection string names a user, and so does --username: leave out one";
