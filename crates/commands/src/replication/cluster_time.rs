//! `$clusterTime`: what a reply says of the cluster's time, and whether a client's is followed.
//!
//! Always true: where users are asked for nobody moves a clock but by a time that a member of the set has signed, or with
//! the action `advanceClusterTime`; a time that is known already is not looked at.

use crate::context::Context;
use auth::{Action, TimeSignature};
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
    let signature = match service.sign_time(now) {
        // The hash is zeros, as everybody's who has no keys.
        Signing::Unsigned => TimeSignature::NONE,
        Signing::Signed(signature) => signature,
        Signing::Unable => return reply.timestamp("operationTime", now),
    };
    reply.cluster_time(now, signature.hash, signature.key_id);
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
