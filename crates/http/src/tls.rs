//! Certificates: read from PEM files, and read again on SIGHUP.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::problem::ProblemKind;
use crate::server::raw_problem;

/// The first byte of a TLS record that begins a handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file of the certificates cannot be read as PEM.
    #[error("{path}: {source}")]
    Certificates {
        /// Which.
        path: PathBuf,
        /// Why.
        source: pem::Error,
    },
    /// The file of the key cannot be, or has none.
    #[error("{path}: {source}")]
    Key {
        /// Which.
        path: PathBuf,
        /// Why.
        source: pem::Error,
    },
    /// A file holds no key.
    #[error("{path}: there is no private key in it")]
    NoKey {
        /// Which.
        path: PathBuf,
    },
    /// A file holds no certificate.
    #[error("{path}: there is no certificate in it")]
    Empty {
        /// Which.
        path: PathBuf,
    },
    /// Certificate and key do not go together, or are of a kind that is not supported.
    #[error("certificate and key: {0}")]
    Rustls(#[from] rustls::Error),
}

/// A certificate with its key, and the files they come from.
pub struct Tls {
    certificates: PathBuf,
    key: PathBuf,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads a chain of certificates and its private key from PEM files.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn load(certificates: PathBuf, key: PathBuf) -> Result<Tls, TlsError> {
        let config = RwLock::new(Arc::new(read(&certificates, &key)?));
        Ok(Tls { certificates, key, config })
    }

    /// Reads the files again. Connections that exist keep what they have.
    ///
    /// # Errors
    /// [`TlsError`]; what was there before stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = Arc::new(read(&self.certificates, &self.key)?);
        *self.config.write() = config;
        Ok(())
    }

    pub(crate) async fn reload_on_hangup(self: Arc<Tls>) {
        use tokio::signal::unix::{SignalKind, signal};
        let mut hangup = match signal(SignalKind::hangup()) {
            Ok(hangup) => hangup,
            Err(error) => {
                tracing::warn!(%error, "certificates will not be read again on SIGHUP");
                return;
            }
        };
        while hangup.recv().await.is_some() {
            match self.reload() {
                Ok(()) => tracing::info!("certificates were read again"),
                Err(error) => tracing::error!(%error, "the old certificates stay in use"),
            }
        }
    }

    /// Goes through the handshake. Someone who speaks plain HTTP is told so.
    pub(crate) async fn accept(&self, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0] != TLS_HANDSHAKE {
            if first[0].is_ascii_uppercase() {
                let problem = ProblemKind::BadRequest.because("this port speaks HTTPS, not HTTP");
                stream.write_all(&raw_problem(&problem)).await?;
                stream.shutdown().await?;
                // Unread bytes would reset the connection and lose the answer.
                let mut rest = [0; 4096];
                for _ in 0..16 {
                    if tokio::io::AsyncReadExt::read(&mut stream, &mut rest).await? == 0 {
                        break;
                    }
                }
            }
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a TLS handshake"));
        }
        let config = self.config.read().clone();
        TlsAcceptor::from(config).accept(stream).await
    }
}

fn read(certificates: &PathBuf, key: &PathBuf) -> Result<ServerConfig, TlsError> {
    let chain = CertificateDer::pem_file_iter(certificates)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| TlsError::Certificates { path: certificates.clone(), source })?;
    if chain.is_empty() {
        return Err(TlsError::Empty { path: certificates.clone() });
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|source| match source {
        pem::Error::NoItemsFound => TlsError::NoKey { path: key.clone() },
        source => TlsError::Key { path: key.clone(), source },
    })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
