//! `setClusterParameter` and `getClusterParameter`.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::{Bson, RawBsonRef, Timestamp};
use dispatch::fields::{Field, missing, type_name};
use errors::{Code, Error, Result};
use serverstate::ServerState;
use serverstate::cluster_parameters::{CLUSTER_PARAMETERS, ClusterParameter};
use std::sync::atomic::Ordering;

pub(crate) const SET_CLUSTER_PARAMETER: Command = Command::new(
    "setClusterParameter",
    "Changes a parameter of all members, for good.",
    Needs::Cluster(&[Action::SetClusterParameter]),
    set,
)
.admin_only()
.durable();

pub(crate) const GET_CLUSTER_PARAMETER: Command = Command::new(
    "getClusterParameter",
    "Reads parameters of all members.",
    Needs::Cluster(&[Action::GetClusterParameter]),
    get,
)
.admin_only();

fn get(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut wanted = Vec::new();
    match fields[0].value {
        RawBsonRef::String("*") => wanted.extend(CLUSTER_PARAMETERS),
        RawBsonRef::String(name) => wanted.push(find(name)?),
        RawBsonRef::Array(names) => {
            for name in names {
                match name? {
                    RawBsonRef::String(name) => wanted.push(find(name)?),
                    other => {
                        return Err(Error::type_mismatch(format!(
                            "BSON field 'getClusterParameter.getClusterParameter' has an element of the \
                             wrong type '{}', expected type 'string'",
                            type_name(other)
                        )));
                    }
                }
            }
            if wanted.is_empty() {
                return Err(Error::bad_value(
                    "Must supply at least one cluster server parameter name",
                ));
            }
        }
        _ => return Err(fields[0].wrong_types("string, array")),
    }
    let parameters = context.service.cluster_parameters.lock().clone();
    let list = context.reply.begin_array("clusterParameters");
    for (at, parameter) in wanted.into_iter().enumerate() {
        let one = context.reply.begin_element(at);
        context.reply.fields_of(&parameters.shown(parameter));
        context.reply.end(one);
    }
    context.reply.end(list);
    Ok(())
}

fn find(name: &str) -> Result<&'static ClusterParameter> {
    CLUSTER_PARAMETERS.iter().find(|known| known.name == name).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Error {
    Error::new(Code::NO_SUCH_KEY, format!("Unknown server parameter: {name}"))
}

fn set(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if fields[0].is_null() {
        return Err(missing("setClusterParameter", "setClusterParameter"));
    }
    let given: Vec<_> = fields[0].document()?.iter().collect::<Result<_, _>>()?;
    let (name, value) = match given[..] {
        [] => return Err(unknown("")),
        [(name, value)] => (name.as_str(), value),
        _ => {
            return Err(Error::new(
                Code::INVALID_OPTIONS,
                "setClusterParameter only supports setting exactly one parameter",
            ));
        }
    };
    let parameter = find(name)?;
    let RawBsonRef::Document(value) = value else {
        return Err(Error::bad_value(format!(
            "Cannot set cluster parameter {name} to a value of type {}: it must be an object",
            type_name(value)
        )));
    };
    store(context.service, parameter, parameter.parse(value)?)
}

/// Stores a value, then lets it hold. The list stays locked meanwhile, so that what is stored last is
/// what holds. Waits for the disk.
fn store(state: &ServerState, parameter: &'static ClusterParameter, value: Bson) -> Result<()> {
    let mut parameters = state.cluster_parameters.lock();
    parameters.store(&state.catalog, parameter, value, now(state))?;
    let limit = parameters.default_max_time_ms();
    state.default_max_time_ms.store(limit, Ordering::Relaxed);
    Ok(())
}

/// The cluster's time, else the wall clock's second.
fn now(state: &ServerState) -> Timestamp {
    if state.replication.keeps_time() {
        return state.replication.clock.now();
    }
    let seconds = state.os.clock.wall_ms() / 1000;
    Timestamp { time: u32::try_from(seconds).unwrap_or(u32::MAX), increment: 1 }
}
