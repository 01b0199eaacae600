//! Callers, good and bad, against every operation.

use super::*;

/// Every operation that is not public, with a path that it has.
fn guarded(app: &App) -> Vec<(Method, String, Access)> {
    let fill = |path: &str| {
        let mut filled = String::new();
        for part in path.split_inclusive(['{', '}']) {
            match part.strip_suffix('}') {
                Some(_) => filled.push('x'),
                None => filled.push_str(part.trim_end_matches('{')),
            }
        }
        filled
    };
    let routes = app.router.routes().iter();
    routes
        .filter(|route| route.doc.access != Access::Public)
        .map(|route| (route.method.clone(), fill(route.path), route.doc.access))
        .collect()
}

#[tokio::test]
async fn every_guarded_operation_refuses_callers_without_a_good_key() {
    let world = World::new().await;
    let (revoked, expired, orphan) = bad_keys(&world).await;
    let unknown = KeySecret::random().into_text();
    let exp = now_ms() / 1000 + 600;
    let token = tokens::hs256_token(&json!({ "sub": "ada", "exp": exp }));
    let none = tokens::forged_token(&json!({"alg": "none"}), &json!({"sub": "a", "exp": exp}), "");
    let wrong = [
        None,
        Some("Bearer".to_owned()),
        Some("Bearer ".to_owned()),
        Some(format!("Basic {}", world.operator)),
        Some(world.operator.clone()),
        Some(bearer_of("sk_")),
        Some(bearer_of(&world.operator.to_uppercase())),
        Some(bearer_of(&unknown)),
        Some(bearer_of(&revoked)),
        Some(bearer_of(&expired)),
        Some(bearer_of(&orphan)),
        Some(bearer_of(&token)),
        Some(bearer_of(&none)),
    ];
    let guarded = guarded(&world.app);
    assert!(guarded.len() >= 12, "{} operations", guarded.len());
    for (method, path, _) in guarded {
        for header in &wrong {
            let headers: Vec<_> =
                header.iter().map(|value| ("authorization", value.as_str())).collect();
            let seen = world.call(method.clone(), &path, &headers, None).await;
            assert!(seen.is_problem(401, "unauthenticated"), "{method} {path} {header:?}");
            assert_eq!(seen.headers[WWW_AUTHENTICATE], "Bearer");
        }
    }
}

/// A revoked key, an expired one, and one of a deleted tenant.
async fn bad_keys(world: &World) -> (String, String, String) {
    let body = json!({ "name": "revoked", "scopes": ["admin"] });
    let made = world.post(&world.operator, "/v1/keys", &body).await.json;
    let revoked = made["key"].as_str().expect("a secret").to_owned();
    assert_eq!(world.get(&revoked, "/probe/read").await.status, StatusCode::OK);
    let path = format!("/v1/keys/{}", made["keyId"].as_str().expect("an id"));
    let gone = world.send(Method::DELETE, &world.operator, &path, &json!({})).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);

    let expired = KeySecret::random();
    let key = NewKey {
        id: new_key_id(1),
        hash: expired.hash(),
        name: "expired".into(),
        scopes: Scopes::ALL,
        expires_at_ms: Some(now_ms() - 1),
    };
    let command = Command::CreateKey(CreateKey { tenant: tenants::DEFAULT_TENANT, key }).encode();
    let tenant = tenants::DEFAULT_TENANT;
    let envelope = Envelope { machine: tenants::MACHINE, tenant, idempotency: None, command };
    world.node.submit(tenants::place(), envelope).await.expect("the node takes it");

    world.post(&world.operator, "/v1/tenants", &json!({ "name": "gone" })).await;
    let orphan = world.key("gone", &["admin"]).await;
    assert_eq!(world.get(&orphan, "/probe/read").await.status, StatusCode::OK);
    let path = "/v1/tenants/gone";
    let gone = world.send(Method::DELETE, &world.operator, path, &json!({})).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    (revoked, expired.into_text(), orphan)
}

#[tokio::test]
async fn every_guarded_operation_refuses_keys_without_its_scope_and_names_it() {
    let world = World::new().await;
    for scope in Scope::ALL.into_iter().filter(|scope| *scope != Scope::Admin) {
        let key = world.key(SHOP, &[scope.name()]).await;
        for (method, path, access) in guarded(&world.app) {
            let (Access::Scope(needed) | Access::ScopeOrShopper(needed)) = access else { continue };
            let seen = world.send(method.clone(), &key, &path, &json!({})).await;
            if needed == scope.name() {
                assert!(!seen.detail().contains("scope"), "{method} {path} {scope:?}");
            } else {
                assert!(seen.is_problem(403, "forbidden"), "{method} {path} {scope:?}");
                assert!(seen.detail().contains(needed), "{method} {path}: {}", seen.detail());
            }
        }
    }
}

#[tokio::test]
async fn admins_act_on_their_own_tenant_and_operators_on_all() {
    let world = World::new().await;
    let (operator, admin) = (&world.operator, &world.shop_admin);
    for path in [
        "/v1/tenants/default",
        "/v1/tenants/1",
        "/v1/tenants/default/quotas",
        "/v1/tenants/nobody",
        "/v1/keys?tenant=default",
        "/v1/tenants/1/shopper-keys",
    ] {
        assert!(world.get(admin, path).await.is_problem(403, "forbidden"), "{path}");
    }
    for path in ["/v1/tenants/shop", "/v1/tenants/2", "/v1/tenants/shop/quotas", "/v1/keys"] {
        assert_eq!(world.get(admin, path).await.status, StatusCode::OK, "{path}");
        assert_eq!(world.get(operator, path).await.status, StatusCode::OK, "{path}");
    }
    for (method, path, body) in [
        (Method::POST, "/v1/tenants", json!({ "name": "mine" })),
        (Method::PUT, "/v1/tenants/shop/quotas", json!({})),
        (Method::POST, "/v1/keys", json!({ "name": "k", "scopes": ["read"], "tenant": "default" })),
        (Method::DELETE, "/v1/tenants/default", json!({})),
    ] {
        let seen = world.send(method, admin, path, &body).await;
        assert!(seen.is_problem(403, "forbidden"), "{path}: {}", seen.json);
    }
    // Another tenant's key id is one that is not there.
    let keys = world.get(operator, "/v1/keys").await.json;
    let path = format!("/v1/keys/{}", keys["items"][0]["keyId"].as_str().expect("an id"));
    let seen = world.send(Method::DELETE, admin, &path, &json!({})).await;
    assert!(seen.is_problem(404, "not-found"), "{}", seen.json);
    let own = world.get(admin, "/v1/tenants").await.json;
    assert_eq!(own["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(world.get(operator, "/v1/tenants/nobody").await.status, StatusCode::NOT_FOUND);
    assert_eq!(world.get(operator, "/v1/tenants/99").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_program_may_act_for_a_user_only_with_storefront() {
    let world = World::new().await;
    let as_user = async |key: &str, path: &str, user: &str| {
        let headers = [("authorization", bearer_of(key)), ("x-user", user.to_owned())];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        world.call(Method::GET, path, &headers, None).await
    };
    let storefront = world.key(SHOP, &["storefront"]).await;
    assert_eq!(as_user(&storefront, "/probe/both", "ada").await.json["user"], "ada");
    assert_eq!(as_user(&world.shop_admin, "/probe/both", "ada").await.json["user"], "ada");
    let reader = world.key(SHOP, &["read"]).await;
    let seen = as_user(&reader, "/probe/read", "ada").await;
    assert!(seen.is_problem(403, "forbidden") && seen.detail().contains("storefront"));
    assert_eq!(world.get(&reader, "/probe/read").await.json["user"], Value::Null);
    let long = "x".repeat(257);
    assert!(as_user(&storefront, "/probe/both", &long).await.is_problem(400, "invalid-header"));
}

#[tokio::test]
async fn shoppers_are_known_by_the_tokens_of_their_tenant() {
    let world = World::new().await;
    let exp = now_ms() / 1000 + 600;
    let shop = |user: &str| tokens::hs256_token(&json!({"sub": user, "exp": exp, "tenant": SHOP}));
    let set = async |keys: Value| {
        let path = "/v1/tenants/shop/shopper-keys";
        let seen = world.send(Method::PUT, &world.shop_admin, path, &keys).await;
        assert_eq!(seen.status, StatusCode::OK, "{}", seen.json);
    };
    assert!(world.get(&shop("ada"), "/probe/both").await.is_problem(401, "unauthenticated"));
    let secret = String::from_utf8_lossy(tokens::SECRET);
    set(json!({ "hs256": { "secret": secret } })).await;
    for _ in 0..2 {
        let seen = world.get(&shop("ada"), "/probe/both").await;
        let who = json!({"tenant": 2, "name": SHOP, "user": "ada", "scopes": ["storefront"], "key": false});
        assert_eq!(seen.json, who);
    }
    // A shopper is let in where shoppers are, and nowhere else.
    for path in ["/probe/read", "/probe/produce", "/v1/keys", "/v1/tenants"] {
        assert!(world.get(&shop("ada"), path).await.is_problem(403, "forbidden"), "{path}");
    }
    // The header names the tenant as well as the claim does; the two must agree.
    let silent = tokens::hs256_token(&json!({ "sub": "bob", "exp": exp }));
    assert!(world.get(&silent, "/probe/both").await.is_problem(401, "unauthenticated"));
    let bearer = bearer_of(&silent);
    let with = |tenant| [("authorization", bearer.as_str()), ("x-tenant", tenant)];
    let seen = world.call(Method::GET, "/probe/both", &with(SHOP), None).await;
    assert_eq!(seen.json["user"], "bob");
    let seen = world.call(Method::GET, "/probe/both", &with("nobody"), None).await;
    assert!(seen.is_problem(401, "unauthenticated"));
    let claimed = bearer_of(&shop("ada"));
    let both = [("authorization", claimed.as_str()), ("x-tenant", "default")];
    let seen = world.call(Method::GET, "/probe/both", &both, None).await;
    assert!(seen.is_problem(401, "unauthenticated"));
    let posing = [("authorization", claimed.as_str()), ("x-user", "eve")];
    let seen = world.call(Method::GET, "/probe/both", &posing, None).await;
    assert!(seen.is_problem(403, "forbidden"));
    // Other keys, and the tokens of the old ones are good no more: at once, though remembered.
    set(json!({ "es256": { "publicKeyPem": tokens::ES256_PUBLIC } })).await;
    assert!(world.get(&shop("ada"), "/probe/both").await.is_problem(401, "unauthenticated"));
    let signed = tokens::es256_token(&json!({ "sub": "ada", "exp": exp, "tenant": SHOP }));
    assert_eq!(world.get(&signed, "/probe/both").await.status, StatusCode::OK);
    let path = "/v1/tenants/shop/shopper-keys";
    world.send(Method::DELETE, &world.shop_admin, path, &json!({})).await;
    assert!(world.get(&signed, "/probe/both").await.is_problem(401, "unauthenticated"));
    assert_eq!(world.get(&world.shop_admin, path).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn bad_tokens_are_refused_everywhere() {
    let world = World::new().await;
    let path = "/v1/tenants/shop/shopper-keys";
    let keys = json!({ "es256": { "publicKeyPem": tokens::ES256_PUBLIC } });
    let seen = world.send(Method::PUT, &world.shop_admin, path, &keys).await;
    assert_eq!((&seen.json["kind"], seen.status), (&json!("es256"), StatusCode::OK));
    let (now, tenant) = (now_ms() / 1000, SHOP);
    let claims = json!({ "sub": "ada", "exp": now + 600, "tenant": tenant });
    let bad = [
        tokens::es256_token(&json!({ "sub": "ada", "exp": now - 61, "tenant": tenant })),
        tokens::es256_token(&json!({ "sub": "ada", "tenant": tenant })),
        tokens::es256_token(&json!({ "exp": now + 600, "tenant": tenant })),
        tokens::es256_token(&json!({ "sub": "ada", "exp": now + 600, "tenant": "default" })),
        tokens::es256_token(&json!({ "sub": "ada", "exp": now + 600, "tenant": "../x" })),
        tokens::hs256_token(&claims),
        tokens::forged_token(&json!({ "alg": "none" }), &claims, ""),
        tokens::forged_token(&json!({ "alg": "ES256" }), &claims, "AAAA"),
        tokens::confused_token(&claims),
        "x".repeat(9000) + "..",
        "a.b.c".to_owned(),
    ];
    let open: Vec<_> = guarded(&world.app)
        .into_iter()
        .filter(|(_, _, access)| matches!(access, Access::ScopeOrShopper(_)))
        .collect();
    for (method, path, _) in open {
        for token in &bad {
            let seen = world.send(method.clone(), token, &path, &json!({})).await;
            assert!(seen.is_problem(401, "unauthenticated"), "{path} {token:.60}: {}", seen.json);
        }
    }
}

#[tokio::test]
async fn what_is_remembered_of_a_key_holds_until_it_expires_or_changes() {
    let world = World::new().await;
    let auth = &world.app.edge.auth;
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, bearer_of(&world.shop_admin).parse().expect("a value"));
    let (uri, conn) = (Uri::from_static("/"), conn());
    let identify =
        async || auth.identify(&uri, &headers, &conn, false).await.expect("known").expect("shown");
    let known = identify().await;
    assert!(Arc::ptr_eq(&known, &identify().await));
    let expired = Arc::new(Known { expires_at_ms: Some(now_ms() - 1), ..Known::clone(&known) });
    assert!(auth.still_holds(&known) && !auth.still_holds(&expired));
    conn.memo.lock().as_mut().expect("remembered").known = Arc::clone(&expired);
    assert!(!Arc::ptr_eq(&expired, &identify().await));
    world.send(Method::PUT, &world.operator, "/v1/tenants/shop/quotas", &json!({})).await;
    assert!(!auth.still_holds(&known));
    let fresh = identify().await;
    assert!(!Arc::ptr_eq(&known, &fresh) && Arc::ptr_eq(&known.tenant.gauge, &fresh.tenant.gauge));
}

#[tokio::test]
async fn connection_does_not_outlive_what_its_last_request_showed() {
    let world = World::new().await;
    let body = json!({ "name": "short", "scopes": ["read"], "tenant": SHOP });
    let made = world.post(&world.operator, "/v1/keys", &body).await.json;
    let (id, key) = (made["keyId"].as_str().expect("an id"), made["key"].as_str().expect("a key"));
    let (conn, key) = (conn(), bearer_of(key));
    let read = async |headers: &[(&str, &str)]| {
        call_on(&world.app, &conn, Method::GET, "/probe/read", headers, None).await
    };
    let shown = [("authorization", key.as_str())];
    assert_eq!(read(&shown).await.status, StatusCode::OK);
    assert!(read(&[]).await.is_problem(401, "unauthenticated"));
    assert_eq!(read(&shown).await.status, StatusCode::OK);
    let other = [shown[0], ("x-tenant", "default")];
    assert!(read(&other).await.is_problem(403, "forbidden"));
    let operator = bearer_of(&world.operator);
    assert_eq!(read(&[("authorization", &operator)]).await.json["tenant"], 1);
    assert_eq!(read(&shown).await.json["tenant"], 2);
    let path = format!("/v1/keys/{id}");
    world.send(Method::DELETE, &world.operator, &path, &json!({})).await;
    assert!(read(&shown).await.is_problem(401, "unauthenticated"));
}

#[tokio::test]
async fn visitors_are_of_the_tenant_they_name_or_show() {
    let world = World::new().await;
    let visit = async |headers: &[(&str, &str)]| {
        world.call(Method::GET, "/probe/public", headers, None).await
    };
    assert_eq!(visit(&[]).await.json, json!({ "tenant": 1, "known": false }));
    assert_eq!(visit(&[("x-tenant", SHOP)]).await.json, json!({ "tenant": 2, "known": false }));
    let key = bearer_of(&world.shop_admin);
    let shown = [("authorization", key.as_str())];
    assert_eq!(visit(&shown).await.json, json!({ "tenant": 2, "known": true }));
    assert!(visit(&[("x-tenant", "nobody")]).await.is_problem(404, "not-found"));
    assert!(visit(&[("x-tenant", "No Body")]).await.is_problem(400, "invalid-header"));
    assert!(visit(&[("authorization", "Bearer sk_x")]).await.is_problem(401, "unauthenticated"));
}

#[tokio::test]
async fn in_dev_mode_no_key_is_needed_and_a_given_one_is_honoured() {
    let mut world = World::new().await;
    world.app = app_over(&world.node, true);
    let seen = world.call(Method::GET, "/probe/produce", &[("x-user", "ada")], None).await;
    assert_eq!((&seen.json["tenant"], &seen.json["user"]), (&json!(1), &json!("ada")));
    assert_eq!(seen.json["scopes"].as_array().map(Vec::len), Some(6));
    let named = [("x-tenant", SHOP)];
    let seen = world.call(Method::GET, "/probe/produce", &named, None).await;
    assert_eq!(seen.json["tenant"], 2);
    let unknown = [("x-tenant", "nobody")];
    let seen = world.call(Method::GET, "/probe/produce", &unknown, None).await;
    assert!(seen.is_problem(404, "not-found"));
    let reader = world.key(SHOP, &["read"]).await;
    assert_eq!(world.get(&reader, "/probe/read").await.json["tenant"], 2);
    assert!(world.get(&reader, "/probe/produce").await.is_problem(403, "forbidden"));
    assert!(world.get("sk_wrong", "/probe/read").await.is_problem(401, "unauthenticated"));
    let made = world.call(Method::POST, "/v1/tenants", &[], Some(&json!({"name": "dev"}))).await;
    assert_eq!(made.status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_restart_forgets_nothing_and_bootstraps_once() {
    let world = World::new().await;
    let reader = world.key(SHOP, &["read"]).await;
    assert!(bootstrap(&world.node).await.expect("it works").is_none());
    let World { node, folder, app, operator, .. } = world;
    node.shutdown().await;
    drop((app, node));
    let node = start(&folder);
    assert!(bootstrap(&node).await.expect("it works").is_none());
    let (app, shop) = (app_over(&node, false), TenantId(2));
    let world = World { app, node, operator, shop_admin: String::new(), shop, folder };
    assert_eq!(world.get(&reader, "/probe/read").await.status, StatusCode::OK);
    assert_eq!(
        world.get(&world.operator, "/v1/tenants").await.json["items"][1]["tenantId"],
        world.shop.0
    );
    world.node.shutdown().await;
}

#[tokio::test]
async fn a_jwks_file_serves_tenants_without_keys_of_their_own() {
    let mut world = World::new().await;
    let path = world.folder.path().join("jwks.json");
    let read = || JwksFiles::read(&[(SHOP.to_owned(), path.clone())].into());
    assert!(matches!(read(), Err(AuthError::Unreadable { .. })));
    std::fs::write(&path, r#"{"keys": []}"#).expect("a file");
    assert!(matches!(read(), Err(AuthError::NotKeys { .. })));
    std::fs::write(&path, tokens::es256_jwks()).expect("a file");
    let mut edge = Edge::new(world.node.clone());
    let options = AuthOptions { jwks: read().expect("a good file"), ..Default::default() };
    edge.auth = Auth::with_options(world.node.clone(), options);
    world.app = App::with_routes(Arc::new(edge), vec![probes(), crate::routes::tenants::routes()]);
    let token = |tenant: &str| {
        let exp = now_ms() / 1000 + 600;
        tokens::es256_token(&json!({ "sub": "ada", "exp": exp, "tenant": tenant }))
    };
    assert_eq!(world.get(&token(SHOP), "/probe/both").await.json["user"], "ada");
    let other = world.get(&token("default"), "/probe/both").await;
    assert!(other.is_problem(401, "unauthenticated"));
    // Keys given over the API take its place.
    let secret = String::from_utf8_lossy(tokens::SECRET);
    let keys = json!({ "hs256": { "secret": secret } });
    let path = "/v1/tenants/shop/shopper-keys";
    world.send(Method::PUT, &world.shop_admin, path, &keys).await;
    assert!(world.get(&token(SHOP), "/probe/both").await.is_problem(401, "unauthenticated"));
}
