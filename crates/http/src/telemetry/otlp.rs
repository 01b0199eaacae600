//! Spans to an OpenTelemetry collector: OTLP over HTTP, as JSON.
//!
//! Written by hand because it is one small POST: the official exporter would bring a second HTTP
//! client and a protobuf stack. Spans wait in a bounded queue; when it is full they are dropped
//! and counted, never waited for.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use metrics::counter;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::trace::TraceContext;

const QUEUE_SPANS_MAX: usize = 8192;
const BATCH_SPANS_MAX: usize = 512;
const BATCH_WAIT: Duration = Duration::from_secs(1);
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Where spans go.
#[derive(Clone, Debug)]
pub struct OtlpOptions {
    target: Target,
    sample: f64,
}

impl OtlpOptions {
    /// To a collector's base address, `http://host:4318`: spans go to `/v1/traces` below it.
    /// `sample` is the share of traces that begin here and are recorded, from 0 to 1; traces that
    /// come with the sampled flag always are.
    ///
    /// # Errors
    /// [`OtlpError`] when the address is not one.
    pub fn new(url: &str, sample: f64) -> Result<OtlpOptions, OtlpError> {
        let target = target(url).ok_or_else(|| OtlpError::Url { url: url.to_owned() })?;
        Ok(OtlpOptions { target, sample })
    }
}

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The address is not one.
    #[error("{url} is not an address of the form http://host:port")]
    Url {
        /// It.
        url: String,
    },
}

/// One request, as a span.
#[derive(Clone, Debug)]
pub struct Span {
    /// Its trace.
    pub trace: TraceContext,
    /// The operation.
    pub name: &'static str,
    /// The method.
    pub method: Method,
    /// The path with its parameters' names.
    pub route: &'static str,
    /// What was answered.
    pub status: u16,
    /// When it began.
    pub began: SystemTime,
    /// How long it took.
    pub took: Duration,
}

/// The near end of the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tracer {
    queue: mpsc::Sender<Span>,
    sample: f64,
}

impl Tracer {
    /// Starts exporting on the current runtime. It ends, after a last batch, when every clone of
    /// the tracer is gone.
    #[must_use]
    pub fn start(options: OtlpOptions) -> Tracer {
        let (queue, spans) = mpsc::channel(QUEUE_SPANS_MAX);
        tokio::spawn(export(spans, options.target));
        Tracer { queue, sample: options.sample }
    }

    /// Whether a trace that begins here is recorded.
    pub(crate) fn samples(&self) -> bool {
        let share = (super::trace::random() >> 11) as f64 / (1_u64 << 53) as f64;
        share < self.sample
    }

    /// Queues a span, or drops it.
    pub(crate) fn record(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            counter!("otlp_spans_dropped_total").increment(1);
        }
    }
}

#[derive(Clone, Debug)]
struct Target {
    host: String,
    port: u16,
    path: String,
}

fn target(url: &str) -> Option<Target> {
    let uri: Uri = url.parse().ok()?;
    if uri.scheme_str() != Some("http") || uri.query().is_some() {
        return None;
    }
    let base = uri.path().trim_end_matches('/');
    let path =
        if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") };
    Some(Target { host: uri.host()?.to_owned(), port: uri.port_u16().unwrap_or(4318), path })
}

async fn export(mut spans: mpsc::Receiver<Span>, target: Target) {
    let mut connection = None;
    let mut batch = Vec::with_capacity(BATCH_SPANS_MAX);
    while let Some(first) = spans.recv().await {
        batch.push(first);
        let deadline = Instant::now() + BATCH_WAIT;
        while batch.len() < BATCH_SPANS_MAX {
            match timeout_at(deadline, spans.recv()).await {
                Ok(Some(span)) => batch.push(span),
                Ok(None) | Err(_) => break,
            }
        }
        let count = batch.len() as u64;
        let body = document(&batch);
        batch.clear();
        let sent = timeout(SEND_TIMEOUT, send(&mut connection, &target, body)).await;
        let problem = match sent {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error,
            Err(_) => "it does not answer".into(),
        };
        connection = None;
        counter!("otlp_spans_dropped_total").increment(count);
        tracing::warn!(collector = %target.host, %problem, count, "spans were not exported");
    }
}

type Error = Box<dyn std::error::Error + Send + Sync>;
type Connection = SendRequest<Full<Bytes>>;

async fn send(slot: &mut Option<Connection>, target: &Target, body: Bytes) -> Result<(), Error> {
    let mut connection = match slot.take() {
        Some(open) if !open.is_closed() => open,
        _ => connect(target).await?,
    };
    connection.ready().await?;
    let request = Request::post(&target.path)
        .header(HOST, format!("{}:{}", target.host, target.port))
        .header(CONTENT_TYPE, "application/json")
        .header(CONTENT_LENGTH, body.len())
        .body(Full::new(body))?;
    let answer = connection.send_request(request).await?;
    let status = answer.status();
    answer.into_body().collect().await?;
    *slot = Some(connection);
    if status.is_success() { Ok(()) } else { Err(format!("it answers {status}").into()) }
}

async fn connect(target: &Target) -> Result<Connection, Error> {
    let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

fn document(spans: &[Span]) -> Bytes {
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let document = json!({"resourceSpans": [{
        "resource": {"attributes": [
            attribute("service.name", "stampede"),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
        ]},
        "scopeSpans": [{"scope": {"name": "http-edge"}, "spans": spans}],
    }]});
    Bytes::from(document.to_string())
}

fn span(span: &Span) -> Value {
    const KIND_SERVER: u8 = 2;
    const STATUS_ERROR: u8 = 2;
    let began = span.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut value = json!({
        "traceId": span.trace.to_string(),
        "spanId": format!("{:016x}", span.trace.span_id),
        "name": span.name,
        "kind": KIND_SERVER,
        "startTimeUnixNano": began.as_nanos().to_string(),
        "endTimeUnixNano": (began + span.took).as_nanos().to_string(),
        "attributes": [
            attribute("http.request.method", span.method.as_str()),
            attribute("http.route", span.route),
            {"key": "http.response.status_code", "value": {"intValue": span.status.to_string()}},
        ],
    });
    if let Some(parent) = span.trace.parent {
        value["parentSpanId"] = format!("{parent:016x}").into();
    }
    if span.status >= 500 {
        value["status"] = json!({"code": STATUS_ERROR});
    }
    value
}

fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}
