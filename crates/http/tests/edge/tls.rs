//! Encrypted connections.

use std::sync::Arc;

use http_edge::server::ServerOptions;
use http_edge::tls::Tls;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::harness::{HANG, Server, exchange};

const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// Writes a new certificate into the folder.
fn certificate(folder: &TempDir) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).expect("written");
    std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem())
        .expect("written");
    made.cert.der().clone()
}

fn load(folder: &TempDir) -> Arc<Tls> {
    let path = |name| folder.path().join(name);
    Arc::new(Tls::load(path("cert.pem"), path("key.pem")).expect("a certificate and its key"))
}

async fn start(tls: Arc<Tls>) -> Server {
    Server::start_with(|_| {}, ServerOptions { tls: Some(tls) }).await
}

async fn connect(
    server: &Server,
    trusted: &CertificateDer<'static>,
    alpn: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a certificate");
    let mut config =
        ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, server.connect().await).await
}

#[tokio::test]
async fn both_versions_of_http_are_offered() {
    let folder = tempfile::tempdir().expect("a folder");
    let trusted = certificate(&folder);
    let server = start(load(&folder)).await;
    let stream = connect(&server, &trusted, &[b"h2", b"http/1.1"]).await.expect("a handshake");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    for alpn in [&[&b"http/1.1"[..]][..], &[]] {
        let stream = connect(&server, &trusted, alpn).await.expect("a handshake");
        let answer = exchange(stream, REQUEST).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
    }
    server.stop().await;
}

/// Asks with the real curl, over HTTP/2; the status and the body.
async fn curl(server: &Server, folder: &TempDir, path: &str, body: &str) -> (String, String) {
    let sent = folder.path().join("body");
    std::fs::write(&sent, body).expect("written");
    let port = server.addr.port();
    let mut curl = tokio::process::Command::new("curl");
    curl.args(["-sS", "--http2", "-w", "\n%{http_version} %{http_code}", "--cacert"]);
    curl.arg(folder.path().join("cert.pem"));
    curl.args(["--resolve", &format!("localhost:{port}:127.0.0.1"), "--data-binary"]);
    curl.arg(format!("@{}", sent.display())).arg(format!("https://localhost:{port}{path}"));
    let output = curl.kill_on_drop(true).output();
    let output = timeout(HANG, output).await.expect("it ends").expect("curl is there");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{path} with {} bytes: {complaint}{said}", body.len());
    let (body, status) = said.rsplit_once('\n').expect("a status");
    (status.to_owned(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_gets_the_refusal_of_a_request_whose_body_nobody_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    certificate(&folder);
    let server = start(load(&folder)).await;
    for len in [10, 100_000, 2 << 20] {
        for path in ["/nope", "/healthz", "/t/things"] {
            let (status, body) = curl(&server, &folder, path, &"x".repeat(len)).await;
            let json: serde_json::Value = serde_json::from_str(&body).expect("a problem");
            assert_eq!(status, format!("2 {}", json["status"]), "{body}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn plain_http_is_told_that_it_is_wrong_here() {
    let folder = tempfile::tempdir().expect("a folder");
    let trusted = certificate(&folder);
    let server = start(load(&folder)).await;
    let detail = server.raw(REQUEST).await.problem(400, "bad-request");
    assert!(detail.contains("HTTPS"), "{detail}");
    assert_eq!(server.raw(b"\x00garbage").await.status, 0);
    assert_ne!(server.raw(b"\x16\x03\x01\x00\x05hello").await.status, 200);
    let stream = connect(&server, &trusted, &[]).await.expect("it is still alive");
    assert_eq!(exchange(stream, REQUEST).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_new_certificate_is_used_once_it_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let old = certificate(&folder);
    let tls = load(&folder);
    let server = start(tls.clone()).await;
    let new = certificate(&folder);
    assert!(connect(&server, &new, &[]).await.is_err(), "it is not read yet");
    tls.reload().expect("it can be read");
    assert!(connect(&server, &new, &[]).await.is_ok());
    assert!(connect(&server, &old, &[]).await.is_err());
    std::fs::write(folder.path().join("cert.pem"), "nonsense").expect("written");
    assert!(tls.reload().is_err());
    assert!(connect(&server, &new, &[]).await.is_ok(), "the old one stays in use");
    server.stop().await;
}

#[test]
fn unusable_files_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name| folder.path().join(name);
    let error = Tls::load(path("none.pem"), path("key.pem")).err().expect("there is no file");
    assert!(error.to_string().contains("none.pem"), "{error}");
    certificate(&folder);
    std::fs::write(path("empty.pem"), "").expect("written");
    let error = Tls::load(path("empty.pem"), path("key.pem")).err().expect("it is empty");
    assert!(error.to_string().contains("empty.pem"), "{error}");
    let other = tempfile::tempdir().expect("a folder");
    certificate(&other);
    assert!(Tls::load(path("cert.pem"), other.path().join("key.pem")).is_err(), "not its key");
}
