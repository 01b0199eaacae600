//! The `Idempotency-Key` header: a request that is sent twice is carried out once.

use axum::extract::FromRequestParts;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method};
use kernel::id::digest;
use kernel::{IdempotencyKey, TenantId};

use crate::app::Ctx;
use crate::aside::by_bytes;
use crate::limits::IDEMPOTENCY_KEY_MAX;
use crate::problem::{Problem, ProblemKind};

/// The header's name.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The client's key, if it gave one, and what it is for.
#[derive(Clone, Debug)]
pub struct Idempotency(Option<Given>);

#[derive(Clone, Debug)]
struct Given {
    method: Method,
    path: String,
    key: HeaderValue,
}

impl Idempotency {
    /// What tells this request from others: the key is the tenant's own, and for one path.
    #[must_use]
    pub fn with(&self, tenant: TenantId, raw_body: &[u8]) -> Option<IdempotencyKey> {
        let Given { method, path, key } = self.0.as_ref()?;
        let tenant = tenant.0.to_be_bytes();
        let parts: [&[u8]; 4] =
            [&tenant, method.as_str().as_bytes(), path.as_bytes(), key.as_bytes()];
        Some(IdempotencyKey { key: digest(&parts), body: digest(&[raw_body]) })
    }

    /// As [`Idempotency::with`], of a body that may be large.
    pub(crate) async fn with_large(self, tenant: TenantId, raw: &Bytes) -> Option<IdempotencyKey> {
        // Most have no key, and then nothing is hashed.
        self.0.as_ref()?;
        let raw = raw.clone();
        by_bytes(raw.len(), move || self.with(tenant, &raw)).await
    }
}

impl FromRequestParts<Ctx> for Idempotency {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Ctx) -> Result<Idempotency, Problem> {
        let mut values = parts.headers.get_all(IDEMPOTENCY_KEY).iter();
        let Some(key) = values.next() else { return Ok(Idempotency(None)) };
        let refuse = |why: String| Err(ProblemKind::InvalidHeader.because(why));
        if values.next().is_some() {
            return refuse("Idempotency-Key is there twice".to_owned());
        }
        let visible = key.as_bytes().iter().all(u8::is_ascii_graphic);
        if !visible || !(1..=IDEMPOTENCY_KEY_MAX).contains(&key.len()) {
            return refuse(format!(
                "Idempotency-Key must have from 1 to {IDEMPOTENCY_KEY_MAX} visible ASCII characters"
            ));
        }
        let path = parts.uri.path().to_owned();
        Ok(Idempotency(Some(Given { method: parts.method.clone(), path, key: key.clone() })))
    }
}
