//! `serverStatus`: the figures that monitors read.
//!
//! Always true: a figure here was counted or measured; what this server does not have is absent.
//! `mongostat` decodes strictly: `uptime` is a double of whole seconds, counters are longs.

use super::engine_status::Facts;
use super::ft;
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::replication::status::write_hello;
use auth::Action;
use bson::RawBsonRef;
use dispatch::fields::{Field, as_i64};
use dispatch::writer::Writer;
use errors::Result;
use serverstate::ServerState;
use serverstate::metrics::{CLASSES, COUNTERS, Metrics};
use serverstate::versions::MONGODB_VERSION;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use telemetry::HistogramSnapshot;

pub(crate) const SERVER_STATUS: Command = Command::new(
    "serverStatus",
    "The server's figures.",
    Needs::Cluster(&[Action::ServerStatus]),
    run,
);

type Section = fn(&ServerState, &mut Writer);

/// How the sections are shown.
#[derive(Clone, Copy, Default)]
pub(crate) struct Shape {
    /// Only the sections that are asked for.
    pub(crate) none: bool,
    /// `opLatencies` with its histograms.
    pub(crate) histograms: bool,
}

/// The sections, and whether a plain `serverStatus` shows them.
static SECTIONS: &[(&str, bool, Section)] = &[
    ("asserts", true, asserts),
    ("connections", true, connections),
    ("encryptionAtRest", true, encryption_at_rest),
    ("extra_info", true, extra_info),
    ("globalLock", true, global_lock),
    ("logArchive", true, log_archive),
    ("logicalSessionRecordCache", true, session_cache),
    ("mem", true, memory),
    ("memoryAccount", true, memory_account),
    ("metrics", true, metrics),
    ("network", true, network),
    ("opLatencies", true, |service, writer| latencies(service, writer, false)),
    ("opcounters", true, counters),
    ("repl", true, replication),
    ("security", true, security),
    ("storageEngine", true, storage_engine),
    ("transactions", true, transactions),
    ("transportSecurity", true, transport_security),
];

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let named = |name: &str| fields[1..].iter().find(|field| field.name == name);
    let shape = Shape {
        none: wants(fields, "none") == Some(true),
        histograms: named("opLatencies").is_some_and(|field| match field.value {
            RawBsonRef::Document(options) => options.get_bool("histograms").unwrap_or(false),
            _ => false,
        }),
    };
    let scale = ft::scale(named("ft"))?;
    context.check_interrupt()?;
    write(context.service, &mut context.reply, |name| wants(fields, name), shape, scale);
    Ok(())
}

/// Writes the reply: the sections that are asked for, and those that come by themselves; `ft` in
/// units of `scale` bytes.
pub(crate) fn write(
    service: &ServerState,
    reply: &mut Writer,
    wants: impl Fn(&str) -> Option<bool>,
    shape: Shape,
    scale: u64,
) {
    let uptime = service.uptime();
    reply.str("host", &format!("{}:{}", service.info.host, service.info.port));
    reply.str("version", MONGODB_VERSION);
    reply.str("process", "mongod");
    let roles = reply.begin_array("service");
    reply.element_str(0, "shard");
    reply.end(roles);
    reply.i64("pid", i64::from(service.info.pid));
    reply.f64("uptime", uptime.as_secs() as f64);
    reply.i64("uptimeMillis", uptime.as_millis() as i64);
    reply.i64("uptimeEstimate", uptime.as_secs() as i64);
    reply.date("localTime", service.os.clock.wall_ms());
    for (name, default, section) in SECTIONS {
        let absent = match *name {
            "repl" => !service.replication.is_member(),
            "logArchive" => service.catalog.engine().log_archive().is_none(),
            _ => false,
        };
        if !absent && wants(name).unwrap_or(*default && !shape.none) {
            let open = reply.begin_document(name);
            match *name {
                "opLatencies" => latencies(service, reply, shape.histograms),
                _ => section(service, reply),
            }
            reply.end(open);
        }
    }
    if wants("ft").unwrap_or(!shape.none) {
        let facts = Facts::gather(service);
        let open = reply.begin_document("ft");
        ft::section(&facts, reply, scale);
        reply.end(open);
    }
}

/// What the client said about a section by name.
fn wants(fields: &[Field<'_>], name: &str) -> Option<bool> {
    let field = fields[1..].iter().find(|field| field.name == name)?;
    Some(match field.value {
        RawBsonRef::Boolean(value) => value,
        RawBsonRef::Null | RawBsonRef::Undefined => false,
        value => as_i64(value) != Some(0),
    })
}

fn replication(service: &ServerState, writer: &mut Writer) {
    write_hello(service, writer, "isWritablePrimary");
}

/// The archive of the log, where `logArchiveDir` names one.
fn log_archive(service: &ServerState, writer: &mut Writer) {
    let Some(status) = service.catalog.engine().log_archive() else { return };
    writer.str("directory", &status.dir.display().to_string());
    writer.number("archivedPosition", status.archived);
    writer.number("behindBytes", status.behind_bytes);
    writer.date("lastArchived", status.last_ms);
    writer.number("failures", status.failures);
    if let Some(error) = &status.error {
        writer.str("error", error);
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}

fn asserts(service: &ServerState, writer: &mut Writer) {
    for name in ["regular", "warning", "msg"] {
        writer.i32(name, 0);
    }
    writer.number("user", read(&service.metrics.user_asserts));
    writer.i32("tripwire", 0);
    writer.i32("rollovers", 0);
}

fn connections(service: &ServerState, writer: &mut Writer) {
    let network = service.host.network();
    writer.number("current", network.connections);
    writer.number("available", network.available);
    writer.number("totalCreated", network.total_created);
    writer.number("rejected", network.rejected);
    writer.number("active", network.active);
    writer.number("threaded", network.threads);
    // Of the requests that wait on no thread, those that do not wait at the end of a tail.
    let tails = service.cursors.stats().awaited;
    writer.number("awaitingTopologyChanges", network.awaiting.saturating_sub(tails));
    writer.number("closedBeforeLogin", network.closed_before_login);
}

fn extra_info(_service: &ServerState, writer: &mut Writer) {
    let usage = os::usage();
    writer.str("note", "fields vary by platform");
    writer.long("user_time_us", usage.user.as_micros() as u64);
    writer.long("system_time_us", usage.system.as_micros() as u64);
    writer.long("maximum_resident_set_kb", usage.max_resident_bytes >> 10);
    writer.long("input_blocks", usage.input_blocks);
    writer.long("output_blocks", usage.output_blocks);
    writer.long("page_reclaims", usage.page_reclaims);
    writer.long("page_faults", usage.page_faults);
    writer.long("voluntary_context_switches", usage.voluntary_context_switches);
    writer.long("involuntary_context_switches", usage.involuntary_context_switches);
}

fn global_lock(service: &ServerState, writer: &mut Writer) {
    writer.i64("totalTime", service.uptime().as_micros() as i64);
    let running = service.operations.list();
    let writers = running
        .iter()
        .filter(|op| matches!(op.name, "insert" | "update" | "delete" | "findAndModify"));
    let writers = writers.count() as u64;
    let readers = running.len() as u64 - writers;
    let queue = writer.begin_document("currentQueue");
    for name in ["total", "readers", "writers"] {
        writer.i32(name, 0);
    }
    writer.end(queue);
    let active = writer.begin_document("activeClients");
    writer.number("total", readers + writers);
    writer.number("readers", readers);
    writer.number("writers", writers);
    writer.end(active);
}

fn session_cache(service: &ServerState, writer: &mut Writer) {
    writer.number("activeSessionsCount", service.sessions.len() as u64);
}

fn memory(_service: &ServerState, writer: &mut Writer) {
    writer.i32("bits", 64);
    writer.number("resident", os::resident_bytes() >> 20);
    writer.number("virtual", os::resident_bytes() >> 20);
    writer.bool("supported", true);
}

/// Who holds how much: clients' part, the engine's part, and what the allocator says of both.
fn memory_account(service: &ServerState, writer: &mut Writer) {
    service.count_memory();
    let account = &service.memory;
    let clients = writer.begin_document("clients");
    writer.long("capacity", account.capacity());
    writer.long("total", account.total());
    writer.long("refused", account.refused());
    writer.bool("awaited", account.is_awaited());
    let parts = writer.begin_document("parts");
    for (name, bytes) in account.usage().iter() {
        writer.long(name, bytes);
    }
    writer.end(parts);
    writer.end(clients);
    let (capacity, held) = service.catalog.engine().memory();
    let engine = writer.begin_document("engine");
    writer.long("capacity", capacity);
    writer.long("total", held.total());
    let parts = writer.begin_document("parts");
    for (name, bytes) in held.iter() {
        writer.long(name, bytes);
    }
    writer.end(parts);
    writer.end(engine);
    // What is lent is counted where it was lent to.
    let lent = held.iter().find(|(name, _)| *name == "lent").map_or(0, |(_, bytes)| bytes);
    writer.long("total", (account.total() + held.total()).saturating_sub(lent));
    writer.long("resident", os::resident_bytes());
    if let Some(allocator) = service.host.allocator() {
        let open = writer.begin_document("allocator");
        writer.long("allocated", allocator.allocated);
        writer.long("active", allocator.active);
        writer.long("resident", allocator.resident);
        writer.end(open);
    }
}

fn security(service: &ServerState, writer: &mut Writer) {
    writer.long("permitMisses", service.security.permit_misses.load(Relaxed));
    let Some(certificate) = service.host.certificate() else { return };
    writer.str("SSLServerSubjectName", &certificate.subject);
    writer.bool("SSLServerHasCertificateAuthority", certificate.has_authority);
    writer.date("SSLServerCertificateExpirationDate", certificate.not_after_ms);
}

fn encryption_at_rest(service: &ServerState, writer: &mut Writer) {
    let encryption = service.catalog.engine().encryption();
    writer.bool("encryptionEnabled", encryption.is_some());
    let Some(encryption) = encryption else { return };
    writer.str("encryptionCipherMode", "AES256-GCM");
    let key = writer.begin_document("encryptionKeyId");
    let local = writer.begin_document("local");
    writer.str("fingerprint", &encryption.master.to_string());
    writer.end(local);
    writer.end(key);
    writer.long("dataKeys", encryption.keys as u64);
    writer.long("newestDataKey", encryption.newest_key.into());
}

fn transport_security(service: &ServerState, writer: &mut Writer) {
    let network = service.host.network();
    writer.long("1.0", 0);
    writer.long("1.1", 0);
    writer.long("1.2", network.tls12);
    writer.long("1.3", network.tls13);
    writer.long("unknown", 0);
}

fn network(service: &ServerState, writer: &mut Writer) {
    let network = service.host.network();
    writer.long("bytesIn", network.bytes_in);
    writer.long("bytesOut", network.bytes_out);
    writer.long("physicalBytesIn", network.physical_bytes_in);
    writer.long("physicalBytesOut", network.physical_bytes_out);
    writer.long("numRequests", network.requests);
}

fn latencies(service: &ServerState, writer: &mut Writer, histograms: bool) {
    let snapshots = service.metrics.latencies.iter().map(telemetry::Histogram::snapshot);
    let all = CLASSES.into_iter().zip(snapshots);
    for (name, times) in all.chain([("transactions", HistogramSnapshot::default())]) {
        let one = writer.begin_document(name);
        if histograms {
            let list = writer.begin_array("histogram");
            for (at, (greatest, count)) in times.buckets.iter().enumerate() {
                let bucket = writer.begin_element(at);
                writer.long("micros", *greatest);
                writer.long("count", *count);
                writer.end(bucket);
            }
            writer.end(list);
        }
        writer.long("latency", times.sum);
        writer.long("ops", times.count);
        writer.end(one);
    }
}

fn counters(service: &ServerState, writer: &mut Writer) {
    for (name, counter) in COUNTERS.into_iter().zip(&service.metrics.counters) {
        writer.long(name, read(counter));
    }
}

fn storage_engine(_service: &ServerState, writer: &mut Writer) {
    writer.str("name", "fern");
    writer.bool("supportsCommittedReads", true);
    writer.bool("oldestRequiredTimestampForCrashRecovery", false);
    writer.bool("dropPendingIdents", false);
    writer.bool("supportsSnapshotReadConcern", true);
    writer.bool("readOnly", false);
    writer.bool("persistent", true);
    writer.bool("backupCursorOpen", false);
}

fn transactions(service: &ServerState, writer: &mut Writer) {
    let figures = &service.transactions;
    let (mut inactive, active) = (0, service.numbered.runners().len() as u64);
    let none: Vec<()> = service.numbered.edit_idle(|_, state| {
        inactive += u64::from(state.open().is_some());
        None
    });
    debug_assert!(none.is_empty(), "nothing was taken");
    writer.long("retriedCommandsCount", read(&figures.retried_commands));
    writer.long("retriedStatementsCount", read(&figures.retried_statements));
    writer.long("currentActive", active);
    writer.long("currentInactive", inactive);
    writer.long("currentOpen", active + inactive);
    writer.long("totalAborted", read(&figures.aborted));
    writer.long("totalCommitted", read(&figures.committed));
    writer.long("totalStarted", read(&figures.started));
}

fn metrics(service: &ServerState, writer: &mut Writer) {
    let metrics = &service.metrics;
    commands(metrics, writer);
    let stats = service.cursors.stats();
    let cursor = writer.begin_document("cursor");
    writer.long("timedOut", stats.timed_out);
    writer.long("totalOpened", stats.total_opened);
    let open = writer.begin_document("open");
    writer.long("noTimeout", stats.no_timeout);
    writer.long("pinned", stats.pinned);
    writer.long("total", stats.open);
    writer.end(open);
    writer.end(cursor);
    let document = writer.begin_document("document");
    writer.long("deleted", read(&metrics.documents_deleted));
    writer.long("inserted", read(&metrics.documents_inserted));
    writer.long("returned", read(&metrics.documents_returned));
    writer.long("updated", read(&metrics.documents_updated));
    writer.end(document);
    let fast = writer.begin_document("fastUpdates");
    writer.long("errors", serverstate::fast_update_rules().errors());
    let figures = &service.fast_updates;
    for (name, count) in [("eligible", &figures.eligible), ("performed", &figures.performed)] {
        let open = writer.begin_document(name);
        writer.long("primaryKey", read(count));
        writer.long("secondaryKey", 0);
        if name == "performed" {
            writer.long("slowOnSecondary", 0);
        }
        writer.end(open);
    }
    writer.end(fast);
    let executor = writer.begin_document("queryExecutor");
    writer.long("scanned", read(&metrics.keys_examined));
    writer.long("scannedObjects", read(&metrics.documents_examined));
    writer.end(executor);
    let ttl = writer.begin_document("ttl");
    writer.long("deletedDocuments", read(&service.expiry.documents_deleted));
    writer.long("passes", read(&service.expiry.passes));
    writer.end(ttl);
}

fn commands(metrics: &Metrics, writer: &mut Writer) {
    let open = writer.begin_document("commands");
    writer.long("<UNKNOWN>", read(&metrics.unknown_commands));
    for runs in &metrics.runs {
        let one = writer.begin_document(runs.command);
        writer.long("failed", read(&runs.failed));
        writer.long("total", read(&runs.total));
        writer.end(one);
    }
    writer.end(open);
}
