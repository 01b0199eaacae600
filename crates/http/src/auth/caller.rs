//! The extractors: [`Caller`] for operations that need a key or token, [`Visitor`] for public ones.

use std::any::Any;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, Uri};
use kernel::TenantId;
use tenants::{KeyId, Scope, Scopes};

use super::quota::{self, Held};
use super::shopper::USER_BYTES_MAX;
use super::{Auth, Identity, Known, named_tenant, unauthenticated};
use crate::app::{App, Ctx};
use crate::problem::{Problem, ProblemKind};
use crate::route::Access;

/// Whoever sent this request: known, within their rate, and allowed to call this operation.
///
/// Taking it charges the tenant's quota, so a handler takes it once.
#[derive(Clone)]
pub struct Caller {
    /// On whose behalf everything happens.
    pub tenant: TenantId,
    /// What the key opens. A shopper's token has `storefront`.
    pub scopes: Scopes,
    /// The user: a shopper's own `sub`, or whom a program says it acts for.
    pub user: Option<Arc<str>>,
    /// The key's id; `None` for a shopper's token, and without a key in `--dev`.
    pub key_id: Option<KeyId>,
    /// Whether this is a shopper's token, or a storefront's key in a shopper's stead: it acts for
    /// that user only.
    pub is_shopper: bool,
    pub(super) app: Arc<App>,
    pub(super) known: Arc<Known>,
}

impl Caller {
    /// Refuses unless the key has the scope (or `admin`). The access of the route has been checked
    /// already; this is for what depends on the body.
    ///
    /// # Errors
    /// `forbidden`, naming the scope.
    pub fn require(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes.opens(scope) { Ok(()) } else { Err(missing(scope.name())) }
    }

    /// Refuses a shopper who acts for another, and a key that may not act for users.
    ///
    /// # Errors
    /// `forbidden`.
    pub fn check_user(&self, user: &str) -> Result<(), Problem> {
        if self.is_shopper && self.user.as_deref() != Some(user) {
            let why = "a shopper, or a storefront for one, acts for that user only";
            return Err(ProblemKind::Forbidden.because(why));
        }
        Ok(())
    }

    /// Refuses when the tenant keeps as much as it may. To be called before something is written
    /// that stays; `creates_entity` says whether it is one more of what the quota counts.
    ///
    /// # Errors
    /// `quota-exceeded`, naming the quota, without `retryAfterMs`.
    pub fn check_room(&self, creates_entity: bool) -> Result<(), Problem> {
        let quotas = &self.known.tenant.record.quotas;
        if quotas.bytes_stored.is_none() && quotas.entities.is_none() {
            return Ok(());
        }
        let usage = self.auth().node().usage(self.tenant);
        self.known.tenant.counted(quota::check_room(quotas, usage, creates_entity))
    }

    /// Whether this is an admin of `default`, who may act on every tenant.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        self.tenant == tenants::DEFAULT_TENANT && self.scopes.opens(Scope::Admin)
    }

    pub(crate) fn auth(&self) -> &Auth {
        &self.app.edge.auth
    }

    /// The tenant's name.
    #[must_use]
    pub fn tenant_name(&self) -> &str {
        &self.known.tenant.name
    }
}

impl Caller {
    /// Whoever holds this key, shown in the way of another dialect; without a key, in `--dev`, a
    /// developer. Counted and charged as any caller is; the scope is for the dialect to check.
    pub(crate) async fn of_key(
        ctx: &Ctx,
        key: Option<&str>,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Caller, Problem> {
        let auth = &ctx.edge().auth;
        let known = match key {
            Some(key) => auth.holder_of(key, ctx.conn()).await?,
            None => auth.developer(uri, headers, named_tenant(headers)?).await?,
        };
        admit(ctx, known, headers)
    }

    /// Refuses a key that there is not. Counts and charges nothing.
    pub(crate) async fn check_key(ctx: &Ctx, key: &str) -> Result<(), Problem> {
        let known = ctx.edge().auth.holder_of(key, ctx.conn()).await?;
        ctx.is_of(known.tenant.record.id);
        Ok(())
    }
}

impl FromRequestParts<Ctx> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, ctx: &Ctx) -> Result<Caller, Problem> {
        let auth = &ctx.edge().auth;
        let Parts { uri, headers, .. } = &*parts;
        let Some(known) = auth.identify(uri, headers, ctx.conn(), ctx.edge().dev).await? else {
            return Err(unauthenticated("a key or token is needed: Authorization: Bearer …"));
        };
        let mut caller = admit(ctx, known, &parts.headers)?;
        let doc = &ctx.route().doc;
        check_access(&mut caller, doc.access)?;
        if doc.parameters.is_empty() && parts.uri.query().is_some_and(|query| !query.is_empty()) {
            return Err(ProblemKind::InvalidParameter.because("this call takes no query"));
        }
        Ok(caller)
    }
}

/// Whoever calls a public operation: someone known, or anyone at all.
///
/// Strangers are not charged to a tenant's quotas, or one could use up another's.
#[derive(Clone)]
pub struct Visitor {
    /// Of the caller; else the one that `X-Tenant` names; else `default`.
    pub tenant: TenantId,
    /// The caller, if a key or token was shown.
    pub caller: Option<Caller>,
}

impl FromRequestParts<Ctx> for Visitor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, ctx: &Ctx) -> Result<Visitor, Problem> {
        let auth = &ctx.edge().auth;
        let Parts { uri, headers, .. } = &*parts;
        if let Some(known) = auth.identify(uri, headers, ctx.conn(), ctx.edge().dev).await? {
            let caller = admit(ctx, known, &parts.headers)?;
            return Ok(Visitor { tenant: caller.tenant, caller: Some(caller) });
        }
        let tenant = match named_tenant(&parts.headers)? {
            None => tenants::DEFAULT_TENANT,
            Some(name) => match auth.tenant_named(name).await? {
                Some(tenant) => tenant.record.id,
                None => {
                    let detail = format!("there is no tenant `{name}`");
                    return Err(ProblemKind::NotFound.because(detail));
                }
            },
        };
        Ok(Visitor { tenant, caller: None })
    }
}

/// Counts and charges the request.
fn admit(ctx: &Ctx, known: Arc<Known>, headers: &HeaderMap) -> Result<Caller, Problem> {
    let auth = &ctx.edge().auth;
    let tenant = &known.tenant;
    ctx.conn().hold(tenant.record.id, || {
        let held = Held::connection(&tenant.gauge, tenant.record.quotas.connections);
        Ok::<Box<dyn Any + Send>, Problem>(Box::new(tenant.counted(held)?))
    })?;
    if tenant.rate.is_some() {
        tenant.counted(tenant.gauge.charge(auth.now_ns(), tenant.rate))?;
    }
    ctx.is_of(tenant.record.id);
    let scopes = known.identity.scopes();
    let acts_for = acted_for(headers)?;
    let (user, key_id, is_shopper) = match &known.identity {
        Identity::Shopper { user } => {
            if acts_for.is_some_and(|other| other != &**user) {
                let why = "X-User is not the user of the token";
                return Err(ProblemKind::Forbidden.because(why));
            }
            (Some(Arc::clone(user)), None, true)
        }
        Identity::Program { id, .. } => {
            if acts_for.is_some() && !scopes.opens(Scope::Storefront) {
                return Err(missing(Scope::Storefront.name()));
            }
            (acts_for.map(Arc::from), Some(*id), false)
        }
        Identity::Developer => (acts_for.map(Arc::from), None, false),
    };
    Ok(Caller {
        tenant: tenant.record.id,
        scopes,
        user,
        key_id,
        is_shopper,
        app: Arc::clone(&ctx.app),
        known,
    })
}

fn check_access(caller: &mut Caller, access: Access) -> Result<(), Problem> {
    let (Access::Scope(name) | Access::ScopeOrShopper(name)) = access else { return Ok(()) };
    if caller.is_shopper {
        return match access {
            Access::ScopeOrShopper(_) => Ok(()),
            _ => Err(missing(name)),
        };
    }
    let scope = Scope::named(name).expect("routes name scopes that there are");
    if caller.scopes.opens(scope) {
        return Ok(());
    }
    // A storefront does what the shopper could whom it names, and nothing for anybody else.
    let stands_in = caller.scopes.opens(Scope::Storefront) && caller.user.is_some();
    if stands_in && matches!(access, Access::ScopeOrShopper(_)) {
        caller.is_shopper = true;
        return Ok(());
    }
    Err(missing(name))
}

fn missing(scope: &'static str) -> Problem {
    let detail = match scope {
        "admin" => "the scope admin is missing",
        "produce" => "the scope produce is missing",
        "consume" => "the scope consume is missing",
        "ingest" => "the scope ingest is missing",
        "storefront" => "the scope storefront is missing",
        _ => "the scope read is missing",
    };
    ProblemKind::Forbidden.because(detail)
}

/// The user that `X-User` names, if it is there.
fn acted_for(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get("x-user") else { return Ok(None) };
    match std::str::from_utf8(value.as_bytes()) {
        Ok(user) if (1..=USER_BYTES_MAX).contains(&user.len()) => Ok(Some(user)),
        _ => {
            Err(ProblemKind::InvalidHeader.because("X-User must have from 1 to 256 bytes of UTF-8"))
        }
    }
}
