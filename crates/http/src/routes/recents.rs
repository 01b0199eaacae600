//! A user's recent searches. See `docs/recents.md`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use kernel::Envelope;
use node::View;
use recents::{Add, Clear, Command, List, Remove, Reply};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::{Ctx, EdgeState};
use crate::auth::Caller;
use crate::extract::{Cursor, Idempotency, Json, Limit, Page, Path, Query, not_of_this_list};
use crate::problem::{Problem, ProblemKind};
use crate::route::{Routes, doc};
use crate::time::rfc3339;

/// Bytes of a user's name.
const USER_BYTES_MAX: usize = 256;
/// Bytes of a query.
const QUERY_BYTES_MAX: usize = 1024;
/// Queries shown when no limit is given.
const LIST_DEFAULT: usize = 10;

/// The table.
#[must_use]
pub fn routes() -> Routes {
    Routes::new("recents", "What a user searched for: the latest at once, all of it in pages.")
        .post(
            "/v1/users/{user}/searches",
            "recents.add",
            add,
            doc("Remember a search")
                .text("Case and space do not tell two queries apart; the latest spelling is kept.")
                .scope_or_shopper("produce")
                .idempotent()
                .body::<NewSearch>()
                .example(r#"{"q": "flights to Paris"}"#)
                .gives::<Search>(201, "It is the user's latest search")
                .problems(&[ProblemKind::QuotaExceeded]),
        )
        .get(
            "/v1/users/{user}/searches",
            "recents.list",
            list,
            doc("The latest searches")
                .text("Newest first, each query once. Sees every write that was answered.")
                .scope_or_shopper("read")
                .query::<ListQuery>()
                .gives::<Searches>(200, "Newest first; empty for a user who never searched")
                .gives_nothing(304, "As `If-None-Match` has it"),
        )
        .get(
            "/v1/users/{user}/searches/history",
            "recents.history",
            history,
            doc("Every search")
                .text("Newest first, repetitions included, what has been archived included.")
                .scope_or_shopper("read")
                .query::<HistoryQuery>()
                .gives::<Page<Search>>(200, "Newest first"),
        )
        .delete(
            "/v1/users/{user}/searches",
            "recents.clear",
            clear,
            doc("Forget a user's searches")
                .text("The list, the history and what is archived.")
                .scope_or_shopper("produce")
                .gives_nothing(204, "Forgotten"),
        )
        .delete(
            "/v1/users/{user}/searches/{q}",
            "recents.remove",
            remove,
            doc("Forget one query")
                .text("However it was spelt; from the list and from the history.")
                .scope_or_shopper("produce")
                .gives_nothing(204, "Forgotten, if it was there")
                .problems(&[ProblemKind::Conflict]),
        )
        .post(
            "/v1/users/{user}/searches:warm",
            "recents.warm",
            warm,
            doc("Load a user's list into memory")
                .text("For the moment a user opens the app: the list is at hand when it is read.")
                .scope_or_shopper("read")
                .gives_nothing(202, "It is being loaded"),
        )
}

/// A search to remember.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewSearch {
    /// 1 to 1024 bytes, not only white space.
    q: String,
}

/// A search.
#[derive(Serialize, ToSchema)]
struct Search {
    /// As last spelt.
    q: String,
    /// When.
    at: String,
}

/// A user's latest searches.
#[derive(Serialize, ToSchema)]
struct Searches {
    /// Newest first.
    items: Vec<Search>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// 10 when not given. There are never more than the server keeps (10 by default).
    limit: Option<Limit>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    limit: Option<Limit>,
    cursor: Option<Cursor>,
}

fn check_user(caller: &Caller, user: &str) -> Result<(), Problem> {
    if !(1..=USER_BYTES_MAX).contains(&user.len()) {
        let detail = format!("a user's name must have from 1 to {USER_BYTES_MAX} bytes");
        return Err(ProblemKind::InvalidParameter.because(detail));
    }
    caller.check_user(user)
}

/// The query as it is kept: without white space at its ends.
fn check_query(query: &str, kind: ProblemKind) -> Result<&str, Problem> {
    let query = query.trim();
    if (1..=QUERY_BYTES_MAX).contains(&query.len()) {
        return Ok(query);
    }
    let detail = format!(
        "at q: it must have from 1 to {QUERY_BYTES_MAX} bytes besides white space at its ends"
    );
    Err(kind.because(detail))
}

async fn submit(
    edge: &EdgeState,
    caller: &Caller,
    user: &str,
    idempotency: Option<kernel::IdempotencyKey>,
    command: &Command,
) -> Result<Reply, Problem> {
    let tenant = caller.tenant;
    let command = command.encode();
    let envelope = Envelope { machine: recents::MACHINE, tenant, idempotency, command };
    let reply = edge.node.submit(recents::place(tenant, user), envelope).await?;
    Ok(Reply::decode(&reply).expect("recents answers with its replies"))
}

async fn add(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(user): Path<String>,
    idempotency: Idempotency,
    body: Json<NewSearch>,
) -> Result<Response, Problem> {
    check_user(&caller, &user)?;
    let query = check_query(&body.value.q, ProblemKind::InvalidBody)?;
    let key = idempotency.with(caller.tenant, &body.raw);
    if let Err(full) = caller.check_room(true) {
        let answered = edge.node.is_answered(recents::place(caller.tenant, &user), key).await?;
        let exists = view(&edge, &caller, &user).await?.is_some();
        // An answer that was given is given again. No room for one user more leaves room for
        // those who are there, as long as there is room for their bytes.
        if !answered && (!exists || caller.check_room(false).is_err()) {
            return Err(full);
        }
    }
    let folded = recents::fold(query);
    let add = Add { user: user.clone(), query: query.to_owned(), folded };
    let command = Command::Add(add);
    let Reply::Added { at_ms } = submit(&edge, &caller, &user, key, &command).await? else {
        unreachable!("an Add is answered with Added");
    };
    let search = Search { q: query.to_owned(), at: rfc3339(at_ms).to_string() };
    Ok((StatusCode::CREATED, axum::Json(search)).into_response())
}

/// The user's list: from memory, without more than a look, or from its row.
async fn view(edge: &EdgeState, caller: &Caller, user: &str) -> Result<Option<Arc<View>>, Problem> {
    let row = recents::list_row(caller.tenant, user);
    let place = recents::place(caller.tenant, user);
    if let Some(view) = edge.node.view(place, &row) {
        return Ok(Some(view));
    }
    Ok(edge.node.view_or_row(place, row).await?)
}

/// The tags that the client has.
struct IfNoneMatch(Option<HeaderValue>);

impl FromRequestParts<Ctx> for IfNoneMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Ctx) -> Result<IfNoneMatch, Problem> {
        Ok(IfNoneMatch(parts.headers.get(IF_NONE_MATCH).cloned()))
    }
}

impl IfNoneMatch {
    /// Weak comparison, as RFC 9110 has it for this header: a proxy may have weakened the tag.
    fn has(&self, etag: &[u8]) -> bool {
        let Some(value) = &self.0 else { return false };
        value
            .as_bytes()
            .split(|byte| *byte == b',')
            .map(<[u8]>::trim_ascii)
            .any(|tag| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == etag)
    }
}

async fn list(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(user): Path<String>,
    Query(query): Query<ListQuery>,
    known: IfNoneMatch,
) -> Result<Response, Problem> {
    check_user(&caller, &user)?;
    let Some(view) = view(&edge, &caller, &user).await? else {
        return Ok(json(Bytes::from_static(br#"{"items":[]}"#)));
    };
    let etag = view.quoted_etag();
    let mut response = if known.has(&etag) {
        let mut response = json(Bytes::new());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        let keep = usize::from(edge.node.recents_settings().keep);
        json(match query.limit {
            None => view.rendered(|row| render(row, LIST_DEFAULT.min(keep))),
            Some(limit) => render(&view.value, limit.get().min(keep)),
        })
    };
    let etag = HeaderValue::from_maybe_shared(etag).expect("hex in quotes");
    response.headers_mut().insert(ETAG, etag);
    Ok(response)
}

fn json(body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // The next search changes it, and it is the user's alone.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    response
}

fn render(row: &Bytes, limit: usize) -> Bytes {
    let list = List::decode(row);
    let items = list.items().take(limit);
    let items =
        items.map(|item| Search { q: item.query.into(), at: rfc3339(item.at_ms).to_string() });
    let body = Searches { items: items.collect() };
    serde_json::to_vec(&body).expect("strings serialise").into()
}

async fn history(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(user): Path<String>,
    Query(query): Query<HistoryQuery>,
) -> Result<Response, Problem> {
    check_user(&caller, &user)?;
    let before = match &query.cursor {
        None => u64::MAX,
        Some(Cursor(bytes)) => match <[u8; 8]>::try_from(bytes.as_slice()) {
            Ok(number) => u64::from_be_bytes(number),
            Err(_) => return Err(not_of_this_list()),
        },
    };
    let limit = query.limit.unwrap_or_default().get();
    // One more than asked for tells whether there is a next page.
    let mut entries = edge.node.recents_history(caller.tenant, &user, before, limit + 1).await?;
    let more = entries.len() > limit;
    entries.truncate(limit);
    let next_cursor =
        entries.last().filter(|_| more).map(|last| Cursor(last.number.to_be_bytes().to_vec()));
    let items = entries
        .into_iter()
        .map(|entry| Search { q: entry.query, at: rfc3339(entry.at_ms).to_string() })
        .collect();
    Ok(axum::Json(Page { items, next_cursor }).into_response())
}

async fn clear(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(user): Path<String>,
) -> Result<Response, Problem> {
    check_user(&caller, &user)?;
    submit(&edge, &caller, &user, None, &Command::Clear(Clear { user: user.clone() })).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn remove(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path((user, query)): Path<(String, String)>,
) -> Result<Response, Problem> {
    check_user(&caller, &user)?;
    let folded = recents::fold(check_query(&query, ProblemKind::InvalidParameter)?);
    let command = Command::Remove(Remove { user: user.clone(), folded });
    if submit(&edge, &caller, &user, None, &command).await? == Reply::TooManyRemovals {
        let detail = "so many queries of this user were removed one by one that only all can be";
        return Err(ProblemKind::Conflict.because(detail));
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn warm(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(user): Path<String>,
) -> Result<Response, Problem> {
    check_user(&caller, &user)?;
    tokio::spawn(async move {
        if let Err(problem) = view(&edge, &caller, &user).await {
            tracing::debug!(?problem, "a list could not be warmed");
        }
    });
    Ok(StatusCode::ACCEPTED.into_response())
}
