//! Where a member is dialled instead of where the configuration says: for tests, which put something between each
//! member and each other one.
//!
//! Always true: names are the configuration's everywhere else, in certificates too.

use crate::address::{HostAndPort, NoHostAndPort};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Addresses to dial, by those of the configuration. What is not in it is dialled as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressMap(BTreeMap<HostAndPort, HostAndPort>);

/// A text that is no map of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAddressMap {
    /// One of the addresses is none.
    #[error(transparent)]
    Address(#[from] NoHostAndPort),
    /// A part is no pair.
    #[error("'{0}' is no host:port=host:port")]
    Pair(String),
    /// Which of the two would be dialled?
    #[error("{0} is there twice")]
    Twice(HostAndPort),
}

impl AddressMap {
    /// What is dialled for an address.
    pub(crate) fn dialled<'a>(&'a self, address: &'a HostAndPort) -> &'a HostAndPort {
        self.0.get(address).unwrap_or(address)
    }
}

impl FromStr for AddressMap {
    type Err = NoAddressMap;

    /// `host:port=host:port,…`; nothing is an empty map.
    fn from_str(text: &str) -> Result<Self, NoAddressMap> {
        let mut map = BTreeMap::new();
        for pair in text.split(',').filter(|_| !text.is_empty()) {
            let wrong = || NoAddressMap::Pair(pair.chars().take(300).collect());
            let (from, to) = pair.split_once('=').ok_or_else(wrong)?;
            let from: HostAndPort = from.parse()?;
            if map.insert(from.clone(), to.parse()?).is_some() {
                return Err(NoAddressMap::Twice(from));
            }
        }
        Ok(Self(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_map_is_dialled_elsewhere() {
        let address = |text: &str| text.parse::<HostAndPort>().unwrap();
        let map: AddressMap = "a:1=b:2,[::1]:3=127.0.0.1:4".parse().unwrap();
        assert_eq!(map.dialled(&address("a:1")), &address("b:2"));
        assert_eq!(map.dialled(&address("[::1]:3")), &address("127.0.0.1:4"));
        assert_eq!(
            map.dialled(&address("b:2")),
            &address("b:2"),
            "what is dialled is not looked up again"
        );
        assert_eq!("".parse(), Ok(AddressMap::default()));
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for text in ["a:1", "a:1=", "=a:1", "a=b:1", "a:1=b:2,", "a:1=b:2,a:1=c:3", "a:1=b:2=c:3"] {
            assert!(text.parse::<AddressMap>().is_err(), "{text}");
        }
    }
}
