//! One stream: appending, and reading.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;
use crate::message::seconds;
use crate::queue::{Outcome, Results};

/// Records in one request.
const BATCH_MAX: usize = 1000;
/// Bytes in one request; the server takes 1 MiB.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// What a record takes besides its key and value: the names of its fields, and their signs.
const RECORD_BYTES: usize = 24;

/// A stream, by name. From [`Client::stream`]; cheap to clone.
///
/// ```no_run
/// # async fn example() -> Result<(), client::Error> {
/// use std::time::Duration;
/// use client::{Client, Fetch, NewRecord, NewStream};
///
/// let client = Client::new("http://127.0.0.1:7700")?;
/// client.streams().create(&NewStream::new("clicks").partitions(8)).await?;
/// let stream = client.stream("clicks");
/// stream.append(&[NewRecord::new(&"/home")?.key("ann")]).await?;
///
/// let ask = Fetch::new("worker-1").wait(Duration::from_secs(20));
/// let got = stream.fetch("report", &ask).await?;
/// for record in &got.records {
///     let page: String = record.value()?;
///     println!("{:?} {page}", record.key);
/// }
/// stream.commit("report", "worker-1", &got).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Stream {
    pub(crate) client: Client,
    name: String,
}

/// A record to be appended.
///
/// ```
/// # fn main() -> Result<(), client::Error> {
/// let record = client::NewRecord::new(&serde_json::json!({"page": "/"}))?.key("ann");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
#[must_use]
pub struct NewRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    value: Box<RawValue>,
}

impl NewRecord {
    /// A record of this value, as JSON.
    ///
    /// # Errors
    /// [`Error::Body`] for what cannot be JSON.
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<NewRecord, Error> {
        let value = serde_json::value::to_raw_value(value).map_err(Error::Body)?;
        Ok(NewRecord { key: None, value })
    }

    /// What it is about: records of a key are in one partition, in order.
    pub fn key(mut self, key: impl Into<String>) -> NewRecord {
        self.key = Some(key.into());
        self
    }

    /// About so many as JSON; a key may have escapes.
    fn bytes(&self) -> usize {
        let key = self.key.as_ref().map_or(0, |key| 6 * key.len());
        self.value.get().len() + key + RECORD_BYTES
    }
}

/// Where a record is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Placed {
    /// Which.
    pub partition: u16,
    /// Its place there.
    pub offset: u64,
    /// RFC 3339.
    pub timestamp: String,
}

/// A record that was read.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// Where it is.
    pub partition: u16,
    /// Its place there.
    pub offset: u64,
    /// When it was appended, RFC 3339.
    pub timestamp: String,
    /// What it is about.
    pub key: Option<String>,
    /// What it says, as it was spelt.
    #[serde(rename = "value")]
    pub raw: Box<RawValue>,
}

impl Record {
    /// What it says.
    ///
    /// # Errors
    /// [`Error::Body`] when it is no `T`.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_str(self.raw.get()).map_err(Error::Body)
    }
}

/// How to fetch.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct Fetch {
    member: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_records: Option<u16>,
    wait_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    offsets: BTreeMap<u16, u64>,
}

impl Fetch {
    /// As this member: the same name from one fetch to the next.
    pub fn new(member: impl Into<String>) -> Fetch {
        Fetch {
            member: member.into(),
            max_records: None,
            wait_seconds: 0,
            session_seconds: None,
            epoch: None,
            offsets: BTreeMap::new(),
        }
    }

    /// Up to so many records, 1000 at most; 100 when not set.
    pub fn up_to(mut self, max_records: u16) -> Fetch {
        self.max_records = Some(max_records);
        self
    }

    /// Waits so long for the first, up to 20 s.
    pub fn wait(mut self, wait: Duration) -> Fetch {
        self.wait_seconds = seconds(wait);
        self
    }

    /// A member who does not fetch for so long is one no more; 30 s when not set.
    pub fn session(mut self, session: Duration) -> Fetch {
        self.session_seconds = Some(seconds(session));
        self
    }

    /// Reads on behind what was fetched before, though it is not committed.
    pub fn after(mut self, before: &Fetched) -> Fetch {
        if self.epoch != Some(before.epoch) {
            self.offsets.clear();
        }
        self.epoch = Some(before.epoch);
        self.offsets.extend(&before.next_offsets);
        self
    }
}

/// What a member got.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Fetched {
    /// Grows whenever partitions get other owners, and with every seek.
    pub epoch: u64,
    /// Those that are the member's now.
    pub partitions: Vec<u16>,
    /// What to commit when all of the records are done.
    pub next_offsets: BTreeMap<u16, u64>,
    /// Those of one partition together, in order.
    pub records: Vec<Record>,
}

/// Records of a partition.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RecordPage {
    /// The offset of the first record that is kept.
    pub start: u64,
    /// The offset of the next record to come.
    pub end: u64,
    /// Where to read on. Less than where it was to begin if that is past the end, as it is when the stream
    /// was made anew.
    pub next_offset: u64,
    /// In order.
    pub records: Vec<Record>,
}

/// Where a group is to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// The first record that is kept.
    Earliest,
    /// What comes from now on.
    Latest,
    /// The first record of this time, RFC 3339, or later.
    Time(String),
    /// These offsets of these partitions.
    Offsets(BTreeMap<u16, u64>),
}

impl SeekTo {
    fn ask(&self) -> Value {
        match self {
            SeekTo::Earliest => json!({"to": "earliest"}),
            SeekTo::Latest => json!({"to": "latest"}),
            SeekTo::Time(time) => json!({"to": "time", "time": time}),
            SeekTo::Offsets(offsets) => json!({"to": "offset", "offsets": offsets}),
        }
    }
}

/// Where a group goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sought {
    /// Commits of earlier ones are refused.
    pub epoch: u64,
    /// The next offset of each partition.
    pub offsets: BTreeMap<u16, u64>,
}

impl Stream {
    pub(crate) fn new(client: Client, name: String) -> Stream {
        Stream { client, name }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Appends records, in as many requests as they need, and returns when they are on disk. Each is
    /// taken or refused by itself; the results are in the same order.
    ///
    /// # Errors
    /// What befalls a whole request: `not-found` when there is no such stream; any other [`Error`].
    /// Of more than one request, those before it were carried out.
    pub async fn append(&self, records: &[NewRecord]) -> Result<Vec<Result<Placed, Error>>, Error> {
        #[derive(Serialize)]
        struct Batch<'a> {
            records: &'a [NewRecord],
        }
        let mut results = Vec::with_capacity(records.len());
        let mut rest = records;
        while !rest.is_empty() {
            let mut bytes = RECORD_BYTES;
            let fits = rest.iter().take(BATCH_MAX).take_while(|record| {
                bytes += record.bytes();
                bytes <= BATCH_BYTES_MAX
            });
            let (part, after) = rest.split_at(fits.count().max(1));
            rest = after;
            let call = Call::new(Method::POST, ["v1", "streams", &self.name, "records"])
                .json(&Batch { records: part })?
                .keyed();
            let answer: Results<Placed> = self.client.call(call).await?;
            results.extend(answer.results.into_iter().map(Outcome::into_result));
        }
        Ok(results)
    }

    /// Fetches records as a member of a group; perhaps none. The first to fetch makes the group.
    ///
    /// # Errors
    /// `not-found` when there is no such stream; any other [`Error`].
    pub async fn fetch(&self, group: &str, fetch: &Fetch) -> Result<Fetched, Error> {
        let wait = Duration::from_secs(fetch.wait_seconds);
        self.client.call(self.group_call(group, "fetch").json(fetch)?.repeatable().wait(wait)).await
    }

    /// All that was fetched is done.
    ///
    /// # Errors
    /// `stale-member` when a partition of it was given to another member, or was sought, meanwhile;
    /// any other [`Error`].
    pub async fn commit(&self, group: &str, member: &str, done: &Fetched) -> Result<(), Error> {
        if done.next_offsets.is_empty() {
            return Ok(());
        }
        self.commit_offsets(group, Some((member, done.epoch)), &done.next_offsets).await
    }

    /// What is before these offsets is done. Whose they are, and in which epoch they were fetched, is
    /// checked if it is given; if not, whether the group was sought since its members last fetched.
    ///
    /// # Errors
    /// As [`Stream::commit`].
    pub async fn commit_offsets(
        &self,
        group: &str,
        fetched_by: Option<(&str, u64)>,
        offsets: &BTreeMap<u16, u64>,
    ) -> Result<(), Error> {
        let mut ask = json!({"offsets": offsets});
        if let Some((member, epoch)) = fetched_by {
            ask["member"] = member.into();
            ask["epoch"] = epoch.into();
        }
        self.client.done(self.group_call(group, "commit").json(&ask)?.repeatable()).await
    }

    /// Has a group go on from elsewhere. What was fetched before can be committed no more.
    ///
    /// # Errors
    /// `not-found` when there is no such stream; any other [`Error`].
    pub async fn seek(&self, group: &str, to: &SeekTo) -> Result<Sought, Error> {
        self.client.call(self.group_call(group, "seek").json(&to.ask())?).await
    }

    /// Reads a partition without a group, from an offset on; up to 1000 records.
    ///
    /// # Errors
    /// `not-found` when there is no such stream or partition; any other [`Error`].
    pub async fn read(&self, partition: u16, from: u64, limit: u32) -> Result<RecordPage, Error> {
        let partition = partition.to_string();
        let path = ["v1", "streams", &self.name, "partitions", &partition, "records"];
        let query = [("offset", Some(from.to_string())), ("limit", Some(limit.to_string()))];
        self.client.call(Call::new(Method::GET, path).query(&query)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetch_reads_on_behind_what_was_fetched_in_its_epoch() {
        let fetched = |epoch, next_offsets: &[(u16, u64)]| Fetched {
            epoch,
            partitions: vec![0, 1],
            next_offsets: next_offsets.iter().copied().collect(),
            records: Vec::new(),
        };
        let ask =
            Fetch::new("m").after(&fetched(3, &[(0, 5), (1, 7)])).after(&fetched(3, &[(0, 9)]));
        let json = serde_json::to_value(&ask).expect("JSON");
        let offsets = json!({"0": 9, "1": 7});
        assert_eq!(json, json!({"member": "m", "waitSeconds": 0, "epoch": 3, "offsets": offsets}));
        let ask = ask.after(&fetched(4, &[(1, 2)]));
        assert_eq!(serde_json::to_value(&ask).expect("JSON")["offsets"], json!({"1": 2}));
    }
}
