//! Keys of programs. A secret is in the answer that made it, and nowhere else.

use axum::Json as Answer;
use axum::response::{IntoResponse, Response};
use http::header::CACHE_CONTROL;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use tenants::{Command, CreateKey, KeyId, KeyRecord, NewKey, Reply, RevokeKey, Scope, Scopes};
use utoipa::{IntoParams, ToSchema};

use super::tenants::{ask, cursor_bytes, named, unexpected};
use crate::auth::{Caller, KeySecret, key_id_text, new_key_id, now_ms, parse_key_id};
use crate::extract::idempotency::IDEMPOTENCY_KEY;
use crate::extract::{Cursor, Idempotency, Json, Limit, Page, Path, Query};
use crate::problem::{Problem, ProblemKind};
use crate::route::{Routes, doc};
use crate::time::{parse, rfc3339};

/// The table.
#[must_use]
pub fn routes() -> Routes {
    Routes::new("keys", "Keys of programs.")
        .post("/v1/keys", "keys.create", create,
            doc("Create a key")
                .text("`key` is shown in this answer only; what is stored is its hash. The same \
                    request with the same `Idempotency-Key` shows the same key for 24 hours.")
                .idempotent().body::<NewKeyBody>().gives::<CreatedKey>(201, "Created")
                .example(r#"{"name": "worker", "scopes": ["consume"], "expiresAt": "2030-01-01T00:00:00.000Z"}"#)
                .problems(&[ProblemKind::NotFound, ProblemKind::Conflict, ProblemKind::Unprocessable]))
        .get("/v1/keys", "keys.list", list,
            doc("List keys").text("Without secrets, and without revoked keys.")
                .query::<KeysQuery>().gives::<Page<KeyView>>(200, "In the order of their creation")
                .problems(&[ProblemKind::NotFound]))
        .delete("/v1/keys/{key}", "keys.revoke", revoke,
            doc("Revoke a key")
                .text("By its `keyId`. It opens nothing from the next request on. The last admin \
                    key of tenant `default` that does not expire cannot be revoked.")
                .gives_nothing(204, "Revoked").problems(&[ProblemKind::NotFound, ProblemKind::Conflict]))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct NewKeyBody {
    /// For people; up to 256 bytes.
    name: String,
    /// One or more of `admin`, `produce`, `consume`, `ingest`, `storefront`, `read`. `admin` opens
    /// everything of its tenant.
    scopes: Vec<String>,
    /// Whose key, by name or number; the caller's own tenant when left out.
    #[schema(value_type = Option<String>)]
    tenant: Option<TenantName>,
    /// From when on it opens nothing, as RFC 3339.
    expires_at: Option<String>,
}

/// A tenant's name, or its number as a string or as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum TenantName {
    Name(String),
    Number(u32),
}

impl TenantName {
    fn into_text(self) -> String {
        match self {
            TenantName::Name(name) => name,
            TenantName::Number(number) => number.to_string(),
        }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct KeyView {
    key_id: String,
    name: String,
    scopes: Vec<&'static str>,
    tenant_id: u32,
    tenant: String,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

impl KeyView {
    fn new(record: KeyRecord, tenant: &str) -> KeyView {
        KeyView {
            key_id: key_id_text(record.tenant, record.id),
            name: record.name,
            scopes: record.scopes.iter().map(Scope::name).collect(),
            tenant_id: record.tenant.0,
            tenant: tenant.to_owned(),
            created_at: rfc3339(record.created_at_ms).to_string(),
            expires_at: record.expires_at_ms.map(|ms| rfc3339(ms).to_string()),
        }
    }
}

#[derive(Serialize, ToSchema)]
struct CreatedKey {
    /// The secret: `sk_…`. To be sent as `Authorization: Bearer sk_…`.
    key: String,
    #[serde(flatten)]
    view: KeyView,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct KeysQuery {
    /// Whose, by name or number; the caller's own tenant when left out.
    tenant: Option<String>,
    #[serde(default)]
    limit: Limit,
    cursor: Option<Cursor>,
}

fn scopes(names: &[String]) -> Result<Scopes, Problem> {
    let unknown = |name: &String| {
        let all = Scope::ALL.map(Scope::name).join(", ");
        ProblemKind::Unprocessable.because(format!("{name:?} is not a scope; there are {all}"))
    };
    let read = |name: &String| Scope::named(name).ok_or_else(|| unknown(name));
    let scopes = names.iter().map(read).collect::<Result<Scopes, Problem>>()?;
    if scopes.is_empty() {
        return Err(ProblemKind::Unprocessable.because("a key needs at least one scope"));
    }
    Ok(scopes)
}

fn expiry(text: Option<&str>) -> Result<Option<u64>, Problem> {
    let Some(text) = text else { return Ok(None) };
    match parse(text) {
        Some(at_ms) if at_ms > now_ms() => Ok(Some(at_ms)),
        Some(_) => Err(ProblemKind::Unprocessable.because("expiresAt is not in the future")),
        None => Err(ProblemKind::Unprocessable.because("expiresAt is not an RFC 3339 time")),
    }
}

async fn create(
    caller: Caller,
    idempotency: Idempotency,
    headers: HeaderMap,
    Json { value: new, raw }: Json<NewKeyBody>,
) -> Result<Response, Problem> {
    let scopes = scopes(&new.scopes)?;
    let expires_at_ms = expiry(new.expires_at.as_deref())?;
    let tenant = new.tenant.map_or_else(|| caller.tenant_name().to_owned(), TenantName::into_text);
    let tenant = named(&caller, &tenant).await?;
    let node_secret = *caller.auth().node().secret();
    let secret_of = |id: KeyId| match headers.get(IDEMPOTENCY_KEY) {
        Some(key) => KeySecret::derived(&node_secret, id, key.as_bytes(), &raw),
        None => KeySecret::random(),
    };
    let id = new_key_id(now_ms());
    let secret = secret_of(id);
    let key = NewKey { id, hash: secret.hash(), name: new.name, scopes, expires_at_ms };
    let command = Command::CreateKey(CreateKey { tenant: tenant.record.id, key });
    match ask(&caller, &command, idempotency.with(caller.tenant, &raw)).await? {
        Reply::KeyCreated(record) => {
            // Another id than the one drawn just now is that of the first time.
            let secret = if record.id == id { secret } else { secret_of(record.id) };
            let view = KeyView::new(record, &tenant.name);
            let created = CreatedKey { key: secret.into_text(), view };
            let secrecy = [(CACHE_CONTROL, "no-store")];
            Ok((StatusCode::CREATED, secrecy, Answer(created)).into_response())
        }
        reply => Err(unexpected(&reply)),
    }
}

async fn list(
    caller: Caller,
    Query(query): Query<KeysQuery>,
) -> Result<Answer<Page<KeyView>>, Problem> {
    let tenant = query.tenant.unwrap_or_else(|| caller.tenant_name().to_owned());
    let tenant = named(&caller, &tenant).await?;
    let after = match query.cursor {
        None => None,
        Some(Cursor(bytes)) => Some(KeyId(cursor_bytes(&bytes)?)),
    };
    let limit = query.limit.get();
    let rows = caller.auth().node().rows(tenants::place());
    let id = tenant.record.id;
    let mut found =
        caller.auth().node().read(move || tenants::keys(&rows, id, after, limit + 1)).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next_cursor = match found.last() {
        Some(last) if more => Some(Cursor(last.id.0.to_vec())),
        _ => None,
    };
    let items = found.into_iter().map(|record| KeyView::new(record, &tenant.name)).collect();
    Ok(Answer(Page { items, next_cursor }))
}

async fn revoke(caller: Caller, Path(key): Path<String>) -> Result<StatusCode, Problem> {
    let missing = || ProblemKind::NotFound.because("there is no such key");
    let (tenant, id) = parse_key_id(&key).ok_or_else(missing)?;
    if tenant != caller.tenant && !caller.is_operator() {
        return Err(missing());
    }
    match ask(&caller, &Command::RevokeKey(RevokeKey { tenant, id }), None).await? {
        Reply::KeyRevoked => Ok(StatusCode::NO_CONTENT),
        reply => Err(unexpected(&reply)),
    }
}
