//! What came of each message of a batch, whether it was sent or published.

use serde::Serialize;
use utoipa::ToSchema;

use crate::problem::Problem;

/// What came of each message of a batch, in its order.
#[derive(Serialize, ToSchema)]
pub(super) struct BatchResults<T> {
    results: Vec<BatchResult<T>>,
}

/// What came of a message.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct BatchResult<T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    client_message_id: Option<String>,
    index: usize,
    #[serde(flatten)]
    #[schema(value_type = Option<T>)]
    taken: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    error: Option<Problem>,
}

impl<T> BatchResults<T> {
    /// Of messages that their sender calls so.
    pub(super) fn new(
        outcomes: impl IntoIterator<Item = Result<T, Problem>>,
        client_message_ids: Vec<Option<String>>,
    ) -> BatchResults<T> {
        let each = outcomes.into_iter().zip(client_message_ids).enumerate();
        let results = each.map(|(index, (outcome, client_message_id))| match outcome {
            Ok(taken) => BatchResult { client_message_id, index, taken: Some(taken), error: None },
            Err(error) => BatchResult { client_message_id, index, taken: None, error: Some(error) },
        });
        BatchResults { results: results.collect() }
    }
}
