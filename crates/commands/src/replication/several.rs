//! How a set of several members begins and changes: the commands that its servers ask each other before there are
//! links, and what the one does that is asked by a client.
//!
//! ```text
//!  client ─ replSetInitiate ─► founder ─ _fernMember ─► each host: who are you, are you free?
//!                                 │    ─ _fernJoin ───► each other: belong to this set, which I begin
//!                                 └─ begins the set; the others get everything by its log
//! ```
//!
//! Always true:
//! 1. Nothing is written anywhere before every host has said that it is free.
//! 2. What was interrupted can be asked for again by the same founder.

use super::initiate::{maps_to_nobody, member};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use bson::RawBsonRef;
use dispatch::fields::Field;
use errors::{Code, Error, Result};
use membership::hosts::{self, ANSWERS, HostAnswer, VERSION};
use membership::{Founding, MemberId, Membership, Pending, Position, Refusal, SetDocument, Stored};
use serverstate::ServerState;
use serverstate::replication::config::{Config, member::Member};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often who waits looks whether its operation goes on.
const LOOK: Duration = Duration::from_millis(50);
/// How long a change of the configuration may take to be decided.
const DECIDED: Duration = Duration::from_mins(1);

pub(crate) const FERN_MEMBER: Command = Command::new(
    "_fernMember",
    "Which member this server is: asked by one that founds a set.",
    Needs::Computed(asks::internal),
    tell,
)
.admin_only()
.unprofiled();

pub(crate) const FERN_JOIN: Command = Command::new(
    "_fernJoin",
    "Makes this server a member of a set that another one founds.",
    Needs::Computed(asks::internal),
    join,
)
.admin_only()
.unprofiled();

fn own_id(service: &ServerState) -> Result<MemberId> {
    if let Some(membership) = service.replication.membership() {
        return Ok(membership.own());
    }
    let directory = &service.catalog.engine().options().dir;
    let stored = Stored::read(&service.os, directory);
    stored.map(|stored| stored.member).map_err(|error| internal(&error))
}

fn internal(error: &dyn std::fmt::Display) -> Error {
    Error::new(Code::INTERNAL_ERROR, error.to_string())
}

fn tell(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    context.service.check_members_by_tls()?;
    let options = member(context)?;
    check_version(fields, VERSION)?;
    let service = context.service;
    let membership = service.replication.membership();
    let of_one = membership.is_none() && service.replication.config().is_some();
    let has_data = match membership {
        Some(membership) => membership.has_entries(),
        None => !service.follows(),
    };
    let founder = membership.map_or(0, |membership| membership.founder().0);
    context.reply.i32("version", VERSION);
    context.reply.i64("member", own_id(service)?.0.cast_signed());
    context.reply.str("setName", &options.name);
    context.reply.i64("founder", founder.cast_signed());
    context.reply.bool("hasData", has_data || of_one);
    context.reply.bool("encrypted", service.catalog.engine().encryption().is_some());
    Ok(())
}

/// Refuses another version of what servers say to each other, which stands behind the command's name.
pub(super) fn check_version(fields: &[Field<'_>], known: i32) -> Result<()> {
    let said = fields[0].i64()?;
    if said == i64::from(known) {
        return Ok(());
    }
    Err(Error::bad_value(format!(
        "the other server speaks version {said} of {}, this one {known}",
        fields[0].name
    )))
}

fn join(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    context.service.check_members_by_tls()?;
    let options = member(context)?;
    check_version(fields, VERSION)?;
    let (mut document, mut founder) = (None, None);
    for field in &fields[1..] {
        match (field.name, field.value) {
            ("document", RawBsonRef::Binary(binary)) => document = Some(binary.bytes),
            ("document", _) => return Err(field.wrong_type("binData")),
            ("founder", _) => founder = Some(MemberId(field.i64()?.cast_unsigned())),
            _ => return Err(field.unknown()),
        }
    }
    let (Some(document), Some(founder)) = (document, founder) else {
        return Err(Error::bad_value("_fernJoin needs document and founder"));
    };
    let set = SetDocument::decode(document).map_err(|error| invalid(&error.to_string()))?;
    if set.name() != options.name {
        return Err(invalid(&format!(
            "this server was started with the set name {}, not {}",
            options.name,
            set.name()
        )));
    }
    let service = context.service;
    match service.replication.membership() {
        Some(membership) if membership.founder() == founder => {
            membership.join_again(&set).map_err(|error| invalid(&error.to_string()))
        }
        None if service.follows() => service.this().begin_membership(&set, Founding::By(founder)),
        _ => Err(Error::new(Code::ALREADY_INITIALIZED, "this server is in a replica set already")),
    }
}

fn invalid(what: &str) -> Error {
    Error::new(Code::INVALID_REPLICA_SET_CONFIG, what)
}

/// Who does not answer, as the client is told.
fn no_answer(context: &Context<'_>, host: &str, why: &str) -> Error {
    Error::new(
        Code::NODE_NOT_FOUND,
        format!(
            "{} quorum check failed because not all proposed set members responded affirmatively: {host} failed \
             with {why}",
            context.command.name
        ),
    )
}

fn ask_member(context: &Context<'_>, host: &str) -> Result<HostAnswer> {
    let ended = || context.check_interrupt().is_err();
    let told = hosts::ask_member(&context.service.dialer, host, &ended);
    told.map_err(|why| no_answer(context, host, &why))
}

/// Asks a host who it is, and refuses one that cannot go into a set of that founder.
fn free_member(
    context: &Context<'_>,
    config: &Config,
    host: &str,
    founder: MemberId,
) -> Result<MemberId> {
    let told = ask_member(context, host)?;
    if told.set != config.set {
        return Err(Error::new(
            Code::INVALID_REPLICA_SET_CONFIG,
            format!("{host} was started with the set name {}, not {}", told.set, config.set),
        ));
    }
    if told.founder != MemberId(0) && told.founder != founder {
        let text = format!("{host} is in a replica set already");
        return Err(Error::new(Code::ALREADY_INITIALIZED, text));
    }
    let encrypts = context.service.catalog.engine().encryption().is_some();
    if told.is_encrypted != encrypts {
        let says = |encrypts| {
            if encrypts { "encrypts what it keeps" } else { "does not encrypt what it keeps" }
        };
        return Err(invalid(&format!(
            "{host} {}, and this server {}: the members of a set do so all, or none of them (--enableEncryption)",
            says(told.is_encrypted),
            says(encrypts)
        )));
    }
    // Who begins the set brings its data along, and who was removed from the set has data of it: a part of its log.
    let was_in_it = context.service.replication.membership().is_some()
        && told.founder == founder
        && told.founder != MemberId(0);
    if told.has_data && !was_in_it && told.member != own_id(context.service)? {
        return Err(Error::new(
            Code::CANNOT_INITIALIZE_NODE_WITH_DATA,
            format!(
                "'{host}' has data already, cannot initiate set. All members except initiator must be empty."
            ),
        ));
    }
    Ok(told.member)
}

fn set_document(config: &Config, ids: &BTreeMap<i32, MemberId>) -> Result<SetDocument> {
    SetDocument::new(config.document.clone(), ids).map_err(|error| invalid(&error.to_string()))
}

fn ask_to_join(
    context: &Context<'_>,
    host: &str,
    set: &SetDocument,
    founder: MemberId,
) -> Result<()> {
    let ended = || context.check_interrupt().is_err();
    let joined = hosts::ask_to_join(&context.service.dialer, host, set, founder, &ended);
    joined.map_err(|why| no_answer(context, host, &why))
}

/// Begins a set of several members with this server.
pub(super) fn found(context: &mut Context<'_>, config: &Config) -> Result<()> {
    let service = context.service;
    service.check_members_by_tls()?;
    config.check_settings_of_several()?;
    let own = own_id(service)?;
    let mut ids = BTreeMap::new();
    for member in &config.members {
        ids.insert(member.id, free_member(context, config, &member.host, own)?);
    }
    if !ids.values().any(|id| *id == own) {
        return Err(maps_to_nobody(config, "answers as this server"));
    }
    check_may_lead(config, &ids, own)?;
    let set = set_document(config, &ids)?;
    for member in others(config, &ids, own) {
        ask_to_join(context, &member.host, &set, own)?;
    }
    if !service.follows() {
        context.until_answered = Some(Box::new(service.this().found_with_data(&set)?));
        return Ok(());
    }
    service.this().begin_membership(&set, Founding::Here)?;
    if let Some(membership) = service.replication.membership() {
        // Until then the death of this server would leave the others without a set. They have answered a moment
        // ago; where they do not now, the set comes to be when they do.
        let until = context.now().saturating_add(ANSWERS);
        while !membership.wait_for_others(LOOK) && context.now() < until {
            context.check_interrupt()?;
        }
    }
    Ok(())
}

/// Refuses a configuration in which this server, which has to lead first, never may.
fn check_may_lead(config: &Config, ids: &BTreeMap<i32, MemberId>, own: MemberId) -> Result<()> {
    let itself = config.members.iter().find(|member| ids.get(&member.id) == Some(&own));
    match itself {
        Some(itself) if !itself.is_electable() => Err(Error::new(
            Code::NODE_NOT_ELECTABLE,
            format!(
                "This node, {}, with _id {} is not electable under the new configuration with {{version: {}}} for \
                 replica set {}",
                itself.host, itself.id, config.version, config.set
            ),
        )),
        _ => Ok(()),
    }
}

fn others<'a>(
    config: &'a Config,
    ids: &'a BTreeMap<i32, MemberId>,
    own: MemberId,
) -> impl Iterator<Item = &'a Member> {
    config.members.iter().filter(move |member| ids.get(&member.id) != Some(&own))
}

/// Changes the members or settings of a set of several.
pub(super) fn reconfigure(context: &Context<'_>, config: &Config) -> Result<()> {
    let Some(membership) = context.service.replication.membership() else { return Ok(()) };
    config.check_settings_of_several()?;
    let known = membership.document();
    let known = known.ids();
    let founder = membership.founder();
    let mut ids = BTreeMap::new();
    let mut new = Vec::new();
    for member in &config.members {
        let id = if let Some(id) = known.get(&member.id) {
            *id
        } else {
            new.push(member);
            free_member(context, config, &member.host, founder)?
        };
        ids.insert(member.id, id);
    }
    if !ids.values().any(|id| *id == membership.own()) {
        return Err(maps_to_nobody(config, "is this member, which is primary"));
    }
    let set = set_document(config, &ids)?.following(&membership.document());
    for member in new {
        ask_to_join(context, &member.host, &set, founder)?;
    }
    decide(context, membership, &set)
}

/// The set goes on with this member alone, which has lost its majority for good.
pub(super) fn force(context: &mut Context<'_>, before: &Config, mut config: Config) -> Result<()> {
    let service = context.service;
    let Some(membership) = service.replication.membership() else { return Ok(()) };
    let incompatible =
        |text: String| Err(Error::new(Code::NEW_REPLICA_SET_CONFIGURATION_INCOMPATIBLE, text));
    if let Some(leader) = leader_with_a_link(membership) {
        return incompatible(format!(
            "the set has a primary, or is about to have one: {leader}. `force` is for a member whose set has lost its \
             majority for good; ask the primary without it"
        ));
    }
    let known = membership.document().ids();
    if let Some(new) = config.members.iter().find(|member| !known.contains_key(&member.id)) {
        return incompatible(format!(
            "a forced configuration has only members that the set had, and not {}: add it once there is a primary",
            new.host
        ));
    }
    let ids = config.members.iter().filter_map(|member| Some((member.id, *known.get(&member.id)?)));
    let ids: BTreeMap<i32, MemberId> = ids.collect();
    let own = membership.own();
    if !ids.values().any(|id| *id == own) {
        return Err(maps_to_nobody(&config, "is this member"));
    }
    check_may_lead(&config, &ids, own)?;
    // As MongoDB's: above what the members left behind come to by themselves.
    let above = 10_000 + (service.os.entropy.next_u64() % 90_000) as i32;
    let version = config.version.max(before.version).saturating_add(above);
    config.set_version(version);
    let starts_again = service.go_on_alone(membership, &set_document(&config, &ids)?)?;
    context.until_answered = Some(Box::new(starts_again));
    context.reply.str(
        "note",
        "This member goes on alone and starts again. What a majority acknowledged and it does not have is given up; the \
         other members are refused until their data directories are emptied.",
    );
    Ok(())
}

/// Who leads, where there is a link to it: one that is dead may not have been missed yet.
fn leader_with_a_link(membership: &Membership) -> Option<String> {
    let (view, document) = (membership.view(), membership.document());
    let leader = view.role_state.leader?;
    let link = membership.links().states().get(&leader).copied().unwrap_or_default();
    let is_heard = leader == membership.own() || link.sends || link.receives;
    is_heard.then(|| document.host_of(leader).unwrap_or("a former member").to_owned())
}

/// Proposes a document and waits until it, or a later one, is decided.
fn decide(context: &Context<'_>, membership: &Membership, set: &SetDocument) -> Result<()> {
    let until = context.now().saturating_add(DECIDED);
    let late = || {
        Error::new(
            Code::EXCEEDED_TIME_LIMIT,
            "the new configuration was proposed, and no majority has it yet: it may still come to count",
        )
    };
    let wait = |ready: &mut dyn FnMut() -> Result<bool>| -> Result<()> {
        while !ready()? {
            context.check_interrupt()?;
            if context.now() > until {
                return Err(late());
            }
        }
        Ok(())
    };
    let begun = membership.document();
    let mut place = None;
    let mut asked = propose(membership, set)?;
    wait(&mut || {
        let Some(answered) = asked.wait(LOOK) else { return Ok(false) };
        match answered {
            Ok(at) => place = Some(at),
            // A change that the primary makes by itself, a vote for who has caught up, ends soon; one of another
            // client would be undone.
            Err(Refusal::NotNow(_)) if membership.document() == begun => {
                context.service.wait(LOOK);
                asked = propose(membership, set)?;
            }
            Err(refusal) => return Err(refused(&refusal)),
        }
        Ok(place.is_some())
    })?;
    let Some(place) = place else { return Err(late()) };
    let wanted = |view: &membership::View| {
        view.document.as_ref().is_some_and(|document| document.at.index >= place.index)
    };
    wait(&mut || Ok(membership.wait_for(LOOK, wanted)))?;
    let decided = membership.view().document.as_ref().map(|document| document.at);
    // Another leader may have put a document of its own in the place of this one.
    if decided.is_none_or(|at| at.term != place.term) {
        return Err(not_primary());
    }
    // Who asks next is shown it, or a later one: the member's thread follows it at once.
    wait(&mut || {
        let is_followed = membership.document() == *set || replaces(membership, set);
        if !is_followed {
            context.service.wait(LOOK / 10);
        }
        Ok(is_followed)
    })
}

fn propose(membership: &Membership, set: &SetDocument) -> Result<Pending<Position>> {
    let asked = membership.configure(set).map_err(|error| invalid(&error.to_string()))?;
    asked.ok_or_else(|| Error::new(Code::INTERRUPTED_AT_SHUTDOWN, Refusal::Ended.to_string()))
}

/// Whether a document that is newer than this one counts already.
fn replaces(membership: &Membership, set: &SetDocument) -> bool {
    let version = |set: &SetDocument| set.config().get_i32("version").unwrap_or(0);
    version(&membership.document()) > version(set)
}

fn not_primary() -> Error {
    Error::new(
        Code::NOT_WRITABLE_PRIMARY,
        "this member leads no more; the configuration is another one",
    )
}

fn refused(refusal: &Refusal) -> Error {
    match refusal {
        Refusal::Ended => Error::new(Code::INTERRUPTED_AT_SHUTDOWN, refusal.to_string()),
        other => Error::new(Code::CONFIGURATION_IN_PROGRESS, other.to_string()),
    }
}

/// Whether the newest configuration is on a majority.
pub(super) fn is_committed(context: &Context<'_>) -> bool {
    let replication = &context.service.replication;
    // Only decided ones are shown; a founder's counts from the first.
    replication.membership().is_none_or(|membership| membership.view().document.is_some())
}
