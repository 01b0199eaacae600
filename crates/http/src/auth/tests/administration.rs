//! What the operations on tenants, keys and quotas answer.

use super::*;

const IDEMPOTENT: &str = "idempotency-key";

impl World {
    async fn set_quotas(&self, body: &Value) -> Seen {
        self.send(Method::PUT, &self.operator, "/v1/tenants/shop/quotas", body).await
    }

    async fn create_key(&self, idempotency: &str, body: &Value) -> Seen {
        let bearer = bearer_of(&self.operator);
        let headers = [("authorization", bearer.as_str()), (IDEMPOTENT, idempotency)];
        self.call(Method::POST, "/v1/keys", &headers, Some(body)).await
    }
}

#[tokio::test]
async fn the_same_key_creation_shows_the_same_secret_again() {
    let world = World::new().await;
    let body = json!({ "name": "ci", "scopes": ["read", "produce"], "tenant": SHOP });
    let first = world.create_key("a", &body).await;
    assert_eq!(first.status, StatusCode::CREATED, "{}", first.json);
    assert_eq!(first.json, world.create_key("a", &body).await.json);
    let secret = first.json["key"].as_str().expect("a secret");
    assert_eq!(world.get(secret, "/probe/produce").await.json["tenant"], 2);
    let other = world.create_key("b", &body).await.json;
    assert_ne!(first.json["key"], other["key"]);
    let changed = json!({ "name": "ci", "scopes": ["admin"], "tenant": SHOP });
    let conflict = world.create_key("a", &changed).await;
    assert!(conflict.is_problem(422, "idempotency-conflict"), "{}", conflict.json);
    // Revoked in between, it is still the same answer, and still revoked.
    let path = format!("/v1/keys/{}", first.json["keyId"].as_str().expect("an id"));
    world.send(Method::DELETE, &world.operator, &path, &json!({})).await;
    assert_eq!(first.json, world.create_key("a", &body).await.json);
    assert!(world.get(secret, "/probe/produce").await.is_problem(401, "unauthenticated"));
}

#[tokio::test]
async fn a_key_shows_its_secret_once_and_never_in_lists() {
    let world = World::new().await;
    let body =
        json!({ "name": "ci", "scopes": ["read", "admin"], "expiresAt": "2999-01-02T03:04:05Z" });
    let made = world.post(&world.shop_admin, "/v1/keys", &body).await;
    assert_eq!(made.headers["cache-control"], "no-store");
    let secret = made.json["key"].as_str().expect("a secret").to_owned();
    let list = world.get(&world.shop_admin, "/v1/keys").await.json;
    assert!(!list.to_string().contains(&secret[3..]), "{list}");
    // Ids begin with the millisecond: two keys of one may stand either way round.
    let items = list["items"].as_array().expect("items");
    assert_eq!(items.len(), 2, "the admin's and this one");
    let shown = items.iter().find(|item| item["keyId"] == made.json["keyId"]).expect("listed");
    assert_eq!(shown["scopes"], json!(["admin", "read"]));
    assert_eq!(shown["expiresAt"], "2999-01-02T03:04:05.000Z");
    assert_eq!((&shown["tenant"], &shown["tenantId"]), (&json!(SHOP), &json!(2)));
}

#[tokio::test]
async fn keys_that_make_no_sense_are_refused() {
    let world = World::new().await;
    let bodies = [
        (json!({ "name": "k", "scopes": [] }), 422, "unprocessable"),
        (json!({ "name": "k", "scopes": ["root"] }), 422, "unprocessable"),
        (json!({ "name": "k", "scopes": ["read"], "expiresAt": "soon" }), 422, "unprocessable"),
        (
            json!({ "name": "k", "scopes": ["read"], "expiresAt": "2001-01-01T00:00:00Z" }),
            422,
            "unprocessable",
        ),
        (json!({ "name": "x".repeat(257), "scopes": ["read"] }), 422, "unprocessable"),
        (json!({ "name": "k", "scopes": ["read"], "tenant": "nobody" }), 404, "not-found"),
        (json!({ "name": "k", "scopes": ["read"], "tenant": 99 }), 404, "not-found"),
        (json!({ "name": "k", "scopes": ["read"], "tennant": "x" }), 400, "invalid-body"),
        (json!({ "scopes": ["read"] }), 400, "invalid-body"),
        (json!({ "name": "k", "scopes": "read" }), 400, "invalid-body"),
    ];
    for (body, status, slug) in bodies {
        let seen = world.post(&world.operator, "/v1/keys", &body).await;
        assert!(seen.is_problem(status, slug), "{body}: {}", seen.json);
    }
    for id in ["x", "key_1_00", "key_1_000000000000000000000000", "key_99_000000000000000000000000"]
    {
        let path = format!("/v1/keys/{id}");
        let seen = world.send(Method::DELETE, &world.operator, &path, &json!({})).await;
        assert!(seen.is_problem(404, "not-found"), "{id}");
    }
}

#[tokio::test]
async fn the_last_admin_key_and_the_default_tenant_stay() {
    let world = World::new().await;
    let keys = world.get(&world.operator, "/v1/keys").await.json;
    let path = format!("/v1/keys/{}", keys["items"][0]["keyId"].as_str().expect("an id"));
    let seen = world.send(Method::DELETE, &world.operator, &path, &json!({})).await;
    assert!(seen.is_problem(409, "conflict"), "{}", seen.json);
    let path = "/v1/tenants/default";
    let seen = world.send(Method::DELETE, &world.operator, path, &json!({})).await;
    assert!(seen.is_problem(409, "conflict"), "{}", seen.json);
}

#[tokio::test]
async fn tenants_are_created_once_by_name_and_listed_in_order() {
    let world = World::new().await;
    let create =
        async |name: &str| world.post(&world.operator, "/v1/tenants", &json!({"name": name})).await;
    assert!(create(SHOP).await.is_problem(409, "conflict"));
    for bad in ["", "Shop", "a b", "42", &"x".repeat(65)] {
        assert!(create(bad).await.is_problem(422, "unprocessable"), "{bad}");
    }
    let bearer = bearer_of(&world.operator);
    let headers = [("authorization", bearer.as_str()), (IDEMPOTENT, "t")];
    let again = async || {
        world.call(Method::POST, "/v1/tenants", &headers, Some(&json!({"name": "third"}))).await
    };
    let (first, second) = (again().await, again().await);
    assert_eq!((first.status, second.status), (StatusCode::CREATED, StatusCode::CREATED));
    assert_eq!(first.json, second.json);
    create("fourth").await;
    let page = world.get(&world.operator, "/v1/tenants?limit=3").await.json;
    let names = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().expect("items").iter();
        items.map(|item| item["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&page), ["default", "shop", "third"]);
    let cursor = page["nextCursor"].as_str().expect("there is more");
    let path = format!("/v1/tenants?limit=3&cursor={cursor}");
    let page = world.get(&world.operator, &path).await.json;
    assert_eq!((names(&page), page.get("nextCursor")), (vec!["fourth".to_owned()], None));
    let seen = world.get(&world.operator, "/v1/tenants?cursor=AAAAAAAA").await;
    assert!(seen.is_problem(400, "invalid-parameter"), "{}", seen.json);
}

#[tokio::test]
async fn keys_are_listed_page_by_page() {
    let world = World::new().await;
    for _ in 0..4 {
        world.key(SHOP, &["read"]).await;
    }
    let mut seen = Vec::new();
    let mut path = "/v1/keys?tenant=shop&limit=2".to_owned();
    loop {
        let page = world.get(&world.operator, &path).await.json;
        let items = page["items"].as_array().expect("items");
        seen.extend(items.iter().map(|item| item["keyId"].as_str().expect("an id").to_owned()));
        let Some(cursor) = page.get("nextCursor") else { break };
        path = format!("/v1/keys?tenant=2&limit=2&cursor={}", cursor.as_str().expect("text"));
    }
    assert_eq!(seen.len(), 5);
    assert!(seen.is_sorted(), "{seen:?}");
}

#[tokio::test]
async fn quotas_are_replaced_whole_and_null_is_no_limit() {
    let world = World::new().await;
    let initial = world.get(&world.shop_admin, "/v1/tenants/shop/quotas").await.json;
    assert_eq!(initial["requestsPerSecond"], 100_000);
    let used = json!({ "bytesStored": 0, "entities": 0, "queues": 0, "inflight": 0, "waiters": 0 });
    assert_eq!(initial["used"], used);
    let set = world.set_quotas(&json!({ "requestsPerSecond": 7, "entities": null })).await.json;
    let expected = json!({
        "requestsPerSecond": 7, "burst": null, "bytesStored": 1_u64 << 40, "entities": null,
        "connections": 100_000, "publishPerSecond": 200_000, "queues": 100_000,
        "retentionSecondsMax": null, "inflight": 10_000_000, "waiters": 50_000, "used": used,
    });
    assert_eq!(set, expected);
    assert_eq!(world.get(&world.shop_admin, "/v1/tenants/2/quotas").await.json, expected);
    assert_eq!(world.set_quotas(&json!({})).await.json, initial);
    for (bad, status) in [
        (json!({ "requestsPerSecond": 0 }), 422),
        (json!({ "burst": 0 }), 422),
        (json!({ "publishPerSecond": 0 }), 422),
        (json!({ "retentionSecondsMax": 0 }), 422),
        (json!({ "queues": -1 }), 400),
        (json!({ "waiters": 4_294_967_296_u64 }), 400),
        (json!({ "requestsPerSecond": -1 }), 400),
        (json!({ "requestsPerSecond": 1.5 }), 400),
        (json!({ "requestPerSecond": 1 }), 400),
    ] {
        assert_eq!(world.set_quotas(&bad).await.status.as_u16(), status, "{bad}");
    }
    let default = world.get(&world.operator, "/v1/tenants/default/quotas").await.json;
    assert_eq!(
        (&default["requestsPerSecond"], &default["connections"]),
        (&Value::Null, &Value::Null)
    );
}

#[tokio::test]
async fn a_tenant_over_its_rate_is_refused_and_others_are_not() {
    let world = World::new().await;
    // However slow this runs, six requests take less than the four seconds they are entitled to.
    world.set_quotas(&json!({ "requestsPerSecond": 1, "burst": 2 })).await;
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push(world.get(&world.shop_admin, "/probe/read").await);
    }
    assert!(seen[..2].iter().all(|one| one.status == StatusCode::OK));
    let refused = seen.iter().find(|one| one.status != StatusCode::OK).expect("over the rate");
    assert!(refused.is_problem(429, "quota-exceeded"), "{}", refused.json);
    assert!(refused.detail().contains("requestsPerSecond"));
    let wait_ms = refused.json["retryAfterMs"].as_u64().expect("when to try again");
    assert!((1..=1000).contains(&wait_ms) && refused.headers["retry-after"] == "1");
    assert_eq!(world.get(&world.operator, "/probe/read").await.status, StatusCode::OK);
    world.set_quotas(&json!({ "requestsPerSecond": null })).await;
    assert_eq!(world.get(&world.shop_admin, "/probe/read").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_tenant_without_room_creates_nothing_more() {
    let world = World::new().await;
    for (quotas, name) in
        [(json!({"bytesStored": 0}), "bytesStored"), (json!({"entities": 0}), "entities")]
    {
        world.set_quotas(&quotas).await;
        let seen = world.post(&world.shop_admin, "/probe/store", &json!({})).await;
        assert!(seen.is_problem(429, "quota-exceeded") && seen.detail().contains(name));
        assert_eq!(seen.json.get("retryAfterMs"), None);
        assert_eq!(world.get(&world.shop_admin, "/probe/read").await.status, StatusCode::OK);
    }
    world.set_quotas(&json!({})).await;
    let seen = world.post(&world.shop_admin, "/probe/store", &json!({})).await;
    assert_eq!(seen.status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_tenant_has_as_many_connections_as_its_quota() {
    let world = World::new().await;
    world.set_quotas(&json!({ "connections": 2 })).await;
    let connect = || Arc::new(Conn::new("127.0.0.1:9".parse().expect("an address"), false));
    let bearer = bearer_of(&world.shop_admin);
    let get = async |conn: &Arc<Conn>| {
        let headers = [("authorization", bearer.as_str())];
        call_on(&world.app, conn, Method::GET, "/probe/read", &headers, None).await
    };
    let (first, second, third) = (connect(), connect(), connect());
    for conn in [&first, &second, &first, &second] {
        assert_eq!(get(conn).await.status, StatusCode::OK);
    }
    let seen = get(&third).await;
    assert!(seen.is_problem(429, "quota-exceeded") && seen.detail().contains("connections"));
    assert_eq!(
        (seen.json.get("retryAfterMs"), &seen.headers["connection"]),
        (None, &"close".parse().expect("a value"))
    );
    drop(first);
    assert_eq!(get(&third).await.status, StatusCode::OK);
}

#[tokio::test]
async fn shopper_keys_are_validated_and_their_secrets_not_shown() {
    let world = World::new().await;
    let path = "/v1/tenants/shop/shopper-keys";
    let put = async |body: &Value| world.send(Method::PUT, &world.shop_admin, path, body).await;
    let secret = String::from_utf8_lossy(tokens::SECRET);
    let set = put(&json!({ "hs256": { "secret": secret }, "issuer": "us" })).await;
    assert_eq!(
        set.json,
        json!({ "kind": "hs256", "keyIds": [], "issuer": "us", "audience": null })
    );
    assert_eq!(world.get(&world.shop_admin, path).await.json, set.json);
    for (bad, status) in [
        (json!({}), 422),
        (json!({ "hs256": { "secret": "short" } }), 422),
        (json!({ "es256": { "publicKeyPem": "nonsense" } }), 422),
        (json!({ "jwks": { "keys": [] } }), 422),
        (json!({ "jwks": "nonsense" }), 422),
        (json!({ "jwks": { "keys": [] }, "hs256": { "secret": secret } }), 422),
        (json!({ "hs256": {} }), 400),
        (json!({ "rs256": {} }), 400),
    ] {
        let seen = put(&bad).await;
        assert_eq!(seen.status.as_u16(), status, "{bad}: {}", seen.json);
    }
    assert_eq!(world.get(&world.shop_admin, path).await.json["kind"], "hs256");
}
