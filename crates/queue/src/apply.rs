//! What is done to queues as a whole, and the desk that a command about messages works at.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use bytes::Bytes;
use kernel::machine::Usage;
use kernel::mail::Letter;
use kernel::timers::Due;
use kernel::{Machine, MachineId, TenantId, Turn, Unreadable};

use crate::MACHINE;
use crate::command::{Command, Create, Mode, Refusal, Reply, ReserveBody, Settings, Update};
use crate::lane::Ahead;
use crate::large;
use crate::post::{Arrived, Moved, MovedFrom, Post};
use crate::query::place;
use crate::redrive::JobState;
use crate::state::{CONTENTS, Counts, Lane, Queue, key, queue_key};
use crate::sweep::TIMER_VERSION;
use crate::topic;

/// How long what was received is remembered under an idempotency key: it may be large, and once its
/// leases have ended nobody can use it. *(frozen)*
pub const RECEIVED_KEPT_MS: u64 = 10 * 60 * 1000;
/// Queues held at hand; beyond it all are read from rows again.
const AT_HAND_MAX: usize = 4096;

/// The machine. Its fields are what rows say, kept at hand.
#[derive(Debug, Default)]
pub struct Queues {
    at_hand: AtHand,
    ahead: RefCell<Ahead>,
}

/// Queues and what they count.
#[derive(Debug, Default)]
struct AtHand {
    queues: BTreeMap<TenantId, BTreeMap<String, (Queue, Counts)>>,
    held: usize,
}

/// One queue, for the length of a command. What it counts becomes a row at the end.
pub(crate) struct Desk<'a, 't> {
    pub(crate) turn: &'a mut Turn<'t>,
    pub(crate) name: &'a str,
    pub(crate) queue: &'a Queue,
    pub(crate) counts: &'a mut Counts,
    /// Shared, since whoever only looks reads ahead too.
    pub(crate) ahead: &'a RefCell<Ahead>,
    /// Bytes of rows of messages that were read to find which to take.
    read_bytes: Cell<usize>,
}

/// Bytes after which whatever goes from message to message goes no further, and goes on in the next
/// command or step. Looked at between messages, so each may read a little more.
const READ_BYTES_MAX: usize = 16 << 20;

impl Desk<'_, '_> {
    pub(crate) fn tenant(&self) -> TenantId {
        self.turn.tenant()
    }

    pub(crate) fn number(&self) -> u64 {
        self.queue.number
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.queue.settings
    }

    pub(crate) fn note_read(&self, bytes: usize) {
        self.read_bytes.set(self.read_bytes.get() + bytes);
    }

    pub(crate) fn has_read_enough(&self) -> bool {
        self.read_bytes.get() >= READ_BYTES_MAX
    }
}

impl Machine for Queues {
    fn id(&self) -> MachineId {
        MACHINE
    }

    fn name(&self) -> &'static str {
        "queue"
    }

    fn apply(&mut self, turn: &mut Turn<'_>, command: &Bytes) -> Result<Bytes, Unreadable> {
        let reply = match Command::decode(command)? {
            Command::Create(create) => self.create(turn, create),
            Command::Update(update) => self.update(turn, update),
            Command::Delete { queue } => self.delete(turn, &queue),
            Command::Purge { queue } => self.at(turn, &queue, |desk| desk.purge()),
            Command::Send(send) => self.at(turn, &send.queue, |desk| desk.send(&send.messages)),
            Command::Receive(receive) => {
                turn.keep_answer_for(RECEIVED_KEPT_MS);
                self.at(turn, &receive.queue, |desk| desk.receive(&receive))
            }
            Command::Ack(ack) => self.at(turn, &ack.queue, |desk| desk.ack(&ack.receipts)),
            Command::Nack(nack) => self.at(turn, &nack.queue, |desk| desk.nack(&nack)),
            Command::Extend(extend) => self.at(turn, &extend.queue, |desk| desk.extend(&extend)),
            Command::StartRedrive(start) => {
                let queue = start.queue.clone();
                self.at(turn, &queue, |desk| desk.start_redrive(start))
            }
            Command::CancelRedrive { queue, job } => {
                self.at(turn, &queue, |desk| desk.cancel_redrive(job))
            }
            Command::CreateTopic { topic } => topic::create(turn, &topic),
            Command::DeleteTopic { topic } => topic::delete(turn, &topic),
            Command::Subscribe(subscribe) => topic::subscribe(turn, subscribe),
            Command::Unsubscribe { topic, queue } => topic::unsubscribe(turn, &topic, &queue),
            Command::Publish(publish) => topic::publish(turn, publish),
            Command::ReserveBody(reserve) => self.reserve(turn, &reserve),
            Command::BodyDeleted { effect } => {
                turn.effect_done(effect);
                Reply::BodyGone
            }
            Command::Release(release) => {
                self.at(turn, &release.queue, |desk| desk.release(&release))
            }
        };
        if reply.may_be_another_later() {
            turn.may_be_asked_again();
        }
        Ok(reply.encode())
    }

    fn fire(&mut self, turn: &mut Turn<'_>, timer: &Due) {
        let (version, rest) = timer.payload.split_first().expect("set by this machine");
        match *version {
            TIMER_VERSION => {}
            large::RESERVATION_TIMER => return large::reservation_ends(turn, rest),
            large::PURGE_TIMER => return large::purge_on(turn, rest),
            other => panic!("a timer that this binary is too old for: {other}"),
        }
        let (number, name) = rest.split_first_chunk().expect("set by this machine");
        let number = u64::from_be_bytes(*number);
        let name = std::str::from_utf8(name).expect("set from a string").to_owned();
        let fired = (timer.id.deadline_ms, timer.id.number);
        self.at(turn, &name, |desk| {
            // A queue that is gone has no timers, even if another has its name.
            if desk.number() == number {
                desk.time_has_come(fired);
            }
            Reply::Updated
        });
    }

    fn receive(&mut self, turn: &mut Turn<'_>, letter: &Letter) -> Result<(), Unreadable> {
        let post = Post::decode(&letter.body)?;
        match post {
            Post::Dead(letter) => {
                let name = letter.queue.clone();
                if self.at_hand.load(turn, &name).is_none() {
                    // Nothing is lost for want of a place: the queue may have been deleted meanwhile.
                    self.make(turn, &name, Settings::usual(letter.mode));
                }
                self.tell(turn, &name, |desk| desk.take_in(letter));
            }
            Post::Moved(moved) => match self.unfit_for(turn, &moved) {
                None => {
                    let MovedFrom { queue, number, job, .. } = moved.from.clone();
                    let home = place(turn.tenant(), &queue);
                    let arrived = Arrived { queue, number, job, group: moved.group.clone() };
                    self.tell(turn, &moved.queue.clone(), |desk| desk.take_moved(moved));
                    turn.send(home, MACHINE, Post::Arrived(arrived).encode());
                }
                Some(why) => {
                    let home = place(turn.tenant(), &moved.from.queue);
                    turn.send(home, MACHINE, Post::Returned(moved, why).encode());
                }
            },
            // Whoever deleted a subscription's queue wants no more of it.
            Post::Fanned(fanned) => {
                self.tell(turn, &fanned.queue.clone(), |desk| desk.take_fanned(fanned));
            }
            Post::Returned(moved, why) => self.take_back(turn, moved, why),
            Post::Arrived(Arrived { queue, number, job, group }) => {
                let known = self.at_hand.load(turn, &queue);
                if known.is_some_and(|(known, _)| known.number == number) {
                    self.tell(turn, &queue, |desk| desk.has_arrived(job, group.as_deref()));
                }
            }
        }
        Ok(())
    }
}

impl AtHand {
    /// What rows say of a queue.
    fn load(&mut self, turn: &Turn<'_>, name: &str) -> Option<&mut (Queue, Counts)> {
        let tenant = turn.tenant();
        if self.held >= AT_HAND_MAX {
            *self = AtHand::default();
        }
        let of_tenant = self.queues.entry(tenant).or_default();
        if !of_tenant.contains_key(name) {
            let queue = Queue::decode(&turn.rows().get(&queue_key(tenant, name))?);
            let counts = turn.rows().get(&key(tenant, b'c', queue.number));
            let counts = Counts::decode(&counts.expect("every queue has counts"));
            of_tenant.insert(name.to_owned(), (queue, counts));
            self.held += 1;
        }
        of_tenant.get_mut(name)
    }

    fn forget(&mut self, tenant: TenantId, name: &str) {
        let removed = self.queues.get_mut(&tenant).and_then(|queues| queues.remove(name));
        self.held -= usize::from(removed.is_some());
    }
}

impl Queues {
    #[cfg(test)]
    pub(crate) fn held_ahead_bytes(&self) -> usize {
        self.ahead.borrow().bytes()
    }

    /// Does something to a queue that is there, and keeps what it counted.
    fn at(
        &mut self,
        turn: &mut Turn<'_>,
        name: &str,
        work: impl FnOnce(&mut Desk<'_, '_>) -> Reply,
    ) -> Reply {
        let Some((queue, counts)) = self.at_hand.load(turn, name) else {
            return Reply::Refused(Refusal::NoQueue);
        };
        let before = (counts.bytes, counts.leased);
        counts.mark_minute(turn.now_ms());
        let read_bytes = Cell::new(0);
        let ahead = &self.ahead;
        let reply = work(&mut Desk { turn, name, queue, counts, ahead, read_bytes });
        counts.full = counts.leased >= queue.settings.max_inflight;
        if (counts.bytes, counts.leased) != before {
            let bytes = counts.bytes.cast_signed() - before.0.cast_signed();
            let leased = counts.leased.cast_signed() - before.1.cast_signed();
            turn.count_all(Usage { bytes, leased, ..Usage::default() });
        }
        let row = counts.encode();
        let counts_key = key(turn.tenant(), b'c', queue.number);
        turn.put(counts_key.clone(), row.clone());
        turn.publish(counts_key, Some(row));
        reply
    }

    /// [`Queues::at`] for what has no answer.
    fn tell(&mut self, turn: &mut Turn<'_>, name: &str, work: impl FnOnce(&mut Desk<'_, '_>)) {
        self.at(turn, name, |desk| {
            work(desk);
            Reply::Updated
        });
    }

    /// Why a message cannot be moved to where it is on its way to. A queue that was deleted does not
    /// come back to life for it.
    fn unfit_for(&mut self, turn: &Turn<'_>, moved: &Moved) -> Option<JobState> {
        let Some((queue, _)) = self.at_hand.load(turn, &moved.queue) else {
            return Some(JobState::NoQueue);
        };
        let fits = match queue.settings.mode {
            Mode::Fifo => moved.group_in_order().is_some(),
            Mode::Standard => moved.group.is_none(),
        };
        (!fits).then_some(JobState::OtherMode)
    }

    /// A message comes back that could not be moved.
    fn take_back(&mut self, turn: &mut Turn<'_>, moved: Moved, why: JobState) {
        let MovedFrom { queue: name, number, .. } = moved.from.clone();
        let known = self.at_hand.load(turn, &name).map(|(queue, _)| queue.number);
        if known == Some(number) {
            self.tell(turn, &name, |desk| desk.take_back(moved, why));
            return;
        }
        if known.is_none() {
            // Nothing is lost for want of a place: whoever deleted it did so without these.
            let mode = if moved.group.is_some() { Mode::Fifo } else { Mode::Standard };
            self.make(turn, &name, Settings::usual(mode));
        }
        self.tell(turn, &name, |desk| desk.take_stranded(moved));
    }

    fn make(&mut self, turn: &mut Turn<'_>, name: &str, settings: Settings) -> u64 {
        let number = turn.unique();
        let queue = Queue {
            number,
            version: 1,
            secret: turn.secret(),
            created_ms: turn.now_ms(),
            updated_ms: turn.now_ms(),
            settings,
        };
        show(turn, name, &queue);
        turn.put(key(turn.tenant(), b'c', number), Counts::default().encode());
        turn.count_all(Usage { entities: 1, queues: 1, ..Usage::default() });
        number
    }

    fn create(&mut self, turn: &mut Turn<'_>, create: Create) -> Reply {
        if let Some((queue, _)) = self.at_hand.load(turn, &create.queue) {
            return if queue.settings == create.settings {
                Reply::Created { number: queue.number, new: false }
            } else {
                Reply::Refused(Refusal::Exists)
            };
        }
        let number = self.make(turn, &create.queue, create.settings);
        Reply::Created { number, new: true }
    }

    fn reserve(&mut self, turn: &mut Turn<'_>, asked: &ReserveBody) -> Reply {
        match self.at_hand.load(turn, &asked.queue) {
            Some((queue, _)) => large::reserve(turn, queue, asked),
            None => Reply::Refused(Refusal::NoQueue),
        }
    }

    fn update(&mut self, turn: &mut Turn<'_>, update: Update) -> Reply {
        let Some((queue, _)) = self.at_hand.load(turn, &update.queue) else {
            return Reply::Refused(Refusal::NoQueue);
        };
        if queue.version != update.version {
            return Reply::Refused(Refusal::Version);
        }
        if queue.settings.mode != update.settings.mode {
            return Reply::Refused(Refusal::Mode);
        }
        let shorter = update.settings.retention_ms < queue.settings.retention_ms;
        queue.version += 1;
        queue.updated_ms = turn.now_ms();
        queue.settings = update.settings;
        show(turn, &update.queue, queue);
        // A shorter retention is in force at once.
        self.at(turn, &update.queue, |desk| {
            if shorter {
                desk.look_for_old();
            }
            Reply::Updated
        })
    }

    fn delete(&mut self, turn: &mut Turn<'_>, name: &str) -> Reply {
        let purged = self.at(turn, name, |desk| desk.purge());
        if purged != Reply::Purged {
            return purged;
        }
        let (queue, _) = self.at_hand.load(turn, name).expect("it was just purged");
        let number = queue.number;
        self.at_hand.forget(turn.tenant(), name);
        turn.delete_prefix(&key(turn.tenant(), b'r', number));
        turn.delete(&queue_key(turn.tenant(), name));
        turn.delete(&key(turn.tenant(), b'c', number));
        turn.count_all(Usage { entities: -1, queues: -1, ..Usage::default() });
        turn.publish(key(turn.tenant(), b'c', number), None);
        turn.publish(queue_key(turn.tenant(), name), None);
        Reply::Deleted
    }
}

/// Writes what a queue is, and shows it.
fn show(turn: &mut Turn<'_>, name: &str, queue: &Queue) {
    let row = queue.encode();
    turn.put(queue_key(turn.tenant(), name), row.clone());
    turn.publish(queue_key(turn.tenant(), name), Some(row));
}

impl Desk<'_, '_> {
    fn purge(&mut self) -> Reply {
        for kind in CONTENTS {
            let prefix = key(self.tenant(), kind, self.number());
            self.turn.delete_prefix(&prefix);
        }
        self.end_all_bodies();
        self.disarm();
        let Counts { totals, last_sequence, lanes, minutes, redrive, ages_last, holder, .. } =
            std::mem::take(self.counts);
        // Positions are never used twice, or a row would be put that is not new.
        let lanes = lanes.into_iter().map(|lane| Lane { head: lane.next, len: 0, ..lane });
        let lanes = lanes.collect();
        let ages_from = ages_last + 1;
        *self.counts = Counts {
            totals,
            last_sequence,
            lanes,
            minutes,
            redrive,
            ages_last,
            ages_from,
            holder,
            ..Counts::default()
        };
        Reply::Purged
    }
}
