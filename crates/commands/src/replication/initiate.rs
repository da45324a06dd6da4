//! `replSetInitiate`, `replSetReconfig` and `replSetGetConfig`: the set's configuration.

use super::several;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::RawBsonRef;
use bson::raw::RawDocumentBuf;
use dispatch::fields::Field;
use errors::{Code, Error, Result};
use serverstate::ServerState;
use serverstate::replication::config::{Config, change, replica_set_id};
use serverstate::replication::{ReplicaSetOptions, Role};
use std::sync::Arc;

pub(crate) const REPL_SET_INITIATE: Command = Command::new(
    "replSetInitiate",
    "Makes a replica set of this node, alone or with others.",
    Needs::Cluster(&[Action::ReplSetConfigure]),
    initiate,
)
.admin_only()
.durable();

pub(crate) const REPL_SET_RECONFIG: Command = Command::new(
    "replSetReconfig",
    "Changes members, settings and tags of the set.",
    Needs::Cluster(&[Action::ReplSetConfigure]),
    reconfigure,
)
.admin_only()
.durable();

pub(crate) const REPL_SET_GET_CONFIG: Command = Command::new(
    "replSetGetConfig",
    "The set's configuration.",
    Needs::Cluster(&[Action::ReplSetGetConfig]),
    get,
)
.admin_only();

/// Without a word from the primary for so long the others elect another one, where nothing is said. MongoDB's
/// 10,000 are for networks that lose messages for seconds; here nothing is lost by an election that was not
/// needed.
const ELECTION_TIMEOUT_MS: i32 = 2000;

/// The refusal of every server that was not started with `--replSet`.
pub(super) fn member<'a>(context: &Context<'a>) -> Result<&'a ReplicaSetOptions> {
    context
        .service
        .replication
        .options()
        .ok_or_else(|| Error::new(Code::NO_REPLICATION_ENABLED, "not running with --replSet"))
}

/// The configuration, or the refusal of a member that waits for one.
pub(super) fn configured(context: &Context<'_>) -> Result<Arc<Config>> {
    member(context)?;
    context
        .service
        .replication
        .config()
        .ok_or_else(|| Error::new(Code::NOT_YET_INITIALIZED, "no replset config has been received"))
}

fn initiate(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let service = context.service;
    let Some(options) = service.replication.options() else {
        return Err(Error::new(
            Code::NO_REPLICATION_ENABLED,
            "This node was not started with replication enabled.",
        ));
    };
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    if service.replication.config().is_some() {
        return Err(Error::new(Code::ALREADY_INITIALIZED, "already initialized"));
    }
    let config = match fields[0].value {
        RawBsonRef::Document(given) if !given.is_empty() => {
            let given = with_id(given, service)?;
            Config::parse(&options.name, &given)?
        }
        RawBsonRef::Document(_) | RawBsonRef::Null | RawBsonRef::Undefined => {
            Config::of_one(&options.name, &options.address, &service.os)?
        }
        // The shell's own way of saying "the default".
        value if dispatch::fields::as_i64(value) == Some(1) => {
            Config::of_one(&options.name, &options.address, &service.os)?
        }
        _ => return Err(fields[0].wrong_type("object")),
    };
    config.check_supported()?;
    if config.members.len() > 1 {
        return several::found(context, &config);
    }
    check_port(context, &config)?;
    service.initiate_alone(config)?;
    service.topology_changed();
    Ok(())
}

/// A first configuration gets the set's identity.
fn with_id(given: &bson::RawDocument, service: &ServerState) -> Result<RawDocumentBuf> {
    let mut given = bson::Document::try_from(given)?;
    given.insert("version", 1);
    if !given.contains_key("settings") {
        given.insert("settings", bson::Document::new());
    }
    let is_of_several = given.get_array("members").is_ok_and(|members| members.len() > 1);
    if let Ok(settings) = given.get_document_mut("settings") {
        settings.insert("replicaSetId", replica_set_id(&service.os));
        if is_of_several && !settings.contains_key("electionTimeoutMillis") {
            settings.insert("electionTimeoutMillis", ELECTION_TIMEOUT_MS);
        }
    }
    Ok(RawDocumentBuf::try_from(&given)?)
}

/// One member must be this node.
fn check_port(context: &Context<'_>, config: &Config) -> Result<()> {
    let own = context.service.info.port;
    if config.at_port(own).is_some() {
        return Ok(());
    }
    Err(maps_to_nobody(config, &format!("names port {own}")))
}

/// No member of a configuration is this node.
pub(super) fn maps_to_nobody(config: &Config, how: &str) -> Error {
    let hosts: Vec<&str> = config.members.iter().map(|member| member.host.as_str()).collect();
    Error::new(
        Code::NODE_NOT_FOUND,
        format!(
            "No host described in new configuration with {{version: {}}} for replica set {} maps \
             to this node: none of {} {how}",
            config.version,
            config.set,
            hosts.join(", ")
        ),
    )
}

fn reconfigure(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let before = configured(context)?;
    let mut force = false;
    for field in &fields[1..] {
        match field.name {
            "force" => force = field.bool()?,
            _ => return Err(field.unknown()),
        }
    }
    let service = context.service;
    let role = service.replication.role(&service.os);
    let is_of_several = service.replication.is_of_several();
    if role != Role::Primary && !force {
        return Err(Error::new(
            Code::NOT_WRITABLE_PRIMARY,
            "New config cannot be installed: this node is not primary",
        ));
    }
    let mut config = Config::parse(&before.set, fields[0].document()?)?;
    if force {
        config.set_version(config.version.max(before.version.saturating_add(1)));
    }
    change::check(&before, &config, force)?;
    config.check_supported()?;
    config.keep_identity_of(&before);
    if is_of_several && role != Role::Primary {
        config.check_settings_of_several()?;
        return several::force(context, &before, config);
    }
    if is_of_several {
        return several::reconfigure(context, &config);
    }
    if config.members.len() > 1 {
        return several::found(context, &config);
    }
    check_port(context, &config)?;
    service.replication.reconfigure(config, &service.catalog)?;
    service.topology_changed();
    Ok(())
}

fn get(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let config = configured(context)?;
    for field in &fields[1..] {
        match field.name {
            "commitmentStatus" => {
                if field.bool()? {
                    context.reply.bool("commitmentStatus", several::is_committed(context));
                }
            }
            _ => return Err(field.unknown()),
        }
    }
    context.reply.bson("config", &bson::Bson::Document(config.document.clone()));
    Ok(())
}
