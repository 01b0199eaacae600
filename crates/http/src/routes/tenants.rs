//! Tenants, their quotas and what their shoppers' tokens are verified with.
//!
//! An admin of `default`, the operator, acts on every tenant; an admin of another tenant on its
//! own alone, and not on its quotas.

use std::sync::Arc;

use axum::Json as Answer;
use http::StatusCode;
use kernel::{Envelope, IdempotencyKey, TenantId};
use serde::{Deserialize, Serialize};
use tenants::{
    Command, CreateTenant, DeleteTenant, Quotas, Refusal, Reply, SetQuotas, SetShopperKeys,
    ShopperKeys, TenantRecord, VerifyingKeys,
};
use utoipa::ToSchema;

use crate::auth::{Caller, Tenant, Verifier};
use crate::extract::body::{Given, given};
use crate::extract::{Cursor, Idempotency, Json, Page, PageQuery, Path, Query, not_of_this_list};
use crate::problem::{Problem, ProblemKind};
use crate::route::{Routes, doc};
use crate::time::rfc3339;

/// The table.
#[must_use]
pub fn routes() -> Routes {
    const TENANT: &str = "The path names the tenant by its name or its number. An admin of `default`, \
        the operator, may name any; other admins only their own.";
    Routes::new("tenants", "Tenants, their quotas and their shoppers' keys.")
        .post("/v1/tenants", "tenants.create", create,
            doc("Create a tenant").text("Only the operator, an admin of `default`, may.")
                .idempotent().body::<NewTenant>().gives::<TenantView>(201, "Created")
                .example(r#"{"name": "shop"}"#)
                .problems(&[ProblemKind::Conflict, ProblemKind::Unprocessable]))
        .get("/v1/tenants", "tenants.list", list,
            doc("List tenants").text("The operator sees all, another admin its own.")
                .query::<PageQuery>().gives::<Page<TenantView>>(200, "In the order of their creation"))
        .get("/v1/tenants/{tenant}", "tenants.get", get,
            doc("Look at a tenant").text(TENANT).gives::<TenantView>(200, "The tenant")
                .problems(&[ProblemKind::NotFound]))
        .delete("/v1/tenants/{tenant}", "tenants.delete", delete,
            doc("Delete a tenant")
                .text("Its keys and tokens open nothing from now on, and its number is never used \
                    again. What it stored can no longer be reached, and is removed later.")
                .gives_nothing(204, "Deleted").problems(&[ProblemKind::NotFound, ProblemKind::Conflict]))
        .get("/v1/tenants/{tenant}/quotas", "tenants.quotas", quotas,
            doc("Look at a tenant's quotas and what it uses").text(TENANT)
                .gives::<QuotasView>(200, "The quotas").problems(&[ProblemKind::NotFound]))
        .put("/v1/tenants/{tenant}/quotas", "tenants.setQuotas", set_quotas,
            doc("Replace a tenant's quotas")
                .text("Only the operator may. `null` is no limit; what is left out is what a new \
                    tenant has. In force with the next request.")
                .body::<NewQuotas>().gives::<QuotasView>(200, "The quotas")
                .example(r#"{"requestsPerSecond": 500, "burst": 1000, "bytesStored": null}"#)
                .problems(&[ProblemKind::NotFound, ProblemKind::Unprocessable]))
        .get("/v1/tenants/{tenant}/shopper-keys", "tenants.shopperKeys", shopper_keys,
            doc("Look at what shoppers' tokens are verified with").text(TENANT)
                .gives::<ShopperKeysView>(200, "Without secrets").problems(&[ProblemKind::NotFound]))
        .put("/v1/tenants/{tenant}/shopper-keys", "tenants.setShopperKeys", set_shopper_keys,
            doc("Say what shoppers' tokens are verified with")
                .text("Exactly one of `hs256`, `es256` and `jwks`. A shopper sends `Authorization: \
                    Bearer TOKEN`; the tenant is named by the header `X-Tenant`, or by the token's \
                    claim `tenant`, or else it is `default`. The token must have `sub`, the user, \
                    and `exp`; `nbf` is heeded; `iss` and `aud` are compared when given here.")
                .body::<NewShopperKeys>().gives::<ShopperKeysView>(200, "Without secrets")
                .example(r#"{"hs256": {"secret": "at-least-32-bytes-that-nobody-else-knows"}, "issuer": "login.example"}"#)
                .problems(&[ProblemKind::NotFound, ProblemKind::Unprocessable]))
        .delete("/v1/tenants/{tenant}/shopper-keys", "tenants.deleteShopperKeys", delete_shopper_keys,
            doc("Accept no shoppers' tokens any more").text(TENANT)
                .gives_nothing(204, "None is accepted").problems(&[ProblemKind::NotFound]))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewTenant {
    /// 1 to 64 of `a-z`, `0-9` and `-`, and not only digits. Unique.
    name: String,
}

/// A tenant.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct TenantView {
    tenant_id: u32,
    name: String,
    created_at: String,
}

impl From<&TenantRecord> for TenantView {
    fn from(record: &TenantRecord) -> TenantView {
        TenantView {
            tenant_id: record.id.0,
            name: record.name.clone(),
            created_at: rfc3339(record.created_at_ms).to_string(),
        }
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct NewQuotas {
    /// At least 1. Each node counts by itself.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    requests_per_second: Given<u32>,
    /// Requests at once after a quiet time, at least 1. Left out or `null`: one second's worth.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    burst: Given<u32>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    bytes_stored: Given<u64>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    entities: Given<u64>,
    /// Open connections that have shown a key or token of the tenant. Each node counts by itself.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    connections: Given<u32>,
    /// Messages sent and published a second, at least 1; as many at once after a quiet time. A batch
    /// of n is n. Each node counts by itself.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    publish_per_second: Given<u32>,
    /// Queues, those of subscriptions included.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    queues: Given<u64>,
    /// How long queues may keep messages, at least 1. Queues that are there stay as they are.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    retention_seconds_max: Given<u64>,
    /// Messages leased, over all queues.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    inflight: Given<u64>,
    /// Receives that wait for a message. Each node counts by itself.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    waiters: Given<u32>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct QuotasView {
    requests_per_second: Option<u32>,
    burst: Option<u32>,
    bytes_stored: Option<u64>,
    entities: Option<u64>,
    connections: Option<u32>,
    publish_per_second: Option<u32>,
    queues: Option<u64>,
    retention_seconds_max: Option<u64>,
    inflight: Option<u64>,
    waiters: Option<u32>,
    used: UsedView,
}

/// What the tenant keeps now.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct UsedView {
    bytes_stored: u64,
    entities: u64,
    queues: u64,
    inflight: u64,
    /// On this node.
    waiters: u32,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct NewShopperKeys {
    hs256: Option<Hs256>,
    es256: Option<Es256>,
    /// A JWKS document with public keys: EC (P-256, P-384), RSA or OKP. `kid` selects.
    #[schema(value_type = Option<Object>)]
    jwks: Option<serde_json::Value>,
    /// What `iss` must be.
    issuer: Option<String>,
    /// What `aud` must be or hold.
    audience: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Hs256 {
    /// At least 32 bytes. Never shown again.
    secret: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Es256 {
    /// A P-256 public key in PEM.
    public_key_pem: String,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ShopperKeysView {
    /// `hs256`, `es256` or `jwks`.
    kind: &'static str,
    /// Of a JWKS document.
    key_ids: Vec<String>,
    issuer: Option<String>,
    audience: Option<String>,
}

/// Does a command of the tenants machine. A refusal becomes its problem.
pub(super) async fn ask(
    caller: &Caller,
    command: &Command,
    idempotency: Option<IdempotencyKey>,
) -> Result<Reply, Problem> {
    let envelope = Envelope {
        machine: tenants::MACHINE,
        tenant: caller.tenant,
        idempotency,
        command: command.encode(),
    };
    let reply = caller.auth().node().submit(tenants::place(), envelope).await?;
    match Reply::decode(&reply) {
        Ok(Reply::Refused(refusal)) => Err(problem(refusal)),
        Ok(reply) => Ok(reply),
        Err(error) => Err(ProblemKind::Internal.because(error.to_string())),
    }
}

fn problem(refusal: Refusal) -> Problem {
    let kind = match refusal {
        Refusal::NoSuchTenant | Refusal::NoSuchKey => ProblemKind::NotFound,
        Refusal::BadName | Refusal::TooLong => ProblemKind::Unprocessable,
        Refusal::Bootstrapped
        | Refusal::NameTaken
        | Refusal::DefaultStays
        | Refusal::LastAdminKey
        | Refusal::TooManyKeys { .. }
        | Refusal::KeyTaken
        | Refusal::NoNumbersLeft => ProblemKind::Conflict,
    };
    kind.because(refusal.to_string())
}

/// An answer that the machine does not give to this command.
pub(super) fn unexpected(reply: &Reply) -> Problem {
    ProblemKind::Internal.because(format!("the machine answered {reply:?}"))
}

fn require_operator(caller: &Caller) -> Result<(), Problem> {
    if caller.is_operator() {
        return Ok(());
    }
    Err(ProblemKind::Forbidden.because("only an admin of tenant default may do this"))
}

/// The tenant that a path or body names, by name or number, if the caller may act on it.
pub(super) async fn named(caller: &Caller, named: &str) -> Result<Arc<Tenant>, Problem> {
    let number = named.parse().ok().map(TenantId);
    // Told before it is looked up, so that others' names are not for strangers to find.
    if !caller.is_operator() && number != Some(caller.tenant) && *named != *caller.tenant_name() {
        let why = "an admin acts on its own tenant only, but for those of tenant default";
        return Err(ProblemKind::Forbidden.because(why));
    }
    let found = match number {
        Some(number) => caller.auth().tenant(number).await?,
        None if tenants::is_tenant_name(named) => caller.auth().tenant_named(named).await?,
        None => None,
    };
    found.ok_or_else(|| ProblemKind::NotFound.because(format!("there is no tenant `{named}`")))
}

async fn create(
    caller: Caller,
    idempotency: Idempotency,
    Json { value, raw }: Json<NewTenant>,
) -> Result<(StatusCode, Answer<TenantView>), Problem> {
    require_operator(&caller)?;
    let command = Command::CreateTenant(CreateTenant { name: value.name });
    match ask(&caller, &command, idempotency.with(caller.tenant, &raw)).await? {
        Reply::Tenant(record) => Ok((StatusCode::CREATED, Answer(TenantView::from(&record)))),
        reply => Err(unexpected(&reply)),
    }
}

async fn list(
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<Answer<Page<TenantView>>, Problem> {
    if !caller.is_operator() {
        let own = named(&caller, caller.tenant_name()).await?;
        return Ok(Answer(Page { items: vec![(&own.record).into()], next_cursor: None }));
    }
    let after = match query.cursor {
        None => TenantId::SYSTEM,
        Some(Cursor(bytes)) => TenantId(u32::from_be_bytes(cursor_bytes(&bytes)?)),
    };
    let limit = query.limit.get();
    let node = caller.auth().node();
    let rows = node.rows(tenants::place());
    let mut found = node.read(move || tenants::tenants(&rows, after, limit + 1)).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next_cursor = match found.last() {
        Some(last) if more => Some(Cursor(last.id.0.to_be_bytes().to_vec())),
        _ => None,
    };
    Ok(Answer(Page { items: found.iter().map(TenantView::from).collect(), next_cursor }))
}

pub(super) fn cursor_bytes<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Problem> {
    bytes.try_into().map_err(|_| not_of_this_list())
}

async fn get(caller: Caller, Path(tenant): Path<String>) -> Result<Answer<TenantView>, Problem> {
    Ok(Answer(TenantView::from(&named(&caller, &tenant).await?.record)))
}

async fn delete(caller: Caller, Path(tenant): Path<String>) -> Result<StatusCode, Problem> {
    let tenant = named(&caller, &tenant).await?.record.id;
    match ask(&caller, &Command::DeleteTenant(DeleteTenant { tenant }), None).await? {
        Reply::TenantDeleted { .. } => Ok(StatusCode::NO_CONTENT),
        reply => Err(unexpected(&reply)),
    }
}

fn quotas_view(caller: &Caller, quotas: &Quotas, tenant: &Tenant) -> QuotasView {
    let usage = caller.auth().node().usage(tenant.record.id);
    let used = |count: i64| u64::try_from(count).unwrap_or(0);
    QuotasView {
        requests_per_second: quotas.requests_per_second,
        burst: quotas.burst,
        bytes_stored: quotas.bytes_stored,
        entities: quotas.entities,
        connections: quotas.connections,
        publish_per_second: quotas.publish_per_second,
        queues: quotas.queues,
        retention_seconds_max: quotas.retention_seconds_max,
        inflight: quotas.inflight,
        waiters: quotas.waiters,
        used: UsedView {
            bytes_stored: used(usage.bytes),
            entities: used(usage.entities),
            queues: used(usage.queues),
            inflight: used(usage.leased),
            waiters: tenant.gauge.waiters(),
        },
    }
}

async fn quotas(caller: Caller, Path(tenant): Path<String>) -> Result<Answer<QuotasView>, Problem> {
    let tenant = named(&caller, &tenant).await?;
    Ok(Answer(quotas_view(&caller, &tenant.record.quotas, &tenant)))
}

async fn set_quotas(
    caller: Caller,
    Path(tenant): Path<String>,
    Json { value: new, .. }: Json<NewQuotas>,
) -> Result<Answer<QuotasView>, Problem> {
    require_operator(&caller)?;
    let tenant = named(&caller, &tenant).await?;
    let none = Some(Some(0));
    // None at all would lock out whoever could undo it, or mean nothing.
    let rates = [new.requests_per_second, new.burst, new.connections, new.publish_per_second];
    if rates.contains(&none) || new.retention_seconds_max == Some(Some(0)) {
        let why = "requestsPerSecond, burst, connections, publishPerSecond and \
            retentionSecondsMax must be 1 or more";
        return Err(ProblemKind::Unprocessable.because(why));
    }
    let initial = Quotas::initial(tenant.record.id);
    // A burst is of a rate, so the burst of another rate than the given one would mean nothing.
    let burst = if new.requests_per_second.is_some() { None } else { initial.burst };
    let quotas = Quotas {
        requests_per_second: new.requests_per_second.unwrap_or(initial.requests_per_second),
        burst: new.burst.unwrap_or(burst),
        bytes_stored: new.bytes_stored.unwrap_or(initial.bytes_stored),
        entities: new.entities.unwrap_or(initial.entities),
        connections: new.connections.unwrap_or(initial.connections),
        publish_per_second: new.publish_per_second.unwrap_or(initial.publish_per_second),
        queues: new.queues.unwrap_or(initial.queues),
        retention_seconds_max: new.retention_seconds_max.unwrap_or(initial.retention_seconds_max),
        inflight: new.inflight.unwrap_or(initial.inflight),
        waiters: new.waiters.unwrap_or(initial.waiters),
    };
    let set = SetQuotas { tenant: tenant.record.id, quotas };
    match ask(&caller, &Command::SetQuotas(set), None).await? {
        Reply::Tenant(record) => Ok(Answer(quotas_view(&caller, &record.quotas, &tenant))),
        reply => Err(unexpected(&reply)),
    }
}

fn shopper_keys_view(keys: &ShopperKeys, verifier: &Verifier) -> ShopperKeysView {
    ShopperKeysView {
        kind: match keys.keys {
            VerifyingKeys::Hs256(_) => "hs256",
            VerifyingKeys::Es256(_) => "es256",
            VerifyingKeys::Jwks(_) => "jwks",
        },
        key_ids: verifier.key_ids().map(str::to_owned).collect(),
        issuer: keys.issuer.clone(),
        audience: keys.audience.clone(),
    }
}

async fn shopper_keys(
    caller: Caller,
    Path(tenant): Path<String>,
) -> Result<Answer<ShopperKeysView>, Problem> {
    let tenant = named(&caller, &tenant).await?;
    match (&tenant.record.shopper_keys, &tenant.verifier) {
        (Some(keys), Some(verifier)) => Ok(Answer(shopper_keys_view(keys, verifier))),
        _ => Err(ProblemKind::NotFound.because("the tenant has no shopper keys")),
    }
}

async fn set_shopper_keys(
    caller: Caller,
    Path(tenant): Path<String>,
    Json { value: new, .. }: Json<NewShopperKeys>,
) -> Result<Answer<ShopperKeysView>, Problem> {
    let tenant = named(&caller, &tenant).await?.record.id;
    let keys = match (new.hs256, new.es256, new.jwks) {
        (Some(Hs256 { secret }), None, None) => VerifyingKeys::Hs256(secret.into_bytes()),
        (None, Some(Es256 { public_key_pem }), None) => VerifyingKeys::Es256(public_key_pem),
        (None, None, Some(document)) => VerifyingKeys::Jwks(document.to_string()),
        _ => {
            let why = "give exactly one of hs256, es256 and jwks";
            return Err(ProblemKind::Unprocessable.because(why));
        }
    };
    let keys = ShopperKeys { keys, issuer: new.issuer, audience: new.audience };
    let verifier = Verifier::new(&keys)
        .map_err(|error| ProblemKind::Unprocessable.because(error.to_string()))?;
    let view = shopper_keys_view(&keys, &verifier);
    let command = Command::SetShopperKeys(SetShopperKeys { tenant, keys: Some(keys) });
    match ask(&caller, &command, None).await? {
        Reply::Tenant(_) => Ok(Answer(view)),
        reply => Err(unexpected(&reply)),
    }
}

async fn delete_shopper_keys(
    caller: Caller,
    Path(tenant): Path<String>,
) -> Result<StatusCode, Problem> {
    let tenant = named(&caller, &tenant).await?.record.id;
    let command = Command::SetShopperKeys(SetShopperKeys { tenant, keys: None });
    match ask(&caller, &command, None).await? {
        Reply::Tenant(_) => Ok(StatusCode::NO_CONTENT),
        reply => Err(unexpected(&reply)),
    }
}
