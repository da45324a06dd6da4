//! `authenticate`: the way in by a certificate, and of old clients by a password, which is shut.
//!
//! Always true: a user of `$external` is let in by nothing but a certificate of its name whose chain was verified.
//! Its roles are those that the certificate holds, where it holds any, else those that are stored of it.

use super::sasl::{self, refused, tell, unavailable};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::UserName;
use bson::{Document, RawBsonRef, RawDocument, doc};
use dispatch::fields::Field;
use errors::{Code, Error, Result};
use serverstate::ClientCertificate;
use serverstate::security::{CERTIFICATE_ID, MEMBER_ID};
use std::sync::atomic::Ordering;

pub(crate) const AUTHENTICATE: Command =
    Command::new("authenticate", "Logs in by a client's certificate.", Needs::NoLogin, run)
        .api_v1()
        .unprofiled()
        .secret(&["key", "nonce", "pwd"]);

/// The mechanism.
const X509: &str = "MONGODB-X509";
/// Why a certificate is not good for a client.
const OF_MEMBER: &str = "The certificate has the same O, OU and DC as this server's, as those of the members of a set \
                         have: give clients certificates with others, or let members log in by theirs with \
                         clusterAuthMode";
/// The database of users that are known by something else than a password of ours.
const EXTERNAL: &str = UserName::EXTERNAL;

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let (mut mechanism, mut user) = (None, None);
    for field in &fields[1..] {
        match field.name {
            "mechanism" => mechanism = Some(field.str()?),
            "user" => user = Some(field.str()?),
            // What old clients say beside it.
            "db" | "digestPassword" | "nonce" | "key" | "pwd" => {}
            _ => return Err(field.unknown()),
        }
    }
    if mechanism != Some(X509) {
        return Err(unavailable(mechanism.unwrap_or("MONGODB-CR")));
    }
    let user = log_in(context, context.database(), user)?;
    context.reply.str("dbname", EXTERNAL);
    context.reply.str("user", &user);
    Ok(())
}

/// Logs in whom the connection's certificate names.
fn log_in(context: &Context<'_>, database: &str, named: Option<&str>) -> Result<String> {
    let certificate = certificate_of(context, database, named)?;
    let subject = certificate.subject.clone();
    let security = &context.service.security;
    let is_strict = context.arguments.is_strict();
    if certificate.of_member && security.cluster_auth.takes_certificates() {
        let name = UserName::member();
        let outcome = context.service.log_in(&name, MEMBER_ID, context.connection, is_strict);
        tell(context, &name, X509, outcome.as_ref().err())?;
        return outcome.map(|()| subject);
    }
    let name = UserName::new(&subject, EXTERNAL);
    let outcome = (|| {
        if certificate.of_member && security.separates_members.load(Ordering::Relaxed) {
            return Err(Error::new(Code::AUTHENTICATION_FAILED, OF_MEMBER));
        }
        let of_certificate = context.service.roles_of_certificate(&name, context.connection);
        let id = if of_certificate.is_some() {
            CERTIFICATE_ID
        } else {
            let tables = context.service.user_tables()?;
            tables.users.get(&name).ok_or_else(refused)?.id
        };
        context.service.log_in(&name, id, context.connection, is_strict)
    })();
    tell(context, &name, X509, outcome.as_ref().err())?;
    outcome.map(|()| subject)
}

/// The connection's certificate, if it may be logged in by.
fn certificate_of<'a>(
    context: &Context<'a>,
    database: &str,
    named: Option<&str>,
) -> Result<&'a ClientCertificate> {
    let security = &context.service.security;
    if !security.is_x509_enabled() {
        return Err(unavailable(X509));
    }
    if database != EXTERNAL {
        return Err(Error::new(
            Code::PROTOCOL_ERROR,
            "X.509 authentication must always use the $external database.",
        ));
    }
    context.connection.login.lock().forget();
    let failed = |text: &str| {
        let error = Error::new(Code::AUTHENTICATION_FAILED, text);
        let name = UserName::new(named.unwrap_or_default(), EXTERNAL);
        tell(context, &name, X509, Some(&error))?;
        Err(error)
    };
    match context.connection.certificate.get() {
        None => failed("No verified subject name available from client"),
        Some(certificate) if certificate.subject.is_empty() => {
            failed("The client's certificate has no subject")
        }
        Some(certificate) if named.is_some_and(|named| named != certificate.subject) => {
            failed("There is no x.509 client certificate matching the user.")
        }
        Some(certificate) => Ok(certificate),
    }
}

/// The first step of a login inside `hello`, which is the whole of it with a certificate; nothing where it cannot be
/// made, and the client begins anew.
pub(crate) fn speculate(context: &Context<'_>, wanted: &RawDocument) -> Option<Document> {
    let text = |name: &str| match wanted.get(name) {
        Ok(Some(RawBsonRef::String(text))) => Some(text),
        _ => None,
    };
    if !matches!(wanted.get("authenticate"), Ok(Some(_))) {
        return sasl::speculate(context, wanted);
    }
    if text("mechanism") != Some(X509) {
        return None;
    }
    let user = log_in(context, text("db").unwrap_or(EXTERNAL), text("user")).ok()?;
    Some(doc! { "dbname": EXTERNAL, "user": user })
}
