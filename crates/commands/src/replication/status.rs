//! `replSetGetStatus`, and the set's parts of `hello` and `serverStatus`.

use super::initiate::configured;
use crate::command::Command;
use crate::context::Context;
use bson::{Bson, DateTime, Document, Timestamp, doc};
use dispatch::fields::Field;
use dispatch::writer::Writer;
use errors::Result;
use serverstate::ServerState;
use serverstate::replication::config::member::{List, Member};
use serverstate::replication::{Role, op_time};
use std::sync::atomic::Ordering;

pub(crate) const REPL_SET_GET_STATUS: Command =
    Command::new("replSetGetStatus", "The state of the set's member.", run).admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let config = configured(context)?;
    for field in &fields[1..] {
        match field.name {
            "initialSync" => {}
            _ => return Err(field.unknown()),
        }
    }
    let service = context.service;
    let own = config.own(service.info.port)?;
    let replication = &service.replication;
    let role = replication.role(&service.os);
    let (state, name) = if role == Role::Primary { (1, "PRIMARY") } else { (2, "SECONDARY") };
    let term = replication.term.load(Ordering::Acquire);
    let now = replication.clock.now();
    let time = op_time(replication);
    let wall = DateTime::from_millis(i64::from(now.time) * 1000);
    let elected = DateTime::from_millis(replication.elected_ms());
    let mut member = doc! {
        "_id": own.id,
        "name": &own.host,
        "health": 1.0,
        "state": state,
        "stateStr": name,
        "uptime": service.uptime().as_secs() as i64,
        "optime": time.clone(),
        "optimeDate": wall,
        "lastAppliedWallTime": wall,
        "lastDurableWallTime": wall,
        "syncSourceHost": "",
        "syncSourceId": -1,
        "infoMessage": "",
    };
    if role == Role::Primary {
        let second = (replication.elected_ms() / 1000) as u32;
        member.insert("electionTime", Timestamp { time: second, increment: 1 });
        member.insert("electionDate", elected);
    }
    member.extend(doc! {
        "configVersion": config.version,
        "configTerm": config.term,
        "self": true,
        "lastHeartbeatMessage": "",
    });
    let writable = config.voters().filter(|member| !member.arbiter_only).count();
    let status = doc! {
        "set": &config.set,
        "date": DateTime::from_millis(service.os.clock.wall_ms()),
        "myState": state,
        "term": term,
        "syncSourceHost": "",
        "syncSourceId": -1,
        "heartbeatIntervalMillis": config.settings.heartbeat_interval.as_millis() as i64,
        "majorityVoteCount": config.majority() as i32,
        "writeMajorityCount": config.majority().min(writable) as i32,
        "votingMembersCount": config.voters().count() as i32,
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
        "lastStableRecoveryTimestamp": now,
        "electionCandidateMetrics": {
            "lastElectionReason": "electionTimeout",
            "lastElectionDate": elected,
            "electionTerm": term,
            "numVotesNeeded": config.majority() as i32,
            "priorityAtElection": own.priority,
            "electionTimeoutMillis": config.settings.election_timeout.as_millis() as i64,
        },
        "members": [member],
    };
    context.reply.fields_of(&status);
    Ok(())
}

/// What `hello` says of the set, and whether writes are taken (under `primary_field`).
pub(crate) fn write_hello(service: &ServerState, reply: &mut Writer, primary_field: &str) {
    let replication = &service.replication;
    let role = replication.role(&service.os);
    let config = replication.config();
    let own = config.as_ref().and_then(|config| config.own(service.info.port).ok());
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
    reply.bool("secondary", role != Role::Primary);
    if role == Role::Primary {
        reply.str("primary", &own.host);
    }
    if own.priority == 0.0 {
        reply.bool("passive", true);
    }
    if own.hidden {
        reply.bool("hidden", true);
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
