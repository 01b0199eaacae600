//! What each command does.

use bytes::{BufMut, Bytes};
use kernel::codec::versioned;
use kernel::mail::Letter;
use kernel::timers::Due;
use kernel::{Machine, MachineId, Turn, Unreadable};

use crate::command::{
    Add, ArchiveEffect, Archived, Clear, Command, PurgeEffect, RecentsEffect, Remove, Reply,
    Settings,
};
use crate::state::{Item, List, Manifest, history_value};
use crate::{MACHINE, query};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Queries that a user can have removed one by one: every page of history looks at all of them.
const REMOVALS_MAX: u16 = 1000;
const TIMER_IDLE: u8 = 1;
const TIMER_ARCHIVE: u8 = 2;

/// The machine. Its one field is what the settings row says, kept at hand.
#[derive(Debug, Default)]
pub struct Recents {
    settings: Option<Settings>,
}

impl Machine for Recents {
    fn id(&self) -> MachineId {
        MACHINE
    }

    fn name(&self) -> &'static str {
        "recents"
    }

    fn apply(&mut self, turn: &mut Turn<'_>, command: &Bytes) -> Result<Bytes, Unreadable> {
        let reply = match Command::decode(command)? {
            Command::Add(add) => self.add(turn, &add),
            Command::Remove(remove) => Recents::remove(turn, &remove),
            Command::Clear(clear) => Recents::clear(turn, &clear),
            Command::Archived(archived) => self.archived(turn, &archived),
            Command::Configure(settings) => self.configure(turn, settings),
            Command::Purged { effect } => {
                turn.effect_done(effect);
                Reply::Purged
            }
        };
        Ok(reply.encode())
    }

    fn fire(&mut self, turn: &mut Turn<'_>, timer: &Due) {
        let (kind, user) = timer.payload.split_first().expect("set by this machine");
        let user = std::str::from_utf8(user).expect("set from a string");
        let Some(list) = load(turn, user) else { return };
        match *kind {
            TIMER_IDLE => self.idle(turn, user, list),
            TIMER_ARCHIVE => self.archive(turn, user, list),
            _ => unreachable!("this machine sets no other timers"),
        }
    }

    fn receive(&mut self, _turn: &mut Turn<'_>, letter: &Letter) -> Result<(), Unreadable> {
        let tag = letter.body.first().copied().unwrap_or_default();
        Err(Unreadable::Command { machine: self.name(), tag, version: 0 })
    }
}

fn list_key(turn: &Turn<'_>, user: &str) -> Vec<u8> {
    query::list_row(turn.tenant(), user)
}

fn user_prefix(turn: &Turn<'_>, kind: u8, user: &str) -> Vec<u8> {
    query::user_key(turn.tenant(), kind, user)
}

fn load(turn: &Turn<'_>, user: &str) -> Option<List> {
    turn.rows().get(&list_key(turn, user)).map(|row| List::decode(&row))
}

/// Writes a list and shows it to readers.
fn save(turn: &mut Turn<'_>, user: &str, list: &List) {
    let row = Bytes::from(list.encode());
    turn.put(list_key(turn, user), row.clone());
    turn.publish(list_key(turn, user), Some(row));
}

fn timer_payload(kind: u8, user: &str) -> Vec<u8> {
    let mut payload = Vec::with_capacity(1 + user.len());
    payload.put_u8(kind);
    payload.put_slice(user.as_bytes());
    payload
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).expect("no tenant keeps 8 EiB")
}

impl Recents {
    fn settings(&mut self, turn: &Turn<'_>) -> Settings {
        *self.settings.get_or_insert_with(|| query::settings(turn.rows()))
    }

    fn configure(&mut self, turn: &mut Turn<'_>, settings: Settings) -> Reply {
        turn.put(query::settings_row(), versioned(&settings));
        self.settings = Some(settings);
        Reply::Configured
    }

    fn add(&mut self, turn: &mut Turn<'_>, add: &Add) -> Reply {
        let settings = self.settings(turn);
        let now_ms = turn.now_ms();
        let old = load(turn, &add.user).unwrap_or_else(|| {
            turn.count(0, 1);
            List::new()
        });
        let item = Item { folded: add.folded, at_ms: now_ms, query: &add.query };
        let mut list = old.with_front(item, usize::from(settings.keep));
        if list.idle_timer.is_none() {
            let deadline_ms = now_ms + u64::from(settings.idle_days) * DAY_MS;
            list.idle_timer =
                Some(turn.set_timer(deadline_ms, timer_payload(TIMER_IDLE, &add.user)));
        }
        if list.archive_timer.is_none() && list.archive_effect == 0 {
            list.archive_timer = Some(set_archive_timer(turn, settings, &add.user, now_ms));
        }
        let mut key = user_prefix(turn, b'h', &add.user);
        key.put_u64(turn.unique());
        let value = history_value(now_ms, add.folded, &add.query);
        let bytes = (key.len() + value.len()) as u64;
        list.history_bytes += bytes;
        turn.count(signed(bytes), 0);
        turn.put_new(key, value);
        save(turn, &add.user, &list);
        Reply::Added { at_ms: now_ms }
    }

    fn remove(turn: &mut Turn<'_>, remove: &Remove) -> Reply {
        let Some(mut list) = load(turn, &remove.user) else { return Reply::Removed };
        // History may be long, and part of it in the archive: a note of the removal hides what
        // was searched before it, at the cost of one row.
        let mut key = user_prefix(turn, b'x', &remove.user);
        key.put_u64(remove.folded);
        if turn.rows().get(&key).is_none() {
            if list.removals >= REMOVALS_MAX {
                return Reply::TooManyRemovals;
            }
            list.removals += 1;
            let bytes = (key.len() + size_of::<u64>()) as u64;
            list.history_bytes += bytes;
            turn.count(signed(bytes), 0);
        }
        let through = turn.unique();
        turn.put(key, Bytes::copy_from_slice(&through.to_be_bytes()));
        let list = list.without(remove.folded);
        if list.idle_timer.is_some() {
            save(turn, &remove.user, &list);
        } else {
            // Not in memory, or brought back by a reader: no timer would take it out again.
            turn.put(list_key(turn, &remove.user), list.encode());
            turn.publish(list_key(turn, &remove.user), None);
        }
        Reply::Removed
    }

    fn clear(turn: &mut Turn<'_>, clear: &Clear) -> Reply {
        let user = &clear.user;
        let Some(list) = load(turn, user) else { return Reply::Cleared };
        for timer in [list.idle_timer, list.archive_timer].into_iter().flatten() {
            turn.cancel_timer(timer);
        }
        if list.archive_effect != 0 {
            turn.effect_done(list.archive_effect);
        }
        let archived = !query::manifests(turn.rows(), turn.tenant(), user, u64::MAX, 1).is_empty();
        if archived || list.archive_effect != 0 {
            let through = turn.unique();
            turn.ask(RecentsEffect::Purge(PurgeEffect { user: user.clone(), through }).encode());
        }
        turn.count(-signed(list.history_bytes), -1);
        for kind in [b'h', b'x', b'm'] {
            turn.delete_prefix(&user_prefix(turn, kind, user));
        }
        turn.delete(&list_key(turn, user));
        // An empty list, not none: a reader must not go looking for the row that is gone.
        turn.publish(list_key(turn, user), Some(List::new().encode().into()));
        Reply::Cleared
    }

    /// Drops a user from memory who has been idle for long enough, or looks again later.
    fn idle(&mut self, turn: &mut Turn<'_>, user: &str, mut list: List) {
        let settings = self.settings(turn);
        let deadline_ms = list.active_ms + u64::from(settings.idle_days) * DAY_MS;
        if deadline_ms > turn.now_ms() {
            list.idle_timer = Some(turn.set_timer(deadline_ms, timer_payload(TIMER_IDLE, user)));
            turn.put(list_key(turn, user), list.encode());
        } else {
            list.idle_timer = None;
            turn.put(list_key(turn, user), list.encode());
            turn.publish(list_key(turn, user), None);
        }
    }

    /// Asks for old history to be archived.
    fn archive(&mut self, turn: &mut Turn<'_>, user: &str, mut list: List) {
        let settings = self.settings(turn);
        let age_ms = u64::from(settings.archive_after_days) * DAY_MS;
        let before_ms = turn.now_ms().saturating_sub(age_ms) + 1;
        let effect = RecentsEffect::Archive(ArchiveEffect { user: user.to_owned(), before_ms });
        list.archive_timer = None;
        list.archive_effect = turn.ask(effect.encode());
        turn.put(list_key(turn, user), list.encode());
    }

    /// The rows are in the archive: forget them, and see whether there is more to do.
    fn archived(&mut self, turn: &mut Turn<'_>, archived: &Archived) -> Reply {
        let settings = self.settings(turn);
        let user = &archived.user;
        if !turn.effect_done(archived.effect) {
            return Reply::Stale;
        }
        let Some(mut list) = load(turn, user) else { return Reply::Stale };
        let prefix = user_prefix(turn, b'h', user);
        for number in &archived.numbers {
            let mut key = prefix.clone();
            key.put_u64(*number);
            turn.delete(&key);
        }
        if let (Some(first), Some(last)) = (archived.numbers.first(), archived.numbers.last()) {
            let manifest = Manifest {
                object: archived.object.clone(),
                first: *first,
                last: *last,
                count: archived.numbers.len() as u64,
            };
            let mut key = user_prefix(turn, b'm', user);
            key.put_u64(*last);
            turn.put_new(key, versioned(&manifest));
            let bytes = archived.row_bytes.min(list.history_bytes);
            list.history_bytes -= bytes;
            turn.count(-signed(bytes), 0);
        }
        list.archive_effect = 0;
        let age_ms = u64::from(settings.archive_after_days) * DAY_MS;
        match query::oldest_ms(turn.rows(), turn.tenant(), user) {
            Some(oldest_ms) if oldest_ms + age_ms <= turn.now_ms() => {
                self.archive(turn, user, list);
                return Reply::Archived;
            }
            Some(oldest_ms) => {
                list.archive_timer = Some(set_archive_timer(turn, settings, user, oldest_ms));
            }
            None => {}
        }
        turn.put(list_key(turn, user), list.encode());
        Reply::Archived
    }
}

fn set_archive_timer(
    turn: &mut Turn<'_>,
    settings: Settings,
    user: &str,
    oldest_ms: u64,
) -> kernel::TimerId {
    // To the end of the day: one archive object a day and user at most, not one a search.
    let due_ms = oldest_ms + u64::from(settings.archive_after_days) * DAY_MS;
    let deadline_ms = (due_ms / DAY_MS + 1) * DAY_MS;
    turn.set_timer(deadline_ms, timer_payload(TIMER_ARCHIVE, user))
}
