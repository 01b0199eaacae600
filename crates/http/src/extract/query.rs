//! The query of a request.

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::{percent, words};
use crate::app::Ctx;
use crate::problem::{Problem, ProblemKind};

/// The query, read into a type that should be `#[serde(deny_unknown_fields)]`.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(
    /// It.
    pub T,
);

impl<T: DeserializeOwned> FromRequestParts<Ctx> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Ctx) -> Result<Query<T>, Problem> {
        let text = parts.uri.query().unwrap_or_default();
        if percent::decode(text).is_none() {
            let detail = "the query is not percent-encoded UTF-8";
            return Err(ProblemKind::InvalidParameter.because(detail));
        }
        serde_urlencoded::from_str(text).map(Query).map_err(|_| invalid::<T>(text))
    }
}

#[cold]
fn invalid<T: DeserializeOwned>(text: &str) -> Problem {
    let pairs = form_urlencoded::parse(text.as_bytes());
    let detail = match serde_path_to_error::deserialize::<_, T>(
        serde_urlencoded::Deserializer::new(pairs),
    ) {
        Err(error) if error.path().iter().next().is_some() => {
            let what = words::of_query(&error.inner().to_string());
            format!("`{}` in the query: {what}", error.path())
        }
        Err(error) => format!("in the query: {}", words::of_query(&error.inner().to_string())),
        Ok(_) => "the query cannot be read".to_owned(),
    };
    ProblemKind::InvalidParameter.because(detail)
}
