//! Requests that a real client made.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde::Deserialize;
use serde_json::Value;

/// A file of `golden`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Golden {
    pub secret: String,
    pub access_key_id: String,
    pub now: u64,
    pub requests: Vec<Recorded>,
}

#[derive(Deserialize)]
pub struct Recorded {
    pub kind: String,
    pub action: String,
    pub input: Value,
    pub method: String,
    pub url: String,
    headers: serde_json::Map<String, Value>,
    pub body: String,
}

impl Recorded {
    pub fn method(&self) -> Method {
        self.method.parse().expect("a method")
    }

    /// As a server sees it: without the host.
    pub fn uri(&self) -> Uri {
        let uri: Uri = self.url.parse().expect("a URL");
        uri.path_and_query().expect("a path").as_str().parse().expect("a path")
    }

    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let name: HeaderName = name.parse().expect("a name");
            let value = HeaderValue::from_str(value.as_str().expect("text")).expect("a value");
            headers.insert(name, value);
        }
        headers
    }
}

pub fn json() -> Golden {
    serde_json::from_str(include_str!("../golden/requests-json.json")).expect("well-formed")
}

pub fn query() -> Golden {
    serde_json::from_str(include_str!("../golden/requests-query.json")).expect("well-formed")
}
