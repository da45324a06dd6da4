//! Restrictions: from which addresses, and over which of the server's, a user may log in.
//!
//! Always true: of the restrictions of one holder any one must be met, and of several holders (the user and each of
//! its roles) all; an address that is not known, such as a Unix socket's, meets none.

use crate::document::{array, refuse};
use bson::{Bson, Document};
use errors::Result;
use std::net::IpAddr;

/// A range of addresses: `10.0.0.0/8`, `::1`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

fn as_bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(four) => (u128::from(u32::from(four)) << 96, 32),
        IpAddr::V6(six) => (u128::from(six), 128),
    }
}

impl Network {
    /// Reads an address or a range.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let (_, most) = as_bits(address);
        let bits = match bits {
            Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
            None => most,
        };
        (bits <= most).then_some(Self { address, bits })
    }

    /// Whether an address lies in it. One of IPv4 in IPv6's clothes is the one of IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let ((ours, kind), (other, other_kind)) =
            (as_bits(self.address.to_canonical()), as_bits(address.to_canonical()));
        let bits = match (self.address, self.address.to_canonical()) {
            // `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
            (IpAddr::V6(_), IpAddr::V4(_)) => self.bits.saturating_sub(96),
            _ => self.bits,
        };
        let mask = if bits == 0 { 0 } else { u128::MAX << (128 - u32::from(bits)) };
        kind == other_kind && ours & mask == other & mask
    }
}

/// The two ends of a connection, where they are addresses.
#[derive(Clone, Copy, Default, Debug)]
pub struct Address {
    /// Where the client is.
    pub client: Option<IpAddr>,
    /// The address of ours that it reached.
    pub server: Option<IpAddr>,
}

/// One document of `authenticationRestrictions`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Restriction {
    client_source: Option<Vec<Network>>,
    server_address: Option<Vec<Network>>,
}

impl Restriction {
    fn parse(document: &Document) -> Result<Self> {
        let mut restriction = Self::default();
        for (name, value) in document {
            let Bson::Array(texts) = value else {
                return Err(refuse(&format!("'{name}' of authenticationRestrictions is no array")));
            };
            let networks: Option<Vec<_>> =
                texts.iter().map(|text| text.as_str().and_then(Network::parse)).collect();
            let networks = networks.filter(|networks| !networks.is_empty());
            let networks = networks.ok_or_else(|| {
                refuse(&format!("'{name}' of authenticationRestrictions has no addresses"))
            })?;
            match name.as_str() {
                "clientSource" => restriction.client_source = Some(networks),
                "serverAddress" => restriction.server_address = Some(networks),
                _ => {
                    return Err(refuse(&format!(
                        "authenticationRestrictions has no field '{name}'"
                    )));
                }
            }
        }
        if restriction == Self::default() {
            return Err(refuse("an authentication restriction restricts nothing"));
        }
        Ok(restriction)
    }

    fn is_met(&self, at: Address) -> bool {
        let met = |networks: &Option<Vec<Network>>, address: Option<IpAddr>| match networks {
            None => true,
            Some(networks) => {
                address.is_some_and(|address| networks.iter().any(|n| n.contains(address)))
            }
        };
        met(&self.client_source, at.client) && met(&self.server_address, at.server)
    }
}

/// The restrictions of one user or role; none restrict nothing.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Restrictions(Vec<Restriction>);

impl Restrictions {
    /// Reads the field `authenticationRestrictions` of a document.
    pub fn parse(document: &Document) -> Result<Self> {
        array(document, "authenticationRestrictions")?
            .iter()
            .map(|one| match one {
                Bson::Document(one) => Restriction::parse(one),
                _ => Err(refuse("an authentication restriction is no document")),
            })
            .collect::<Result<Vec<_>>>()
            .map(Self)
    }

    /// Whether they let somebody in from there.
    pub fn are_met(&self, at: Address) -> bool {
        self.0.is_empty() || self.0.iter().any(|restriction| restriction.is_met(at))
    }
}

/// Whether the restrictions of every holder are met.
pub fn all_met<'a>(holders: impl IntoIterator<Item = &'a Restrictions>, at: Address) -> bool {
    holders.into_iter().all(|restrictions| restrictions.are_met(at))
}

#[cfg(test)]
mod tests {
    use super::{Address, Network, Restrictions, all_met};
    use bson::doc;

    #[test]
    fn networks_hold_their_addresses() {
        for (network, address, holds) in [
            ("10.0.0.0/8", "10.255.1.2", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.1.1", true),
            ("::ffff:10.0.0.0/104", "10.1.1.1", true),
            ("::ffff:10.0.0.0/104", "11.1.1.1", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "fe80::1", true),
            ("fe80::/10", "fe80::1", true),
            ("fe80::/10", "fec0::1", false),
            ("192.168.1.7/24", "192.168.1.200", true),
        ] {
            let network = Network::parse(network).expect(network);
            assert_eq!(
                network.contains(address.parse().expect(address)),
                holds,
                "{network:?} {address}"
            );
        }
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "a", "10.0.0.0/+8", "10.0.0.0/"] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }

    #[test]
    fn any_of_one_holder_and_all_of_several() {
        let parse = |restrictions| {
            Restrictions::parse(&doc! { "authenticationRestrictions": restrictions }).expect("fine")
        };
        let at = |client: &str, server: &str| Address {
            client: client.parse().ok(),
            server: server.parse().ok(),
        };
        let user = parse(bson::bson!([
            { "clientSource": ["10.0.0.0/8"], "serverAddress": ["1.1.1.1"] },
            { "clientSource": ["127.0.0.1"] },
        ]));
        let role = parse(bson::bson!([{ "serverAddress": ["1.1.1.1", "2.2.2.2"] }]));
        assert!(user.are_met(at("10.1.1.1", "1.1.1.1")));
        assert!(!user.are_met(at("10.1.1.1", "2.2.2.2")));
        assert!(user.are_met(at("127.0.0.1", "9.9.9.9")));
        assert!(!user.are_met(Address::default()));
        assert!(Restrictions::default().are_met(Address::default()));
        assert!(all_met([&user, &role], at("127.0.0.1", "2.2.2.2")));
        assert!(!all_met([&user, &role], at("127.0.0.1", "9.9.9.9")));
    }

    #[test]
    fn what_restricts_nothing_is_refused() {
        for bad in [
            bson::bson!([{}]),
            bson::bson!([{ "clientSource": [] }]),
            bson::bson!([{ "clientSource": "10.0.0.1" }]),
            bson::bson!([{ "clientSource": ["here"] }]),
            bson::bson!([{ "from": ["10.0.0.1"] }]),
            bson::bson!([1]),
            bson::bson!(1),
        ] {
            assert!(Restrictions::parse(&doc! { "authenticationRestrictions": bad }).is_err());
        }
    }
}
