//! The groups of a stream: who reads it, and how far each is.

use http::Method;
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::error::Error;
use crate::stream::Stream;
use crate::streams::all_pages;

/// A group, in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct GroupSummary {
    /// Its name.
    pub group: String,
    /// Grows whenever partitions get other owners, and with every seek.
    pub epoch: u64,
    /// RFC 3339.
    pub created_at: String,
    /// How many.
    pub members: u64,
    /// Records that it has before it.
    pub lag: u64,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct GroupInfo {
    /// Its name.
    pub group: String,
    /// Grows whenever partitions get other owners, and with every seek.
    pub epoch: u64,
    /// RFC 3339.
    pub created_at: String,
    /// Records that it has before it, of all partitions.
    pub lag: u64,
    /// By name.
    pub members: Vec<GroupMember>,
    /// All of the stream, in order.
    pub partitions: Vec<GroupPartition>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct GroupMember {
    /// Its name.
    pub member: String,
    /// Those that are its own.
    pub partitions: Vec<u16>,
    /// When it last fetched. RFC 3339.
    pub last_seen_at: String,
    /// It is a member no more when it does not fetch for so long.
    pub session_seconds: u64,
}

/// A partition, as a group sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GroupPartition {
    /// Which.
    pub partition: u16,
    /// Whose it is, if there are members.
    pub member: Option<String>,
    /// The next offset; `None` when nothing was committed.
    pub committed: Option<u64>,
    /// The offset of the first record that is kept.
    pub start: u64,
    /// The offset of the next record to come.
    pub end: u64,
    /// Records that the group has before it.
    pub lag: u64,
}

impl Stream {
    fn group_path<'a>(&'a self, group: &'a str) -> [&'a str; 5] {
        ["v1", "streams", self.name(), "groups", group]
    }

    pub(crate) fn group_call(&self, group: &str, verb: &str) -> Call {
        Call::new(Method::POST, self.group_path(group)).verb(verb)
    }

    /// Takes part in a group no more: its partitions go to the others at once.
    ///
    /// # Errors
    /// `not-found` when there is no such stream or group; any other [`Error`].
    pub async fn leave(&self, group: &str, member: &str) -> Result<(), Error> {
        let path = ["v1", "streams", self.name(), "groups", group, "members", member];
        self.client.done(Call::new(Method::DELETE, path)).await
    }

    /// All groups, page after page.
    ///
    /// # Errors
    /// `not-found` when there is no such stream; any other [`Error`].
    pub async fn groups(&self) -> Result<Vec<GroupSummary>, Error> {
        let call = || Call::new(Method::GET, ["v1", "streams", self.name(), "groups"]);
        all_pages(&self.client, call, None).await
    }

    /// Looks at a group: its members, who has which partition, how far behind it is.
    ///
    /// # Errors
    /// `not-found` when there is no such stream or group; any other [`Error`].
    pub async fn group(&self, group: &str) -> Result<GroupInfo, Error> {
        self.client.call(Call::new(Method::GET, self.group_path(group))).await
    }

    /// Deletes a group, and what it has committed: one of its name begins anew.
    ///
    /// # Errors
    /// `conflict` while it has members, `not-found` when there is no such stream or group; any other
    /// [`Error`].
    pub async fn delete_group(&self, group: &str) -> Result<(), Error> {
        self.client.done(Call::new(Method::DELETE, self.group_path(group))).await
    }
}
