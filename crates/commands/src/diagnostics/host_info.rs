//! `hostInfo`: the machine under the server.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::Result;

pub(crate) const HOST_INFO: Command = Command::new(
    "hostInfo",
    "The machine under the server.",
    Needs::Cluster(&[Action::HostInfo]),
    run,
)
.admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let service = context.service;
    let memory = os::memory();
    let cores = os::cpu_count() as i32;
    let reply = &mut context.reply;
    let system = reply.begin_document("system");
    reply.date("currentTime", service.os.clock.wall_ms());
    reply.str("hostname", &service.info.host);
    reply.i32("cpuAddrSize", 64);
    reply.long("memSizeMB", memory.machine >> 20);
    reply.long("memLimitMB", memory.usable() >> 20);
    reply.i32("numCores", cores);
    reply.i32("numCoresAvailableToProcess", cores);
    reply.str("cpuArch", std::env::consts::ARCH);
    reply.bool("numaEnabled", false);
    reply.end(system);
    let kind = reply.begin_document("os");
    reply.str("type", "Linux");
    reply.str("name", std::env::consts::OS);
    reply.str("version", "");
    reply.end(kind);
    let extra = reply.begin_document("extra");
    reply.end(extra);
    Ok(())
}
