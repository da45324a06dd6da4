//! What a member lays beside every reply: the cluster's time.

use super::Replication;
use crate::service::Service;
use crate::writer::Writer;
use std::sync::atomic::Ordering;

/// Writes `$clusterTime` and `operationTime`, on a member that has a configuration.
pub(crate) fn write_times(service: &Service, reply: &mut Writer) {
    if !service.replication.keeps_time() {
        return;
    }
    let now = service.replication.clock.now();
    let time = reply.begin_document("$clusterTime");
    reply.timestamp("clusterTime", now);
    let signature = reply.begin_document("signature");
    // Without keys times are not signed: the hash is zeros, as everybody's without them.
    reply.binary("hash", &[0; 20]);
    reply.i64("keyId", 0);
    reply.end(signature);
    reply.end(time);
    reply.timestamp("operationTime", now);
}

/// The version of the topology that `hello` shows.
pub(crate) fn topology_counter(replication: &Replication) -> i64 {
    replication.topology.load(Ordering::Acquire) as i64
}
