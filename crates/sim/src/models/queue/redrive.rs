//! Redrives, plainly: a job that looks at messages one after the other, and lets some of them go.
//!
//! Time brings messages back in the moment in which a job takes its next step, or ends them: which
//! came first, the machine decides. Then it is seen from rows what was moved, and from that step on
//! only what must hold in any case is asked of the job: among it that it comes to its end, and leaves
//! nothing then that it could have moved since it began.

mod steps;

use std::collections::BTreeSet;

use queue::{Job as JobRow, JobState, Mode, Refusal, Reply, StartRedrive};

use super::QueueModel;
use super::filter::passes;
use super::plain::{Free, Message, Queue};
use crate::subject::{Difference, same, short};

/// Rows that one step looks at.
const STEP_ROWS_MAX: usize = 256;
/// Between two steps of a job with a rate, unless so much time is too much or too little.
const STEP_MS: u64 = 100;
/// Jobs that a queue remembers.
const JOBS_MAX: usize = 10;
/// Queues that a job remembers because they could not take what died there.
const UNFIT_MAX: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) number: u64,
    asked: StartRedrive,
    state: JobState,
    matched: u64,
    moved: u64,
    skipped: u64,
    /// Of those that were moved, how many came back, and how many are where they were to go.
    returned: u64,
    arrived: u64,
    at_end: bool,
    /// Queues that could not take what died there, and why the first of them could not.
    unfit: Vec<String>,
    failure: Option<JobState>,
    /// At least and at most: what was too old may have counted or not.
    waiting: (u64, u64),
    started_ms: u64,
    ended_ms: Option<u64>,
    last_sequence: u64,
    /// The step in which it began: what came to its place later is left alone.
    since: u64,
    /// How many steps it has taken, and how many it may take: one for each message, and the last.
    steps: usize,
    steps_max: usize,
    /// Messages that came back while it ran, perhaps to where it had been.
    again: BTreeSet<u64>,
    /// Groups in which something could not be received at some time since it began.
    may_leave: BTreeSet<String>,
    /// When it takes its next step.
    pub(super) due_ms: u64,
    looked: Looked,
    /// It cannot be said any more what it has looked at.
    vague: bool,
    /// Nor whether it has ended: its queue is deleted in the same entry.
    perhaps_ended: bool,
}

/// How far a job has come. What it has passed it does not look at again.
#[derive(Clone, Debug, Default)]
struct Looked {
    /// Where there is no order: what was there when it came by.
    stays: BTreeSet<u64>,
    /// Where there is order: the last message, as rows are ordered.
    place: Option<(usize, String, u64)>,
}

fn place(message: &Message) -> (usize, String, u64) {
    let group = message.group.clone().unwrap_or_default();
    (group.len(), group, message.sequence)
}

fn lane(message: &Message) -> (u8, bool) {
    (message.priority, message.free().is_some_and(|free| free.came_back))
}

fn refused(reply: &Reply) -> bool {
    *reply == Reply::Refused(Refusal::Redriving)
}

impl Looked {
    fn at(&mut self, message: &Message) {
        self.stays.insert(message.sequence);
        self.place = Some(place(message));
    }

    /// Of a group in which something is not to be received, nothing behind it is looked at either.
    fn pass_group(&mut self, message: &Message) {
        let (length, group, _) = place(message);
        self.place = Some((length, group, u64::MAX));
    }

    fn is_past(&self, fifo: bool, message: &Message) -> bool {
        if fifo {
            return self.place.as_ref().is_some_and(|last| place(message) <= *last);
        }
        self.stays.contains(&message.sequence)
    }
}

impl Job {
    pub(super) fn is_running(&self) -> bool {
        self.state == JobState::Running
    }

    /// How many messages a step may move, and when the next one comes.
    fn pace(&self, now_ms: u64) -> (usize, u64) {
        let Some(rate) = self.asked.per_second else { return (STEP_ROWS_MAX, now_ms) };
        let rate = u64::from(rate);
        let most = STEP_ROWS_MAX as u64;
        let every_ms = STEP_MS.min(most * 1000 / rate).max(1000_u64.div_ceil(rate));
        let budget = (rate * every_ms / 1000).clamp(1, most);
        (usize::try_from(budget).expect("small"), now_ms + every_ms)
    }

    fn is_at_its_limit(&self) -> bool {
        self.asked.limit.is_some_and(|limit| self.matched >= limit)
    }

    /// Where a message goes; `None` when it stays.
    fn target(&self, queue: &Queue, message: &Message) -> Option<String> {
        let story = message.story.as_ref();
        let target = self.asked.target.clone().or_else(|| Some(story?.queue.clone()))?;
        let goes = target != queue.name.1 && !self.unfit.contains(&target);
        (goes && passes(self.asked.filter.as_ref(), &message.parcel, story)).then_some(target)
    }

    /// What is promised of every job, however it takes its steps.
    fn check(&self, now_ms: u64) -> Result<(), Difference> {
        let moved = if self.asked.dry_run { 0 } else { self.matched };
        same("messages moved by a job", &moved, &self.moved)?;
        if self.asked.limit.is_some_and(|limit| self.matched > limit) {
            return Err(format!("a job is beyond its limit: {}", short(self)));
        }
        if self.steps > self.steps_max {
            return Err(format!("a job does not come to its end: {}", short(self)));
        }
        let Some(rate) = self.asked.per_second.map(u64::from) else { return Ok(()) };
        // A tenth of a second's worth at once, and from then on no more than its share of time.
        let most = (rate / 10).max(1) + rate * (now_ms - self.started_ms) / 1000;
        if self.matched > most {
            return Err(format!("faster than its rate, {most} at {now_ms}: {}", short(self)));
        }
        Ok(())
    }

    fn end(&mut self, state: JobState, now_ms: u64) {
        (self.state, self.ended_ms) = (state, Some(now_ms));
    }

    /// It takes no further step.
    fn comes_to_its_end(&mut self, now_ms: u64) {
        (self.at_end, self.due_ms) = (true, u64::MAX);
        if self.is_running() && self.arrived + self.returned == self.moved {
            self.end(self.failure.unwrap_or(JobState::Done), now_ms);
        }
    }

    pub(super) fn has_arrived(&mut self, now_ms: u64) {
        self.arrived += 1;
        if self.at_end {
            self.comes_to_its_end(now_ms);
        }
    }

    /// A message came back from there.
    pub(super) fn came_back(&mut self, (to, why): (String, JobState), now_ms: u64) {
        self.returned += 1;
        if self.asked.target.is_none() {
            self.failure.get_or_insert(why);
            if !self.unfit.contains(&to) && self.unfit.len() < UNFIT_MAX {
                self.unfit.push(to);
            }
            if self.at_end {
                self.comes_to_its_end(now_ms);
            }
            return;
        }
        self.ended_ms.get_or_insert(now_ms);
        if self.state != JobState::Cancelled {
            self.state = why;
        }
    }

    /// A message is back, which this job or another had moved.
    pub(super) fn finds_again(&mut self, sequence: u64) {
        self.again.insert(sequence);
        self.steps_max += 1;
    }

    /// Something in a group cannot be received for now.
    pub(super) fn may_leave_group(&mut self, group: &str) {
        self.may_leave.insert(group.to_owned());
    }

    /// Compares with what is told of it.
    pub(super) fn look(&mut self, row: &JobRow) -> Result<(), Difference> {
        let waiting = row.waiting.clamp(self.waiting.0, self.waiting.1);
        self.waiting = (waiting, waiting);
        let expected = (self.number, &self.asked, self.state, self.started_ms, self.ended_ms);
        let actual = (row.number, &row.asked, row.state, row.started_ms, row.ended_ms);
        same("job", &expected, &actual)?;
        let expected = (&self.unfit, self.failure);
        same("queues that could not take theirs", &expected, &(&row.unfit, row.failure))?;
        let expected =
            [self.matched, self.moved, self.skipped, self.returned, self.arrived, waiting];
        let actual = [row.matched, row.moved, row.skipped, row.returned, row.arrived, row.waiting];
        same(
            &format!(
                "matched, moved, skipped, returned, arrived and waiting of job {}",
                self.number
            ),
            &expected,
            &actual,
        )
    }
}

impl Queue {
    pub(super) fn running(&self) -> Option<&Job> {
        self.jobs.last().filter(|job| job.is_running())
    }
}

impl QueueModel {
    pub(super) fn start_redrive(
        &mut self,
        at: usize,
        asked: StartRedrive,
        actual: &Reply,
    ) -> Result<Reply, Difference> {
        let queue = &mut self.queues[at];
        if queue.running().is_some_and(|job| !job.perhaps_ended || refused(actual)) {
            return Ok(Reply::Refused(Refusal::Redriving));
        }
        if asked.target.as_ref() == Some(&queue.name.1) {
            return Ok(Reply::Refused(Refusal::SameQueue));
        }
        // What is on its way may come back to its place in its group.
        let fifo = queue.settings.mode == Mode::Fifo;
        if fifo && queue.jobs.iter().any(|job| job.arrived + job.returned < job.moved) {
            return Ok(Reply::Refused(Refusal::Redriving));
        }
        let Reply::Redriving { job: number } = *actual else {
            return Err(format!("a job was not begun: {actual:?}"));
        };
        if !self.numbers.insert(number) {
            return Err(format!("a job has number {number}, which is not new"));
        }
        let now_ms = self.now_ms;
        let visible = |at_most: bool| {
            let counts = |free: &Free| {
                let jitters = free.from_ms <= now_ms && free.from_ms < free.to_ms;
                !free.delayed || at_most && jitters
            };
            let visible = queue.messages.iter().filter(|m| m.free().is_some_and(counts));
            visible.filter(|m| at_most || !m.perhaps_gone).count() as u64
        };
        let job = Job {
            number,
            asked,
            state: JobState::Running,
            matched: 0,
            moved: 0,
            skipped: 0,
            returned: 0,
            arrived: 0,
            at_end: false,
            unfit: Vec::new(),
            failure: None,
            waiting: (visible(false), visible(true)),
            started_ms: now_ms,
            ended_ms: None,
            last_sequence: queue.last_sequence,
            since: self.step,
            steps: 0,
            steps_max: queue.messages.len() + 1,
            again: BTreeSet::new(),
            may_leave: BTreeSet::new(),
            due_ms: now_ms,
            looked: Looked::default(),
            vague: false,
            perhaps_ended: false,
        };
        if queue.jobs.len() == JOBS_MAX {
            queue.jobs.remove(0);
        }
        queue.jobs.push(job);
        self.ledger.borrow_mut().jobs.push((queue.name.clone(), number));
        Ok(Reply::Redriving { job: number })
    }

    pub(super) fn cancel_redrive(&mut self, at: usize, number: u64) -> Reply {
        let mut jobs = self.queues[at].jobs.iter_mut();
        let Some(job) = jobs.find(|job| job.number == number) else {
            return Reply::Refused(Refusal::NoJob);
        };
        if job.is_running() {
            job.end(JobState::Cancelled, self.now_ms);
        }
        Reply::RedriveEnded
    }
}
