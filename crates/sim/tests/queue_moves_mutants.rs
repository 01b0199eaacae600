//! That the simulator finds broken redrives and topics: each test breaks one promise.

mod common;

use std::collections::BTreeSet;

use bytes::{BufMut, Bytes};
use kernel::codec::{pack, split_command, versioned, versioned_as};
use kernel::machine::machine_key;
use kernel::mail::Letter;
use kernel::rows::Scan;
use kernel::timers::Due;
use kernel::{Machine, MachineId, TenantId, Turn, Unreadable};
use queue::{Command, Job, JobState, MACHINE, Publish, Reply};
use sim::Choice;

fn check_found(machine: fn(Box<dyn Machine>) -> Box<dyn Machine>, words: &[&str]) {
    common::check_found(Choice::Queue, machine, words);
}

/// The same for what seldom comes about.
fn check_found_at_last(machine: fn(Box<dyn Machine>) -> Box<dyn Machine>, words: &[&str]) {
    common::check_found_within(300, Choice::Queue, machine, words);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    RedriveCopies,
    DryRunMoves,
    LimitIsForgotten,
    RedriveEndsEarly,
    GroupGoesOnWhileOneIsAway,
    RateIsForgotten,
    FilterOfARedriveIsForgotten,
    JobIsForgottenOnRestart,
    CancelDoesNothing,
    MovedLetterIsDropped,
    MovedLetterComesTwice,
    ReturnedLetterIsDropped,
    MovedLetterMakesAQueue,
    PublishedLetterIsDropped,
    PublishedLetterComesTwice,
    FilterOfASubscriptionIsForgotten,
    UnsubscribedGetsMore,
    OneMessageOfABatchIsForgotten,
}

/// Kinds of letters.
const MOVED: u8 = 2;
const PUBLISHED: u8 = 3;
const RETURNED: u8 = 4;

struct BrokenMoves {
    queue: Box<dyn Machine>,
    fault: Fault,
    /// Jobs that were begun since the last restart.
    begun: BTreeSet<u64>,
    /// What was subscribed to before somebody did no longer want it.
    left: Vec<(TenantId, queue::Subscribe)>,
}

fn key(kind: u8, tenant: TenantId, number: u64) -> Vec<u8> {
    let mut key = machine_key(MACHINE, kind, tenant);
    key.put_u64(number);
    key
}

fn job_key(tenant: TenantId, queue: u64, job: u64) -> Vec<u8> {
    let mut key = key(b'r', tenant, queue);
    key.put_u64(job);
    key
}

/// The queue's number and its name, of what its timer carries.
fn queue_of(timer: &Due) -> Option<(u64, &str)> {
    let rest = timer.payload.strip_prefix(&[1])?;
    let (number, name) = rest.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), std::str::from_utf8(name).ok()?))
}

fn running(turn: &Turn<'_>, queue: u64) -> Option<Job> {
    let jobs = queue::jobs(turn.rows(), turn.tenant(), queue);
    jobs.into_iter().find(|job| job.state == JobState::Running)
}

impl BrokenMoves {
    /// Lets the machine take a job's step as if something else had been asked for.
    fn step_as_if(&mut self, turn: &mut Turn<'_>, timer: &Due, change: fn(&mut Job)) {
        let queue = queue_of(timer).map_or(0, |(queue, _)| queue);
        let Some(job) = running(turn, queue) else { return self.queue.fire(turn, timer) };
        let (tenant, asked) = (turn.tenant(), job.asked.clone());
        let row_key = job_key(tenant, queue, job.number);
        let mut other = job;
        change(&mut other);
        turn.put(row_key.clone(), versioned_as(3, &other));
        self.queue.fire(turn, timer);
        if let Some(mut after) = queue::job(turn.rows(), tenant, queue, other.number) {
            after.asked = asked;
            turn.put(row_key, versioned_as(3, &after));
        }
    }

    /// Says of every group that what was on its way has arrived.
    fn let_groups_go_on(&mut self, turn: &mut Turn<'_>, timer: &Due) {
        let Some((number, name)) = queue_of(timer) else { return };
        for group in ["a", "ab", "b", ""].repeat(8) {
            let body = pack(5, 2, &(name, number, u64::MAX, Some(group)));
            let letter = Letter { machine: MACHINE, tenant: turn.tenant(), body };
            self.queue.receive(turn, &letter).expect("it can be read");
        }
    }

    /// What a step has taken out is put back.
    fn step_copies(&mut self, turn: &mut Turn<'_>, timer: &Due) {
        let queue = queue_of(timer).map_or(0, |(queue, _)| queue);
        let Some(job) = running(turn, queue) else { return self.queue.fire(turn, timer) };
        let (tenant, number) = (turn.tenant(), job.number);
        let before = turn.rows().scan(&Scan::prefix(&key(b'l', tenant, queue)));
        let moved = |turn: &Turn<'_>| {
            queue::job(turn.rows(), tenant, queue, number).map_or(0, |job| job.moved)
        };
        self.queue.fire(turn, timer);
        if moved(turn) > job.moved {
            for (key, row) in before {
                turn.put(key.to_vec(), row);
            }
        }
    }

    /// The job still says that it runs, but nobody sees to it any more.
    fn forget_jobs(&mut self, turn: &mut Turn<'_>, timer: &Due) {
        let Some((queue, name)) = queue_of(timer) else { return };
        let Some(job) = running(turn, queue) else { return };
        if !self.begun.contains(&job.number) {
            let cancel = Command::CancelRedrive { queue: name.to_owned(), job: job.number };
            self.queue.apply(turn, &cancel.encode()).expect("it can be read");
            turn.put(job_key(turn.tenant(), queue, job.number), versioned_as(3, &job));
        }
    }

    /// Publishes as if nobody had a filter.
    fn publish_to_all(
        &mut self,
        turn: &mut Turn<'_>,
        publish: &Publish,
        command: &Bytes,
    ) -> Result<Bytes, Unreadable> {
        let row_key = queue::topic_row(turn.tenant(), &publish.topic);
        let Some(row) = turn.rows().get(&row_key) else { return self.queue.apply(turn, command) };
        let mut topic = queue::topic(&row);
        topic.subscriptions.values_mut().for_each(|filter| *filter = None);
        turn.put(row_key.clone(), versioned(&topic));
        let reply = self.queue.apply(turn, command);
        turn.put(row_key, row);
        reply
    }

    /// Publishes to those who have left, too.
    fn publish_to_those_who_left(
        &mut self,
        turn: &mut Turn<'_>,
        publish: &Publish,
        command: &Bytes,
    ) -> Result<Bytes, Unreadable> {
        let row_key = queue::topic_row(turn.tenant(), &publish.topic);
        let Some(row) = turn.rows().get(&row_key) else { return self.queue.apply(turn, command) };
        let mut topic = queue::topic(&row);
        let left = self.left.iter().filter(|(tenant, _)| *tenant == turn.tenant());
        for (_, subscribe) in left.filter(|(_, subscribe)| subscribe.topic == publish.topic) {
            topic.subscriptions.insert(subscribe.queue.clone(), subscribe.filter.clone());
        }
        turn.put(row_key.clone(), versioned(&topic));
        let reply = self.queue.apply(turn, command);
        turn.put(row_key, row);
        reply
    }
}

impl Machine for BrokenMoves {
    fn id(&self) -> MachineId {
        self.queue.id()
    }

    fn name(&self) -> &'static str {
        self.queue.name()
    }

    fn apply(&mut self, turn: &mut Turn<'_>, command: &Bytes) -> Result<Bytes, Unreadable> {
        match (self.fault, Command::decode(command)?) {
            (Fault::CancelDoesNothing, Command::CancelRedrive { queue, job }) => {
                let known = queue::queue(turn.rows(), turn.tenant(), &queue);
                let number = known.map_or(0, |known| known.definition.number);
                if running(turn, number).is_some_and(|running| running.number == job) {
                    return Ok(Reply::RedriveEnded.encode());
                }
            }
            (Fault::FilterOfASubscriptionIsForgotten, Command::Publish(publish)) => {
                return self.publish_to_all(turn, &publish, command);
            }
            (Fault::UnsubscribedGetsMore, Command::Publish(publish)) => {
                return self.publish_to_those_who_left(turn, &publish, command);
            }
            (Fault::UnsubscribedGetsMore, Command::Unsubscribe { topic, queue }) => {
                let row = turn.rows().get(&queue::topic_row(turn.tenant(), &topic));
                let known = row.and_then(|row| queue::topic(&row).subscriptions.remove(&queue));
                if let Some(filter) = known {
                    self.left.push((turn.tenant(), queue::Subscribe { topic, queue, filter }));
                }
            }
            (Fault::OneMessageOfABatchIsForgotten, Command::Publish(mut publish))
                if publish.messages.len() > 3 =>
            {
                publish.messages[1] = publish.messages[0].clone();
                return self.queue.apply(turn, &Command::Publish(publish).encode());
            }
            _ => {}
        }
        let reply = self.queue.apply(turn, command)?;
        if let Reply::Redriving { job } = Reply::decode(&reply)? {
            self.begun.insert(job);
        }
        Ok(reply)
    }

    fn fire(&mut self, turn: &mut Turn<'_>, timer: &Due) {
        match self.fault {
            Fault::RedriveCopies => self.step_copies(turn, timer),
            Fault::DryRunMoves => self.step_as_if(turn, timer, |job| job.asked.dry_run = false),
            Fault::RedriveEndsEarly => {
                self.step_as_if(turn, timer, |job| {
                    let most = job.matched + 1;
                    job.asked.limit = Some(job.asked.limit.map_or(most, |limit| limit.min(most)));
                });
            }
            Fault::GroupGoesOnWhileOneIsAway => {
                self.queue.fire(turn, timer);
                self.let_groups_go_on(turn, timer);
            }
            Fault::LimitIsForgotten => self.step_as_if(turn, timer, |job| job.asked.limit = None),
            Fault::RateIsForgotten => {
                self.step_as_if(turn, timer, |job| job.asked.per_second = None);
            }
            Fault::FilterOfARedriveIsForgotten => {
                self.step_as_if(turn, timer, |job| job.asked.filter = None);
            }
            Fault::JobIsForgottenOnRestart => {
                self.forget_jobs(turn, timer);
                self.queue.fire(turn, timer);
            }
            _ => self.queue.fire(turn, timer),
        }
    }

    fn receive(&mut self, turn: &mut Turn<'_>, letter: &Letter) -> Result<(), Unreadable> {
        let (kind, _, _) = split_command(&letter.body)?;
        match (self.fault, kind) {
            (Fault::MovedLetterIsDropped, MOVED)
            | (Fault::PublishedLetterIsDropped, PUBLISHED)
            | (Fault::ReturnedLetterIsDropped, RETURNED) => Ok(()),
            (Fault::MovedLetterMakesAQueue, MOVED) => {
                // The letter begins with the name.
                let (length, rest) = (usize::from(letter.body[2]), &letter.body[3..]);
                let name = std::str::from_utf8(&rest[..length]).expect("short names only");
                let settings = queue::Settings::usual(queue::Mode::Standard);
                let create = queue::Create { queue: name.to_owned(), settings };
                self.queue.apply(turn, &Command::Create(create).encode())?;
                self.queue.receive(turn, letter)
            }
            (Fault::MovedLetterComesTwice, MOVED)
            | (Fault::PublishedLetterComesTwice, PUBLISHED) => {
                self.queue.receive(turn, letter)?;
                self.queue.receive(turn, letter)
            }
            _ => self.queue.receive(turn, letter),
        }
    }
}

macro_rules! broken {
    ($fault:expr) => {
        |queue| {
            let (begun, left) = (BTreeSet::new(), Vec::new());
            Box::new(BrokenMoves { queue, fault: $fault, begun, left })
        }
    };
}

#[test]
fn a_redrive_that_copies_is_found() {
    check_found(broken!(Fault::RedriveCopies), &["should not be there", "Visible: expected"]);
}

#[test]
fn a_dry_run_that_moves_is_found() {
    check_found_at_last(broken!(Fault::DryRunMoves), &["lost, at", "returned and waiting of job"]);
}

#[test]
fn a_redrive_beyond_its_limit_is_found() {
    check_found(broken!(Fault::LimitIsForgotten), &["beyond its limit"]);
}

#[test]
fn a_redrive_that_ends_early_is_found_even_where_nobody_can_say_what_it_finds() {
    check_found_at_last(broken!(Fault::RedriveEndsEarly), &["left behind by a job"]);
}

#[test]
fn a_group_that_goes_on_while_a_message_of_it_may_come_back_is_found() {
    check_found_at_last(
        broken!(Fault::GroupGoesOnWhileOneIsAway),
        &["groups that are ready", "is away"],
    );
}

#[test]
fn a_redrive_that_is_too_fast_is_found() {
    check_found(
        broken!(Fault::RateIsForgotten),
        &["faster than its rate", "moved, seen", "job: expected"],
    );
}

#[test]
fn a_redrive_that_does_not_look_at_its_filter_is_found() {
    check_found(broken!(Fault::FilterOfARedriveIsForgotten), &["lost, at"]);
}

#[test]
fn a_redrive_that_is_forgotten_on_restart_is_found() {
    check_found(broken!(Fault::JobIsForgottenOnRestart), &["a step of Job", "job: expected"]);
}

#[test]
fn a_redrive_that_cannot_be_ended_is_found() {
    check_found(broken!(Fault::CancelDoesNothing), &["Cancelled"]);
}

#[test]
fn a_moved_message_that_is_lost_on_its_way_is_found() {
    check_found(broken!(Fault::MovedLetterIsDropped), &["lost, at", "there is no queue"]);
}

#[test]
fn a_moved_message_that_comes_twice_is_found() {
    check_found(broken!(Fault::MovedLetterComesTwice), &["should not be there"]);
}

#[test]
fn a_message_that_is_lost_on_its_way_back_is_found() {
    check_found_at_last(
        broken!(Fault::ReturnedLetterIsDropped),
        &["lost, at", "returned and waiting of job"],
    );
}

#[test]
fn a_queue_that_comes_back_to_life_is_found() {
    check_found_at_last(
        broken!(Fault::MovedLetterMakesAQueue),
        &["a queue that is gone", "queues: expected"],
    );
}

#[test]
fn a_published_message_that_is_lost_on_its_way_is_found() {
    check_found(broken!(Fault::PublishedLetterIsDropped), &["lost, at"]);
}

#[test]
fn a_published_message_that_comes_twice_is_found() {
    check_found(broken!(Fault::PublishedLetterComesTwice), &["should not be there"]);
}

#[test]
fn a_subscription_that_gets_what_it_did_not_ask_for_is_found() {
    check_found(broken!(Fault::FilterOfASubscriptionIsForgotten), &["expected Published"]);
}

#[test]
fn who_gets_more_after_unsubscribing_is_found() {
    check_found_at_last(broken!(Fault::UnsubscribedGetsMore), &["expected Published"]);
}

#[test]
fn a_message_of_a_batch_that_another_is_published_for_is_found() {
    let words = ["message: expected", "delivery: expected"];
    check_found_at_last(broken!(Fault::OneMessageOfABatchIsForgotten), &words);
}
