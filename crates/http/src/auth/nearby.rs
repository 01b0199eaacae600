//! Whether a request without a key, which `--dev` takes, comes from this machine's own programs and pages.
//!
//! Any page that a developer opens can have the browser send requests to loopback addresses. The browser
//! says for whom: `Origin` names the page's site, `Sec-Fetch-Site` how it is related to this one, and
//! the host is the name that the page knows this server by, which its owner may have led here.

use http::{HeaderMap, HeaderName, Uri, header};

use crate::problem::{Problem, ProblemKind};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The name that a client knows this server by. HTTP/2 sends it as part of the URI.
pub(crate) fn host_of<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    match headers.get(header::HOST) {
        Some(host) => host.to_str().ok(),
        None => uri.authority().map(|authority| authority.as_str()),
    }
}

/// Refuses what a page of another site asks for.
pub(super) fn check_nearby(uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let named = |name: &str, value: &str| {
        let detail = format!(
            "{name} is `{value}`: without a key, only programs and pages of this machine may call a \
             server with --dev"
        );
        Err(ProblemKind::Forbidden.because(detail))
    };
    // A name without a dot is nobody's to give out: it is of this machine's own files or network.
    if let Some(host) =
        host_of(uri, headers).filter(|host| host.contains('.') && !is_loopback(host))
    {
        return named("Host", host);
    }
    match (text(header::ORIGIN), text(SEC_FETCH_SITE)) {
        (Some(origin), _) => {
            let site = origin.split_once("://").map_or("", |(_, site)| site);
            if is_loopback(site) { Ok(()) } else { named("Origin", origin) }
        }
        (None, Some(site)) if site == "cross-site" => named("Sec-Fetch-Site", site),
        (None, _) => Ok(()),
    }
}

/// Whether a host, with or without a port, is this machine by its name alone.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(address, _)| address),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let address = name.parse::<std::net::IpAddr>();
    let name = name.to_ascii_lowercase();
    address.is_ok_and(|address| address.is_loopback())
        || name == "localhost"
        || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pairs: &[(&'static str, &'static str)]) -> Result<(), Problem> {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().expect("a value")));
        check_nearby(&Uri::from_static("/"), &pairs.collect())
    }

    #[test]
    fn programs_and_pages_of_this_machine_may() {
        for host in [
            "127.0.0.1:7700",
            "localhost",
            "LOCALHOST:80",
            "[::1]:7700",
            "a.localhost:1",
            "dev:7700",
        ] {
            assert_eq!(check(&[("host", host)]), Ok(()), "{host}");
        }
        assert_eq!(check(&[]), Ok(()));
        for origin in ["http://localhost:3000", "http://127.0.0.1:7700", "https://[::1]"] {
            let from =
                [("host", "127.0.0.1"), ("origin", origin), ("sec-fetch-site", "cross-site")];
            assert_eq!(check(&from), Ok(()), "{origin}");
        }
        assert_eq!(check(&[("host", "localhost"), ("sec-fetch-site", "same-origin")]), Ok(()));
    }

    #[test]
    fn pages_of_other_sites_may_not() {
        for host in ["evil.example", "evil.example:7700", "10.0.0.1", "localhost.evil.example"] {
            assert!(check(&[("host", host)]).is_err(), "{host}");
        }
        for origin in
            ["http://evil.example", "null", "http://127.0.0.1.evil.example", "http://dev", ""]
        {
            assert!(check(&[("host", "127.0.0.1"), ("origin", origin)]).is_err(), "{origin}");
        }
        let uri = Uri::from_static("http://evil.example/q/jobs");
        assert!(check_nearby(&uri, &HeaderMap::new()).is_err(), "over HTTP/2 there is no Host");
        // A picture in a page is asked for without an origin.
        assert!(check(&[("host", "127.0.0.1"), ("sec-fetch-site", "cross-site")]).is_err());
    }
}
