//! Redrive: messages that can be received are moved to another queue, little by little.
//!
//! ```text
//!   start ──▶ running ──▶ done        a timer for each step, so a restart goes on where it was
//!                │
//!                ├─ cancel ──▶ cancelled
//!                └─ a message comes back ──▶ failed        at once, or when the rest is moved
//! ```
//!
//! A step walks on from the row where the last one stopped, and sends what it takes as letters, in
//! the entry in which it takes it: a message is in one of the two queues, or on its way. What came
//! after the job began is left alone, whether it is new or comes back: a lane is gone through as far as
//! it reached then. Or two queues that fail into each other would never be done, nor would a job that is
//! slower than what arrives.
//! A group of which somebody has a message, or of which one waits for its time, is left as it is from
//! there on: it is moved in its order, or not at all. While a message of it is on its way, nobody
//! receives what was behind it: it may come back.
//!
//! A letter that finds no queue, or one of the other mode, comes back: its message is where it was again,
//! in its group before those that were behind it. The job has failed then; but one that moves each
//! message to where it died first moves those that died in other queues.

use bytes::{BufMut, Bytes};
use kernel::TenantId;
use kernel::codec::{unpack, versioned_as};
use kernel::rows::{ReadRows, Scan, value_bytes};
use serde::{Deserialize, Serialize};

use crate::MACHINE;
use crate::apply::Desk;
use crate::command::{Mode, Refusal, Reply, StartRedrive};
use crate::fifo::READY;
use crate::parcel::Parcel;
use crate::post::{Moved, MovedFrom, Post};
use crate::query::place;
use crate::state::{Head, Message, key, lane_key, waiting_key};

/// Rows that one step looks at.
const STEP_ROWS_MAX: usize = 256;
/// Bytes of rows after which it looks at no more.
const STEP_BYTES_MAX: usize = 4 << 20;
/// Between two steps of a job with a rate.
const STEP_MS: u64 = 100;
/// Jobs that a queue remembers.
const JOBS_MAX: usize = 10;
/// Queues that a job remembers because they could not take what died there.
const UNFIT_MAX: usize = 16;

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its number, in its queue.
    pub number: u64,
    /// As it was asked for.
    pub asked: StartRedrive,
    /// How far it is.
    pub state: JobState,
    /// Messages that passed the filter.
    pub matched: u64,
    /// Messages that were moved.
    pub moved: u64,
    /// Messages that did not pass the filter, or have nowhere to go.
    pub skipped: u64,
    /// Messages that could be received when it began.
    pub waiting: u64,
    /// When it began.
    pub started_ms: u64,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// The last row that was looked at.
    cursor: Vec<u8>,
    /// What came later is left alone.
    last_sequence: u64,
    /// Of those that were moved, how many came back.
    pub returned: u64,
    /// And how many are where they were to go.
    pub arrived: u64,
    /// Nothing is left to be moved; but not all have arrived.
    at_end: bool,
    /// Where the lanes ended when it began: what is behind came later. A queue with order has none.
    ends: Vec<(u8, u64)>,
    /// Queues that could not take what died there, if each message goes to where it died: the rest of
    /// theirs stays.
    pub unfit: Vec<String>,
    /// Why, of the first of them.
    pub failure: Option<JobState>,
}

impl Job {
    /// Whether it takes no further step.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.at_end
    }

    fn encode(&self) -> Vec<u8> {
        versioned_as(3, self)
    }

    fn is_at_its_limit(&self) -> bool {
        self.asked.limit.is_some_and(|limit| self.matched >= limit)
    }

    /// Reads a row of this machine's. Version 1 lacks the last six fields, version 2 the last three: one
    /// of those that still runs, in a queue without order, finds nothing more.
    pub(crate) fn decode(row: &[u8]) -> Job {
        let newest = match row {
            [1, body @ ..] => &[body, &[0; 6]].concat(),
            [2, body @ ..] => &[body, &[0; 3]].concat(),
            [3, body @ ..] => body,
            _ => panic!("a job of a version that this binary is too old for"),
        };
        let job: Job = unpack("a job of a queue", newest).expect("rows are this machine's alone");
        match row {
            // Arrivals were not counted: they are not waited for.
            [1, ..] => Job { arrived: job.moved, ..job },
            _ => job,
        }
    }
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    /// It moves messages.
    Running,
    /// Nothing is left to be moved, or its limit is reached.
    Done,
    /// Somebody ended it.
    Cancelled,
    /// It failed: there is no queue where messages were to go.
    NoQueue,
    /// It failed: one of the two queues keeps order, and the other does not.
    OtherMode,
}

fn job_key(tenant: TenantId, queue: u64, job: u64) -> Vec<u8> {
    let mut key = key(tenant, b'r', queue);
    key.put_u64(job);
    key
}

/// A job of a queue.
#[must_use]
pub fn job(rows: &impl ReadRows, tenant: TenantId, queue: u64, job: u64) -> Option<Job> {
    rows.get(&job_key(tenant, queue, job)).map(|row| Job::decode(&row))
}

/// The jobs of a queue that it remembers, the latest last.
#[must_use]
pub fn jobs(rows: &impl ReadRows, tenant: TenantId, queue: u64) -> Vec<Job> {
    let found = rows.scan(&Scan::prefix(&key(tenant, b'r', queue)).limit(JOBS_MAX + 1));
    found.iter().map(|(_, row)| Job::decode(row)).collect()
}

impl Desk<'_, '_> {
    pub(crate) fn start_redrive(&mut self, asked: StartRedrive) -> Reply {
        if self.counts.redrive.is_some() {
            return Reply::Refused(Refusal::Redriving);
        }
        if asked.target.as_deref() == Some(self.name) {
            return Reply::Refused(Refusal::SameQueue);
        }
        let (tenant, queue, now_ms) = (self.tenant(), self.number(), self.turn.now_ms());
        let known = jobs(self.turn.rows(), tenant, queue);
        // What is on its way may come back to its place in its group, and what another job moved meanwhile
        // would have overtaken it.
        let keeps_order = self.settings().mode == Mode::Fifo;
        if keeps_order && known.iter().any(|job| job.arrived + job.returned < job.moved) {
            return Reply::Refused(Refusal::Redriving);
        }
        for old in known.iter().rev().skip(JOBS_MAX - 1) {
            self.turn.delete(&job_key(tenant, queue, old.number));
        }
        let number = self.turn.unique();
        // The lane of groups has none: groups are gone through by name.
        let filled = self.counts.lanes.iter().filter(|lane| lane.len > 0 && lane.number != READY);
        let ends = filled.map(|lane| (lane.number, lane.next)).collect();
        let job = Job {
            number,
            asked,
            state: JobState::Running,
            matched: 0,
            moved: 0,
            skipped: 0,
            waiting: self.counts.visible,
            started_ms: now_ms,
            ended_ms: None,
            cursor: Vec::new(),
            last_sequence: self.counts.last_sequence,
            returned: 0,
            arrived: 0,
            at_end: false,
            ends,
            unfit: Vec::new(),
            failure: None,
        };
        self.turn.put(job_key(tenant, queue, number), job.encode());
        let timer = self.set(now_ms);
        self.counts.redrive = Some((number, timer));
        Reply::Redriving { job: number }
    }

    pub(crate) fn cancel_redrive(&mut self, number: u64) -> Reply {
        let Some(mut job) = job(self.turn.rows(), self.tenant(), self.number(), number) else {
            return Reply::Refused(Refusal::NoJob);
        };
        if let Some((running, timer)) = self.counts.redrive
            && running == number
        {
            self.turn.cancel_timer(crate::state::timer(timer));
            self.counts.redrive = None;
            self.end_job(&mut job, JobState::Cancelled);
        }
        Reply::RedriveEnded
    }

    fn end_job(&mut self, job: &mut Job, state: JobState) {
        job.state = state;
        job.ended_ms = Some(self.turn.now_ms());
        self.turn.put(job_key(self.tenant(), self.number(), job.number), job.encode());
    }

    /// The job's next step.
    pub(crate) fn redrive_on(&mut self, number: u64) {
        let job = job(self.turn.rows(), self.tenant(), self.number(), number);
        let mut job = job.expect("a job that runs has a row");
        let now_ms = self.turn.now_ms();
        let (budget, next_ms) = match job.asked.per_second {
            None => (STEP_ROWS_MAX, now_ms),
            Some(rate) => {
                let rate = u64::from(rate.max(1));
                // As often as needed for what a step may take, and for a message a step.
                let often_ms = STEP_MS.min(STEP_ROWS_MAX as u64 * 1000 / rate).max(1);
                // Rounded up: a little late is no more than was asked for.
                let every_ms = often_ms.max(1000_u64.div_ceil(rate));
                let budget = usize::try_from(rate * every_ms / 1000).unwrap_or(STEP_ROWS_MAX);
                (budget.clamp(1, STEP_ROWS_MAX), now_ms + every_ms)
            }
        };
        let before = job.matched;
        let more = self.step(&mut job, budget);
        if more {
            self.turn.put(job_key(self.tenant(), self.number(), number), job.encode());
            // A rate is one of messages that go, not of those that are passed.
            let timer = self.set(if job.matched == before { now_ms } else { next_ms });
            self.counts.redrive = Some((number, timer));
        } else {
            job.at_end = true;
            self.look_at_end(&mut job);
        }
    }

    /// A job is done when all that it moved has arrived: who is told so may delete the queue.
    fn look_at_end(&mut self, job: &mut Job) {
        let is_over = job.at_end && job.arrived + job.returned == job.moved;
        if is_over && job.state == JobState::Running {
            self.counts.redrive = None;
            self.end_job(job, job.failure.unwrap_or(JobState::Done));
        } else {
            self.turn.put(job_key(self.tenant(), self.number(), job.number), job.encode());
        }
    }

    /// One of a job's messages is where it was to go; the group is the one that it had here.
    pub(crate) fn has_arrived(&mut self, number: u64, group: Option<&str>) {
        if let Some(group) = group {
            self.is_no_longer_away(group);
            self.look_at_group(group);
        }
        // A job of long ago is not remembered.
        if let Some(mut job) = job(self.turn.rows(), self.tenant(), self.number(), number) {
            job.arrived += 1;
            self.look_at_end(&mut job);
        }
    }

    /// Moves at most so many messages. False when the job is at its end.
    fn step(&mut self, job: &mut Job, budget: usize) -> bool {
        let kind = if self.settings().mode == Mode::Fifo { b'w' } else { b'l' };
        let prefix = key(self.tenant(), kind, self.number());
        let (mut left, mut rows, mut bytes) = (budget, 0, 0);
        // No more is read at first than may be moved.
        let mut at_once = budget;
        while left > 0 && rows < STEP_ROWS_MAX && bytes < STEP_BYTES_MAX {
            let scan = Scan::prefix(&prefix).after(&job.cursor);
            let scan = scan.limit(at_once.min(STEP_ROWS_MAX - rows)).bytes(STEP_BYTES_MAX - bytes);
            let found = self.turn.rows().scan(&scan);
            let all = !scan.is_cut(&found);
            (rows, bytes) = (rows + found.len(), bytes + value_bytes(&found));
            self.note_read(value_bytes(&found));
            for (row_key, row) in found {
                if job.is_at_its_limit() {
                    return false;
                }
                if left == 0 || self.has_read_enough() {
                    return true;
                }
                left -= usize::from(self.look_at(job, &row_key, &row));
            }
            if all && left > 0 {
                return false;
            }
            at_once *= 2;
        }
        !job.is_at_its_limit()
    }

    /// Looks at a row that may be the job's next. Whether its message was one to be moved.
    fn look_at(&mut self, job: &mut Job, row_key: &Bytes, row: &Bytes) -> bool {
        if row_key[..] <= job.cursor[..] {
            return false;
        }
        let (tenant, queue) = (self.tenant(), self.number());
        job.cursor = row_key.to_vec();
        let message = Message::decode(row);
        if let Some(group) = &message.head.group {
            let is_due = message.head.due_ms <= self.turn.now_ms();
            let is_later = message.head.sequence > job.last_sequence;
            if is_later || !is_due || !self.is_group_free(group) {
                // All of it is passed, now and in later steps: what is behind must not overtake.
                job.cursor = waiting_key(tenant, queue, group, u64::MAX);
                return false;
            }
        } else {
            let (lane, position) = self.lane_of(row_key);
            if !job.ends.iter().any(|(number, end)| *number == lane && position < *end) {
                job.cursor = lane_key(tenant, queue, lane, u64::MAX);
                return false;
            }
        }
        // What nobody would get any more is not given a new life.
        !self.is_too_old(&message) && self.look_and_move(job, row_key, message)
    }

    /// Where a row lies that is not of a group.
    fn lane_of(&self, row_key: &Bytes) -> (u8, u64) {
        let at = key(self.tenant(), b'l', self.number()).len();
        let (lane, position) = (row_key[at], row_key[at + 1..].first_chunk());
        debug_assert_ne!(lane, READY, "a queue without order has no groups");
        (lane, u64::from_be_bytes(*position.expect("as lane_key puts it")))
    }

    /// Whether the message was one to be moved.
    fn look_and_move(&mut self, job: &mut Job, row_key: &Bytes, message: Message) -> bool {
        let story = message.head.story.as_ref();
        let target = job.asked.target.clone().or_else(|| story.map(|story| story.queue.clone()));
        let target = target.filter(|to| to != self.name && !job.unfit.contains(to));
        let filter = job.asked.filter.as_ref();
        let passes = filter.is_none_or(|filter| {
            Parcel::read(&message.parcel).is_ok_and(|parcel| filter.passes(&parcel, story))
        });
        let (true, Some(target)) = (passes, target) else {
            job.skipped += 1;
            return false;
        };
        job.matched += 1;
        if !job.asked.dry_run {
            job.moved += 1;
            self.take_out(row_key, &message);
            self.move_to(target, message, job.number);
        }
        true
    }

    /// Takes a message that can be received out of its place, wherever that is.
    fn take_out(&mut self, row_key: &Bytes, message: &Message) {
        if let Some(group) = message.head.group.clone() {
            self.take_waiting(&group, message, false);
            self.change_group(&group, |group| group.away += 1);
            self.look_again_at_group(&group);
        } else {
            let (lane, position) = self.lane_of(row_key);
            self.take_from_middle(lane, position);
            self.counts.visible -= 1;
        }
        self.pass_body_on(message);
        self.counts.bytes -= message.bytes();
        self.counts.totals.moved += 1;
    }

    fn move_to(&mut self, queue: String, message: Message, job: u64) {
        let to = place(self.tenant(), &queue);
        let Message { head, unseen, parcel } = message;
        let moved = Moved {
            queue,
            id: head.id,
            priority: head.priority,
            group: head.group,
            parcel,
            from: MovedFrom {
                queue: self.name.to_owned(),
                number: self.number(),
                job,
                sequence: head.sequence,
                sent_ms: head.sent_ms,
                visible_ms: head.visible_ms,
                leases: head.leases,
                unseen,
                first_received_ms: head.first_received_ms,
                first_failed_ms: head.first_failed_ms,
                last_failed_ms: head.last_failed_ms,
                reason: head.reason,
                story: head.story,
            },
        };
        self.turn.send(to, MACHINE, Post::Moved(moved).encode());
    }

    /// A message arrives from another queue, whatever the queue's bounds say: as if new, under the
    /// name it had.
    pub(crate) fn take_moved(&mut self, moved: Moved) {
        let named = (moved.id, self.turn.now_ms(), moved.priority);
        let group = moved.group_in_order().cloned();
        self.take_as_new(named, group, None, &moved.parcel);
    }

    /// A message comes back, and the queue that it left is gone: another of that name takes it.
    pub(crate) fn take_stranded(&mut self, moved: Moved) {
        let named = (moved.id, moved.from.sent_ms, moved.priority);
        let group = moved.group_in_order().cloned();
        self.take_as_new(named, group, moved.from.story, &moved.parcel);
    }

    /// A message comes back that could not be moved, and is what it was: in its group at its place, else
    /// with those that come back.
    pub(crate) fn take_back(&mut self, moved: Moved, why: JobState) {
        let Moved { queue: to, id, priority, group, parcel, from } = moved;
        let number = from.job;
        let head = Head {
            visible_ms: from.visible_ms,
            priority,
            leases: from.leases,
            first_received_ms: from.first_received_ms,
            first_failed_ms: from.first_failed_ms,
            last_failed_ms: from.last_failed_ms,
            reason: from.reason,
            story: from.story,
            ..Head::new(id, from.sequence, from.sent_ms, group.clone())
        };
        let message = Message { head, unseen: from.unseen, parcel };
        self.counts.bytes += message.bytes();
        self.hold_body_again(&message);
        if let Some(group) = &group {
            self.is_no_longer_away(group);
        }
        if !self.expires(&message) {
            if group.is_some() {
                self.wait_in_group(message, false);
            } else {
                self.show_in_lane(message, true);
            }
        } else if let Some(group) = &group {
            self.look_at_group(group);
        }
        // A job of long ago is not remembered.
        if let Some(job) = job(self.turn.rows(), self.tenant(), self.number(), number) {
            self.has_returned(job, to, why);
        }
    }

    /// One of a job's messages is back, and its job has failed.
    fn has_returned(&mut self, mut job: Job, to: String, why: JobState) {
        job.returned += 1;
        if job.asked.target.is_none() {
            // What died in other queues has somewhere to go.
            job.failure.get_or_insert(why);
            if !job.unfit.contains(&to) && job.unfit.len() < UNFIT_MAX {
                job.unfit.push(to);
            }
            self.look_at_end(&mut job);
            return;
        }
        if let Some((running, timer)) = self.counts.redrive
            && running == job.number
        {
            self.turn.cancel_timer(crate::state::timer(timer));
            self.counts.redrive = None;
        }
        if job.state != JobState::Cancelled {
            job.state = why;
        }
        job.ended_ms = job.ended_ms.or(Some(self.turn.now_ms()));
        self.turn.put(job_key(self.tenant(), self.number(), job.number), job.encode());
    }

    /// A message of a group that was on its way is back, or is where it was to go. A purge has forgotten
    /// that it was.
    fn is_no_longer_away(&mut self, group: &str) {
        self.change_group(group, |group| group.away = group.away.saturating_sub(1));
    }
}
