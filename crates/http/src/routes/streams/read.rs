//! Reading a partition without a group.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::find;
use super::shown::{RecordView, with_records};
use crate::app::EdgeState;
use crate::auth::Caller;
use crate::extract::{Limit, Path, Query};
use crate::problem::{Problem, ProblemKind};
use crate::route::{Routes, doc};
use crate::streams::fetch::FETCH_BYTES;

/// Its part of the table.
pub(super) fn routes(table: Routes) -> Routes {
    table.get(
        "/v1/streams/{stream}/partitions/{partition}/records",
        "streams.read",
        read,
        doc("Read records of a partition")
            .text(
                "Without a group: nothing is remembered. About 1 MiB at most comes at once. An \
                offset that is kept no more, or not there yet, is the nearest that is: past the \
                end there are no records, and `nextOffset` is `end`.",
            )
            .scope("read")
            .query::<ReadQuery>()
            .gives::<RecordPage>(200, "From the offset on, or from the first that is kept")
            .problems(&[ProblemKind::NotFound]),
    )
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadQuery {
    /// Where to begin: at the first that is kept when not given, or when it is kept no more; at the end
    /// when it is past that.
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    limit: Limit,
}

/// Records of a partition.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct RecordPage {
    /// The offset of the first record that is kept.
    start: u64,
    /// The offset of the next record to come.
    end: u64,
    /// Where to read on. Less than what was asked for where that is past the end, as it is when the stream
    /// was made anew.
    next_offset: u64,
    records: Vec<RecordView>,
}

impl IntoResponse for RecordPage {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct About {
            start: u64,
            end: u64,
            next_offset: u64,
        }
        let RecordPage { start, end, next_offset, records } = self;
        with_records(&About { start, end, next_offset }, &records)
    }
}

pub(super) async fn read(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path((name, partition)): Path<(String, u32)>,
    Query(query): Query<ReadQuery>,
) -> Result<RecordPage, Problem> {
    let stream = find(&edge, &caller, &name).await?;
    let (tenant, id, count) = (caller.tenant, stream.id, stream.settings.partitions);
    let partition = u16::try_from(partition).ok().filter(|partition| *partition < count);
    let partition = partition.ok_or_else(|| {
        ProblemKind::NotFound.because(format!("the stream has {count} partitions, from 0 on"))
    })?;
    let rows = edge.node.rows(streams::partition_place(tenant, id, partition));
    let (offset, max) = (query.offset, (query.limit.get(), FETCH_BYTES));
    let read = move || streams::fetch(&rows, tenant, id, partition, offset, max);
    let fetched = edge.node.read(read).await?;
    let next_offset = fetched.records.last().map_or_else(
        // Who is past the end would wait there, and see nothing of what comes before.
        || offset.clamp(fetched.info.start, fetched.info.next),
        |last| last.offset + 1,
    );
    let records = fetched.records.into_iter().map(|record| RecordView::new(partition, record));
    Ok(RecordPage {
        start: fetched.info.start,
        end: fetched.info.next,
        next_offset,
        records: records.collect(),
    })
}
