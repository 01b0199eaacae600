//! Streams. See `docs/streams.md`.
//!
//! `define` makes and changes streams, `append` puts records in, `read` looks at them without a
//! group; `fetch` is a group's work, `groups` and `seek` what is seen and done of groups.

mod append;
mod define;
mod fetch;
mod groups;
mod read;
mod seek;
mod shown;

use std::collections::BTreeMap;

use streams::{Definition, GROUPS_MAX, MEMBERS_MAX, PARTITIONS_MAX, Refusal};

use crate::app::Edge;
use crate::auth::Caller;
use crate::problem::{Problem, ProblemKind, other_settings};
use crate::queues::{NAME_BYTES_MAX, is_name};
use crate::route::Routes;
use crate::streams::find as find_stream;

/// Bytes of a member's name.
const MEMBER_BYTES_MAX: usize = 256;

/// The tables.
#[must_use]
pub fn routes() -> Vec<Routes> {
    let streams = Routes::new(
        "streams",
        "Streams: records that are kept, and read by many groups at their own pace.",
    );
    let groups = Routes::new("groups", "Groups: readers of a stream that share its partitions.");
    vec![
        read::routes(append::routes(define::routes(streams))),
        groups::routes(seek::routes(fetch::routes(groups))),
    ]
}

fn check_name(what: &str, name: &str) -> Result<(), Problem> {
    if is_name(name) {
        return Ok(());
    }
    let detail = format!(
        "a {what}'s name has 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 . - _, and is not . or .."
    );
    Err(ProblemKind::InvalidParameter.because(detail))
}

/// Says what is wrong with a member's name.
fn check_member(member: &str) -> Result<(), String> {
    let fits = (1..=MEMBER_BYTES_MAX).contains(&member.len());
    if fits && !member.chars().any(char::is_control) {
        return Ok(());
    }
    Err(format!("it must have from 1 to {MEMBER_BYTES_MAX} bytes, and no control characters"))
}

fn no_stream(name: &str) -> Problem {
    ProblemKind::NotFound.because(format!("there is no stream `{name}`"))
}

fn no_group(stream: &str, group: &str) -> Problem {
    ProblemKind::NotFound.because(format!("the stream `{stream}` has no group `{group}`"))
}

/// The stream that the path names.
async fn find(edge: &Edge, caller: &Caller, name: &str) -> Result<Definition, Problem> {
    check_name("stream", name)?;
    find_stream(edge, caller.tenant, name).await?.ok_or_else(|| no_stream(name))
}

/// The stream that the path names, and the name of a group of it.
async fn find_with_group(
    edge: &Edge,
    caller: &Caller,
    name: &str,
    group: &str,
) -> Result<Definition, Problem> {
    check_name("group", group)?;
    find(edge, caller, name).await
}

/// Refuses partitions that the stream does not have.
fn check_partitions(stream: &Definition, offsets: &BTreeMap<u16, u64>) -> Result<(), Problem> {
    let count = stream.settings.partitions;
    match offsets.keys().next_back() {
        Some(partition) if *partition >= count => {
            let detail = format!("at offsets.{partition}: the stream has {count} partitions");
            Err(ProblemKind::InvalidBody.because(detail))
        }
        _ => Ok(()),
    }
}

/// As [`refused`], of whoever names a group as well.
fn group_refused(stream: &str, group: &str, refusal: Refusal) -> Problem {
    match refusal {
        Refusal::NoGroup => no_group(stream, group),
        other => refused(stream, other),
    }
}

/// Why nothing was done with the stream of this name.
fn refused(name: &str, refusal: Refusal) -> Problem {
    match refusal {
        Refusal::NoStream => no_stream(name),
        // There may be one of this name again by now.
        Refusal::Gone => {
            ProblemKind::NotFound.because(format!("the stream `{name}` was deleted meanwhile"))
        }
        Refusal::Exists => other_settings("stream", name, &[]),
        Refusal::Version => {
            ProblemKind::Conflict.because("somebody else is changing the stream: try again")
        }
        Refusal::FewerPartitions => ProblemKind::Unprocessable
            .because("at partitions: a stream never has fewer than before"),
        Refusal::Partitions => ProblemKind::InvalidBody
            .because(format!("at partitions: it must be from 1 to {PARTITIONS_MAX}")),
        Refusal::TooMany => ProblemKind::InvalidBody.because("at records: there are too many"),
        Refusal::NoPartition => {
            ProblemKind::InvalidBody.because("at offsets: the stream has no such partition")
        }
        Refusal::NoGroup => {
            ProblemKind::NotFound.because(format!("the stream `{name}` has no such group"))
        }
        Refusal::Groups => ProblemKind::Unprocessable
            .because(format!("a stream has {GROUPS_MAX} groups at most: delete one")),
        Refusal::Members => {
            ProblemKind::Unprocessable.because(format!("a group has {MEMBERS_MAX} members at most"))
        }
        Refusal::GroupInUse => ProblemKind::Conflict
            .because("the group has members: they leave, or are lost when their sessions end"),
        Refusal::StaleMember { epoch } => ProblemKind::StaleMember
            .because("a partition has got another owner, or was sought, since")
            .with("epoch", epoch),
    }
}
