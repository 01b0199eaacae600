//! Both protocols, both ways.

mod answer;
mod members;
mod query;
mod xml;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, Uri};

use crate::action::{Action, ActionName};
use crate::error::{ErrorKind, SqsError};
use crate::url::QueuePath;
use query::Parameters;

/// Where the JSON protocol names its action.
pub const TARGET: HeaderName = HeaderName::from_static("x-amz-target");
/// Where an error in JSON carries its code of the query protocol.
pub const QUERY_ERROR: HeaderName = HeaderName::from_static("x-amzn-query-error");
/// Where an answer carries the id of its request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");
/// The media type of the JSON protocol, both ways.
pub const AMZ_JSON: &str = "application/x-amz-json-1.0";
/// The media type of answers in the query protocol.
pub const XML: &str = "text/xml";

const FORM: &str = "application/x-www-form-urlencoded";
const TARGET_PREFIX: &str = "AmazonSQS.";

/// How a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// AWS JSON 1.0: the action in a header, JSON both ways.
    Json,
    /// The older one: a form or a query string in, XML out.
    Query,
}

impl Protocol {
    /// Which protocol a request is of, by its head alone; `None` when it is not of this dialect.
    #[must_use]
    pub fn of(headers: &HeaderMap, uri: &Uri) -> Option<Protocol> {
        let media_type = media_type(headers);
        let is = |wanted: &str| media_type.is_some_and(|m| m.eq_ignore_ascii_case(wanted));
        if headers.contains_key(TARGET) || is(AMZ_JSON) {
            return Some(Protocol::Json);
        }
        (is(FORM) || Protocol::names_action(uri)).then_some(Protocol::Query)
    }

    /// Whether the query of a request names an action, as presigned URLs do.
    #[must_use]
    pub fn names_action(uri: &Uri) -> bool {
        uri.query().is_some_and(|query| query::names(query, "Action"))
    }

    /// The action that a request asks for.
    ///
    /// Limits of values are not looked at here, see [`crate::validate`].
    pub fn decode(self, headers: &HeaderMap, uri: &Uri, body: &[u8]) -> Result<Action, SqsError> {
        match self {
            Protocol::Json => decode_json(headers, body),
            Protocol::Query => decode_query(uri, body),
        }
    }
}

fn media_type(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(text.split(';').next().unwrap_or(text).trim())
}

fn decode_json(headers: &HeaderMap, body: &[u8]) -> Result<Action, SqsError> {
    let target = headers.get(TARGET).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = target
        .strip_prefix(TARGET_PREFIX)
        .and_then(ActionName::parse)
        .ok_or_else(|| unknown_action(target))?;
    // `ListQueues` needs nothing, and a client may send just that.
    let body = if body.is_empty() { b"{}" } else { body };
    name.read(body).map_err(|error| refusal(&error, ErrorKind::MalformedInput))
}

fn decode_query(uri: &Uri, body: &[u8]) -> Result<Action, SqsError> {
    let parameters = Parameters::parse(uri.query().unwrap_or_default().as_bytes(), body)?;
    let name = parameters.get("Action").unwrap_or_default();
    let of_account = [ActionName::CreateQueue, ActionName::ListQueues];
    let is_of_queue = QueuePath::parse(uri.path()).is_some();
    let name = ActionName::parse(name)
        .filter(|name| !is_of_queue || !of_account.contains(name))
        .ok_or_else(|| unknown_action(name))?;
    let input = parameters.into_input(uri.path())?;
    name.read_value(input).map_err(|error| refusal(&error, ErrorKind::InvalidParameterValue))
}

fn unknown_action(name: &str) -> SqsError {
    if name.is_empty() {
        return ErrorKind::MissingAction.because("The request must name an action.");
    }
    let name: String = name.chars().take(100).collect();
    ErrorKind::InvalidAction.because(format!("The action {name} is not valid for this endpoint."))
}

/// Serde tells a missing member from a wrong one only by its words.
fn refusal(error: &serde_json::Error, kind: ErrorKind) -> SqsError {
    let text = error.to_string();
    match text.strip_prefix("missing field `").and_then(|rest| rest.split_once('`')) {
        Some((name, _)) => SqsError::missing(name),
        None => kind.because(format!("The request cannot be read: {text}")),
    }
}
