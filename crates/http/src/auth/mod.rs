//! Who is calling, and what they may do.
//!
//! ```text
//!   Authorization: Bearer …
//!        │
//!        ├─ sk_…  ──── SHA-256 ──▶ view of the key ──▶ tenant, scopes           a program
//!        ├─ a.b.c ──── tenant's shopper keys, signature, exp ──▶ tenant, user    a shopper
//!        └─ nothing ── `--dev` only ──▶ tenant from X-Tenant, all scopes, user from X-User
//!                                   │
//!             connections ─▶ rate ─▶ access of the route ─▶ handler
//!                 429         429      403
//! ```
//!
//! No shard is entered. A connection's last credential (`Memo`) holds until any key or tenant
//! changes. Else a credential that was good before costs one hash and two looks at views: what was
//! found out is kept (`cache`) and holds as long as the views of the key and of the tenant are the
//! very ones it was found out from. So a revocation is in force with the next request.
//!
//! Failed attempts are not slowed down: a key has 192 random bits, and a text that has not the
//! form of a key or token is refused before anything is looked up.

mod allowance;
mod bootstrap;
mod cache;
mod caller;
mod nearby;
mod queue_rate;
mod quota;
mod secret;
mod shopper;
mod tenant;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Uri};
use kernel::TenantId;
use node::{Node, View};
use tenants::{KeyHash, KeyId, KeyRow, Record, Scope, Scopes};

pub use bootstrap::{BootstrapError, DevAddressError, bootstrap, check_dev_address};
pub use caller::{Caller, Visitor};
pub(crate) use nearby::host_of;
pub use secret::KeySecret;
pub(crate) use secret::{begins_as_key, key_id_text, new_key_id, parse_key_id};
pub use shopper::ShopperKeyError;
pub(crate) use shopper::Verifier;
pub use tenant::JwksFiles;
pub(crate) use tenant::Tenant;

use cache::Cache;
use nearby::check_nearby;
use queue_rate::QueueRates;
use shopper::{TOKEN_BYTES_MAX, TokenError};
use tenant::TenantBoard;

use crate::problem::{Problem, ProblemKind};
use crate::server::Conn;

/// How callers are told apart.
#[derive(Clone)]
pub struct AuthOptions {
    /// By how much the clocks of whoever signs tokens may differ from ours.
    pub leeway_seconds: u64,
    /// For tenants that have not been given shopper keys over the API.
    pub jwks: JwksFiles,
}

impl Default for AuthOptions {
    fn default() -> AuthOptions {
        AuthOptions { leeway_seconds: 60, jwks: JwksFiles::default() }
    }
}

/// Why a JWKS file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// It cannot be read.
    #[error("{tenant}={path}: {source}")]
    Unreadable {
        /// Whose.
        tenant: String,
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It holds no keys.
    #[error("{tenant}={path}: {source}")]
    NotKeys {
        /// Whose.
        tenant: String,
        /// Which.
        path: PathBuf,
        /// Why.
        source: ShopperKeyError,
    },
}

/// Tells callers apart. Cheap to clone.
#[derive(Clone)]
pub struct Auth(Arc<Inner>);

struct Inner {
    node: Node,
    leeway_s: u64,
    tenants: TenantBoard,
    known: Cache<Known>,
    queue_rates: QueueRates,
    /// The zero of the rate buckets' clock.
    started: Instant,
}

/// What a credential turned out to be.
#[derive(Clone)]
pub(crate) struct Known {
    identity: Identity,
    tenant: Arc<Tenant>,
    /// The key's view, by its key, as it was; `None` for tokens.
    key_view: Option<(Vec<u8>, u64)>,
    /// When it ceases to be good.
    expires_at_ms: Option<u64>,
}

/// What a connection showed last: most show the same with every request.
pub(crate) struct Memo {
    token: Box<str>,
    tenant_name: Option<Box<str>>,
    /// [`Node::credentials_version`] before it was looked up.
    version: u64,
    /// The connection's own copy, so that those with the same key do not meet at its count.
    known: Arc<Known>,
}

/// Who it is, apart from the tenant.
#[derive(Clone)]
enum Identity {
    Program { id: KeyId, scopes: Scopes },
    Shopper { user: Arc<str> },
    Developer,
}

impl Memo {
    fn holds(&self, token: &str, tenant_name: Option<&str>, version: u64) -> bool {
        self.version == version
            && *self.token == *token
            && self.tenant_name.as_deref() == tenant_name
            && !self.known.has_expired()
    }
}

impl Known {
    fn has_expired(&self) -> bool {
        self.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms())
    }
}

impl Identity {
    fn scopes(&self) -> Scopes {
        match self {
            Identity::Program { scopes, .. } => *scopes,
            Identity::Shopper { .. } => Scopes::NONE.with(Scope::Storefront),
            Identity::Developer => Scopes::ALL,
        }
    }
}

fn unauthenticated(why: impl Into<std::borrow::Cow<'static, str>>) -> Problem {
    ProblemKind::Unauthenticated.because(why)
}

pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl Auth {
    /// Callers of this node, with the usual options.
    #[must_use]
    pub fn new(node: Node) -> Auth {
        Auth::with_options(node, AuthOptions::default())
    }

    /// Callers of this node.
    #[must_use]
    pub fn with_options(node: Node, options: AuthOptions) -> Auth {
        Auth(Arc::new(Inner {
            node,
            leeway_s: options.leeway_seconds,
            tenants: TenantBoard::new(options.jwks),
            known: Cache::default(),
            queue_rates: QueueRates::default(),
            started: Instant::now(),
        }))
    }

    /// The node that knows the keys.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.0.node
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.0.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn view(&self, key: &[u8]) -> Option<Arc<View>> {
        self.0.node.view(tenants::place(), key)
    }

    async fn view_or_row(&self, key: Vec<u8>) -> Result<Option<Arc<View>>, Problem> {
        Ok(self.0.node.view_or_row(tenants::place(), key).await?)
    }

    /// A tenant that is there.
    pub(crate) async fn tenant(&self, id: TenantId) -> Result<Option<Arc<Tenant>>, Problem> {
        let view = self.view_or_row(tenants::tenant_view(id)).await?;
        Ok(view.and_then(|view| self.0.tenants.see(id, &view)))
    }

    /// The name of a tenant that somebody calls for.
    pub(crate) fn name_of(&self, id: TenantId) -> Arc<str> {
        // Only `default` is called for before there is a record of it.
        self.0.tenants.name_of(id).unwrap_or_else(|| tenants::DEFAULT_NAME.into())
    }

    /// The tenant of a name that is there.
    pub(crate) async fn tenant_named(&self, name: &str) -> Result<Option<Arc<Tenant>>, Problem> {
        let Some(view) = self.view_or_row(tenants::name_view(name)).await? else { return Ok(None) };
        match tenants::NameRow::decode(&view.value) {
            Ok(tenants::NameRow::Taken(id)) => self.tenant(id).await,
            Ok(tenants::NameRow::Free) => Ok(None),
            Err(error) => Err(ProblemKind::Internal.because(error.to_string())),
        }
    }

    /// Who shows these headers. `None` when they show nothing.
    async fn identify(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        conn: &Conn,
        dev: bool,
    ) -> Result<Option<Arc<Known>>, Problem> {
        let named = named_tenant(headers)?;
        let Some(token) = bearer(headers)? else {
            if !dev {
                return Ok(None);
            }
            return self.developer(uri, headers, named).await.map(Some);
        };
        self.remembered(token, named, conn).await.map(Some)
    }

    /// Who holds this key.
    async fn holder_of(&self, key: &str, conn: &Conn) -> Result<Arc<Known>, Problem> {
        if !secret::is_key(key) {
            return Err(unauthenticated("the access key id is not a key of this server"));
        }
        self.remembered(key, None, conn).await
    }

    /// Who shows a credential, which a connection mostly does with every request.
    async fn remembered(
        &self,
        token: &str,
        named: Option<&str>,
        conn: &Conn,
    ) -> Result<Arc<Known>, Problem> {
        let version = self.0.node.credentials_version();
        if let Some(memo) = &*conn.memo.lock()
            && memo.holds(token, named, version)
        {
            return Ok(Arc::clone(&memo.known));
        }
        let known = self.look_up(token, named).await?;
        let own = Arc::new(Known::clone(&known));
        let tenant_name = named.map(Box::from);
        *conn.memo.lock() =
            Some(Memo { token: token.into(), tenant_name, version, known: Arc::clone(&own) });
        Ok(own)
    }

    async fn look_up(&self, token: &str, named: Option<&str>) -> Result<Arc<Known>, Problem> {
        let is_key = secret::is_key(token);
        if !is_key && (token.len() > TOKEN_BYTES_MAX || token.matches('.').count() != 2) {
            return Err(unauthenticated("this is neither a key nor a token"));
        }
        let tenant_name = if is_key { None } else { named };
        let hash = match tenant_name {
            // The same token may be good for one tenant and not for another.
            Some(name) => secret::hash(&[token.as_bytes(), b"\0", name.as_bytes()].concat()),
            None => secret::hash(token.as_bytes()),
        };
        if let Some(known) = self.0.known.get(&hash) {
            if self.still_holds(&known) {
                return of_tenant(known, named);
            }
            self.0.known.remove(&hash);
        }
        let known = Arc::new(if is_key {
            self.program(&hash).await?
        } else {
            self.shopper(token, tenant_name).await?
        });
        self.0.known.put(hash, Arc::clone(&known));
        of_tenant(known, named)
    }

    fn still_holds(&self, known: &Known) -> bool {
        let unchanged = |key: &[u8], etag| self.view(key).is_some_and(|view| view.etag == etag);
        known.key_view.as_ref().is_none_or(|(key, etag)| unchanged(key, *etag))
            && unchanged(&known.tenant.view_key, known.tenant.etag)
            && !known.has_expired()
    }

    async fn program(&self, hash: &KeyHash) -> Result<Known, Problem> {
        let view_key = tenants::key_view(hash);
        let Some(view) = self.view_or_row(view_key.clone()).await? else {
            return Err(unauthenticated("the key is not known"));
        };
        let record = match KeyRow::decode(&view.value) {
            Ok(KeyRow::Live(record)) => record,
            Ok(KeyRow::Revoked { .. }) => return Err(unauthenticated("the key has been revoked")),
            Err(error) => return Err(ProblemKind::Internal.because(error.to_string())),
        };
        if record.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms()) {
            return Err(unauthenticated("the key has expired"));
        }
        let Some(tenant) = self.tenant(record.tenant).await? else {
            return Err(unauthenticated("the key's tenant has been deleted"));
        };
        Ok(Known {
            identity: Identity::Program { id: record.id, scopes: record.scopes },
            tenant,
            key_view: Some((view_key, view.etag)),
            expires_at_ms: record.expires_at_ms,
        })
    }

    /// The header names the tenant, or the token's `tenant` does; else it is `default`. What both
    /// name must be the same.
    async fn shopper(&self, token: &str, named: Option<&str>) -> Result<Known, Problem> {
        let refuse = |error: TokenError| unauthenticated(error.to_string());
        let claimed = shopper::claimed_tenant(token).map_err(refuse)?;
        if let (Some(named), Some(claimed)) = (named, &claimed)
            && named != claimed
        {
            return Err(unauthenticated("X-Tenant and the token's tenant are not the same"));
        }
        let name = named.or(claimed.as_deref()).unwrap_or(tenants::DEFAULT_NAME);
        // An unknown tenant is told as one without keys is: names are not for strangers to find.
        let wrong_key = || refuse(TokenError::WrongKey);
        let tenant = match tenants::is_tenant_name(name) {
            true => self.tenant_named(name).await?.ok_or_else(wrong_key)?,
            false => return Err(wrong_key()),
        };
        let verifier = tenant.verifier.as_ref().ok_or_else(wrong_key)?;
        let shopper = verifier.verify(token, now_ms() / 1000, self.0.leeway_s).map_err(refuse)?;
        let good_until_s = shopper.expires_at_s.saturating_add(self.0.leeway_s);
        Ok(Known {
            identity: Identity::Shopper { user: shopper.user.into() },
            tenant,
            key_view: None,
            expires_at_ms: Some(good_until_s.saturating_mul(1000)),
        })
    }

    /// Whoever shows nothing in `--dev` is of the tenant they name.
    async fn developer(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        named: Option<&str>,
    ) -> Result<Arc<Known>, Problem> {
        check_nearby(uri, headers)?;
        let tenant = match named {
            Some(name) => self.tenant_named(name).await?,
            None => self.tenant(tenants::DEFAULT_TENANT).await?,
        };
        let tenant = match (tenant, named) {
            (Some(tenant), _) => tenant,
            (None, None) => self.0.tenants.default_before_bootstrap(),
            (None, Some(name)) => {
                let detail = format!("there is no tenant `{name}`");
                return Err(ProblemKind::NotFound.because(detail));
            }
        };
        Ok(Arc::new(Known {
            identity: Identity::Developer,
            tenant,
            key_view: None,
            expires_at_ms: None,
        }))
    }
}

/// Refuses a credential of another tenant than `X-Tenant` names: answering for its own would be a
/// surprise.
fn of_tenant(known: Arc<Known>, named: Option<&str>) -> Result<Arc<Known>, Problem> {
    match named {
        Some(name) if name != &*known.tenant.name => {
            let why = "X-Tenant names another tenant than the key is of";
            Err(ProblemKind::Forbidden.because(why))
        }
        _ => Ok(known),
    }
}

/// The bearer token, if there is an `Authorization` header.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = given.next() else { return Ok(None) };
    let refuse = || unauthenticated("Authorization must be there once, as: Bearer KEY-OR-TOKEN");
    if given.next().is_some() {
        return Err(refuse());
    }
    let (scheme, token) =
        value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(refuse)?;
    let token = token.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
        return Err(refuse());
    }
    Ok(Some(token))
}

/// The tenant that `X-Tenant` names, if it is there.
fn named_tenant(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get("x-tenant") else { return Ok(None) };
    match value.to_str() {
        Ok(name) if tenants::is_tenant_name(name) => Ok(Some(name)),
        _ => Err(ProblemKind::InvalidHeader.because("X-Tenant is not the name of a tenant")),
    }
}
