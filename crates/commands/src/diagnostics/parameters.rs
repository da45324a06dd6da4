//! `getParameter` and `setParameter`: the server's knobs.
//!
//! Always true: a parameter listed as settable has an effect.

use super::build_info::FEATURE_VERSION;
use super::storage_defaults;
use crate::admin::merge_authz::AUTH_SCHEMA_VERSION;
use crate::connection::Origin;
use crate::context::Context;
use crate::fields::Field;
use crate::registry::Command;
use crate::service::Service;
use crate::writer::Writer;
use bson::{Bson, RawBsonRef, doc};
use errors::{Code, Error, Result};
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) const GET_PARAMETER: Command =
    Command::new("getParameter", "Reads the server's parameters.", get).admin_only();

pub(crate) const SET_PARAMETER: Command =
    Command::new("setParameter", "Changes the server's parameters.", set).admin_only();

type Read = fn(&Service) -> Bson;
type Write = fn(&Service, i64);

struct Parameter {
    name: &'static str,
    read: Read,
    /// The least and the greatest value, and how to set it.
    write: Option<(i64, i64, Write)>,
    /// Only the server itself may set it, before it listens.
    only_at_start: bool,
}

const fn fixed(name: &'static str, read: Read) -> Parameter {
    Parameter { name, read, write: None, only_at_start: false }
}

static PARAMETERS: &[Parameter] = &[
    fixed("authSchemaVersion", |_| Bson::Int32(AUTH_SCHEMA_VERSION)),
    fixed("authenticationMechanisms", |_| Bson::Array(Vec::new())),
    Parameter {
        name: "cursorTimeoutMillis",
        read: |service| Bson::Int64(service.cursor_timeout_ms.load(Ordering::Relaxed) as i64),
        write: Some((1, i32::MAX as i64, |service, value| {
            service.cursor_timeout_ms.store(value as u64, Ordering::Relaxed);
        })),
        only_at_start: false,
    },
    Parameter {
        name: "diagnosticDataCollectionEnabled",
        read: |service| Bson::Boolean(service.keeps_history()),
        write: Some((0, 1, |service, value| {
            service.keeps_history.store(value != 0, Ordering::Relaxed);
        })),
        only_at_start: false,
    },
    Parameter {
        name: "enableTestCommands",
        read: |service| Bson::Boolean(service.test_commands.load(Ordering::Relaxed)),
        write: Some((0, 1, |service, value| {
            service.test_commands.store(value != 0, Ordering::Relaxed);
        })),
        only_at_start: true,
    },
    fixed("featureCompatibilityVersion", |_| Bson::Document(doc! { "version": FEATURE_VERSION })),
    Parameter {
        name: "internalQueryJavaScriptFnTimeoutMillis",
        read: |service| Bson::Int32(service.scripting.call_limit_ms.load(Ordering::Relaxed) as i32),
        write: Some((1, i32::MAX as i64, |service, value| {
            service.scripting.call_limit_ms.store(value as u64, Ordering::Relaxed);
        })),
        only_at_start: false,
    },
    Parameter {
        name: "javascriptEnabled",
        read: |service| Bson::Boolean(service.scripting.enabled.load(Ordering::Relaxed)),
        write: Some((0, 1, |service, value| {
            service.scripting.enabled.store(value != 0, Ordering::Relaxed);
        })),
        only_at_start: true,
    },
    fixed("localLogicalSessionTimeoutMinutes", |_| Bson::Int32(30)),
    fixed("maxBSONDepth", |_| Bson::Int32(200)),
    fixed("maxSessions", |_| Bson::Int32(session::Sessions::MAX as i32)),
    Parameter {
        name: "maxTransactionLockRequestTimeoutMillis",
        read: |service| Bson::Int32(service.lock_patience_ms.load(Ordering::Relaxed) as i32),
        write: Some((0, i32::MAX as i64, |service, value| {
            service.lock_patience_ms.store(value as u64, Ordering::Relaxed);
        })),
        only_at_start: false,
    },
    Parameter {
        name: "minSnapshotHistoryWindowInSeconds",
        read: |service| Bson::Int32(service.replication.clock.window().as_secs() as i32),
        write: Some((0, i32::MAX as i64, |service, value| {
            service.replication.clock.set_window(Duration::from_secs(value as u64));
        })),
        only_at_start: false,
    },
    fixed("notablescan", |_| Bson::Boolean(false)),
    // Judged by the program before it listens.
    Parameter {
        name: "refuseOpenBind",
        read: |service| Bson::Boolean(service.refuse_open_bind.load(Ordering::Relaxed)),
        write: Some((0, 1, |service, value| {
            service.refuse_open_bind.store(value != 0, Ordering::Relaxed);
        })),
        only_at_start: true,
    },
    fixed("requireApiVersion", |_| Bson::Boolean(false)),
    Parameter {
        name: "slowOpThresholdMs",
        read: |service| Bson::Int64(service.profiler.slow_ms() as i64),
        write: Some((0, i64::MAX, |service, value| service.profiler.set_slow_ms(value as u64))),
        only_at_start: false,
    },
    Parameter {
        name: "transactionLifetimeLimitSeconds",
        read: |service| {
            Bson::Int32(service.transaction_lifetime_secs.load(Ordering::Relaxed) as i32)
        },
        write: Some((1, i32::MAX as i64, |service, value| {
            service.transaction_lifetime_secs.store(value as u64, Ordering::Relaxed);
        })),
        only_at_start: false,
    },
    Parameter {
        name: "ttlMonitorSleepSecs",
        read: |service| Bson::Int32(service.ttl_sleep_secs.load(Ordering::Relaxed) as i32),
        write: Some((1, i32::MAX as i64, |service, value| service.set_ttl_sleep(value as u64))),
        only_at_start: false,
    },
];

fn get(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut all = matches!(fields[0].value, RawBsonRef::String("*"));
    let mut details = false;
    if let RawBsonRef::Document(options) = fields[0].value {
        for option in crate::fields::inner(options, "getParameter") {
            let option = option?;
            match option.name {
                "allParameters" => all = option.bool()?,
                "showDetails" => details = option.bool()?,
                "setAt" => {}
                _ => return Err(option.unknown()),
            }
        }
    }
    let mut found = false;
    for name in storage_defaults::NAMES {
        if all || fields[1..].iter().any(|field| field.name == name) {
            write_value(
                &mut context.reply,
                name,
                &storage_defaults::read(context.service, name),
                details,
            );
            found = true;
        }
    }
    for parameter in PARAMETERS {
        if all || fields[1..].iter().any(|field| field.name == parameter.name) {
            write(&mut context.reply, context.service, parameter, details);
            found = true;
        }
    }
    if !found {
        return Err(Error::new(Code::INVALID_OPTIONS, "no option found to get"));
    }
    Ok(())
}

fn write(reply: &mut Writer, service: &Service, parameter: &Parameter, details: bool) {
    let value = (parameter.read)(service);
    if !details {
        return reply.bson(parameter.name, &value);
    }
    let one = reply.begin_document(parameter.name);
    reply.bson("value", &value);
    reply.bool("settableAtRuntime", parameter.write.is_some() && !parameter.only_at_start);
    reply.bool("settableAtStartup", parameter.write.is_some());
    reply.end(one);
}

fn write_value(reply: &mut Writer, name: &str, value: &Bson, details: bool) {
    if !details {
        return reply.bson(name, value);
    }
    let one = reply.begin_document(name);
    reply.bson("value", value);
    reply.bool("settableAtRuntime", true);
    reply.bool("settableAtStartup", true);
    reply.end(one);
}

fn set(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let service = context.service;
    if fields.len() < 2 {
        return Err(Error::new(
            Code::INVALID_OPTIONS,
            "no option found to set, use help:true to see options ",
        ));
    }
    for field in &fields[1..] {
        if storage_defaults::NAMES.contains(&field.name) {
            let was = storage_defaults::read(service, field.name);
            storage_defaults::set(service, field)?;
            if field.name == fields[1].name {
                context.reply.bson("was", &was);
            }
            continue;
        }
        let Some(parameter) = PARAMETERS.iter().find(|p| p.name == field.name) else {
            return Err(Error::new(
                Code::INVALID_OPTIONS,
                format!(
                    "attempted to set unrecognized parameter [{}], use help:true to see options ",
                    field.name
                ),
            ));
        };
        let starting = context.connection.origin == Origin::Startup;
        let settable = parameter.write.filter(|_| starting || !parameter.only_at_start);
        let Some((least, most, write)) = settable else {
            return Err(Error::new(
                Code::ILLEGAL_OPERATION,
                format!("not allowed to change [{}] at runtime", field.name),
            ));
        };
        let value = match field.value {
            RawBsonRef::Boolean(set) => i64::from(set),
            _ => field.i64()?,
        };
        if !(least..=most).contains(&value) {
            let relation = if value < least { "greater" } else { "less" };
            let bound = if value < least { least } else { most };
            return Err(Error::bad_value(format!(
                "Invalid value for parameter {}: {value} is not {relation} than or equal to {bound}",
                field.name
            )));
        }
        let was = (parameter.read)(service);
        write(service, value);
        if field.name == fields[1].name {
            context.reply.bson("was", &was);
        }
    }
    Ok(())
}
