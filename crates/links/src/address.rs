//! Where a member listens: `host:port`, as the set's configuration says it.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 4;

/// A host's name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostAndPort {
    host: String,
    port: u16,
}

/// A text that is no `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no host:port")]
pub struct NoHostAndPort(String);

impl HostAndPort {
    /// A host, without brackets, and a port.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// The name or address.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Its addresses now; asks the system's resolver, which may take long.
    pub(crate) fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let mut addresses: Vec<SocketAddr> =
            (self.host.as_str(), self.port).to_socket_addrs()?.take(MAX_ADDRESSES).collect();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        Ok(addresses)
    }
}

impl FromStr for HostAndPort {
    type Err = NoHostAndPort;

    fn from_str(text: &str) -> Result<Self, NoHostAndPort> {
        let wrong = || NoHostAndPort(text.chars().take(300).collect());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bare {
            Some(bare) => bare,
            // Which colon would be the port's?
            None if host.contains(':') => return Err(wrong()),
            None => host,
        };
        let port = port.parse().map_err(|_| wrong())?;
        if host.is_empty() || port == 0 { Err(wrong()) } else { Ok(Self::new(host, port)) }
    }
}

impl fmt::Display for HostAndPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        for text in ["a:1", "db1.example.net:27017", "127.0.0.1:65535", "[::1]:27017"] {
            assert_eq!(text.parse::<HostAndPort>().unwrap().to_string(), text);
        }
        for text in ["", "a", ":1", "a:", "a:0", "a:65536", "::1:27017", "[]:1", "a:-1"] {
            assert!(text.parse::<HostAndPort>().is_err(), "{text}");
        }
        assert!(HostAndPort::new("127.0.0.1", 1).resolve().is_ok());
    }
}
