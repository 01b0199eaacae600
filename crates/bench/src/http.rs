//! Requests a second of the real server, against `/healthz` of the same server under the same
//! load.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::http1::{Client, write_request};
use crate::load::{self, Outcome};
use crate::proc::{Setup, cpu_ticks};
use crate::server::{Server, binary};
use crate::stats::median;
use crate::table::{Figure, Line, Target};

/// Users that write and read.
const USERS: usize = 5_000;
/// Requests made beforehand: ten different searches a user, as many as a list shows.
const REQUESTS: usize = 10 * USERS;

/// One kind of request, with its rounds so far.
struct Kind {
    name: &'static str,
    target: Option<Target>,
    expected: u16,
    what: &'static str,
    requests: Rc<[Vec<u8>]>,
    rates: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    /// Processor time a request, in microseconds: of the server, and of the generator.
    server_us: Vec<f64>,
    generator_us: Vec<f64>,
}

type MakeRequest = fn(&mut Vec<u8>, usize, &str);

fn health(out: &mut Vec<u8>, _number: usize, _headers: &str) {
    write_request(out, "GET", "/healthz", "", "");
}

fn write(out: &mut Vec<u8>, number: usize, headers: &str) {
    let user = number % USERS;
    let body = format!("{{\"q\":\"flights to place number {number}\"}}");
    write_request(out, "POST", &format!("/v1/users/u{user}/searches"), headers, &body);
}

fn read(out: &mut Vec<u8>, number: usize, headers: &str) {
    let user = number % USERS;
    write_request(out, "GET", &format!("/v1/users/u{user}/searches"), headers, "");
}

fn requests(make: MakeRequest, headers: &str) -> Rc<[Vec<u8>]> {
    let request = |number| {
        let mut out = Vec::new();
        make(&mut out, number, headers);
        out
    };
    (0..REQUESTS).map(request).collect()
}

fn kinds(admin: &str, small: &str) -> Vec<Kind> {
    let bearer = |key: &str| format!("Authorization: Bearer {key}\r\n");
    let kind = |name, target, expected, what, make: MakeRequest, headers: &str| Kind {
        name,
        target,
        expected,
        what,
        requests: requests(make, headers),
        rates: Vec::new(),
        p50: Vec::new(),
        p99: Vec::new(),
        server_us: Vec::new(),
        generator_us: Vec::new(),
    };
    vec![
        kind("healthz", None, 200, "", health, ""),
        kind(
            "http-write",
            Some(Target::AtLeast(0.5)),
            201,
            "durable searches a second over HTTP, against GET /healthz of the same server",
            write,
            &bearer(admin),
        ),
        kind(
            "http-read",
            Some(Target::AtLeast(0.85)),
            200,
            "reads of recent searches a second, against the same",
            read,
            &bearer(admin),
        ),
        kind(
            "http-refused",
            Some(Target::AtLeast(0.85)),
            429,
            "writes refused a second because the tenant is over its quota, against the same",
            write,
            &bearer(small),
        ),
    ]
}

/// A tenant that may ask for one thing a second, and the operator without limits. Gives the
/// small tenant's key.
fn prepare(server: &Server, admin: &str) -> Result<String> {
    let mut client = Client::connect(server.addr, &format!("Authorization: Bearer {admin}\r\n"))?;
    let unlimited = r#"{"requestsPerSecond":null,"burst":null,"bytesStored":null,"entities":null,"connections":null}"#;
    client.ask("PUT", "/v1/tenants/default/quotas", unlimited)?.json(200)?;
    client.ask("POST", "/v1/tenants", r#"{"name":"small"}"#)?.json(201)?;
    let key = r#"{"name":"bench","scopes":["admin"],"tenant":"small"}"#;
    let key = client.ask("POST", "/v1/keys", key)?.json(201)?;
    let quotas = r#"{"requestsPerSecond":1,"burst":1,"connections":null}"#;
    client.ask("PUT", "/v1/tenants/small/quotas", quotas)?.json(200)?;
    Ok(key["key"].as_str().context("a key has a key")?.to_owned())
}

fn measure(setup: &Setup, server: &Server, kind: &mut Kind, lasts: Duration) -> Result<Outcome> {
    let ticks = cpu_ticks(server.process())?;
    let outcome =
        load::run(server.addr, setup.connections, lasts, kind.expected, Rc::clone(&kind.requests))?;
    let server_us = (cpu_ticks(server.process())? - ticks) as f64 * 10_000.0;
    let count = (outcome.good + outcome.other).max(1);
    ensure!(
        outcome.good * 100 >= count * 99,
        "{}: {} of {count} answers were not {}, as this one: {}",
        kind.name,
        outcome.other,
        kind.expected,
        outcome.sample.unwrap_or_default()
    );
    kind.server_us.push(server_us / count as f64);
    kind.generator_us.push(outcome.generator.as_secs_f64() * 1e6 / count as f64);
    Ok(outcome)
}

fn line(kind: &Kind, health: &Kind, target: Target) -> Line {
    let ratios: Vec<f64> =
        kind.rates.iter().zip(&health.rates).map(|(ours, health)| ours / health).collect();
    let figure = |kind: &Kind| Figure::new(median(&kind.rates), "/s");
    let show = |kind: &Kind| {
        format!(
            "{}: p50 {:.0} µs, p99 {:.0} µs; processor time a request: server {:.1} µs, generator \
             {:.1} µs",
            kind.name,
            median(&kind.p50),
            median(&kind.p99),
            median(&kind.server_us),
            median(&kind.generator_us)
        )
    };
    Line::ratio(kind.name, target, median(&ratios), figure(kind), figure(health), kind.what)
        .note(show(kind))
        .note(show(health))
}

pub(crate) fn run(setup: &Setup) -> Result<Vec<Line>> {
    let binary = binary(setup)?;
    let scratch = setup.scratch("http")?;
    let server = Server::start(&binary, scratch.path(), &[])?;
    let admin = server.admin_key()?;
    let small = prepare(&server, &admin)?;
    let mut kinds = kinds(&admin, &small);
    let lasts = setup.size(Duration::from_secs(3), Duration::from_millis(300));
    for kind in &mut kinds {
        // Warms up, and gives every user something to read.
        measure(setup, &server, kind, lasts)?;
        kind.server_us.clear();
        kind.generator_us.clear();
    }
    for _ in 0..setup.size(5, 1) {
        for kind in &mut kinds {
            let mut outcome = measure(setup, &server, kind, lasts)?;
            kind.rates.push(outcome.per_second());
            kind.p50.push(f64::from(outcome.percentile(500)));
            kind.p99.push(f64::from(outcome.percentile(990)));
        }
    }
    server.kill()?;
    let connections = setup.connections;
    let lines = kinds.iter().filter_map(|kind| Some(line(kind, &kinds[0], kind.target?)));
    Ok(lines.map(|line| line.note(format!("{connections} connections, closed loop"))).collect())
}
