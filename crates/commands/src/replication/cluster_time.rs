//! `$clusterTime`: what a reply says of the cluster's time, and whether a client's is followed.
//!
//! Always true: where users are asked for nobody moves a clock but by a time that a member of the set has signed, or with
//! the action `advanceClusterTime`; a time that is known already is not looked at.

use crate::context::Context;
use auth::{Action, TimeSignature};
use bson::Timestamp;
use dispatch::arguments::SeenTime;
use dispatch::writer::Writer;
use errors::Result;
use serverstate::{ServerState, Signing};

/// Writes `$clusterTime` and `operationTime`, on a member that has a configuration.
pub(crate) fn write(service: &ServerState, reply: &mut Writer) {
    if !service.replication.keeps_time() {
        return;
    }
    let now = service.replication.clock.now();
    if now.time == 0 {
        // A member that has seen no commit of its set knows no time.
        return;
    }
    match service.sign_time(now) {
        // The hash is zeros, as everybody's who has no keys.
        Signing::Unsigned => write_cluster_time(reply, now, &TimeSignature::NONE),
        Signing::Signed(signature) => write_cluster_time(reply, now, &signature),
        Signing::Unable => {}
    }
    reply.timestamp("operationTime", now);
}

fn write_cluster_time(reply: &mut Writer, time: Timestamp, signature: &TimeSignature) {
    let document = reply.begin_document("$clusterTime");
    reply.timestamp("clusterTime", time);
    let open = reply.begin_document("signature");
    reply.binary("hash", &signature.hash);
    reply.i64("keyId", signature.key_id);
    reply.end(open);
    reply.end(document);
}

/// Follows the time that a client has seen, where it may be followed.
pub(crate) fn follow(context: &Context<'_>, seen: &SeenTime<'_>) -> Result<()> {
    let (service, admitted) = (context.service, &context.admitted);
    let clock = &service.replication.clock;
    if admitted.is_access_control_on {
        let now = clock.now();
        if (seen.time.time, seen.time.increment) <= (now.time, now.increment) {
            return Ok(());
        }
        if !admitted.may_cluster(Action::AdvanceClusterTime) && !service.check_time(seen)? {
            return Ok(());
        }
    }
    clock.advance(seen.time)
}
