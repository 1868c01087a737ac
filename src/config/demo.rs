//! The command line of the demo.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;

/// How the demo is shown.
#[derive(Clone, Debug, Args)]
pub struct DemoConfig {
    /// Address of the demo, for this machine alone [default: 127.0.0.1:8080, or a free port if that
    /// is in use]
    #[arg(long, value_parser = loopback)]
    pub listen: Option<SocketAddr>,
    /// How many times as fast as people its readers read.
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    pub speed: f64,
    /// Which readers come: the same number brings the same ones.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Open no browser.
    #[arg(long)]
    pub no_open: bool,
    /// How long the lid stays closed.
    #[arg(long, hide = true, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub lid_seconds: u64,
    /// How long the tunnel is at least.
    #[arg(long, hide = true, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=120))]
    pub tunnel_seconds: u64,
}

impl DemoConfig {
    /// How long the lid stays closed.
    #[must_use]
    pub fn lid(&self) -> Duration {
        Duration::from_secs(self.lid_seconds)
    }

    /// How long the tunnel is at least.
    #[must_use]
    pub fn tunnel(&self) -> Duration {
        Duration::from_secs(self.tunnel_seconds)
    }
}

/// Its buttons kill processes: no other machine shall press them. IPv4 alone, for a
/// Content-Security-Policy knows no other addresses.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "no address".to_owned())?;
    let fine = (address.is_ipv4() && address.ip().is_loopback()).then_some(address);
    fine.ok_or_else(|| "an address of this machine alone, such as 127.0.0.1:8080".to_owned())
}

fn speed(text: &str) -> Result<f64, String> {
    let speed: Option<f64> = text.parse().ok();
    let fine = speed.filter(|speed| (0.1..=50.0).contains(speed));
    fine.ok_or_else(|| "a number from 0.1 to 50".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_is_for_this_machine() {
        assert!(loopback("127.0.0.1:0").is_ok());
        assert!(loopback("[::1]:8080").is_err());
        assert!(loopback("0.0.0.0:8080").is_err());
        assert!(loopback("192.0.2.1:8080").is_err());
        assert!(loopback("8080").is_err());
    }

    #[test]
    fn readers_read_forwards() {
        assert_eq!(speed("2"), Ok(2.0));
        for wrong in ["0", "-1", "51", "NaN", "inf", "fast"] {
            assert!(speed(wrong).is_err(), "{wrong}");
        }
    }
}
