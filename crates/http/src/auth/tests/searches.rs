//! Recent searches through their routes: who may, what comes back, what bad input gets.

use http::header::{CACHE_CONTROL, ETAG};

use super::*;

const ANN: &str = "/v1/users/ann/searches";

async fn search(world: &World, path: &str, query: &str) -> Seen {
    world.post(&world.shop_admin, path, &json!({ "q": query })).await
}

fn queries(seen: &Seen) -> Vec<&str> {
    let items = seen.json["items"].as_array().expect("items");
    items.iter().map(|item| item["q"].as_str().expect("a query")).collect()
}

#[tokio::test]
async fn searches_are_listed_paged_and_forgotten() {
    let world = World::new().await;
    for query in ["paris", "history", "Rome / Roma", "PARIS"] {
        assert_eq!(search(&world, ANN, query).await.status, StatusCode::CREATED);
    }
    let list = world.get(&world.shop_admin, ANN).await;
    assert_eq!(queries(&list), ["PARIS", "Rome / Roma", "history"]);
    let limited = world.get(&world.shop_admin, &format!("{ANN}?limit=1")).await;
    assert_eq!(queries(&limited), ["PARIS"]);
    let first = world.get(&world.shop_admin, &format!("{ANN}/history?limit=3")).await;
    assert_eq!(queries(&first), ["PARIS", "Rome / Roma", "history"]);
    let cursor = first.json["nextCursor"].as_str().expect("there is more");
    let path = format!("{ANN}/history?limit=3&cursor={cursor}");
    let last = world.get(&world.shop_admin, &path).await;
    assert_eq!((queries(&last), last.json.get("nextCursor")), (vec!["paris"], None));
    for removed in ["history", "rome%20%2F%20ROMA", "never%20searched"] {
        let path = format!("{ANN}/{removed}");
        let seen = world.send(Method::DELETE, &world.shop_admin, &path, &Value::Null).await;
        assert_eq!(seen.status, StatusCode::NO_CONTENT, "{removed}");
    }
    let list = world.get(&world.shop_admin, ANN).await;
    assert_eq!(queries(&list), ["PARIS"]);
    world.send(Method::DELETE, &world.shop_admin, ANN, &Value::Null).await;
    assert_eq!(queries(&world.get(&world.shop_admin, ANN).await), [] as [&str; 0]);
}

#[tokio::test]
async fn tag_of_the_list_is_compared_weakly_and_in_lists() {
    let world = World::new().await;
    search(&world, ANN, "paris").await;
    let list = world.get(&world.shop_admin, ANN).await;
    let tag = list.headers[ETAG].to_str().expect("text").to_owned();
    let bearer = bearer_of(&world.shop_admin);
    let status = async |known: &str| {
        let headers = [("authorization", bearer.as_str()), ("if-none-match", known)];
        let seen = world.call(Method::GET, ANN, &headers, None).await;
        assert!(seen.headers.contains_key(CACHE_CONTROL) && seen.headers.contains_key(ETAG));
        seen.status.as_u16()
    };
    for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".to_owned()] {
        assert_eq!(status(&known).await, 304, "{known}");
    }
    assert_eq!(status("\"x\"").await, 200);
    search(&world, ANN, "rome").await;
    assert_eq!(status(&tag).await, 200, "it has changed");
}

#[tokio::test]
async fn storefront_acts_for_the_user_it_names_and_for_nobody_else() {
    let world = World::new().await;
    let key = bearer_of(&world.key(SHOP, &["storefront"]).await);
    let call = async |user: Option<&str>| {
        let mut headers = vec![("authorization", key.as_str())];
        headers.extend(user.map(|user| ("x-user", user)));
        world.call(Method::POST, ANN, &headers, Some(&json!({ "q": "paris" }))).await
    };
    assert_eq!(call(Some("ann")).await.status, StatusCode::CREATED);
    assert!(call(Some("bob")).await.is_problem(403, "forbidden"));
    assert!(call(None).await.is_problem(403, "forbidden"));
}

#[tokio::test]
async fn key_with_the_name_of_another_tenant_is_refused_not_answered_for_its_own() {
    let world = World::new().await;
    let bearer = bearer_of(&world.operator);
    for (tenant, status) in [(SHOP, 403), ("default", 200)] {
        let headers = [("authorization", bearer.as_str()), ("x-tenant", tenant)];
        let seen = world.call(Method::GET, ANN, &headers, None).await;
        assert_eq!(seen.status.as_u16(), status, "{tenant}");
    }
}

#[tokio::test]
async fn bad_searches_are_refused_by_name() {
    let world = World::new().await;
    let long_user = format!("/v1/users/{}/searches", "u".repeat(257));
    for (path, body, slug) in [
        (ANN, json!({ "q": "" }), "invalid-body"),
        (ANN, json!({ "q": " \t " }), "invalid-body"),
        (ANN, json!({ "q": "x".repeat(1025) }), "invalid-body"),
        (ANN, json!({ "q": 7 }), "invalid-body"),
        (ANN, json!({ "query": "x" }), "invalid-body"),
        (ANN, json!(["x"]), "invalid-body"),
        (&long_user, json!({ "q": "x" }), "invalid-parameter"),
    ] {
        let seen = world.post(&world.shop_admin, path, &body).await;
        assert!(seen.is_problem(400, slug), "{path} {body}: {}", seen.json);
    }
    for path in ["?limit=0", "?limit=1001", "?limit=x", "?cursor=x", "/history?cursor=AAAA"] {
        let seen = world.get(&world.shop_admin, &format!("{ANN}{path}")).await;
        assert!(seen.is_problem(400, "invalid-parameter"), "{path}: {}", seen.json);
    }
}

#[tokio::test]
async fn full_tenant_keeps_answering_for_what_it_has() {
    let world = World::new().await;
    let bearer = bearer_of(&world.shop_admin);
    let add = async |user: &str, key: &str| {
        let headers = [("authorization", bearer.as_str()), ("idempotency-key", key)];
        let path = format!("/v1/users/{user}/searches");
        world.call(Method::POST, &path, &headers, Some(&json!({ "q": "paris" }))).await
    };
    let first = add("ann", "k1").await;
    assert_eq!(first.status, StatusCode::CREATED);
    let quotas = async |quotas: Value| {
        let path = format!("/v1/tenants/{SHOP}/quotas");
        world.send(Method::PUT, &world.operator, &path, &quotas).await.status.as_u16()
    };
    assert_eq!(quotas(json!({ "entities": 1 })).await, 200);
    assert_eq!(add("ann", "k2").await.status, StatusCode::CREATED, "ann is there");
    assert!(add("bob", "k3").await.is_problem(429, "quota-exceeded"), "bob is one more");
    assert_eq!(quotas(json!({ "bytesStored": 1 })).await, 200);
    let again = add("ann", "k1").await;
    assert_eq!((again.status, &again.json), (StatusCode::CREATED, &first.json), "answered before");
    assert!(add("ann", "k4").await.is_problem(429, "quota-exceeded"));
    assert_eq!(quotas(json!({ "connections": 0 })).await, 422, "nobody could undo it");
}
