//! Receiving, and looking.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use queue::{PeekState, Receive};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::settings::{VISIBILITY_SECONDS_MAX, WAIT_SECONDS_MAX};
use super::shown::MessageView;
use super::{find, refused};
use crate::app::EdgeState;
use crate::auth::Caller;
use crate::extract::{Cursor, FromTo, Json, Limit, Path, Query, not_of_this_list};
use crate::problem::{Problem, ProblemKind};
use crate::queues::large::{self, Source, Whole};
use crate::queues::service;
use crate::room::{Taken, keep};
use crate::route::{Routes, doc};

/// Messages of one receive.
pub(super) const RECEIVE_MAX: u16 = 100;

/// Its part of the table.
pub(super) fn routes(table: Routes) -> Routes {
    table
        .post(
            "/v1/queues/{queue}/messages:receive",
            "messages.receive",
            receive,
            doc("Receive messages")
                .text(
                    "Leases them: nobody else gets them until the lease ends. With `waitSeconds` \
                    the answer comes as soon as there is a message, first come first served.",
                )
                .scope("consume")
                .body::<ReceiveAsk>()
                .example(r#"{"maxMessages": 10, "waitSeconds": 20}"#)
                .gives::<Received>(200, "Perhaps none")
                .problems(&[ProblemKind::NotFound, ProblemKind::QuotaExceeded]),
        )
        .get(
            "/v1/queues/{queue}/messages",
            "messages.peek",
            peek,
            doc("Look at messages without taking them")
                .scope("read")
                .query::<PeekQuery>()
                .gives::<PeekPage>(
                    200,
                    "In their order; what comes and goes meanwhile may be seen or not",
                )
                .problems(&[ProblemKind::NotFound]),
        )
}

/// How to receive.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ReceiveAsk {
    /// 1 to 100; 1 when not given.
    #[schema(value_type = Option<u16>)]
    max_messages: Option<FromTo<u16, 1, { RECEIVE_MAX as u64 }>>,
    /// 0 to 20; the queue's own when not given.
    #[schema(value_type = Option<u64>)]
    wait_seconds: Option<FromTo<u64, 0, WAIT_SECONDS_MAX>>,
    /// How long the leases last, 0 to 43200; the queue's own when not given.
    #[schema(value_type = Option<u64>)]
    visibility_timeout_seconds: Option<FromTo<u64, 0, VISIBILITY_SECONDS_MAX>>,
}

/// Messages that were received.
#[derive(ToSchema)]
pub(super) struct Received {
    messages: Vec<MessageView>,
    /// Until the answer is gone.
    #[schema(ignore)]
    room: Option<Taken>,
}

impl IntoResponse for Received {
    fn into_response(self) -> Response {
        let bytes: usize = self.messages.iter().map(MessageView::bytes).sum();
        let mut json = Vec::with_capacity(bytes + 32);
        json.extend_from_slice(b"{\"messages\":[");
        for (place, message) in self.messages.iter().enumerate() {
            if place > 0 {
                json.push(b',');
            }
            message.put(&mut json);
        }
        json.extend_from_slice(b"]}");
        let json = keep(json, self.room);
        ([(CONTENT_TYPE, "application/json")], json).into_response()
    }
}

impl ReceiveAsk {
    pub(super) fn new(max_messages: Option<u16>, wait_seconds: Option<u64>) -> ReceiveAsk {
        let (max_messages, wait_seconds) = (max_messages.map(FromTo), wait_seconds.map(FromTo));
        ReceiveAsk { max_messages, wait_seconds, visibility_timeout_seconds: None }
    }
}

/// Receives as asked, within what a receive may ask for.
pub(super) async fn receive_from(
    edge: &EdgeState,
    caller: &Caller,
    name: String,
    ask: &ReceiveAsk,
) -> Result<Received, Problem> {
    let definition = find(edge, caller, &name).await?;
    let receive = Receive {
        queue: name.clone(),
        max: ask.max_messages.map_or(1, |max| max.0),
        visibility_ms: ask.visibility_timeout_seconds.map(|seconds| seconds.0 * 1000),
    };
    let wait_ms = ask.wait_seconds.map_or(definition.settings.wait_ms, |seconds| seconds.0 * 1000);
    let wait = Duration::from_millis(wait_ms);
    let received = service::receive(edge, caller, &definition, receive, wait, None).await?;
    let leased = received.map_err(|refusal| refused(&name, refusal))?;
    let source = Source { tenant: caller.tenant, name: &name, definition: &definition };
    let Whole { messages, room } = large::handed_out(edge, source, leased).await?;
    let messages = messages.into_iter().map(MessageView::of_delivery).collect();
    Ok(Received { messages, room })
}

pub(super) async fn receive(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
    body: Option<Json<ReceiveAsk>>,
) -> Result<Received, Problem> {
    let ask = body.map(|body| body.value).unwrap_or_default();
    receive_from(&edge, &caller, name, &ask).await
}

/// Which messages to look at.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum StateName {
    /// Those that can be received.
    #[default]
    Visible,
    /// Those whose time has not come.
    Delayed,
    /// Those that somebody works on.
    Inflight,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct PeekQuery {
    /// `visible` when not given.
    #[serde(default)]
    #[param(inline)]
    state: StateName,
    #[serde(default)]
    limit: Limit,
    cursor: Option<Cursor>,
}

/// Messages that were looked at.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PeekPage {
    messages: Vec<MessageView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<Cursor>,
    /// Until the answer is gone.
    #[serde(skip)]
    #[schema(ignore)]
    room: Option<Taken>,
}

impl IntoResponse for PeekPage {
    fn into_response(self) -> Response {
        let json = serde_json::to_vec(&self).expect("views are JSON");
        let json = keep(json, self.room);
        ([(CONTENT_TYPE, "application/json")], json).into_response()
    }
}

pub(super) async fn peek(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<PeekQuery>,
) -> Result<PeekPage, Problem> {
    let definition = find(&edge, &caller, &name).await?;
    let number = definition.number;
    let state = match query.state {
        StateName::Visible => PeekState::Visible,
        StateName::Delayed => PeekState::Delayed,
        StateName::Inflight => PeekState::Leased,
    };
    let (tenant, limit) = (caller.tenant, query.limit.get());
    let rows = edge.node.rows(queue::place(tenant, &name));
    let read = move || {
        let after = query.cursor.as_ref().map(|cursor| cursor.0.as_slice());
        queue::peek_after(&rows, tenant, number, state, after, limit)
    };
    let (peeked, next) = edge.node.read(read).await?.ok_or_else(not_of_this_list)?;
    let source = Source { tenant, name: &name, definition: &definition };
    let Whole { messages, room } = large::whole(&edge, source, peeked).await?;
    let messages =
        messages.into_iter().map(|looked| MessageView::of_looked(state, looked)).collect();
    Ok(PeekPage { messages, next_cursor: next.map(Cursor), room })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::room::LargeRoom;

    #[test]
    fn what_is_peeked_has_its_room_until_the_answer_is_gone() {
        let (large, limits) = (LargeRoom::default(), Limits::default());
        let tenant = kernel::TenantId(1);
        let room = large.take(&limits, tenant, usize::MAX).ok();
        let answer = PeekPage { messages: Vec::new(), next_cursor: None, room }.into_response();
        assert!(large.take(&limits, tenant, 1).is_err(), "it is still in memory");
        drop(answer);
        assert!(large.take(&limits, tenant, 1).is_ok());
    }
}
