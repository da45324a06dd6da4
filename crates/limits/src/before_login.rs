//! What may be taken by clients that have not logged in, where they are asked to.
//!
//! Always true: these are numbers alone; whoever has the connections holds them to these.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The limits. They can be set while the server runs.
#[derive(Debug)]
pub struct BeforeLogin {
    /// Bytes of a message, as it comes and unpacked together (`preAuthMaximumMessageSizeBytes`).
    pub message_bytes: AtomicU64,
    /// Milliseconds from the connection to the first request, and from a message's first byte to its last
    /// (`preAuthTimeoutMS`).
    pub message_ms: AtomicU64,
    /// Connections on which nobody has logged in (`maxPreAuthConnections`).
    pub connections: AtomicU64,
    /// Those from one address (`maxPreAuthConnectionsPerIP`).
    pub connections_per_address: AtomicU64,
}

impl BeforeLogin {
    /// The least number of bytes that a message may be held to: a login fits.
    pub const LEAST_MESSAGE: usize = 4 << 10;

    /// How long a message may take.
    pub fn message_time(&self) -> Duration {
        Duration::from_millis(self.message_ms.load(Ordering::Relaxed))
    }
}

impl Default for BeforeLogin {
    fn default() -> Self {
        Self {
            message_bytes: AtomicU64::new(16 << 10),
            message_ms: AtomicU64::new(10_000),
            connections: AtomicU64::new(6_000),
            // The monitors of drivers never log in, and a machine may have hundreds of processes.
            connections_per_address: AtomicU64::new(1_000),
        }
    }
}

/// What counts as one address: an IPv4 address, or the 64 bits of an IPv6 network, whose owner has all addresses in it.
pub fn network_of(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits() >> 64 << 64,
    }
}

#[cfg(test)]
mod tests {
    use super::network_of;

    #[test]
    fn an_ipv6_network_is_one_address() {
        let of = |text: &str| network_of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_ne!(of("::1"), of("127.0.0.1"));
    }
}
