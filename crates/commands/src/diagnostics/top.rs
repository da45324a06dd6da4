//! `top`: how much each collection was used, for mongotop.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use dispatch::writer::Writer;
use errors::Result;
use serverstate::metrics::{TOP_FIELDS, Usage};

pub(crate) const TOP: Command = Command::new(
    "top",
    "Time and count of each collection's operations.",
    Needs::Cluster(&[Action::Top]),
    run,
)
.admin_only();

/// Which of [`TOP_FIELDS`] only read.
const READS: [bool; 6] = [true, true, false, false, false, false];

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let all = context.service.metrics.top_all();
    let reply = &mut context.reply;
    let totals = reply.begin_document("totals");
    reply.str("note", "all times in microseconds");
    for (namespace, entry) in &all {
        let one = reply.begin_document(namespace);
        let sum = |wanted: &dyn Fn(usize) -> bool| {
            entry.iter().enumerate().filter(|(at, _)| wanted(*at)).fold(
                Usage::default(),
                |sum, (_, usage)| Usage {
                    count: sum.count + usage.count,
                    micros: sum.micros + usage.micros,
                },
            )
        };
        write(reply, "total", sum(&|_| true));
        write(reply, "readLock", sum(&|at| READS[at]));
        write(reply, "writeLock", sum(&|at| !READS[at]));
        for (name, usage) in TOP_FIELDS.into_iter().zip(entry) {
            write(reply, name, *usage);
        }
        reply.end(one);
    }
    reply.end(totals);
    Ok(())
}

fn write(reply: &mut Writer, name: &str, usage: Usage) {
    let one = reply.begin_document(name);
    reply.long("time", usage.micros);
    reply.long("count", usage.count);
    reply.end(one);
}
