//! Requests that a real client made.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde::Deserialize;
use serde_json::Value;

/// A file of `golden`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Golden {
    pub(crate) secret: String,
    pub(crate) access_key_id: String,
    pub(crate) now: u64,
    /// At least one for each action.
    pub(crate) requests: Vec<Recorded>,
    /// Signed by hand, for what the client itself does not do.
    pub(crate) signatures: Vec<Recorded>,
}

#[derive(Deserialize)]
pub(crate) struct Recorded {
    pub(crate) kind: String,
    pub(crate) action: String,
    pub(crate) input: Value,
    pub(crate) method: String,
    pub(crate) url: String,
    headers: serde_json::Map<String, Value>,
    pub(crate) body: String,
}

impl Recorded {
    pub(crate) fn method(&self) -> Method {
        self.method.parse().expect("a method")
    }

    /// As a server sees it: without the host, and never without a path.
    pub(crate) fn uri(&self) -> Uri {
        let uri: Uri = self.url.parse().expect("a URL");
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}{query}", uri.path()).parse().expect("a path")
    }

    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let name: HeaderName = name.parse().expect("a name");
            let value = HeaderValue::from_str(value.as_str().expect("text")).expect("a value");
            headers.insert(name, value);
        }
        headers
    }
}

pub(crate) fn json() -> Golden {
    serde_json::from_str(include_str!("../golden/requests-json.json")).expect("well-formed")
}

pub(crate) fn query() -> Golden {
    serde_json::from_str(include_str!("../golden/requests-query.json")).expect("well-formed")
}
