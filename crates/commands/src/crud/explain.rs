//! `explain`: any explainable command, planned and perhaps run, and its plan shown.

use super::query_shape;
use crate::command::Command;
use crate::command::check_database;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use bson::RawDocument;
use dispatch::arguments::{Arguments, Fields};
use dispatch::fields::Field;
use dispatch::rules::Counter;
use errors::{Code, Error, Result};
use query::Verbosity;
use serverstate::versions::MONGODB_VERSION;

pub(crate) const EXPLAIN: Command = Command::new(
    "explain",
    "Shows the plan of another command.",
    Needs::Computed(asks::explain),
    run,
)
.reads(Counter::Command)
.api_v1()
.secret(&["payload", "pwd", "key", "speculativeAuthenticate"]);

fn run<'a>(context: &mut Context<'a>, fields: &[Field<'a>]) -> Result<()> {
    let body = fields[0].document()?;
    let mut verbosity = Verbosity::AllPlansExecution;
    for field in &fields[1..] {
        match field.name {
            "verbosity" => {
                verbosity = match field.str()? {
                    "queryPlanner" => Verbosity::QueryPlanner,
                    "executionStats" => Verbosity::ExecutionStats,
                    "allPlansExecution" => Verbosity::AllPlansExecution,
                    other => {
                        return Err(Error::bad_value(format!(
                            "Enumeration value '{other}' for field 'explain.verbosity' is not a \
                             valid value."
                        )));
                    }
                }
            }
            _ => return Err(field.unknown()),
        }
    }
    let name = match body.iter_elements().next() {
        Some(element) => element?.key().as_str(),
        None => "",
    };
    let Some((_, command)) = context.registry.find(name) else {
        return Err(Error::new(
            Code::COMMAND_NOT_FOUND,
            format!("Explain failed due to unknown command: {name}"),
        ));
    };
    let Some(explain) = command.explain else {
        return Err(Error::new(
            Code::ILLEGAL_OPERATION,
            format!("Explain is not supported for command: {name}"),
        ));
    };
    if let Ok(Some(bson::RawBsonRef::String(database))) = body.get("$db")
        && database != context.database()
    {
        return Err(Error::new(
            Code::INVALID_NAMESPACE,
            format!(
                "Mismatched $db in explain command. Expected {} but got {database}",
                context.database()
            ),
        ));
    }
    check_database(command, context.database())?;
    let mut inner = Fields::new();
    let arguments = Arguments::parse(command, body, context.admitted.digest(), &mut inner)?;
    context.arguments.collection_uuid = arguments.collection_uuid;
    context.verbosity = verbosity;
    context.explained = Some(body);
    explain(context, &inner)
}

/// How much the client asked for.
pub(crate) fn verbosity_of(context: &Context<'_>) -> Verbosity {
    context.verbosity
}

/// Writes a plan, and around it the command and the server it ran on.
pub(crate) fn write_explain(context: &mut Context<'_>, plan: &RawDocument) {
    let body = context.explained.unwrap_or(context.body);
    let reply = &mut context.reply;
    reply.fields(plan);
    let name = body.iter_elements().next().and_then(|e| Some(e.ok()?.key().as_str())).unwrap_or("");
    if let Some(hash) = query_shape::hash(context.request.database, name, body) {
        reply.str("queryShapeHash", &hash);
    }
    let command = reply.begin_document("command");
    for (name, value) in body.iter().flatten() {
        if !matches!(name.as_str(), "$db" | "lsid" | "$clusterTime" | "$readPreference") {
            reply.value(name.as_str(), value);
        }
    }
    reply.str("$db", context.request.database);
    reply.end(command);
    let info = &context.service.info;
    let server = reply.begin_document("serverInfo");
    reply.str("host", &info.host);
    reply.i32("port", i32::from(info.port));
    reply.str("version", MONGODB_VERSION);
    reply.str("gitVersion", &info.git_version);
    reply.end(server);
}
