//! `replSetGetStatus`, and the set's parts of `hello` and `serverStatus`.

use super::initiate::configured;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::{Bson, DateTime, Document, Timestamp, doc};
use dispatch::fields::Field;
use dispatch::writer::Writer;
use errors::{Code, Error, Result};
use membership::copy::Progress;
use membership::{BASE, HeldBack};
use serverstate::ServerState;
use serverstate::replication::config::Config;
use serverstate::replication::config::member::{List, Member};
use serverstate::replication::{Role, op_time};
use std::sync::atomic::Ordering;

pub(crate) const REPL_SET_GET_STATUS: Command = Command::new(
    "replSetGetStatus",
    "The state of the set's member.",
    Needs::Cluster(&[Action::ReplSetGetStatus]),
    run,
)
.admin_only();

/// A time and place in the history, and how they are shown.
struct Place {
    op_time: Document,
    wall: DateTime,
}

fn place(time: Timestamp, term: i64) -> Place {
    let wall = DateTime::from_millis(i64::from(time.time) * 1000);
    Place { op_time: doc! { "ts": time, "t": term }, wall }
}

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let config = configured(context)?;
    for field in &fields[1..] {
        match field.name {
            "initialSync" => {}
            _ => return Err(field.unknown()),
        }
    }
    let service = context.service;
    let replication = &service.replication;
    let Some(own) = replication.own(&config, service.info.port) else {
        let text = "Our replica set config is invalid or we are not a member of it";
        return Err(Error::new(Code::INVALID_REPLICA_SET_CONFIG, text));
    };
    let role = replication.role(&service.os);
    let state = own_state(service, role);
    let term = replication.term.load(Ordering::Acquire);
    let Place { op_time: time, wall } = place(replication.clock.now(), term);
    let source = if role == Role::Primary {
        None
    } else {
        replication.primary(&config, role, service.info.port)
    };
    // Members that have no copy of the data yet do not vote, whatever the configuration says.
    let view = replication.membership().map(|membership| membership.view());
    let has_given_up = view.as_ref().is_some_and(|view| view.has_given_up);
    let voting = view.as_ref().map_or(0, |view| view.configuration.voters.len());
    let voting = if voting == 0 { config.voters().count() } else { voting };
    let majority = voting / 2 + 1;
    let arbiters = config.members.iter().filter(|member| member.arbiter_only).count();
    let writable = voting.saturating_sub(arbiters).max(1);
    let mut status = doc! {
        "set": &config.set,
        "date": DateTime::from_millis(service.os.clock.wall_ms()),
        "myState": state,
        "term": term,
        "syncSourceHost": source.map_or("", |member| member.host.as_str()),
        "syncSourceId": source.map_or(-1, |member| member.id),
        "heartbeatIntervalMillis": config.settings.heartbeat_interval.as_millis() as i64,
        "majorityVoteCount": majority as i32,
        "writeMajorityCount": majority.min(writable) as i32,
        "votingMembersCount": voting as i32,
        "writableVotingMembersCount": writable as i32,
        "optimes": {
            "lastCommittedOpTime": time.clone(),
            "lastCommittedWallTime": wall,
            "readConcernMajorityOpTime": time.clone(),
            "appliedOpTime": time.clone(),
            "durableOpTime": time,
            "lastAppliedWallTime": wall,
            "lastDurableWallTime": wall,
        },
        "lastStableRecoveryTimestamp": replication.clock.now(),
    };
    if let Some(held_back) = view.as_ref().and_then(|view| view.held_back) {
        status.insert("heldBack", held_back_status(held_back));
    }
    insert_warnings(service, has_given_up, &mut status);
    if role == Role::Primary {
        let metrics = election_metrics(service, &config, own, majority);
        status.insert("electionCandidateMetrics", metrics);
    }
    let members: Vec<Bson> = config
        .members
        .iter()
        .map(|member| {
            let shown = if member.id == own.id {
                own_status(service, &config, member, role, source)
            } else {
                status_of(service, &config, member, source)
            };
            Bson::Document(shown)
        })
        .collect();
    status.insert("members", members);
    if let Some(progress) = service.copies.progress() {
        status.insert("initialSyncStatus", initial_sync_status(progress));
    }
    context.reply.fields_of(&status);
    Ok(())
}

/// What a delayed member has and does not show yet.
fn held_back_status(held_back: HeldBack) -> Document {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    doc! {
        "secondaryDelaySecs": i64::from(held_back.seconds),
        "entries": number(held_back.entries),
        "bytes": number(held_back.bytes),
        "shownEarlyForWantOfRoom": held_back.is_short,
    }
}

/// What an operator should know of the set or of this member, beside its state.
fn insert_warnings(service: &ServerState, has_given_up: bool, status: &mut Document) {
    let membership = service.replication.membership();
    if membership.is_some_and(|own| own.document().log_begins() > 0) {
        status.insert(
            "forcedReconfig",
            "this set was forced to go on without its majority: what that had acknowledged, and the member that went on \
             did not have, was given up",
        );
    }
    if has_given_up {
        let text = "this arbiter's log is as long as it may be, and has let go of what a member with data lacks: until \
                    that member has caught up, the set cannot do without its primary";
        status.insert("warnings", [text]);
    }
}

/// How this member was elected.
fn election_metrics(
    service: &ServerState,
    config: &Config,
    own: &Member,
    majority: usize,
) -> Document {
    let replication = &service.replication;
    doc! {
        "lastElectionReason": "electionTimeout",
        "lastElectionDate": DateTime::from_millis(replication.elected_ms()),
        "electionTerm": replication.term.load(Ordering::Acquire),
        "numVotesNeeded": majority as i32,
        "priorityAtElection": own.priority,
        "electionTimeoutMillis": config.settings.election_timeout.as_millis() as i64,
    }
}

/// How far the copy of another member's data is.
fn initial_sync_status(progress: Progress) -> Document {
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let Progress { done, total, received } = progress;
    doc! {
        "method": "fileCopyBased",
        "totalBytes": bytes(total),
        "copiedBytes": bytes(done),
        "receivedBytes": bytes(received),
    }
}

/// What is shown of a primary: when it was elected, in milliseconds since 1970.
fn insert_election(member: &mut Document, elected_ms: i64) {
    let second = (elected_ms / 1000) as u32;
    member.insert("electionTime", Timestamp { time: second, increment: 1 });
    member.insert("electionDate", DateTime::from_millis(elected_ms));
}

/// States of members by MongoDB's numbers.
const PRIMARY: i32 = 1;
const SECONDARY: i32 = 2;
const RECOVERING: i32 = 3;
const STARTUP2: i32 = 5;
const ARBITER: i32 = 7;
const UNREACHABLE: i32 = 8;

fn state_name(state: i32) -> &'static str {
    match state {
        PRIMARY => "PRIMARY",
        SECONDARY => "SECONDARY",
        RECOVERING => "RECOVERING",
        STARTUP2 => "STARTUP2",
        ARBITER => "ARBITER",
        _ => "(not reachable/healthy)",
    }
}

fn own_state(service: &ServerState, role: Role) -> i32 {
    let membership = service.replication.membership();
    match role {
        Role::Primary => PRIMARY,
        // Its first copy, or one in the place of what it has.
        Role::Recovering if membership.is_some_and(|own| !own.has_entries()) => STARTUP2,
        Role::Recovering => RECOVERING,
        Role::Arbiter => ARBITER,
        _ => SECONDARY,
    }
}

/// A row of `members`, up to what differs between this member and the others.
fn row(
    member: &Member,
    state: i32,
    uptime: u64,
    place: &Place,
    source: Option<&Member>,
) -> Document {
    let time = &place.op_time;
    let mut row = doc! {
        "_id": member.id,
        "name": &member.host,
        "health": f64::from(u8::from(state != UNREACHABLE)),
        "state": state,
        "stateStr": state_name(state),
        "uptime": uptime as i64,
    };
    if !member.arbiter_only {
        row.extend(doc! {
            "optime": time.clone(),
            "optimeDate": place.wall,
            "lastAppliedWallTime": place.wall,
            "lastDurableWallTime": place.wall,
        });
    }
    // An arbiter shows nothing of what it keeps.
    let source = source.filter(|_| !member.arbiter_only);
    row.extend(doc! {
        "syncSourceHost": source.map_or("", |member| member.host.as_str()),
        "syncSourceId": source.map_or(-1, |member| member.id),
        "infoMessage": "",
    });
    row
}

fn own_status(
    service: &ServerState,
    config: &Config,
    own: &Member,
    role: Role,
    source: Option<&Member>,
) -> Document {
    let replication = &service.replication;
    let state = own_state(service, role);
    let term = replication.term.load(Ordering::Acquire);
    let now = place(replication.clock.now(), term);
    let mut shown = row(own, state, service.uptime().as_secs(), &now, source);
    if role == Role::Primary {
        insert_election(&mut shown, replication.elected_ms());
    }
    shown.extend(doc! {
        "configVersion": config.version,
        "configTerm": config.term,
        "self": true,
        "lastHeartbeatMessage": "",
    });
    shown
}

/// What this member knows of another one: what it said of itself last.
fn status_of(
    service: &ServerState,
    config: &Config,
    member: &Member,
    source: Option<&Member>,
) -> Document {
    let membership = service.replication.membership();
    let view = membership.map(|membership| membership.view()).unwrap_or_default();
    let id = membership.and_then(|membership| membership.document().ids().get(&member.id).copied());
    let heard = id.and_then(|id| view.reports.get(&id));
    let links = membership.map(|membership| membership.links().states()).unwrap_or_default();
    let link = id.and_then(|id| links.get(&id).copied()).unwrap_or_default();
    let leads = source.is_some_and(|leader| leader.id == member.id);
    // What it lacks is known to who leads; of one that has nothing at all everybody knows.
    let has = id.and_then(|id| view.peers.iter().find(|peer| peer.member == id));
    let lacks = has.is_some_and(|peer| {
        let first = service.catalog.engine().entries().first_readable;
        peer.matched.saturating_add(1) < first
    });
    let has_nothing = heard.is_some_and(|heard| heard.report.applied <= BASE.index)
        && view.applied_index > BASE.index + 1;
    let state = match (link.sends || link.receives, leads) {
        (false, _) => UNREACHABLE,
        (true, _) if member.arbiter_only => ARBITER,
        (true, true) => PRIMARY,
        (true, false) if has_nothing => STARTUP2,
        (true, false) if lacks || heard.is_some_and(|heard| heard.report.in_maintenance) => {
            RECOVERING
        }
        (true, false) => SECONDARY,
    };
    let packed = heard.map_or(0, |heard| heard.report.last_time);
    let time = Timestamp { time: (packed >> 32) as u32, increment: packed as u32 };
    let term = heard.map_or(-1, |heard| heard.report.term.cast_signed());
    let place = place(time, term);
    let source = if leads { None } else { source };
    let mut shown = row(member, state, 0, &place, source);
    // The clock of the member that said it.
    let heard_at = heard.map_or(0, |heard| heard.report.wall_ms);
    let message = match (link.sends, link.receives) {
        (true, true) => "",
        (true, false) => "it has no connection to this member",
        (false, true) => "this member has no connection to it",
        (false, false) => "there is no connection to it",
    };
    if !member.arbiter_only {
        shown.extend(doc! {
            "optimeDurable": place.op_time.clone(),
            "optimeDurableDate": place.wall,
        });
    }
    shown.extend(doc! {
        "lastHeartbeat": DateTime::from_millis(heard_at),
        "lastHeartbeatRecv": DateTime::from_millis(heard_at),
        "lastHeartbeatMessage": message,
        "configVersion": config.version,
        "configTerm": config.term,
    });
    shown
}

/// What `hello` says of the set, and whether writes are taken (under `primary_field`).
pub(crate) fn write_hello(service: &ServerState, reply: &mut Writer, primary_field: &str) {
    let replication = &service.replication;
    let role = replication.role(&service.os);
    let config = replication.config();
    let port = service.info.port;
    let own = config.as_ref().and_then(|config| replication.own(config, port));
    let (Some(config), Some(own)) = (&config, own) else {
        reply.bool(primary_field, role == Role::Standalone);
        if role != Role::Standalone {
            reply.bool("secondary", false);
            reply.str("info", "Does not have a valid replica set config");
            reply.bool("isreplicaset", true);
        }
        return;
    };
    for (name, list) in
        [("hosts", List::Hosts), ("passives", List::Passives), ("arbiters", List::Arbiters)]
    {
        let listed: Vec<&Member> = config.members.iter().filter(|m| m.list() == list).collect();
        if !listed.is_empty() {
            let array = reply.begin_array(name);
            for (at, member) in listed.into_iter().enumerate() {
                reply.element_str(at, &member.host);
            }
            reply.end(array);
        }
    }
    reply.str("setName", &config.set);
    reply.i32("setVersion", config.version);
    reply.bool(primary_field, role == Role::Primary);
    reply.bool("secondary", role == Role::Secondary);
    if let Some(primary) = replication.primary(config, role, port) {
        reply.str("primary", &primary.host);
    }
    if own.arbiter_only {
        reply.bool("arbiterOnly", true);
    }
    if own.priority == 0.0 {
        reply.bool("passive", true);
    }
    if own.hidden {
        reply.bool("hidden", true);
    }
    if !own.build_indexes {
        reply.bool("buildIndexes", false);
    }
    if own.delay_seconds > 0 {
        reply.i64("secondaryDelaySecs", own.delay_seconds);
    }
    if !own.tags.is_empty() {
        reply.bson("tags", &Bson::Document(own.tags_document()));
    }
    reply.str("me", &own.host);
    if role == Role::Primary {
        reply.object_id("electionId", replication.election_id());
    }
    reply.bson("lastWrite", &Bson::Document(last_write(service)));
}

fn last_write(service: &ServerState) -> Document {
    let time = op_time(&service.replication);
    let second = time.get_timestamp("ts").map_or(0, |time| time.time);
    let wall = DateTime::from_millis(i64::from(second) * 1000);
    doc! {
        "opTime": time.clone(),
        "lastWriteDate": wall,
        "majorityOpTime": time,
        "majorityWriteDate": wall,
    }
}
