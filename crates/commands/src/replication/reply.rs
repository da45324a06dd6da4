//! What a member lays beside an error of its role: the version of the topology that the client ought to know by then.

use dispatch::writer::Writer;
use errors::Code;
use serverstate::ServerState;
use serverstate::replication::Replication;
use std::sync::atomic::Ordering;

/// Writes `topologyVersion` as `hello` shows it.
pub(crate) fn write_topology(service: &ServerState, reply: &mut Writer, counter: i64) {
    let topology = reply.begin_document("topologyVersion");
    reply.object_id("processId", service.process_id);
    reply.i64("counter", counter);
    reply.end(topology);
}

/// Writes `topologyVersion` beside an error that tells of a change of role, so that a client who knows
/// of that change already takes the error for an old one.
pub(crate) fn write_topology_of_error(service: &ServerState, reply: &mut Writer, code: Code) {
    let of_role = matches!(
        code,
        Code::NOT_WRITABLE_PRIMARY
            | Code::NOT_PRIMARY_NO_SECONDARY_OK
            | Code::NOT_PRIMARY_OR_SECONDARY
            | Code::PRIMARY_STEPPED_DOWN
            | Code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE
    );
    if of_role && service.replication.is_member() {
        // A commit fails where the member loses the lead, and those above hear of that a moment later. With the version
        // of before, a driver would take the error for an old one, and spend its only other try here.
        if service.takes_writes()
            && let Some(membership) = service.replication.membership()
        {
            membership.wait_until_told();
        }
        write_topology(service, reply, topology_counter(&service.replication));
    }
}

/// The version of the topology that `hello` shows.
pub(crate) fn topology_counter(replication: &Replication) -> i64 {
    replication.topology.load(Ordering::Acquire) as i64
}
