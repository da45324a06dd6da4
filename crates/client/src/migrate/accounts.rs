//! Users and roles, with what stands for their passwords.
//!
//! Always true: who exists at the target stays as it is; nothing of a user is shown but its name.

use super::job::Job;
use super::source::Accounts;
use anyhow::Result;
use bson::{Document, doc};

/// Where the target is handed users and roles, before it judges them.
const USERS: &str = "fern_migrate_users";
const ROLES: &str = "fern_migrate_roles";
const OLD_USERS: &str = "fern_migrate_old_users";

/// Takes over users and roles; what cannot be is told in the report.
pub(crate) fn copy(job: &Job) -> Result<()> {
    let Accounts { users, roles, old_users } = match job.source.accounts() {
        Ok(accounts) => accounts,
        Err(error) => {
            let why = format!("the source does not give them: {error:#}");
            job.report().note("users and roles", why);
            return Ok(());
        }
    };
    let mut done = true;
    let count = users.len() + roles.len() + old_users.len();
    job.progress.say(&format!("users and roles: {count}"));
    if users.is_empty() && roles.is_empty() && old_users.is_empty() {
        job.report().note("users and roles", "the source has none");
    }
    if !(users.is_empty() && roles.is_empty()) {
        done &= note_refusal(job, "users and roles", &merge(job, &users, &roles));
    }
    if !old_users.is_empty() {
        let upgraded = upgrade(job, &old_users);
        done &= note_refusal(job, "users of old versions", &upgraded);
    }
    job.change(|state| state.has_users = done)?;
    job.write_state()
}

/// Whether it was done; tells why not.
fn note_refusal(job: &Job, what: &str, result: &Result<()>) -> bool {
    if let Err(error) = result {
        job.report().note(what, format!("{error:#}"));
    }
    result.is_ok()
}

/// As `mongorestore` does it.
fn merge(job: &Job, users: &[Document], roles: &[Document]) -> Result<()> {
    let result = hand_over(job, "admin", USERS, users)
        .and_then(|()| hand_over(job, "admin", ROLES, roles))
        .and_then(|()| {
            job.target.admin(&doc! {
                "_mergeAuthzCollections": 1,
                "tempUsersCollection": format!("admin.{USERS}"),
                "tempRolesCollection": format!("admin.{ROLES}"),
                "db": "",
                "drop": false,
            })
        });
    clean(job, "admin", USERS)?;
    clean(job, "admin", ROLES)?;
    result.map(drop)
}

/// Users from before MongoDB 2.6 are upgraded by the target, if it is FernDB.
fn upgrade(job: &Job, old_users: &[(String, Document)]) -> Result<()> {
    let mut databases: Vec<&str> = old_users.iter().map(|(database, _)| &**database).collect();
    databases.dedup();
    let mut result = Ok(());
    for database in &databases {
        let own = old_users.iter().filter(|(of, _)| of == database);
        let own: Vec<Document> = own.map(|(_, user)| user.clone()).collect();
        result = result.and_then(|()| hand_over(job, database, OLD_USERS, &own));
    }
    let result =
        result.and_then(|()| job.target.admin(&doc! { "authSchemaUpgrade": 1, "from": OLD_USERS }));
    for database in &databases {
        clean(job, database, OLD_USERS)?;
    }
    let reply = result?;
    for told in reply.get_array("notUpgraded").map(Vec::as_slice).unwrap_or_default() {
        let field =
            |name: &str| told.as_document().and_then(|one| one.get_str(name).ok()).unwrap_or("?");
        job.report().note(format!("user {}.{}", field("db"), field("user")), field("reason"));
    }
    Ok(())
}

/// Writes documents where a command of the target looks for them; what an earlier run left there goes first.
fn hand_over(job: &Job, database: &str, collection: &str, documents: &[Document]) -> Result<()> {
    clean(job, database, collection)?;
    let name = super::names::Name::new(database, collection);
    let raw: Vec<_> =
        documents.iter().map(bson::RawDocumentBuf::try_from).collect::<Result<_, _>>()?;
    for some in raw.chunks(100) {
        let (_, refused) = job.target.insert(&name, some, false)?;
        if let Some(refused) = refused.first() {
            anyhow::bail!("{}", refused.error);
        }
    }
    Ok(())
}

fn clean(job: &Job, database: &str, collection: &str) -> Result<()> {
    job.target.drop(&super::names::Name::new(database, collection))
}
