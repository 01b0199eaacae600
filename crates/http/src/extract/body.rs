//! Bodies: bounded in size and in time, JSON or raw.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, OptionalFromRequest, Request};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body_util::BodyExt;
use serde::de::{DeserializeOwned, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::time::{Instant, timeout_at};

use super::words;
use crate::app::Ctx;
use crate::aside::by_bytes;
use crate::problem::{Problem, ProblemKind};
use crate::room::{Taken, keep};

/// By which the room of a body grows.
const ROOM_STEP_BYTES: usize = 1 << 20;

/// A JSON body, and the bytes it was read from.
///
/// The type should be `#[serde(deny_unknown_fields)]`: a field that is misspelt is refused, not
/// dropped. `Option<Json<T>>` takes requests without a body as well.
#[derive(Clone, Debug)]
pub struct Json<T> {
    /// What it says.
    pub value: T,
    /// As it came, for digests.
    pub raw: Bytes,
}

/// A body of any media type.
#[derive(Clone, Debug)]
pub struct RawBody(
    /// As it came.
    pub Bytes,
);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Ctx> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, ctx: &Ctx) -> Result<Json<T>, Problem> {
        Json::of(read_json(request, ctx).await?).await
    }
}

impl<T: DeserializeOwned + Send + 'static> Json<T> {
    async fn of(raw: Bytes) -> Result<Json<T>, Problem> {
        by_bytes(raw.len(), move || Ok(Json { value: parse(&raw)?, raw })).await
    }
}

impl<T: DeserializeOwned + Send + 'static> OptionalFromRequest<Ctx> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, ctx: &Ctx) -> Result<Option<Json<T>>, Problem> {
        if request.body().is_end_stream() {
            return Ok(None);
        }
        let (head, body) = request.into_parts();
        let raw = read(body, ctx).await?;
        if raw.is_empty() {
            return Ok(None);
        }
        require_json(&head.headers)?;
        Json::of(raw).await.map(Some)
    }
}

impl FromRequest<Ctx> for RawBody {
    type Rejection = Problem;

    async fn from_request(request: Request, ctx: &Ctx) -> Result<RawBody, Problem> {
        require_plain(request.headers())?;
        read(request.into_body(), ctx).await.map(RawBody)
    }
}

/// A field that may be left out, be `null`, or have a value; with [`given`] and a default.
pub(crate) type Given<T> = Option<Option<T>>;

/// What is there, `null` too, is given.
pub(crate) fn given<'a, D: Deserializer<'a>, T: Deserialize<'a>>(
    from: D,
) -> Result<Given<T>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// A whole number from `FROM` to `TO`. One that is not is told by these bounds, and not by those of
/// the type that holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FromTo<T, const FROM: u64, const TO: u64>(pub(crate) T);

impl<'de, T: TryFrom<u64>, const FROM: u64, const TO: u64> Deserialize<'de>
    for FromTo<T, FROM, TO>
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_u64(Bounds::<T, FROM, TO>(PhantomData)).map(FromTo)
    }
}

struct Bounds<T, const FROM: u64, const TO: u64>(PhantomData<T>);

impl<T: TryFrom<u64>, const FROM: u64, const TO: u64> Visitor<'_> for Bounds<T, FROM, TO> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {FROM} to {TO}")
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        let fits = (FROM..=TO).contains(&number).then(|| T::try_from(number).ok()).flatten();
        fits.ok_or_else(|| E::custom(format_args!("it must be from {FROM} to {TO}")))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        // What is negative is as far out as what is too large.
        self.visit_u64(u64::try_from(number).unwrap_or(u64::MAX))
    }
}

/// Reads JSON out of bytes, or says where it goes wrong.
///
/// # Errors
/// `invalid-body`.
pub fn parse<T: DeserializeOwned>(raw: &[u8]) -> Result<T, Problem> {
    // serde would read the fields of a struct from an array, too.
    if raw.trim_ascii_start().first() == Some(&b'[') {
        return Err(ProblemKind::InvalidBody.because("the body must be an object, not an array"));
    }
    serde_json::from_slice(raw).map_err(|_| invalid::<T>(raw))
}

/// Reads once more to find the path of what was wrong: only bad bodies pay for the tracking.
#[cold]
fn invalid<T: DeserializeOwned>(raw: &[u8]) -> Problem {
    let mut json = serde_json::Deserializer::from_slice(raw);
    if raw.trim_ascii().is_empty() {
        return ProblemKind::InvalidBody.because("the body is empty; it must be a JSON object");
    }
    let detail = match serde_path_to_error::deserialize::<_, T>(&mut json) {
        Err(error) => words::of_body(error.path(), error.inner()),
        Ok(_) => "something follows the end of the JSON".to_owned(),
    };
    ProblemKind::InvalidBody.because(detail)
}

/// Reads a body that says it is JSON, for [`parse`].
///
/// # Errors
/// `unsupported-media-type`, and those of [`read`].
pub async fn read_json(request: Request, ctx: &Ctx) -> Result<Bytes, Problem> {
    require_json(request.headers())?;
    read(request.into_body(), ctx).await
}

fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    require_plain(headers)?;
    let given = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let essence = given.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    if essence.eq_ignore_ascii_case(b"application/json") {
        return Ok(());
    }
    let given = if given.is_empty() { "nothing".into() } else { String::from_utf8_lossy(given) };
    let detail = format!("the body must be sent as application/json; Content-Type says {given}");
    Err(ProblemKind::UnsupportedMediaType.because(detail))
}

fn require_plain(headers: &HeaderMap) -> Result<(), Problem> {
    match headers.get(CONTENT_ENCODING) {
        Some(coding) if !coding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            Err(ProblemKind::UnsupportedMediaType.because("compressed bodies are not taken"))
        }
        _ => Ok(()),
    }
}

/// Reads a body within the limits of its route.
///
/// # Errors
/// `payload-too-large`, `timeout`, `overloaded` when too many large bodies are in memory, or
/// `bad-request` when the client breaks off.
pub async fn read(mut body: Body, ctx: &Ctx) -> Result<Bytes, Problem> {
    let limits = &ctx.edge().limits;
    let bytes_max = ctx.route().doc.body_bytes_max.unwrap_or(limits.body_bytes_max);
    // The least it will be: what Content-Length says, or what has arrived.
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large(bytes_max));
    }
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(bytes_max);
    let mut room = None;
    let mut deadlines = Deadlines { whole: None, stall: limits.body_stall_timeout };
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(piece) = deadlines.next(&mut body, limits.body_timeout).await? {
        let len = first.len() + whole.len() + piece.len();
        if len > bytes_max {
            return Err(too_large(bytes_max));
        }
        if len > limits.body_bytes_max {
            make_room(ctx, &mut room, len.next_multiple_of(ROOM_STEP_BYTES).min(bytes_max))?;
        }
        if first.is_empty() && whole.is_empty() {
            first = piece;
        } else {
            if whole.is_empty() {
                // What is larger gets memory as it arrives.
                whole.reserve(expected.min(limits.body_bytes_max).max(len));
                whole.extend_from_slice(&std::mem::take(&mut first));
            }
            whole.extend_from_slice(&piece);
        }
    }
    // Nearly every body is one piece, and not copied.
    let whole = if whole.is_empty() { first } else { whole.freeze() };
    if let Some(room) = &mut room {
        room.shrink(whole.len());
    }
    Ok(keep(whole, room))
}

/// Room for what has arrived, not for what is announced: that costs its sender nothing.
fn make_room(ctx: &Ctx, room: &mut Option<Taken>, bytes: usize) -> Result<(), Problem> {
    let (large, limits) = (&ctx.edge().large, &ctx.edge().limits);
    // Nobody is unknown here but who needs no key, in `--dev`.
    let tenant = ctx.tenant().unwrap_or(tenants::DEFAULT_TENANT);
    match room {
        None => large.take(limits, tenant, bytes).map(|taken| *room = Some(taken)),
        Some(taken) => large.grow(limits, taken, bytes),
    }
    .map_err(Problem::closing)
}

struct Deadlines {
    whole: Option<Instant>,
    stall: Duration,
}

impl Deadlines {
    async fn next(&mut self, body: &mut Body, all: Duration) -> Result<Option<Bytes>, Problem> {
        loop {
            if body.is_end_stream() {
                return Ok(None);
            }
            let now = Instant::now();
            let deadline = (*self.whole.get_or_insert(now + all)).min(now + self.stall);
            match timeout_at(deadline, body.frame()).await {
                Err(_) => {
                    let detail = "the body did not arrive in time";
                    return Err(ProblemKind::Timeout.because(detail).closing());
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => {
                    let detail = format!("the body breaks off: {}", root(&error));
                    return Err(ProblemKind::BadRequest.because(detail).closing());
                }
                Ok(Some(Ok(frame))) => {
                    if let Ok(piece) = frame.into_data() {
                        return Ok(Some(piece));
                    } // else trailers, which mean nothing here
                }
            }
        }
    }
}

fn root(error: &dyn std::error::Error) -> &dyn std::error::Error {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

fn too_large(bytes_max: usize) -> Problem {
    let detail = format!("the body must not have more than {bytes_max} bytes");
    ProblemKind::PayloadTooLarge.because(detail).with("limitBytes", bytes_max).closing()
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};

    use super::*;

    /// By which it was read.
    struct Thread(ThreadId);

    impl<'de> Deserialize<'de> for Thread {
        fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Thread, D::Error> {
            serde::de::IgnoredAny::deserialize(json).map(|_| Thread(thread::current().id()))
        }
    }

    #[tokio::test]
    async fn what_is_large_is_read_elsewhere() {
        for (bytes, is_here) in [(10, true), (1 << 20, false)] {
            let json = Bytes::from(format!("\"{}\"", "x".repeat(bytes)));
            let read = Json::<Thread>::of(json.clone()).await.expect("JSON");
            assert_eq!(read.value.0 == thread::current().id(), is_here, "{bytes} bytes");
            assert!(read.raw == json);
        }
    }
}
