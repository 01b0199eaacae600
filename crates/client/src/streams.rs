//! Making and looking at streams.

use std::time::Duration;

use http::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;
use crate::message::seconds;
use crate::queues::Page;

/// The streams of a tenant. From [`Client::streams`].
#[derive(Clone, Debug)]
pub struct Streams {
    client: Client,
}

/// A stream to be made. What is not set is as it usually is.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct NewStream {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    partitions: Option<u16>,
    /// `Some(None)` is `null`: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_seconds: Option<Option<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_bytes: Option<u64>,
}

impl NewStream {
    /// A stream of this name.
    pub fn new(name: impl Into<String>) -> NewStream {
        NewStream {
            name: name.into(),
            partitions: None,
            retention_seconds: None,
            retention_bytes: None,
        }
    }

    /// So many members of a group can share the work; 1 when not set, 1024 at most.
    pub fn partitions(mut self, partitions: u16) -> NewStream {
        self.partitions = Some(partitions);
        self
    }

    /// A record older than this is dropped; a week when not set. In whole seconds.
    pub fn retention(mut self, retention: Duration) -> NewStream {
        self.retention_seconds = Some(Some(seconds(retention)));
        self
    }

    /// No record is dropped because of its age.
    pub fn keep_for_ever(mut self) -> NewStream {
        self.retention_seconds = Some(None);
        self
    }

    /// Of each partition the newest so many bytes are kept.
    pub fn retention_bytes(mut self, bytes: u64) -> NewStream {
        self.retention_bytes = Some(bytes);
        self
    }
}

/// A change of a stream. What is not set stays.
///
/// ```
/// let shorter = client::StreamUpdate::new().retention(std::time::Duration::from_secs(86_400));
/// ```
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct StreamUpdate {
    #[serde(skip_serializing_if = "Option::is_none")]
    partitions: Option<u16>,
    /// `Some(None)` is `null`: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_seconds: Option<Option<u64>>,
    /// `Some(None)` is `null`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_bytes: Option<Option<u64>>,
}

impl StreamUpdate {
    /// A change of nothing yet.
    pub fn new() -> StreamUpdate {
        StreamUpdate::default()
    }

    /// As many as before, or more. Keys go to other partitions then: what was appended stays where
    /// it is.
    pub fn partitions(mut self, partitions: u16) -> StreamUpdate {
        self.partitions = Some(partitions);
        self
    }

    /// A record older than this is dropped. In whole seconds.
    pub fn retention(mut self, retention: Duration) -> StreamUpdate {
        self.retention_seconds = Some(Some(seconds(retention)));
        self
    }

    /// No record is dropped because of its age.
    pub fn keep_for_ever(mut self) -> StreamUpdate {
        self.retention_seconds = Some(None);
        self
    }

    /// Of each partition the newest so many bytes are kept.
    pub fn retention_bytes(mut self, bytes: u64) -> StreamUpdate {
        self.retention_bytes = Some(Some(bytes));
        self
    }

    /// No record is dropped because there are many.
    pub fn keep_all_bytes(mut self) -> StreamUpdate {
        self.retention_bytes = Some(None);
        self
    }
}

/// A stream that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StreamMade {
    /// Never used again, even if the name is.
    pub stream_id: String,
    /// The name.
    pub name: String,
    /// Whether this call made it.
    #[serde(default)]
    pub created: bool,
}

/// A stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StreamInfo {
    /// Never used again, even if the name is.
    pub stream_id: String,
    /// The name.
    pub name: String,
    /// How many.
    pub partitions: u16,
    /// A record older than this is dropped; `None`: never.
    pub retention_seconds: Option<u64>,
    /// Of each partition the newest so many bytes are kept; `None`: all.
    pub retention_bytes: Option<u64>,
    /// RFC 3339.
    pub created_at: String,
    /// When it was last changed. RFC 3339.
    #[serde(default)]
    pub updated_at: String,
    /// How many groups read it.
    pub groups: u32,
    /// Records that are kept; only of [`Streams::get`].
    #[serde(default)]
    pub records: Option<u64>,
    /// What they take; only of [`Streams::get`].
    #[serde(default)]
    pub bytes: Option<u64>,
    /// What each partition holds; only of [`Streams::get`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per_partition: Vec<PartitionInfo>,
}

/// What a partition holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PartitionInfo {
    /// Which.
    pub partition: u16,
    /// The offset of the first record that is kept.
    pub start: u64,
    /// The offset of the next record to come.
    pub end: u64,
    /// What they take.
    pub bytes: u64,
    /// When the last record came, RFC 3339; `None` when none did.
    pub last_record_at: Option<String>,
}

impl Streams {
    pub(crate) fn new(client: Client) -> Streams {
        Streams { client }
    }

    /// Makes a stream. The same name with the same settings is the same stream, and no error.
    ///
    /// # Errors
    /// `conflict` when it is there with other settings; any other [`Error`].
    pub async fn create(&self, stream: &NewStream) -> Result<StreamMade, Error> {
        let call = Call::new(Method::POST, ["v1", "streams"]).json(stream)?.keyed();
        let (made, created) = self.client.make::<StreamMade>(call).await?;
        Ok(StreamMade { created, ..made })
    }

    /// Looks at a stream.
    ///
    /// # Errors
    /// `not-found`; any other [`Error`].
    pub async fn get(&self, name: &str) -> Result<StreamInfo, Error> {
        self.client.call(Call::new(Method::GET, ["v1", "streams", name])).await
    }

    /// All streams whose names begin so, page after page.
    ///
    /// # Errors
    /// Any [`Error`].
    pub async fn list_all(&self, prefix: &str) -> Result<Vec<StreamInfo>, Error> {
        let prefix = (!prefix.is_empty()).then(|| prefix.to_owned());
        all_pages(&self.client, || Call::new(Method::GET, ["v1", "streams"]), prefix).await
    }

    /// Changes what is given, and gives the stream as it is then.
    ///
    /// # Errors
    /// `not-found`; `unprocessable` for fewer partitions than there are; any other [`Error`].
    pub async fn update(&self, name: &str, change: &StreamUpdate) -> Result<StreamInfo, Error> {
        let call = Call::new(Method::PATCH, ["v1", "streams", name]).json(change)?;
        self.client.call(call.repeatable()).await
    }

    /// Deletes a stream, its records and its groups.
    ///
    /// # Errors
    /// `not-found`; any other [`Error`].
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        self.client.done(Call::new(Method::DELETE, ["v1", "streams", name])).await
    }
}

/// All of a list, page after page.
pub(crate) async fn all_pages<T: DeserializeOwned>(
    client: &Client,
    call: impl Fn() -> Call,
    prefix: Option<String>,
) -> Result<Vec<T>, Error> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let limit = Some("1000".to_owned());
        let query = [("prefix", prefix.clone()), ("limit", limit), ("cursor", cursor)];
        let page: Page<T> = client.call(call().query(&query)).await?;
        all.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stream_says_what_was_set() {
        let json = |stream: &NewStream| serde_json::to_value(stream).expect("JSON");
        assert_eq!(json(&NewStream::new("s")), json!({"name": "s"}));
        let stream = NewStream::new("s").partitions(4).keep_for_ever().retention_bytes(9);
        let expected =
            json!({"name": "s", "partitions": 4, "retentionSeconds": null, "retentionBytes": 9});
        assert_eq!(json(&stream), expected);
        let stream = NewStream::new("s").retention(Duration::from_secs(60));
        assert_eq!(json(&stream), json!({"name": "s", "retentionSeconds": 60}));
    }

    #[test]
    fn a_change_says_what_is_to_be_taken_away() {
        let json = |change: &StreamUpdate| serde_json::to_value(change).expect("JSON");
        assert_eq!(json(&StreamUpdate::new()), json!({}));
        let change = StreamUpdate::new().keep_for_ever().keep_all_bytes();
        assert_eq!(json(&change), json!({"retentionSeconds": null, "retentionBytes": null}));
    }
}
