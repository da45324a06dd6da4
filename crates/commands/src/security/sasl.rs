//! `saslStart` and `saslContinue`, and the first step of a login inside `hello`.
//!
//! Always true: a user that does not exist, has no such credentials or comes from where it may not goes the same way
//! as a wrong password, with the same answers, and fails at the proof; a failed login says nothing else.

use crate::audit;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::scram::{ClientFirst, Credentials, Mechanism, Server, decode};
use auth::{ClusterKey, UserName};
use bson::{Document, RawBsonRef, RawDocument};
use dispatch::fields::{Field, missing};
use errors::{Code, Error, Result};
use serverstate::security::{Conversation, Identity, MEMBER_ID, Step};
use serverstate::{LogEvent, Severity};
use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) const SASL_START: Command =
    Command::new("saslStart", "Begins a login with a password.", Needs::NoLogin, start)
        .api_v1()
        .unprofiled()
        .secret(&["payload"]);
pub(crate) const SASL_CONTINUE: Command =
    Command::new("saslContinue", "Goes on with a login.", Needs::NoLogin, go_on)
        .api_v1()
        .unprofiled()
        .secret(&["payload"]);

/// The only conversation of a connection.
const CONVERSATION: i32 = 1;
/// Random bytes in a nonce.
const NONCE_BYTES: usize = 24;

pub(super) fn refused() -> Error {
    Error::new(Code::AUTHENTICATION_FAILED, "Authentication failed.")
}

/// The refusal of mechanisms that there are not.
pub(super) fn unavailable(mechanism: &str) -> Error {
    Error::new(
        Code::MECHANISM_UNAVAILABLE,
        format!(
            "Received authentication for mechanism {mechanism} which is unknown or not enabled"
        ),
    )
}

/// Bytes, or base64 of them: old clients send a text.
fn payload_of<'a>(field: &Field<'a>) -> Result<Cow<'a, [u8]>> {
    match field.value {
        RawBsonRef::Binary(binary) => Ok(binary.bytes.into()),
        RawBsonRef::String(text) => decode(text).map(Into::into).ok_or_else(refused),
        _ => Err(field.wrong_type("binData")),
    }
}

/// What begins a login.
struct Begin<'a> {
    mechanism: &'a str,
    payload: Cow<'a, [u8]>,
    skips_empty: bool,
}

fn start(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let (mut mechanism, mut payload, mut skips_empty) = (None, None, false);
    for field in &fields[1..] {
        match field.name {
            "mechanism" => mechanism = Some(field.str()?),
            "payload" => payload = Some(payload_of(field)?),
            "autoAuthorize" => {
                field.i64()?;
            }
            "options" => skips_empty = skips(field.document()?),
            _ => return Err(field.unknown()),
        }
    }
    let begin = Begin {
        mechanism: mechanism.ok_or_else(|| missing("saslStart", "mechanism"))?,
        payload: payload.ok_or_else(|| missing("saslStart", "payload"))?,
        skips_empty,
    };
    let answer = begin_login(context, context.database(), &begin)?;
    context.reply.i32("conversationId", CONVERSATION);
    context.reply.bool("done", false);
    context.reply.binary("payload", &answer);
    Ok(())
}

fn skips(options: &RawDocument) -> bool {
    matches!(options.get("skipEmptyExchange"), Ok(Some(RawBsonRef::Boolean(true))))
}

fn begin_login(context: &Context<'_>, database: &str, begin: &Begin<'_>) -> Result<Vec<u8>> {
    let service = context.service;
    let security = &service.security;
    context.connection.login.lock().forget();
    let mechanism =
        Mechanism::parse(begin.mechanism).ok_or_else(|| unavailable(begin.mechanism))?;
    let first = ClientFirst::parse(&begin.payload).map_err(|_| refused())?;
    let name = UserName::new(first.user.clone(), database);
    // Members log in to each other by whatever users may.
    if !security.is_enabled(mechanism) && !name.is_member() {
        return Err(unavailable(begin.mechanism));
    }
    let (iterations, secret) = (security.iterations(mechanism), service.mock_credentials_secret()?);
    // The work of both is done for everybody.
    let nobody =
        Credentials::mock_for_unknown_user(mechanism, secret, &name.user, &name.db, iterations);
    let (id, credentials) = if name.is_member() {
        let key = security.cluster_key.as_ref().filter(|_| mechanism == ClusterKey::MECHANISM);
        match key {
            Some(key) => (Some(MEMBER_ID), key.credentials().to_vec()),
            None => (None, vec![nobody]),
        }
    } else {
        let (id, credentials) = service.user_tables()?.credentials_of(&name, mechanism, nobody);
        (id, vec![credentials])
    };
    let mut nonce = [0; NONCE_BYTES];
    service.os.entropy.fill(&mut nonce);
    let (server, answer) = Server::start(mechanism, first, credentials, &nonce);
    context.connection.login.lock().begin(Conversation {
        user: name,
        id,
        mechanism,
        step: Step::Proof(Box::new(server)),
        skips_empty: begin.skips_empty,
    });
    Ok(answer)
}

/// Until when who has guessed much waits for the answer, if so. Members do not guess.
fn waits_until(context: &Context<'_>) -> Option<Duration> {
    let service = context.service;
    let now = context.now();
    if let Some(until) = context.request.waited_until {
        // It may have been run again for another reason.
        return Some(until).filter(|until| now < *until);
    }
    let from = context.connection.info().remote_ip()?;
    let login = context.connection.login.lock();
    let guesses = login.conversation().is_some_and(|conversation| {
        matches!(conversation.step, Step::Proof(_)) && !conversation.user.is_member()
    });
    let time = service.security.failed_logins.wait(from, now);
    (guesses && !time.is_zero()).then(|| now + time)
}

/// Lets the answer to a login that has failed wait, where it is to.
fn delays_failure(context: &mut Context<'_>) -> bool {
    let time = context.service.security.failed_delay_ms.load(Ordering::Relaxed);
    context.wait = (time > 0).then(|| context.now() + Duration::from_millis(time));
    time > 0
}

fn log_in(context: &Context<'_>, identity: Identity) -> Result<()> {
    context.service.log_in_as(identity, context.connection, context.arguments.is_strict())
}

fn go_on(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(until) = waits_until(context) {
        context.wait = Some(until);
        return Ok(());
    }
    let (mut number, mut payload) = (None, None);
    for field in &fields[1..] {
        match field.name {
            "conversationId" => number = Some(field.i64()?),
            "payload" => payload = Some(payload_of(field)?),
            _ => return Err(field.unknown()),
        }
    }
    let number = number.ok_or_else(|| missing("saslContinue", "conversationId"))?;
    let payload = payload.ok_or_else(|| missing("saslContinue", "payload"))?;
    let Some(conversation) = context.connection.login.lock().take() else {
        return Err(Error::new(Code::PROTOCOL_ERROR, "No SASL session state found"));
    };
    if number != i64::from(CONVERSATION) {
        return Err(Error::new(Code::PROTOCOL_ERROR, "sasl: Mismatched conversation id"));
    }
    let Conversation { user, id, mechanism, step, skips_empty } = conversation;
    let has_failed = matches!(step, Step::Failed);
    let outcome = match step {
        // From where a user may come is looked at once it has proven itself: before, the answer would take longer for
        // one that exists.
        Step::Proof(server) => match (server.finish(&payload), id) {
            (Ok(answer), Some(id)) => {
                let identity = context.service.may_come(&user, id, context.connection)?;
                identity.ok_or_else(refused).and_then(|identity| {
                    if skips_empty {
                        log_in(context, identity)?;
                    }
                    Ok((answer, id, skips_empty))
                })
            }
            _ => Err(refused()),
        },
        Step::Failed => Err(refused()),
        Step::Empty => match id {
            // Nothing is asked any more: most send nothing, and some drivers what they were sent last.
            Some(id) => {
                let identity = context.service.may_come(&user, id, context.connection)?;
                let identity = identity.ok_or_else(refused);
                identity.and_then(|one| log_in(context, one)).map(|()| (Vec::new(), id, true))
            }
            None => Err(refused()),
        },
    };
    let (answer, id, is_last) = match outcome {
        Ok(done) => done,
        // The answer has waited.
        Err(error) if has_failed => return Err(error),
        Err(error) => {
            if let Some(from) = context.connection.info().remote_ip().filter(|_| !user.is_member())
            {
                context.service.security.failed_logins.count(from, context.now());
            }
            tell(context, &user, mechanism.name(), Some(&error))?;
            if !user.is_member() && delays_failure(context) {
                let step = Step::Failed;
                let failed = Conversation { user, id, mechanism, step, skips_empty };
                context.connection.login.lock().begin(failed);
                return Ok(());
            }
            return Err(error);
        }
    };
    if is_last {
        tell(context, &user, mechanism.name(), None)?;
    } else {
        let next = Conversation { user, id: Some(id), mechanism, step: Step::Empty, skips_empty };
        context.connection.login.lock().begin(next);
    }
    context.reply.i32("conversationId", CONVERSATION);
    context.reply.bool("done", is_last);
    context.reply.binary("payload", &answer);
    Ok(())
}

/// The log has who came, and who did not.
pub(super) fn tell(
    context: &Context<'_>,
    user: &UserName,
    mechanism: &str,
    error: Option<&Error>,
) -> Result<()> {
    let mut attributes = Document::new();
    attributes.insert("client", &context.connection.info().remote);
    attributes.insert("mechanism", mechanism);
    attributes.insert("user", &user.user);
    attributes.insert("db", &user.db);
    if let Some(error) = error {
        attributes.insert("error", error.message());
    }
    let (severity, id, message) = match error {
        None => (Severity::Info, 5_286_306, "Successfully authenticated"),
        Some(_) => (Severity::Info, 5_286_307, "Failed to authenticate"),
    };
    context.service.host.log(&LogEvent {
        severity,
        component: "ACCESS",
        id,
        context: &format!("conn{}", context.connection.id()),
        message,
        attributes,
    });
    if context.service.audits {
        audit::logged_in(context, user, mechanism, error.map_or(Code(0), Error::code))?;
    }
    Ok(())
}

/// The first step of a login inside `hello`; nothing where it cannot be made, and the client begins anew.
pub(super) fn speculate(context: &Context<'_>, wanted: &RawDocument) -> Option<Document> {
    let text = |name: &str| match wanted.get(name) {
        Ok(Some(RawBsonRef::String(text))) => Some(text),
        _ => None,
    };
    wanted.get("saslStart").ok().flatten()?;
    let value = wanted.get("payload").ok().flatten()?;
    let payload = payload_of(&Field { place: "saslStart", name: "payload", value }).ok()?;
    let skips_empty = match wanted.get("options") {
        Ok(Some(RawBsonRef::Document(options))) => skips(options),
        _ => false,
    };
    let begin = Begin { mechanism: text("mechanism")?, payload, skips_empty };
    let database = text("db")?;
    // A client guesses the mechanism. It is told that it guessed wrong, as it is by `saslSupportedMechs`.
    let user = ClientFirst::parse(&begin.payload).ok()?.user;
    let mechanisms = mechanisms_of(context, &format!("{database}.{user}")).ok()?;
    if !mechanisms.contains(&begin.mechanism) {
        return None;
    }
    let answer = begin_login(context, database, &begin).ok()?;
    let payload = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: answer };
    Some(bson::doc! { "conversationId": CONVERSATION, "done": false, "payload": payload })
}

/// By which mechanisms a user, given as `db.user`, may log in. Of one that does not exist all are told.
pub(crate) fn mechanisms_of(context: &Context<'_>, full: &str) -> Result<Vec<&'static str>> {
    let Some((db, user)) = full.split_once('.') else {
        return Err(Error::bad_value("UserName must contain a '.' separated database.user pair"));
    };
    let tables = context.service.user_tables()?;
    // Of one without a password all are told, too.
    let stored = tables.users.get(&UserName::new(user, db));
    let stored = stored.filter(|user| !user.credentials.is_empty());
    let enabled = context.service.security.mechanisms.lock().clone();
    Ok(enabled
        .into_iter()
        .filter(|mechanism| stored.is_none_or(|user| user.credentials.contains_key(mechanism)))
        .map(Mechanism::name)
        .collect())
}
