//! Tokens, good and bad, against every kind of key.

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::*;

pub(in crate::auth) const SECRET: &[u8] = b"a secret of at least thirty-two bytes";
pub(in crate::auth) const ES256_PRIVATE: &str = include_str!("testdata/es256-private.pem");
pub(in crate::auth) const ES256_PUBLIC: &str = include_str!("testdata/es256-public.pem");
const OTHER_PRIVATE: &str = include_str!("testdata/other-private.pem");
const OTHER_PUBLIC: &str = include_str!("testdata/other-public.pem");
const P384_PUBLIC: &str = include_str!("testdata/p384-public.pem");
const RSA_PRIVATE: &str = include_str!("testdata/rsa-private.pem");

const NOW: u64 = 1_700_000_000;

fn hs256() -> ShopperKeys {
    ShopperKeys { keys: VerifyingKeys::Hs256(SECRET.to_vec()), issuer: None, audience: None }
}

fn es256() -> ShopperKeys {
    ShopperKeys { keys: VerifyingKeys::Es256(ES256_PUBLIC.into()), ..hs256() }
}

fn jwks(keys: &Value) -> ShopperKeys {
    ShopperKeys { keys: VerifyingKeys::Jwks(json!({ "keys": keys }).to_string()), ..hs256() }
}

fn jwk(private_pem: &str, algorithm: Algorithm, id: Option<&str>) -> Value {
    let key = signing(private_pem, algorithm);
    let mut jwk = Jwk::from_encoding_key(&key, algorithm).expect("a public key");
    jwk.common.key_id = id.map(str::to_owned);
    serde_json::to_value(jwk).expect("plain data")
}

fn signing(private_pem: &str, algorithm: Algorithm) -> EncodingKey {
    match algorithm {
        Algorithm::RS256 => EncodingKey::from_rsa_pem(private_pem.as_bytes()),
        _ => EncodingKey::from_ec_pem(private_pem.as_bytes()),
    }
    .expect("a private key")
}

fn sign(algorithm: Algorithm, id: Option<&str>, claims: &Value, key: &EncodingKey) -> String {
    let header = Header { kid: id.map(str::to_owned), ..Header::new(algorithm) };
    encode(&header, claims, key).expect("it signs")
}

pub(in crate::auth) fn hs256_token(claims: &Value) -> String {
    sign(Algorithm::HS256, None, claims, &EncodingKey::from_secret(SECRET))
}

pub(in crate::auth) fn es256_token(claims: &Value) -> String {
    sign(Algorithm::ES256, None, claims, &signing(ES256_PRIVATE, Algorithm::ES256))
}

/// The document that verifies [`es256_token`].
pub(in crate::auth) fn es256_jwks() -> String {
    json!({ "keys": [jwk(ES256_PRIVATE, Algorithm::ES256, None)] }).to_string()
}

/// A token whose HMAC has the public key, which everybody has, as its secret.
pub(in crate::auth) fn confused_token(claims: &Value) -> String {
    let key = EncodingKey::from_secret(ES256_PUBLIC.as_bytes());
    sign(Algorithm::HS256, None, claims, &key)
}

/// A token whose header says `none`, or anything else, over good claims.
pub(in crate::auth) fn forged_token(header: &Value, claims: &Value, signature: &str) -> String {
    use base64::Engine;
    let encode =
        |json: &Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json.to_string());
    format!("{}.{}.{signature}", encode(header), encode(claims))
}

fn good() -> Value {
    json!({ "sub": "ada", "exp": NOW + 100 })
}

fn check(keys: &ShopperKeys, token: &str) -> Result<String, TokenError> {
    let verifier = Verifier::new(keys).expect("good keys");
    verifier.verify(token, NOW, 60).map(|shopper| shopper.user)
}

#[test]
fn each_kind_of_key_verifies_its_own_tokens_and_no_others() {
    let rsa = signing(RSA_PRIVATE, Algorithm::RS256);
    let tokens =
        [hs256_token(&good()), es256_token(&good()), sign(Algorithm::RS256, None, &good(), &rsa)];
    let keys = [hs256(), es256(), jwks(&json!([jwk(RSA_PRIVATE, Algorithm::RS256, None)]))];
    for (i, keys) in keys.iter().enumerate() {
        for (j, token) in tokens.iter().enumerate() {
            let expected = if i == j { Ok("ada".to_owned()) } else { Err(TokenError::WrongKey) };
            assert_eq!(check(keys, token), expected, "key {i}, token {j}");
        }
    }
}

#[test]
fn a_token_signed_with_another_key_is_refused() {
    let other = sign(Algorithm::HS256, None, &good(), &EncodingKey::from_secret(&[7; 32]));
    assert_eq!(check(&hs256(), &other), Err(TokenError::WrongSignature));
    let key = signing(OTHER_PRIVATE, Algorithm::ES256);
    let other = sign(Algorithm::ES256, None, &good(), &key);
    assert_eq!(check(&es256(), &other), Err(TokenError::WrongSignature));
}

#[test]
fn a_changed_token_is_refused() {
    for (keys, token) in [(hs256(), hs256_token(&good())), (es256(), es256_token(&good()))] {
        let claims = json!({ "sub": "eve", "exp": NOW + 100 });
        let (head, signature) = (token.split('.').next(), token.rsplit('.').next());
        let forged = forged_token(&json!({}), &claims, signature.unwrap());
        let forged = format!("{}.{}", head.unwrap(), forged.split_once('.').unwrap().1);
        assert_eq!(check(&keys, &forged), Err(TokenError::WrongSignature));
    }
}

#[test]
fn the_algorithm_is_the_keys_and_never_the_tokens() {
    for alg in ["none", "None", "NONE", "", "HS256x"] {
        for signature in ["", "AAAA"] {
            let token = forged_token(&json!({ "alg": alg }), &good(), signature);
            for keys in [hs256(), es256()] {
                assert_eq!(check(&keys, &token), Err(TokenError::Malformed), "{alg}");
            }
        }
    }
    // The classic: HMAC with the public key, which everybody has, as its secret.
    for secret in [ES256_PUBLIC, ES256_PUBLIC.trim()] {
        let key = EncodingKey::from_secret(secret.as_bytes());
        let confused = sign(Algorithm::HS256, None, &good(), &key);
        assert_eq!(check(&es256(), &confused), Err(TokenError::WrongKey));
        let set = jwks(&json!([jwk(ES256_PRIVATE, Algorithm::ES256, None)]));
        assert_eq!(check(&set, &confused), Err(TokenError::WrongKey));
    }
    let stronger = sign(Algorithm::HS512, None, &good(), &EncodingKey::from_secret(SECRET));
    assert_eq!(check(&hs256(), &stronger), Err(TokenError::WrongKey));
}

#[test]
fn a_token_needs_an_expiry_in_the_future_and_a_user() {
    let cases = [
        (json!({ "sub": "ada", "exp": NOW - 59 }), Ok("ada")),
        (json!({ "sub": "ada", "exp": NOW - 60 }), Err(TokenError::Expired)),
        (json!({ "sub": "ada", "exp": 0 }), Err(TokenError::Expired)),
        (json!({ "sub": "ada", "exp": (NOW + 1) as f64 + 0.5 }), Ok("ada")),
        (json!({ "sub": "ada", "exp": NOW + 9, "nbf": NOW + 60 }), Ok("ada")),
        (json!({ "sub": "ada", "exp": NOW + 900, "nbf": NOW + 61 }), Err(TokenError::NotYet)),
        (json!({ "sub": "ada" }), Err(TokenError::MissingClaim)),
        (json!({ "sub": "ada", "exp": null }), Err(TokenError::MissingClaim)),
        (json!({ "sub": "ada", "exp": -1 }), Err(TokenError::MissingClaim)),
        (json!({ "sub": "ada", "exp": 1e300 }), Err(TokenError::MissingClaim)),
        (json!({ "sub": "ada", "exp": "tomorrow" }), Err(TokenError::Malformed)),
        (json!({ "exp": NOW + 9 }), Err(TokenError::MissingClaim)),
        (json!({ "sub": "", "exp": NOW + 9 }), Err(TokenError::MissingClaim)),
        (json!({ "sub": "x".repeat(257), "exp": NOW + 9 }), Err(TokenError::MissingClaim)),
        (json!({ "sub": 7, "exp": NOW + 9 }), Err(TokenError::Malformed)),
    ];
    for (claims, expected) in cases {
        let expected = expected.map(str::to_owned);
        assert_eq!(check(&hs256(), &hs256_token(&claims)), expected, "{claims}");
    }
}

#[test]
fn issuer_and_audience_are_compared_when_they_are_configured() {
    let keys = ShopperKeys { issuer: Some("us".into()), audience: Some("shop".into()), ..hs256() };
    let with = |iss: Value, aud: Value| {
        hs256_token(&json!({ "sub": "ada", "exp": NOW + 9, "iss": iss, "aud": aud }))
    };
    assert_eq!(check(&keys, &with(json!("us"), json!("shop"))), Ok("ada".into()));
    assert_eq!(check(&keys, &with(json!("us"), json!(["a", "shop"]))), Ok("ada".into()));
    let wrong = Err(TokenError::WrongIssuerOrAudience);
    assert_eq!(check(&keys, &with(json!("them"), json!("shop"))), wrong);
    assert_eq!(check(&keys, &with(json!("us"), json!("bank"))), wrong);
    assert_eq!(check(&keys, &hs256_token(&good())), wrong);
    // Not configured, not compared: a login usually sets both.
    assert_eq!(check(&hs256(), &with(json!("any"), json!("thing"))), Ok("ada".into()));
}

#[test]
fn the_key_id_selects_among_the_keys_of_a_document() {
    let (one, two) = (jwk(ES256_PRIVATE, Algorithm::ES256, Some("1")), OTHER_PRIVATE);
    let set = jwks(&json!([one, jwk(two, Algorithm::ES256, Some("2"))]));
    let token = |private: &str, id: Option<&str>| {
        sign(Algorithm::ES256, id, &good(), &signing(private, Algorithm::ES256))
    };
    assert_eq!(check(&set, &token(ES256_PRIVATE, Some("1"))), Ok("ada".into()));
    assert_eq!(check(&set, &token(OTHER_PRIVATE, Some("2"))), Ok("ada".into()));
    let swapped = token(OTHER_PRIVATE, Some("1"));
    assert_eq!(check(&set, &swapped), Err(TokenError::WrongSignature));
    assert_eq!(check(&set, &token(OTHER_PRIVATE, Some("3"))), Err(TokenError::WrongKey));
    assert_eq!(check(&set, &token(OTHER_PRIVATE, None)), Err(TokenError::WrongKey));
    let verifier = Verifier::new(&set).expect("good keys");
    assert_eq!(verifier.key_ids().collect::<Vec<_>>(), ["1", "2"]);
    // A lone key is meant by a token without an id, and a lone key without one by any token.
    let lone = jwks(&json!([one]));
    assert_eq!(check(&lone, &token(ES256_PRIVATE, None)), Ok("ada".into()));
    assert_eq!(check(&lone, &token(ES256_PRIVATE, Some("9"))), Err(TokenError::WrongKey));
    assert_eq!(check(&es256(), &token(ES256_PRIVATE, Some("9"))), Ok("ada".into()));
}

#[test]
fn keys_that_cannot_verify_are_refused_when_they_are_given() {
    let refused = |keys: VerifyingKeys| {
        Verifier::new(&ShopperKeys { keys, ..hs256() }).err().expect("refused")
    };
    assert_eq!(refused(VerifyingKeys::Hs256(vec![1; 31])), ShopperKeyError::ShortSecret);
    for pem in ["", "nonsense", P384_PUBLIC, RSA_PRIVATE, ES256_PRIVATE] {
        assert_eq!(refused(VerifyingKeys::Es256(pem.into())), ShopperKeyError::NotEs256Pem);
    }
    assert!(
        Verifier::new(&ShopperKeys { keys: VerifyingKeys::Es256(OTHER_PUBLIC.into()), ..hs256() })
            .is_ok()
    );
    for document in ["", "{}", "[]", "{\"keys\": 1}"] {
        let error = refused(VerifyingKeys::Jwks(document.into()));
        assert!(matches!(error, ShopperKeyError::NotJwks(_)), "{document}: {error}");
    }
    // Secret keys, keys for encryption, and an algorithm that is not the key's.
    let mut for_encryption = jwk(ES256_PRIVATE, Algorithm::ES256, None);
    for_encryption["use"] = json!("enc");
    let mut mislabelled = jwk(ES256_PRIVATE, Algorithm::ES256, None);
    mislabelled["alg"] = json!("HS256");
    let secret = json!({ "kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "alg": "HS256" });
    for key in [for_encryption, mislabelled, secret] {
        let document = json!({ "keys": [key] }).to_string();
        assert_eq!(refused(VerifyingKeys::Jwks(document)), ShopperKeyError::NoUsableKey);
    }
}

#[test]
fn extensions_that_must_be_understood_are_not() {
    let header = Header { crit: Some(vec!["b64".into()]), ..Header::new(Algorithm::HS256) };
    let token = encode(&header, &good(), &EncodingKey::from_secret(SECRET)).expect("it signs");
    assert_eq!(check(&hs256(), &token), Err(TokenError::Malformed));
}

#[test]
fn nonsense_is_malformed_and_nothing_worse() {
    for token in ["", ".", "..", "...", "a.b.c", "é.é.é", "eyJ9.eyJ9.", &".".repeat(8000)] {
        assert_eq!(check(&hs256(), token), Err(TokenError::Malformed), "{token:.20}");
        assert!(claimed_tenant(token).is_err(), "{token:.20}");
    }
    let token = hs256_token(&json!({ "tenant": "shop" }));
    assert_eq!(claimed_tenant(&token), Ok(Some("shop".to_owned())));
    assert_eq!(claimed_tenant(&hs256_token(&good())), Ok(None));
}
