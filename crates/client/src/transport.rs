//! Connections: one pool, HTTP/1.1, with TLS where the URL says so.
//!
//! HTTP/1.1 and not 2, because a long poll holds its connection for itself and nothing waits
//! behind it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::error::{Error, innermost};

/// No answer of the API is larger: a receive ends at 4 MiB of bodies, unless the first alone has up to
/// 16 MiB, and JSON may escape them.
const ANSWER_BYTES_MAX: usize = 128 << 20;
/// The server closes what is idle for longer; so we do it first.
const IDLE: Duration = Duration::from_secs(30);

pub(crate) type Pool = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// What came back, as far as it did.
pub(crate) enum Failed {
    /// The request never left.
    NotSent(String),
    /// It left, and no answer came.
    Cut(String),
}

/// The pool. `pem` are further roots; without TLS no certificate is looked at.
pub(crate) fn pool(connect: Duration, pem: Option<&[u8]>, tls: bool) -> Result<Pool, Error> {
    let mut http = HttpConnector::new();
    http.set_nodelay(true);
    http.set_connect_timeout(Some(connect));
    http.enforce_http(false);
    let config = tls_config(pem, tls)?;
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(connector.wrap_connector(http)))
}

fn tls_config(pem: Option<&[u8]>, tls: bool) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = pem {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let bad = |why: String| Error::Setting(format!("certificate: {why}"));
            let certificate = certificate.map_err(|error| bad(error.to_string()))?;
            roots.add(certificate).map_err(|error| bad(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(Error::Setting("certificate: there is none in what is given".to_owned()));
        }
    }
    if tls {
        // Certificates of the machine that cannot be read are no use, and no harm.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Setting(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Sends a request and reads its answer whole, within a time.
pub(crate) async fn exchange(
    pool: &Pool,
    request: Request<Full<Bytes>>,
    timeout: Duration,
) -> Result<http::Response<Bytes>, Failed> {
    let whole = async {
        let answer = pool.request(request).await.map_err(|error| {
            let why = innermost(&error);
            if error.is_connect() { Failed::NotSent(why) } else { Failed::Cut(why) }
        })?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| Failed::Cut(innermost(&*error)))?;
        Ok(http::Response::from_parts(head, body.to_bytes()))
    };
    match tokio::time::timeout(timeout, whole).await {
        Ok(outcome) => outcome,
        Err(_late) => Err(Failed::Cut(nothing_within(timeout))),
    }
}

pub(crate) fn nothing_within(time: Duration) -> String {
    format!("nothing within {} s", time.as_secs_f32())
}
