//! Shoppers' tokens: JWTs signed by the tenant's own login, verified with what the tenant gave.
//!
//! A key verifies tokens of *its* algorithm alone. The algorithm follows from the key that the
//! tenant configured, never from the token: a token that names another (`none`, or HS256 with the
//! public key as its secret) is refused before anything is computed.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::Deserialize;
use tenants::{ShopperKeys, VerifyingKeys};

/// Bytes of a token.
pub(crate) const TOKEN_BYTES_MAX: usize = 8 << 10;
/// Bytes of a user's name.
pub(crate) const USER_BYTES_MAX: usize = 256;
/// Bytes of an HS256 secret, at least: RFC 7518 asks for as many as the hash has.
pub(crate) const HS256_SECRET_BYTES_MIN: usize = 32;

/// Why something is not a key that tokens can be verified with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShopperKeyError {
    /// An HS256 secret that can be guessed.
    #[error("an HS256 secret has at least 32 bytes")]
    ShortSecret,
    /// Not a PEM of a public P-256 key.
    #[error("this is not a PEM of a public key on the curve P-256")]
    NotEs256Pem,
    /// Not a JWKS document.
    #[error("this is not a JWKS document: {0}")]
    NotJwks(String),
    /// A JWKS document without a key for signatures of a kind that is accepted.
    #[error("the JWKS document has no usable public key: EC, RSA or OKP, for signatures")]
    NoUsableKey,
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("the token is not a JWT that can be read")]
    Malformed,
    #[error("the token is not signed with a key and algorithm that the tenant has configured")]
    WrongKey,
    #[error("the token's signature does not match")]
    WrongSignature,
    #[error("the token has no exp, or no sub, or one that cannot be used")]
    MissingClaim,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYet,
    #[error("the token's iss or aud is not the one that the tenant has configured")]
    WrongIssuerOrAudience,
}

/// What a good token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shopper {
    pub(crate) user: String,
    /// Seconds since 1970; without leeway.
    pub(crate) expires_at_s: u64,
}

#[derive(Deserialize)]
struct Claims {
    sub: Option<String>,
    exp: Option<f64>,
    nbf: Option<f64>,
}

#[derive(Deserialize)]
struct TenantClaim {
    tenant: Option<String>,
}

/// The `tenant` that a token claims to be for, not verified: it says whose keys are to verify it.
pub(crate) fn claimed_tenant(token: &str) -> Result<Option<String>, TokenError> {
    jsonwebtoken::dangerous::insecure_decode_claims::<TenantClaim>(token)
        .map(|claims| claims.tenant)
        .map_err(|_| TokenError::Malformed)
}

struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
    validation: Validation,
}

/// A tenant's shopper keys, parsed.
pub(crate) struct Verifier {
    keys: Vec<Key>,
}

impl Verifier {
    pub(crate) fn new(config: &ShopperKeys) -> Result<Verifier, ShopperKeyError> {
        let keys = match &config.keys {
            VerifyingKeys::Hs256(secret) if secret.len() < HS256_SECRET_BYTES_MIN => {
                return Err(ShopperKeyError::ShortSecret);
            }
            VerifyingKeys::Hs256(secret) => {
                vec![(None, Algorithm::HS256, DecodingKey::from_secret(secret))]
            }
            VerifyingKeys::Es256(pem) => vec![(None, Algorithm::ES256, es256_key(pem)?)],
            VerifyingKeys::Jwks(document) => jwks_keys(document)?,
        };
        let with_validation = |(id, algorithm, key)| {
            let validation = validation(algorithm, config);
            Key { id, algorithm, key, validation }
        };
        Ok(Verifier { keys: keys.into_iter().map(with_validation).collect() })
    }

    /// The ids of the keys, of those that have one.
    pub(crate) fn key_ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().filter_map(|key| key.id.as_deref())
    }

    /// Whose token it is, if it is good at `now_s`, give or take `leeway_s`.
    pub(crate) fn verify(
        &self,
        token: &str,
        now_s: u64,
        leeway_s: u64,
    ) -> Result<Shopper, TokenError> {
        let header = decode_header(token).map_err(|_| TokenError::Malformed)?;
        // Extensions that must be understood (RFC 7515, 4.1.11): none are.
        if header.crit.is_some() {
            return Err(TokenError::Malformed);
        }
        let key = self.pick(header.kid.as_deref(), header.alg).ok_or(TokenError::WrongKey)?;
        let claims = decode::<Claims>(token, &key.key, &key.validation).map_err(refusal)?.claims;
        let user = claims
            .sub
            .filter(|sub| !sub.is_empty() && sub.len() <= USER_BYTES_MAX)
            .ok_or(TokenError::MissingClaim)?;
        let expires_at_s = seconds(claims.exp.ok_or(TokenError::MissingClaim)?)?;
        if expires_at_s.saturating_add(leeway_s) <= now_s {
            return Err(TokenError::Expired);
        }
        if let Some(not_before) = claims.nbf
            && seconds(not_before)? > now_s.saturating_add(leeway_s)
        {
            return Err(TokenError::NotYet);
        }
        Ok(Shopper { user, expires_at_s })
    }

    /// The key with this id; else the only one that can be meant.
    fn pick(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&Key> {
        let fitting = || self.keys.iter().filter(|key| key.algorithm == algorithm);
        if let Some(id) = id
            && let Some(named) = fitting().find(|key| key.id.as_deref() == Some(id))
        {
            return Some(named);
        }
        // A token that names another id than a key has is not that key's.
        let mut rest = fitting().filter(|key| id.is_none() || key.id.is_none());
        let only = rest.next()?;
        rest.next().is_none().then_some(only)
    }
}

/// `exp` and `nbf` are checked by hand, against a time that tests can choose.
fn validation(algorithm: Algorithm, config: &ShopperKeys) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = config.audience.is_some();
    if let Some(audience) = &config.audience {
        validation.set_audience(&[audience]);
        validation.required_spec_claims.insert("aud".into());
    }
    if let Some(issuer) = &config.issuer {
        validation.set_issuer(&[issuer]);
        validation.required_spec_claims.insert("iss".into());
    }
    validation
}

/// A `NumericDate` may have a fraction and must be in a sane range.
fn seconds(date: f64) -> Result<u64, TokenError> {
    // Whole numbers up to here are exact, and it is 142 million years from now.
    const MAX: f64 = (1_u64 << 52) as f64;
    if !(0.0..=MAX).contains(&date) {
        return Err(TokenError::MissingClaim);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    Ok(date as u64)
}

fn refusal(error: jsonwebtoken::errors::Error) -> TokenError {
    use jsonwebtoken::errors::ErrorKind;
    match error.kind() {
        ErrorKind::InvalidSignature => TokenError::WrongSignature,
        ErrorKind::InvalidAlgorithm => TokenError::WrongKey,
        ErrorKind::InvalidIssuer | ErrorKind::InvalidAudience => TokenError::WrongIssuerOrAudience,
        ErrorKind::MissingRequiredClaim(_) => TokenError::WrongIssuerOrAudience,
        _ => TokenError::Malformed,
    }
}

fn es256_key(pem: &str) -> Result<DecodingKey, ShopperKeyError> {
    let key = DecodingKey::from_ec_pem(pem.as_bytes()).map_err(|_| ShopperKeyError::NotEs256Pem)?;
    // A P-384 key parses as well, and would then refuse every token: an uncompressed point tells
    // the curves apart by its length.
    match key.try_get_as_bytes() {
        Ok(point) if point.len() == 65 => Ok(key),
        _ => Err(ShopperKeyError::NotEs256Pem),
    }
}

type ParsedKey = (Option<String>, Algorithm, DecodingKey);

fn jwks_keys(document: &str) -> Result<Vec<ParsedKey>, ShopperKeyError> {
    let set: JwkSet = serde_json::from_str(document)
        .map_err(|error| ShopperKeyError::NotJwks(error.to_string()))?;
    let keys: Vec<_> = set.keys.iter().filter_map(jwk).collect();
    if keys.is_empty() { Err(ShopperKeyError::NoUsableKey) } else { Ok(keys) }
}

/// A public key for signatures; keys for other uses are passed over, and so are secret ones, which
/// have no place in a document that is meant to be public.
fn jwk(jwk: &Jwk) -> Option<ParsedKey> {
    if matches!(&jwk.common.public_key_use, Some(purpose) if *purpose != PublicKeyUse::Signature) {
        return None;
    }
    let usual = match &jwk.algorithm {
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            Algorithm::ES256
        }
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => {
            Algorithm::ES384
        }
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::OctetKeyPair(_) => Algorithm::EdDSA,
        _ => return None,
    };
    let algorithm = match jwk.common.key_algorithm {
        Some(named) => named.to_string().parse().ok()?,
        None => usual,
    };
    // An RSA key may name another of its family; nothing may name one of another family.
    if algorithm.family() != usual.family()
        || (algorithm != usual && !matches!(jwk.algorithm, AlgorithmParameters::RSA(_)))
    {
        return None;
    }
    let key = DecodingKey::from_jwk(jwk).ok()?;
    Some((jwk.common.key_id.clone(), algorithm, key))
}

#[cfg(test)]
#[path = "shopper_tests.rs"]
pub(in crate::auth) mod tests;
