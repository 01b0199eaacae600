//! Where to listen: an address, or a name that has some.

use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::IntErrorKind;
use std::str::FromStr;

use anyhow::{anyhow, bail};
use http_edge::Bound;
use serde::Deserialize;

/// `127.0.0.1:7700`, `[::1]:7700` or `localhost:7700`, as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Listen {
    Address(SocketAddr),
    Name { host: String, port: u16 },
}

impl Default for Listen {
    fn default() -> Listen {
        Listen::Address(([127, 0, 0, 1], 7700).into())
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        if let Ok(address) = text.parse() {
            return Ok(Listen::Address(address));
        }
        let wrong = || format!("{text} is not like 127.0.0.1:7700, [::1]:7700 or localhost:7700");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse::<u16>().map_err(|error| match error.kind() {
            IntErrorKind::PosOverflow => format!("{text}: ports go up to {}", u16::MAX),
            _ => wrong(),
        })?;
        // Anything else is no name, and would be looked up for seconds.
        let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if host.is_empty() || !host.bytes().all(known) {
            return Err(wrong());
        }
        Ok(Listen::Name { host: host.to_owned(), port })
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Listen, String> {
        text.parse()
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Listen::Address(address) => address.fmt(f),
            Listen::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl Listen {
    /// The addresses it stands for, at least one: those of the fourth version first, because that is
    /// where clients look that are not told otherwise.
    pub(crate) fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let (host, port) = match self {
            Listen::Address(address) => return Ok(vec![*address]),
            Listen::Name { host, port } => (host.as_str(), *port),
        };
        let found = (host, port)
            .to_socket_addrs()
            .map_err(|error| anyhow!("--listen {self}: {host} has no address: {error}"))?;
        let mut found: Vec<_> = found.collect();
        if found.is_empty() {
            bail!("--listen {self}: {host} has no address");
        }
        found.sort_by_key(SocketAddr::is_ipv6);
        Ok(found)
    }
}

/// Takes the first of the addresses that this machine has. Nothing is made before: a port that is
/// taken leaves no folder behind.
pub(crate) fn bind(addresses: &[SocketAddr]) -> anyhow::Result<Bound> {
    let mut refused = None;
    for address in addresses {
        match http_edge::bind(*address) {
            Ok(bound) => return Ok(bound),
            Err(error) => {
                // Who asks for a port that is taken would not look for us on another address.
                let is_taken = error.kind() == ErrorKind::AddrInUse;
                let error = anyhow!("cannot listen on {address}: {error}; --listen names another");
                if is_taken {
                    return Err(error);
                }
                refused.get_or_insert(error);
            }
        }
    }
    Err(refused.unwrap_or_else(|| anyhow!("--listen names no address")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Listen, String> {
        text.parse()
    }

    #[test]
    fn an_address_or_a_name_has_a_port() {
        for address in ["127.0.0.1:7700", "[::1]:0", "0.0.0.0:80"] {
            assert!(matches!(read(address), Ok(Listen::Address(_))), "{address}");
        }
        let host = "localhost".to_owned();
        assert_eq!(read("localhost:7700"), Ok(Listen::Name { host, port: 7700 }));
        for bad in ["", "nowhere", ":7700", "localhost:", "localhost:x", "::1:7700"] {
            assert!(read(bad).is_err_and(|said| said.contains("localhost:7700")), "{bad}");
        }
        for large in ["127.0.0.1:99999", "[::1]:65536", "a:65536"] {
            assert_eq!(read(large), Err(format!("{large}: ports go up to 65535")));
        }
        assert!(read("http://localhost:7700").is_err());
    }

    #[test]
    fn localhost_is_the_loopback_address_that_clients_try_first() {
        let addresses =
            read("localhost:7").and_then(|listen| listen.addresses().map_err(|e| e.to_string()));
        let addresses = addresses.expect("every machine has it");
        assert!(addresses.iter().all(|address| address.ip().is_loopback()), "{addresses:?}");
        assert_eq!(addresses[0], SocketAddr::from(([127, 0, 0, 1], 7)));
    }

    #[test]
    fn an_address_that_the_machine_has_not_is_passed_over_and_a_taken_port_is_not() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let taken = taken.local_addr().map(|address| (taken, address)).expect("bound");
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], 0));
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let bound = bind(&[elsewhere, here]).expect("one that can be bound");
        assert!(bound.local_addr().expect("bound").ip().is_loopback());
        let said = |addresses: &[SocketAddr]| bind(addresses).expect_err("refused").to_string();
        assert!(said(&[taken.1, here]).contains("in use"));
        assert!(said(&[elsewhere]).contains("192.0.2.1"));
    }
}
