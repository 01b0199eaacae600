//! Redrive: messages that can be received are moved to another queue, little by little.
//!
//! ```text
//!   start ──▶ running ──▶ done        a timer for each step, so a restart goes on where it was
//!                │
//!                ├─ cancel ──▶ cancelled
//!                └─ a message comes back ──▶ failed
//! ```
//!
//! A step walks on from the row where the last one stopped, and sends what it takes as letters, in
//! the entry in which it takes it: a message is in one of the two queues, or on its way. What came
//! after the job began is left alone, or two queues that fail into each other would never be done.
//! A group of which somebody has a message, or of which one waits for its time, is left as it is from
//! there on: it is moved in its order, or not at all.
//!
//! A letter that finds no queue, or one of the other mode, comes back: its message is where it was again,
//! in its group before those that were behind it, and the job has failed.

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
use crate::state::{Head, Message, key, waiting_key};

/// Rows that one step looks at.
const STEP_ROWS_MAX: usize = 256;
/// Bytes of rows after which it looks at no more.
const STEP_BYTES_MAX: usize = 4 << 20;
/// Between two steps of a job with a rate.
const STEP_MS: u64 = 100;
/// Jobs that a queue remembers.
const JOBS_MAX: usize = 10;

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
}

impl Job {
    /// Whether it takes no further step.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.at_end
    }

    fn encode(&self) -> Vec<u8> {
        versioned_as(2, self)
    }

    /// Reads a row of this machine's. Version 1 lacks the last three fields.
    fn decode(row: &[u8]) -> Job {
        let newest = match row {
            [1, body @ ..] => &[body, &[0; 3]].concat(),
            [2, body @ ..] => body,
            _ => panic!("a job of a version that this binary is too old for"),
        };
        unpack("a job of a queue", newest).expect("rows are this machine's alone")
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
        for old in jobs(self.turn.rows(), tenant, queue).iter().rev().skip(JOBS_MAX - 1) {
            self.turn.delete(&job_key(tenant, queue, old.number));
        }
        let number = self.turn.unique();
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
        let more = self.step(&mut job, budget);
        if more {
            self.turn.put(job_key(self.tenant(), self.number(), number), job.encode());
            let timer = self.set(next_ms);
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
            self.end_job(job, JobState::Done);
        } else {
            self.turn.put(job_key(self.tenant(), self.number(), job.number), job.encode());
        }
    }

    /// One of a job's messages is where it was to go.
    pub(crate) fn has_arrived(&mut self, number: u64) {
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
        // Without a filter no more is read than is moved.
        let rows_max = if job.asked.filter.is_some() { STEP_ROWS_MAX } else { budget };
        let scan = Scan::prefix(&prefix).after(&job.cursor).limit(rows_max).bytes(STEP_BYTES_MAX);
        let found = self.turn.rows().scan(&scan);
        let all = !scan.is_cut(&found);
        self.note_read(value_bytes(&found));
        let mut left = budget;
        for (row_key, row) in found {
            if job.asked.limit.is_some_and(|limit| job.matched >= limit) {
                return false;
            }
            if left == 0 || self.has_read_enough() {
                return true;
            }
            if row_key[..] <= job.cursor[..] {
                continue;
            }
            job.cursor = row_key.to_vec();
            let message = Message::decode(&row);
            if let Some(group) = &message.head.group
                && !(self.is_group_free(group) && message.head.due_ms <= self.turn.now_ms())
            {
                // All of it is passed, now and in later steps: what is behind must not overtake.
                job.cursor = waiting_key(self.tenant(), self.number(), group, u64::MAX);
                continue;
            }
            // What nobody would get any more is not given a new life.
            if message.head.sequence > job.last_sequence || self.is_too_old(&message) {
                continue;
            }
            left -= usize::from(self.look_and_move(job, &row_key, message));
        }
        !all && job.asked.limit.is_none_or(|limit| job.matched < limit)
    }

    /// Whether the message was one to be moved.
    fn look_and_move(&mut self, job: &mut Job, row_key: &Bytes, message: Message) -> bool {
        let story = message.head.story.as_ref();
        let target = job.asked.target.clone().or_else(|| story.map(|story| story.queue.clone()));
        let target = target.filter(|target| target != self.name);
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
            self.look_again_at_group(&group);
        } else {
            let place = key(self.tenant(), b'l', self.number()).len();
            let (lane, position) = (row_key[place], row_key[place + 1..].first_chunk());
            debug_assert_ne!(lane, READY, "a queue without order has no groups");
            let position = u64::from_be_bytes(*position.expect("as lane_key puts it"));
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
        let now_ms = self.turn.now_ms();
        let Moved { id, priority, group, parcel, from, .. } = moved;
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
            ..Head::new(id, from.sequence, from.sent_ms, group)
        };
        let message = Message { head, unseen: from.unseen, parcel };
        self.counts.bytes += message.bytes();
        self.hold_body_again(&message);
        if !self.expires(&message) {
            if message.head.group.is_some() {
                self.wait_in_group(message, false);
            } else {
                self.show_in_lane(message, true);
            }
        }
        // A job of long ago is not remembered.
        let Some(mut job) = job(self.turn.rows(), self.tenant(), self.number(), number) else {
            return;
        };
        job.returned += 1;
        if let Some((running, timer)) = self.counts.redrive
            && running == number
        {
            self.turn.cancel_timer(crate::state::timer(timer));
            self.counts.redrive = None;
        }
        if job.state != JobState::Cancelled {
            job.state = why;
        }
        job.ended_ms = job.ended_ms.or(Some(now_ms));
        self.turn.put(job_key(self.tenant(), self.number(), number), job.encode());
    }
}
