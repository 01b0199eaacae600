//! Queues by hand: `curl -T job.txt server/q/jobs`.

use axum::Json as Answer;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use queue::parcel::Parcel;
use queue::{LARGE_BODY_BYTES_MAX, Mode, Settings};
use serde::Deserialize;
use tenants::Scope;
use utoipa::IntoParams;

use super::define::make_usual;
use super::receive::{RECEIVE_MAX, ReceiveAsk, Received, receive_from};
use super::send::{MessageSent, packed, send_one, too_large};
use super::settings::WAIT_SECONDS_MAX;
use super::{check_name, find};
use crate::app::EdgeState;
use crate::aside::by_bytes;
use crate::auth::Caller;
use crate::extract::{Idempotency, Path, Query, RawBody};
use crate::problem::{Problem, ProblemKind};
use crate::queues::parcel::body_from_bytes;
use crate::queues::service;
use crate::route::{Routes, doc};
use crate::telemetry::trace;

/// Bytes of a body: nothing is escaped here.
const BYTES_MAX: usize = 16 << 20;
const _: () = assert!(BYTES_MAX as u64 == LARGE_BODY_BYTES_MAX);

/// Its part of the table.
pub(super) fn routes(table: Routes) -> Routes {
    table
        .put(
            "/q/{queue}",
            "curl.put",
            put,
            doc("Send the body as a message")
                .text(
                    "Text stays text, other bytes come back in base64. A caller with the scope \
                    `admin` makes the queue by this when there is none.",
                )
                .scope("produce")
                .idempotent()
                .example("hello")
                .body_bytes_max(BYTES_MAX)
                .gives::<MessageSent>(202, "It is in the queue, and stays")
                .problems(&[
                    ProblemKind::NotFound,
                    ProblemKind::PayloadTooLarge,
                    ProblemKind::QuotaExceeded,
                ]),
        )
        .get(
            "/q/{queue}",
            "curl.get",
            get,
            doc("Receive messages")
                .text("They are leased: nobody else gets them for as long as the queue says.")
                .without_head()
                .scope("consume")
                .query::<GetQuery>()
                .gives::<Received>(200, "Perhaps none")
                .problems(&[ProblemKind::NotFound, ProblemKind::QuotaExceeded]),
        )
        .delete(
            "/q/{queue}/{receiptHandle}",
            "curl.delete",
            super::settle::ack,
            doc("The work is done")
                .scope("consume")
                .gives_nothing(204, "The message is gone")
                .problems(&[ProblemKind::NotFound, ProblemKind::Conflict]),
        )
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct GetQuery {
    /// Messages, 1 to 100; 1 when not given.
    n: Option<u16>,
    /// Seconds to wait for some, 0 to 20.
    wait: Option<u64>,
}

impl GetQuery {
    /// As the query calls them: a receive has other names for the same.
    fn check(&self) -> Result<(), Problem> {
        let bounds = [
            ("n", self.n.map(u64::from), 1, RECEIVE_MAX.into()),
            ("wait", self.wait, 0, WAIT_SECONDS_MAX),
        ];
        for (name, value, from, to) in bounds {
            if value.is_some_and(|value| !(from..=to).contains(&value)) {
                let detail = format!("`{name}` in the query: it must be from {from} to {to}");
                return Err(ProblemKind::InvalidParameter.because(detail));
            }
        }
        Ok(())
    }
}

pub(super) async fn put(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    idempotency: Idempotency,
    RawBody(body): RawBody,
) -> Result<(StatusCode, Answer<MessageSent>), Problem> {
    check_name(&name)?;
    let (bytes, tenant, trace_id) = (body.len(), caller.tenant, trace::id_of(&headers));
    let hashed = body.clone();
    let key = by_bytes(bytes, move || idempotency.with(tenant, &hashed)).await;
    let there = service::find(&edge, tenant, &name).await?;
    let settings = match there {
        Some(there) => there.settings,
        // What was sent, however large, is answered again, and needs no queue for that.
        None if edge.node.is_answered(queue::place(tenant, &name), key).await? => {
            Settings { max_body_bytes: LARGE_BODY_BYTES_MAX, ..Settings::usual(Mode::Standard) }
        }
        None => {
            if caller.scopes.opens(Scope::Admin) {
                make_usual(&edge, &caller, &name).await?;
            }
            find(&edge, &caller, &name).await?.settings
        }
    };
    let per_second = settings.max_publish_per_second;
    let pack = move || {
        let parcel = Parcel::new(body_from_bytes(&body)).traced(trace_id);
        packed(&settings, parcel, too_large)
    };
    let message = by_bytes(bytes, pack).await?;
    send_one(&edge, &caller, (&name, per_second), key, message).await
}

pub(super) async fn get(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<GetQuery>,
) -> Result<Received, Problem> {
    query.check()?;
    let ask = ReceiveAsk::new(query.n, query.wait);
    receive_from(&edge, &caller, name, &ask).await
}
