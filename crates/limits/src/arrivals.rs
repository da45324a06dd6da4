//! How many connections may come, and how fast, whoever they are of.
//!
//! Always true: these are numbers alone; whoever accepts connections holds them to these.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The limits. They can be set while the server runs.
#[derive(Debug)]
pub struct Arrivals {
    /// Connections from one address that are open at once (`maxConnectionsPerIP`); 0: any number.
    pub connections_per_address: AtomicU64,
    /// Whether they are held to a rate (`ingressConnectionEstablishmentRateLimiterEnabled`).
    pub is_rate_limited: AtomicBool,
    /// Connections a second (`ingressConnectionEstablishmentRatePerSec`).
    pub per_second: AtomicU64,
    /// So many seconds' connections may come at once (`ingressConnectionEstablishmentBurstCapacitySecs`).
    pub burst_seconds: AtomicU64,
    /// Beyond that so many wait for their turn, and others are closed (`ingressConnectionEstablishmentMaxQueueDepth`).
    pub queue_depth: AtomicU64,
}

impl Default for Arrivals {
    fn default() -> Self {
        let any = || AtomicU64::new(i32::MAX as u64);
        Self {
            connections_per_address: AtomicU64::new(0),
            is_rate_limited: AtomicBool::new(false),
            per_second: any(),
            burst_seconds: any(),
            queue_depth: AtomicU64::new(0),
        }
    }
}

impl Arrivals {
    /// The rate and what may come at once, where there is one.
    pub fn rate(&self) -> Option<(u64, u64)> {
        let per_second = self.per_second.load(Ordering::Relaxed);
        let at_once = per_second.saturating_mul(self.burst_seconds.load(Ordering::Relaxed));
        self.is_rate_limited.load(Ordering::Relaxed).then_some((per_second, at_once.max(1)))
    }
}
