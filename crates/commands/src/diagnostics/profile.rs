//! `profile`: which operations the log and a database's `system.profile` tell of.
//!
//! Always true: a level that is reported as set is in effect; the reply shows what was before.

use crate::command::Command;
use crate::context::Context;
use crate::finished;
use crate::needs::Needs;
use crate::security::asks;
use bson::RawBsonRef;
use dispatch::fields::Field;
use errors::{Code, Error, Result};
use serverstate::profiler::{Picked, Settings};
use std::sync::Arc;

pub(crate) const PROFILE: Command = Command::new(
    "profile",
    "Which operations are logged and profiled.",
    Needs::Computed(asks::profile),
    run,
)
.durable()
.unprofiled();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let level = fields[0].i64()?;
    let profiler = &context.service.profiler;
    let was = profiler.settings(context.database());
    let (was_slow_ms, was_rate) = (profiler.slow_ms(), profiler.sample_rate());
    let (mut slow_ms, mut rate, mut filter) = (None, None, None);
    for field in &fields[1..] {
        match field.name {
            "slowms" => slow_ms = Some(field.i64()?.max(0) as u64),
            "sampleRate" => rate = Some(sample_rate(field)?),
            "filter" => filter = Some(picked(field)?),
            _ => return Err(field.unknown()),
        }
    }
    // Any other level only asks.
    if let Some(level) = i32::try_from(level).ok().filter(|level| (0..=2).contains(level)) {
        if level > 0 && (context.service.replication.is_of_several() || context.service.follows()) {
            return Err(Error::new(
                Code::ILLEGAL_OPERATION,
                "a member of a replica set of several, or one that waits for its set, keeps no profile of its own yet: slow operations stand in its log",
            ));
        }
        if level > 0 {
            let interrupt = &*context.connection.interrupt;
            finished::make_collection(context.service, interrupt, context.database())?;
        }
        let filter = filter.unwrap_or_else(|| was.filter.clone());
        profiler.set(context.database(), Settings { level, filter });
        if let Some(slow_ms) = slow_ms {
            profiler.set_slow_ms(slow_ms);
        }
        if let Some(rate) = rate {
            profiler.set_sample_rate(rate);
        }
    }
    context.reply.i32("was", was.level);
    context.reply.number("slowms", was_slow_ms);
    context.reply.f64("sampleRate", was_rate);
    if let Some(filter) = &was.filter {
        context.reply.document("filter", &filter.document);
        let note = "When a filter expression is set, slowms and sampleRate are not used for \
                    profiling and slow-query log lines.";
        context.reply.str("note", note);
    }
    Ok(())
}

fn sample_rate(field: &Field<'_>) -> Result<f64> {
    let rate = match field.value {
        RawBsonRef::Double(rate) => rate,
        _ => field.i64()? as f64,
    };
    if (0.0..=1.0).contains(&rate) {
        return Ok(rate);
    }
    Err(Error::bad_value("'sampleRate' must be between 0.0 and 1.0 inclusive"))
}

/// A filter, or the word that takes it away.
fn picked(field: &Field<'_>) -> Result<Option<Arc<Picked>>> {
    match field.value {
        RawBsonRef::Document(filter) => Ok(Some(Arc::new(Picked::parse(filter)?))),
        RawBsonRef::String("unset") => Ok(None),
        _ => Err(Error::bad_value("Expected an object, or the string 'unset'.")),
    }
}
