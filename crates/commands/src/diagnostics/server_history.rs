//! `serverHistory`: what the figures were, second by second, for a day.
//!
//! ```text
//! {serverHistory: 1, from: Date, to: Date, step: seconds, names: ["opcounters.insert", …]}
//! {names: […], newest: Date}                       where no names are asked for
//! {step: 1, times: [Date, …], series: {"opcounters.insert": [n | null, …]}, newest: Date}
//! ```
//!
//! With a step above a second a name may stand in `least(…)` or `most(…)`, the extremes of its seconds,
//! or in `slowest(…)` or `fastest(…)`, what a counter grew by in one of them; alone it is the last's.
//! Without `to` it is until now, without `from` the last ten minutes. A counter is told as it stood;
//! whoever draws takes differences.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::{Bson, RawBsonRef};
use dispatch::fields::Field;
use errors::{Code, Error, Result};

pub(crate) const SERVER_HISTORY: Command = Command::new(
    "serverHistory",
    "What the figures were, second by second.",
    Needs::Cluster(&[Action::ServerStatus]),
    run,
)
.admin_only();

/// Milliseconds that are told where nobody says from when.
const STRETCH_MS: i64 = 600_000;

/// Names of one request at most.
const MAX_NAMES: usize = 400;

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let (mut from, mut to, mut step, mut names) = (None, None, 1, None);
    for field in &fields[1..] {
        match field.name {
            "from" => from = Some(date(field)?),
            "to" => to = Some(date(field)?),
            "step" => step = field.i64()?,
            "names" => names = Some(strings(field)?),
            _ => return Err(field.unknown()),
        }
    }
    if !(1..=86_400).contains(&step) {
        return Err(Error::bad_value("step has to be from 1 to 86400 seconds"));
    }
    let Some(history) = context.service.host.history() else {
        return Err(Error::new(Code::ILLEGAL_OPERATION, "this server keeps no history"));
    };
    if let Some(names) = names {
        let to = to.unwrap_or(i64::MAX);
        let now = context.service.os.clock.wall_ms();
        let from = from.unwrap_or_else(|| to.min(now).saturating_sub(STRETCH_MS));
        let series = history
            .read(from, to, step * 1000, &names)
            .map_err(|error| Error::new(Code::OPERATION_FAILED, error.to_string()))?;
        context.reply.i64("step", step);
        let times = series.times.iter().map(|at| bson::DateTime::from_millis(*at).into());
        context.reply.bson("times", &Bson::Array(times.collect()));
        let open = context.reply.begin_document("series");
        for (name, column) in names.iter().zip(series.columns) {
            let values = column.into_iter().map(|value| value.map_or(Bson::Null, Bson::Double));
            context.reply.bson(name, &Bson::Array(values.collect()));
        }
        context.reply.end(open);
    } else {
        let names = history.names().into_iter().map(Bson::String).collect();
        context.reply.bson("names", &Bson::Array(names));
    }
    if let Some(newest) = history.newest() {
        context.reply.date("newest", newest);
    }
    Ok(())
}

fn date(field: &Field<'_>) -> Result<i64> {
    match field.value {
        RawBsonRef::DateTime(at) => Ok(at.timestamp_millis()),
        _ => Err(field.wrong_type("date")),
    }
}

fn strings<'a>(field: &Field<'a>) -> Result<Vec<&'a str>> {
    let mut all = Vec::new();
    for item in field.array()? {
        match item {
            Ok(RawBsonRef::String(name)) if !name.contains('\0') => {
                if !all.contains(&name) {
                    all.push(name);
                }
            }
            _ => return Err(Error::bad_value("names has to be an array of strings")),
        }
    }
    if all.len() > MAX_NAMES {
        return Err(Error::bad_value(format!("names has more than {MAX_NAMES} names")));
    }
    Ok(all)
}
