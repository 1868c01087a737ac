//! Lists of networks, as settings hold them.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// A list of networks: separated by commas, each `address/bits` or one address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Networks(Vec<IpNet>);

/// Something in a list is no network.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no network, such as 10.0.0.0/8, and no address")]
pub struct NoNetwork(String);

impl Networks {
    /// This machine.
    #[must_use]
    pub fn loopback() -> Self {
        Self(vec![
            IpNet::new_assert([127, 0, 0, 0].into(), 8),
            IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1_u16]).into(),
        ])
    }

    /// Whether `address` is in one of them. An IPv4 address that is written as one of IPv6
    /// (`::ffff:10.0.0.1`) is what it stands for.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

impl FromStr for Networks {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let items = text.split(',').map(str::trim).filter(|i| !i.is_empty());
        let networks = items.map(|item| {
            let address = || item.parse::<IpAddr>().map(|a| a.to_canonical().into());
            let network = item.parse::<IpNet>().or_else(|_| address());
            network.map_err(|_| NoNetwork(item.to_owned()))
        });
        networks.collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_addresses() {
        let networks: Networks = "10.0.0.0/8, 192.0.2.1,2001:db8::/32,".parse().unwrap();
        for inside in ["10.9.8.7", "192.0.2.1", "2001:db8::5", "::ffff:10.0.0.1"] {
            assert!(networks.contains(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["11.0.0.0", "192.0.2.2", "2001:db9::", "::ffff:11.0.0.1"] {
            assert!(!networks.contains(outside.parse().unwrap()), "{outside}");
        }
        assert!(!Networks::default().contains([0, 0, 0, 0].into()));
    }

    #[test]
    fn what_is_no_network_is_named() {
        let error = "10.0.0.0/8,example.org".parse::<Networks>().unwrap_err();
        assert!(error.to_string().contains("`example.org`"), "{error}");
        assert!("10.0.0.0/33".parse::<Networks>().is_err());
    }

    #[test]
    fn this_machine_is_known_by_all_its_addresses() {
        let loopback = Networks::loopback();
        for inside in ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"] {
            assert!(loopback.contains(inside.parse().unwrap()), "{inside}");
        }
        assert!(!loopback.contains("128.0.0.1".parse().unwrap()));
    }
}
