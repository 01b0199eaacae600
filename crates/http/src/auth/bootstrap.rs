//! The first start, and `--dev`.

use std::net::SocketAddr;

use kernel::{Envelope, TenantId};
use node::Node;
use tenants::{Command, NewKey, Refusal, Reply, Scopes};

use super::{KeySecret, new_key_id, now_ms};

/// Why a folder could not be given its first tenant.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The node did not take the command.
    #[error("tenant default could not be created: {0}")]
    Node(#[from] node::Refusal),
    /// The machine gave another answer than it can.
    #[error("tenant default could not be created: the machine answered {0}")]
    Answer(String),
}

/// On a folder without tenants: makes `default` and an admin key, and gives the key's secret, to
/// be shown once. `None` when `default` is there.
///
/// Both are made by one command, so a crash leaves both or neither. A crash after it and before
/// the secret is shown loses the secret; the folder then holds nothing yet, and can be deleted.
///
/// # Errors
/// [`BootstrapError`] when the node is not up to it.
pub async fn bootstrap(node: &Node) -> Result<Option<String>, BootstrapError> {
    let there =
        node.view_or_row(tenants::place(), tenants::tenant_view(tenants::DEFAULT_TENANT)).await?;
    if there.is_some() {
        return Ok(None);
    }
    let secret = KeySecret::random();
    let key = NewKey {
        id: new_key_id(now_ms()),
        hash: secret.hash(),
        name: "first".to_owned(),
        scopes: Scopes::ALL,
        expires_at_ms: None,
    };
    let envelope = Envelope {
        machine: tenants::MACHINE,
        tenant: TenantId::SYSTEM,
        idempotency: None,
        command: Command::Bootstrap(key).encode(),
    };
    let reply = node.submit(tenants::place(), envelope).await?;
    match Reply::decode(&reply) {
        Ok(Reply::Bootstrapped(_)) => Ok(Some(secret.into_text())),
        Ok(Reply::Refused(Refusal::Bootstrapped)) => Ok(None),
        other => Err(BootstrapError::Answer(format!("{other:?}"))),
    }
}

/// `--dev` was asked for on an address that others can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--dev needs no key, so it serves loopback addresses only, and {0} is not one")]
pub struct DevAddressError(pub SocketAddr);

/// Refuses `--dev` on an address that others can reach.
///
/// # Errors
/// [`DevAddressError`] when `dev` is set and the address is not a loopback address.
pub fn check_dev_address(dev: bool, listen: SocketAddr) -> Result<(), DevAddressError> {
    let is_loopback = listen.ip().to_canonical().is_loopback();
    if dev && !is_loopback { Err(DevAddressError(listen)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dev_mode_serves_loopback_addresses_only() {
        for good in ["127.0.0.1:7700", "127.9.9.9:0", "[::1]:7700", "[::ffff:127.0.0.1]:7700"] {
            let address: SocketAddr = good.parse().expect("an address");
            assert_eq!(check_dev_address(true, address), Ok(()), "{good}");
        }
        for bad in ["0.0.0.0:7700", "[::]:7700", "192.168.0.1:7700", "[::ffff:10.0.0.1]:1"] {
            let address: SocketAddr = bad.parse().expect("an address");
            assert_eq!(check_dev_address(true, address), Err(DevAddressError(address)), "{bad}");
            assert_eq!(check_dev_address(false, address), Ok(()), "{bad}");
        }
    }
}
