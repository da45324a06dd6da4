//! `profile`: which operations are logged as slow.
//!
//! Level 0 with its `slowms` is honoured; the levels that write `system.profile` are refused.

use crate::context::Context;
use crate::fields::Field;
use crate::registry::Command;
use errors::{Code, Error, Result};
use std::sync::atomic::Ordering;

pub(crate) const PROFILE: Command =
    Command::new("profile", "Which operations are logged as slow (level 0 only).", run);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let level = fields[0].i64()?;
    let mut slow_ms = None;
    for field in &fields[1..] {
        match field.name {
            "slowms" => slow_ms = Some(field.i64()?.max(0) as u64),
            "sampleRate" => {
                if field.value.as_f64().unwrap_or(1.0) < 1.0 {
                    return Err(field.not_yet());
                }
            }
            "filter" => return Err(field.not_yet()),
            _ => return Err(field.unknown()),
        }
    }
    if level > 0 {
        return Err(Error::new(
            Code::NOT_IMPLEMENTED,
            "profiling levels 1 and 2 are not supported by this version of FernDB",
        ));
    }
    let service = context.service;
    let was = service.slow_ms.load(Ordering::Relaxed);
    if let Some(slow_ms) = slow_ms
        && level == 0
    {
        service.slow_ms.store(slow_ms, Ordering::Relaxed);
    }
    context.reply.i32("was", 0);
    context.reply.number("slowms", was);
    context.reply.f64("sampleRate", 1.0);
    Ok(())
}
