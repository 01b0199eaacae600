//! Records as JSON.

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use streams::Record;
use utoipa::ToSchema;

use crate::queues::parcel::put_string;
use crate::time::{Rfc3339, rfc3339};

/// A record.
#[derive(ToSchema)]
pub(super) struct RecordView {
    partition: u16,
    /// Its place in the partition.
    offset: u64,
    /// When it was appended.
    #[schema(value_type = String, format = DateTime)]
    timestamp: Rfc3339,
    /// What it is about, if anything.
    #[schema(value_type = Option<String>)]
    key: Option<Bytes>,
    /// Any JSON, as it was spelt.
    #[schema(value_type = Object)]
    value: Bytes,
}

impl RecordView {
    pub(super) fn new(partition: u16, record: Record) -> RecordView {
        let Record { offset, at_ms, key, value } = record;
        RecordView { partition, offset, timestamp: rfc3339(at_ms), key, value }
    }

    /// A value is put as it is: it was JSON when it came.
    fn put(&self, out: &mut Vec<u8>) {
        #[derive(Serialize)]
        struct Place {
            partition: u16,
            offset: u64,
            timestamp: Rfc3339,
        }
        let RecordView { partition, offset, timestamp, .. } = *self;
        put_open(out, &Place { partition, offset, timestamp });
        out.extend_from_slice(b",\"key\":");
        match &self.key {
            Some(key) => put_string(out, &String::from_utf8_lossy(key)),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"value\":");
        out.extend_from_slice(&self.value);
        out.push(b'}');
    }
}

/// An object that something is to be added to.
fn put_open(out: &mut Vec<u8>, object: &impl Serialize) {
    serde_json::to_writer(&mut *out, object).expect("plain data serialises");
    let closed = out.pop();
    debug_assert_eq!(closed, Some(b'}'), "an object ends so");
}

/// What a record takes in an answer besides its key and value, about.
const ABOUT_BYTES: usize = 100;

/// An answer of an object, which has a field at least, and of records in it.
pub(super) fn with_records(object: &impl Serialize, records: &[RecordView]) -> Response {
    let bytes = |record: &RecordView| {
        ABOUT_BYTES + record.value.len() + record.key.as_ref().map_or(0, Bytes::len)
    };
    let mut json = Vec::with_capacity(512 + records.iter().map(bytes).sum::<usize>());
    put_open(&mut json, object);
    json.extend_from_slice(b",\"records\":[");
    for (place, record) in records.iter().enumerate() {
        if place > 0 {
            json.push(b',');
        }
        record.put(&mut json);
    }
    json.extend_from_slice(b"]}");
    ([(CONTENT_TYPE, "application/json")], json).into_response()
}

/// Where whoever is done with these goes on.
pub(super) fn next_offsets(records: &[RecordView]) -> BTreeMap<u16, u64> {
    records.iter().map(|record| (record.partition, record.offset + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_put_as_json() {
        let record = |offset, key: Option<&'static str>, value: &'static str| {
            let (key, value) = (key.map(Bytes::from), Bytes::from(value));
            RecordView::new(3, Record { offset, at_ms: 0, key, value })
        };
        let records = [record(7, Some("a\"b"), "{\"x\": 1.50}"), record(8, None, "null")];
        let mut out = Vec::new();
        records[0].put(&mut out);
        records[1].put(&mut out);
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "{\"partition\":3,\"offset\":7,\"timestamp\":\"1970-01-01T00:00:00.000Z\",\
             \"key\":\"a\\\"b\",\"value\":{\"x\": 1.50}}\
             {\"partition\":3,\"offset\":8,\"timestamp\":\"1970-01-01T00:00:00.000Z\",\
             \"key\":null,\"value\":null}"
        );
        assert_eq!(next_offsets(&records), BTreeMap::from([(3, 9)]));
    }
}
