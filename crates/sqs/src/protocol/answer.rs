//! Outputs and errors into responses.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::{AMZ_JSON, Protocol, QUERY_ERROR, REQUEST_ID, XML, xml};
use crate::action::Output;
use crate::error::SqsError;

#[derive(Serialize)]
struct JsonError<'a> {
    #[serde(rename = "__type")]
    kind: String,
    message: &'a str,
}

impl Protocol {
    /// The response to a request that was carried out.
    #[must_use]
    pub fn answer(self, output: &Output, request_id: &str) -> Response<Bytes> {
        let body = match self {
            Protocol::Json => serde_json::to_vec(output).expect("text and numbers serialize"),
            Protocol::Query => {
                let value = serde_json::to_value(output).expect("text and numbers serialize");
                let members = value.as_object().filter(|_| !matches!(output, Output::Nothing(_)));
                xml::output(output.action(), members, request_id).into()
            }
        };
        self.respond(StatusCode::OK, body.into(), request_id)
    }

    /// The response to a request that was not.
    #[must_use]
    pub fn refuse(self, error: &SqsError, request_id: &str) -> Response<Bytes> {
        let body = match self {
            Protocol::Json => {
                let body = JsonError { kind: error.kind.json_type(), message: &error.message };
                serde_json::to_vec(&body).expect("strings serialize").into()
            }
            Protocol::Query => xml::error(error, request_id).into(),
        };
        let mut response = self.respond(error.kind.status(), body, request_id);
        if self == Protocol::Json {
            let code = format!("{};{}", error.kind.code(), error.kind.fault().as_str());
            insert(&mut response, QUERY_ERROR, &code);
        }
        response
    }

    fn respond(self, status: StatusCode, body: Bytes, request_id: &str) -> Response<Bytes> {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let media_type = match self {
            Protocol::Json => AMZ_JSON,
            Protocol::Query => XML,
        };
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        insert(&mut response, REQUEST_ID, request_id);
        response
    }
}

/// A request id that no header can hold is left out, not a reason to fail.
fn insert(response: &mut Response<Bytes>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
