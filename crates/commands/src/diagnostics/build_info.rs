//! `buildInfo`: the version clients decide by, and our own beside it.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use dispatch::fields::Field;
use errors::Result;
use limits::MAX_DOCUMENT_BYTES;
use serverstate::versions::{MONGODB_VERSION, MONGODB_VERSION_PARTS};

pub(crate) const BUILD_INFO: Command =
    Command::new("buildInfo", "Version and build of this server.", Needs::NoLogin, run)
        .aliases(&["buildinfo"]);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let info = &context.service.info;
    let reply = &mut context.reply;
    reply.str("version", MONGODB_VERSION);
    reply.str("ferndb", &info.version);
    reply.str("gitVersion", &info.git_version);
    let modules = reply.begin_array("modules");
    reply.end(modules);
    reply.str("allocator", "jemalloc");
    reply.str("javascriptEngine", "none");
    reply.str("sysInfo", "deprecated");
    let parts = reply.begin_array("versionArray");
    for (at, part) in MONGODB_VERSION_PARTS.into_iter().enumerate() {
        reply.i32(&at.to_string(), part);
    }
    reply.end(parts);
    let tls = reply.begin_document("openssl");
    reply.str("running", "disabled");
    reply.str("compiled", "disabled");
    reply.end(tls);
    let build = reply.begin_document("buildEnvironment");
    reply.str("target_arch", std::env::consts::ARCH);
    reply.str("target_os", std::env::consts::OS);
    reply.end(build);
    reply.i32("bits", 64);
    reply.bool("debug", cfg!(debug_assertions));
    reply.i32("maxBsonObjectSize", MAX_DOCUMENT_BYTES as i32);
    let engines = reply.begin_array("storageEngines");
    reply.element_str(0, "fern");
    reply.end(engines);
    Ok(())
}
