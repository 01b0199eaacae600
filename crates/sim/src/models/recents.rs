//! Recents, plainly: a list of users, each with a list of queries and a list of searches.

use bytes::Bytes;
use kernel::machine::Effect;
use kernel::rows::{RowsReader, Scan};
use kernel::{Machine, MachineId, TenantId};
use recents::{
    Add, ArchiveEffect, Archived, Clear, Command, List, MACHINE, PurgeEffect, Recents,
    RecentsEffect, Remove, Reply, Settings, fold,
};
use serde::{Deserialize, Serialize};

use crate::naive::Scene;
use crate::random::Random;
use crate::subject::{Archive, Difference, Draft, Model, Sight, Subject, same};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Searches in one archive object, few enough that a day's history takes several.
const OBJECT_SEARCHES_MAX: usize = 4;
/// Searches on a page: small, so that paging is tested with little history.
const PAGE: usize = 3;
const USERS: [&str; 4] = ["ann", "annabel", "b", "ann"];
const TENANTS: [TenantId; 2] = [TenantId(1), TenantId(2)];
const WORDS: [&str; 6] = ["red shoes", "Red  Shoes", "tent", "été", "TENT ", "stove"];

/// A search as it lies in an archive object.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Stored {
    number: u64,
    at_ms: u64,
    folded: u64,
    query: String,
}

/// Recents under test.
#[derive(Debug, Default)]
pub struct RecentsSubject {
    /// Makes the name of each upload another one.
    uploads: u64,
}

impl Subject for RecentsSubject {
    fn id(&self) -> MachineId {
        MACHINE
    }

    fn machine(&self) -> Box<dyn Machine> {
        Box::new(Recents::default())
    }

    fn model(&self) -> Box<dyn Model> {
        Box::new(RecentsModel::default())
    }

    fn draft(&mut self, random: &mut Random, _now_ms: u64) -> Draft {
        let tenant = random.pick(&TENANTS);
        let user = random.pick(&USERS).to_owned();
        let to = recents::place(tenant, &user);
        let query = match random.below(4) {
            0 => format!("query {}", random.below(8)),
            _ => random.pick(&WORDS).to_owned(),
        };
        let query = query.trim().to_owned();
        let folded = fold(&query);
        let command = match random.below(100) {
            0..72 => Command::Add(Add { user, query, folded }),
            72..90 => Command::Remove(Remove { user, folded }),
            90..96 => Command::Clear(Clear { user }),
            96..99 => Command::Configure(Settings {
                keep: random.pick(&[1, 3, 10]),
                archive_after_days: random.pick(&[1, 30, 180]),
                idle_days: random.pick(&[1, 30]),
            }),
            // A report of something that nobody asked for.
            _ => Command::Purged { effect: random.below(1 << 30) },
        };
        Draft { to, tenant, command: command.encode() }
    }

    fn perform(
        &mut self,
        effect: &Effect,
        rows: &RowsReader,
        archive: &mut Archive,
        _random: &mut Random,
    ) -> Bytes {
        match RecentsEffect::decode(&effect.payload).expect("recents asked for it") {
            RecentsEffect::Archive(what) => self.upload(effect, &what, rows, archive),
            RecentsEffect::Purge(what) => {
                purge(effect.tenant, &what, archive);
                Command::Purged { effect: effect.number }.encode()
            }
        }
    }

    /// A report that came too late leaves an object that nobody will ever ask for. But the same
    /// answer comes to a report that was sent twice, so the object goes only if no manifest has it.
    fn settle(
        &mut self,
        effect: &Effect,
        report: &Bytes,
        reply: &Bytes,
        rows: &RowsReader,
        archive: &mut Archive,
    ) {
        let Ok(Command::Archived(archived)) = Command::decode(report) else { return };
        if Reply::decode(reply) != Ok(Reply::Stale) {
            return;
        }
        let known = recents::manifests(rows, effect.tenant, &archived.user, u64::MAX, usize::MAX);
        if known.iter().all(|manifest| manifest.object != archived.object) {
            archive.remove(&archived.object);
        }
    }

    /// One effect of a user at a time: a purge must not overtake an upload.
    fn waits(&self, earlier: &Effect, later: &Effect) -> bool {
        earlier.tenant == later.tenant && user_of(earlier) == user_of(later)
    }
}

fn user_of(effect: &Effect) -> Option<String> {
    match RecentsEffect::decode(&effect.payload).ok()? {
        RecentsEffect::Archive(ArchiveEffect { user, .. })
        | RecentsEffect::Purge(PurgeEffect { user, .. }) => Some(user),
    }
}

fn folder(tenant: TenantId, user: &str) -> String {
    format!("recents/{tenant}/{user}/")
}

impl RecentsSubject {
    fn upload(
        &mut self,
        effect: &Effect,
        what: &ArchiveEffect,
        rows: &RowsReader,
        archive: &mut Archive,
    ) -> Bytes {
        let (tenant, user) = (effect.tenant, what.user.clone());
        let found = recents::oldest(rows, tenant, &user, what.before_ms, OBJECT_SEARCHES_MAX);
        let removals = recents::removals(rows, tenant, &user);
        let numbers: Vec<u64> = found.iter().map(|entry| entry.number).collect();
        let row_bytes = found.iter().map(|entry| entry.row_bytes).sum();
        let mut object = String::new();
        if let Some(last) = numbers.last() {
            self.uploads += 1;
            object = format!("{}{last:020}-{}", folder(tenant, &user), self.uploads);
            let kept = found.into_iter().filter(|e| !removals.hide(e.folded, e.number));
            let stored: Vec<Stored> = kept
                .map(|e| Stored {
                    number: e.number,
                    at_ms: e.at_ms,
                    folded: e.folded,
                    query: e.query,
                })
                .collect();
            let bytes = postcard::to_stdvec(&stored).expect("plain data encodes");
            archive.insert(object.clone(), bytes.into());
        }
        let effect = effect.number;
        Command::Archived(Archived { user, effect, object, numbers, row_bytes }).encode()
    }
}

/// The last number in an object, from its name.
fn last_of(object: &str) -> u64 {
    let name = object.rsplit('/').next().expect("a name");
    name[..20].parse().expect("it begins with a number")
}

fn purge(tenant: TenantId, what: &PurgeEffect, archive: &mut Archive) {
    let folder = folder(tenant, &what.user);
    archive.retain(|name, _| !name.starts_with(&folder) || last_of(name) > what.through);
}

#[derive(Clone, Debug)]
struct Search {
    /// As the machine numbered it; known once it has been read.
    number: Option<u64>,
    at_ms: u64,
    folded: u64,
    query: String,
    removed: bool,
    archived: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Archiving {
    Nothing,
    Timer,
    Effect(u64),
}

#[derive(Clone, Debug)]
struct User {
    tenant: TenantId,
    name: String,
    list: Vec<(u64, u64, String)>,
    history: Vec<Search>,
    active_ms: u64,
    idle_timer: Option<u64>,
    archive_timer: Option<u64>,
    archiving: Archiving,
    /// Shown to readers, if anything of this user was since the shard opened.
    shown: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct RecentsModel {
    settings: Settings,
    users: Vec<User>,
    /// Users who were cleared, and in which entry.
    cleared: Vec<(TenantId, String, u64)>,
    /// Touched since the last check.
    touched: Vec<(TenantId, String)>,
}

const TIMER_IDLE: u8 = 1;
const TIMER_ARCHIVE: u8 = 2;

fn payload(kind: u8, user: &str) -> Bytes {
    [&[kind], user.as_bytes()].concat().into()
}

impl RecentsModel {
    fn user(&mut self, tenant: TenantId, name: &str) -> Option<&mut User> {
        self.touched.push((tenant, name.to_owned()));
        self.users.iter_mut().find(|user| user.tenant == tenant && user.name == name)
    }

    fn add(&mut self, scene: &mut Scene<'_>, add: &Add) {
        let Settings { keep, archive_after_days, idle_days } = self.settings;
        let (tenant, now_ms) = (scene.tenant(), scene.now_ms());
        if self.user(tenant, &add.user).is_none() {
            self.users.push(User {
                tenant,
                name: add.user.clone(),
                list: Vec::new(),
                history: Vec::new(),
                active_ms: 0,
                idle_timer: None,
                archive_timer: None,
                archiving: Archiving::Nothing,
                shown: false,
            });
        }
        let user = self.user(tenant, &add.user).expect("made above");
        user.list.retain(|(folded, _, _)| *folded != add.folded);
        user.list.insert(0, (add.folded, now_ms, add.query.clone()));
        user.list.truncate(usize::from(keep));
        user.history.push(Search {
            number: None,
            at_ms: now_ms,
            folded: add.folded,
            query: add.query.clone(),
            removed: false,
            archived: false,
        });
        user.active_ms = now_ms;
        user.shown = true;
        if user.idle_timer.is_none() {
            let at = now_ms + u64::from(idle_days) * DAY_MS;
            user.idle_timer = Some(scene.set_timer(at, payload(TIMER_IDLE, &add.user)));
        }
        if user.archiving == Archiving::Nothing {
            set_archive_timer(scene, user, archive_after_days, now_ms);
        }
    }

    fn remove(&mut self, scene: &Scene<'_>, remove: &Remove) {
        let Some(user) = self.user(scene.tenant(), &remove.user) else { return };
        user.list.retain(|(folded, _, _)| *folded != remove.folded);
        for search in user.history.iter_mut().filter(|s| s.folded == remove.folded) {
            search.removed = true;
        }
        user.shown = user.idle_timer.is_some();
    }

    fn clear(&mut self, scene: &mut Scene<'_>, clear: &Clear) {
        let tenant = scene.tenant();
        let Some(user) = self.user(tenant, &clear.user) else { return };
        for timer in [user.idle_timer, user.archive_timer].into_iter().flatten() {
            scene.cancel_timer(timer);
        }
        let mut anything = user.history.iter().any(|search| search.archived);
        if let Archiving::Effect(handle) = user.archiving {
            scene.take_back(handle);
            anything = true;
        }
        if anything {
            // The number is the machine's; `same_effect` looks at it.
            let purge = PurgeEffect { user: clear.user.clone(), through: scene.index.0 };
            scene.ask(RecentsEffect::Purge(purge).encode());
        }
        self.users.retain(|user| user.tenant != tenant || user.name != clear.user);
        self.cleared.push((tenant, clear.user.clone(), scene.index.0));
    }

    fn archived(
        &mut self,
        scene: &mut Scene<'_>,
        archived: &Archived,
    ) -> Result<Reply, Difference> {
        let days = self.settings.archive_after_days;
        let Some(handle) = scene.effect_done(archived.effect) else { return Ok(Reply::Stale) };
        let now_ms = scene.now_ms();
        let Some(user) = self.user(scene.tenant(), &archived.user) else {
            return Err("an archive effect outlived its user".to_owned());
        };
        same("the effect under way", &Archiving::Effect(handle), &user.archiving)?;
        for number in &archived.numbers {
            match user.history.iter_mut().find(|search| search.number == Some(*number)) {
                Some(search) if !search.archived => search.archived = true,
                other => return Err(format!("{number} was archived, and it is {other:?}")),
            }
        }
        user.archiving = Archiving::Nothing;
        let oldest_ms = user.history.iter().find(|search| !search.archived).map(|s| s.at_ms);
        match oldest_ms {
            Some(at_ms) if at_ms + u64::from(days) * DAY_MS <= now_ms => {
                ask_archive(scene, user, days);
            }
            Some(at_ms) => set_archive_timer(scene, user, days, at_ms),
            None => {}
        }
        Ok(Reply::Archived)
    }
}

fn set_archive_timer(scene: &mut Scene<'_>, user: &mut User, days: u16, oldest_ms: u64) {
    let due_ms = oldest_ms + u64::from(days) * DAY_MS;
    let midnight_ms = (due_ms / DAY_MS + 1) * DAY_MS;
    user.archive_timer = Some(scene.set_timer(midnight_ms, payload(TIMER_ARCHIVE, &user.name)));
    user.archiving = Archiving::Timer;
}

fn ask_archive(scene: &mut Scene<'_>, user: &mut User, days: u16) {
    let before_ms = scene.now_ms().saturating_sub(u64::from(days) * DAY_MS) + 1;
    let effect = ArchiveEffect { user: user.name.clone(), before_ms };
    user.archiving = Archiving::Effect(scene.ask(RecentsEffect::Archive(effect).encode()));
    user.archive_timer = None;
}

impl Model for RecentsModel {
    fn apply(&mut self, scene: &mut Scene<'_>, command: &Bytes) -> Result<Bytes, Difference> {
        let reply = match Command::decode(command).map_err(|error| error.to_string())? {
            Command::Add(add) => {
                self.add(scene, &add);
                Reply::Added { at_ms: scene.now_ms() }
            }
            Command::Remove(remove) => {
                self.remove(scene, &remove);
                Reply::Removed
            }
            Command::Clear(clear) => {
                self.clear(scene, &clear);
                Reply::Cleared
            }
            Command::Archived(archived) => self.archived(scene, &archived)?,
            Command::Configure(settings) => {
                self.settings = settings;
                Reply::Configured
            }
            Command::Purged { effect } => {
                scene.effect_done(effect);
                Reply::Purged
            }
        };
        Ok(reply.encode())
    }

    fn fire(&mut self, scene: &mut Scene<'_>, payload: &Bytes) -> Result<(), Difference> {
        let Settings { archive_after_days, idle_days, .. } = self.settings;
        let now_ms = scene.now_ms();
        let name = std::str::from_utf8(&payload[1..]).expect("set from a string").to_owned();
        let Some(user) = self.user(scene.tenant(), &name) else {
            return Err(format!("a timer of {name} outlived its user"));
        };
        if payload[0] == TIMER_ARCHIVE {
            ask_archive(scene, user, archive_after_days);
            return Ok(());
        }
        let until_ms = user.active_ms + u64::from(idle_days) * DAY_MS;
        if until_ms > now_ms {
            user.idle_timer = Some(scene.set_timer(until_ms, payload.clone()));
        } else {
            user.idle_timer = None;
            user.shown = false;
        }
        Ok(())
    }

    fn receive(&mut self, _: &mut Scene<'_>, _: &Bytes) -> Result<(), Difference> {
        Err("nobody writes to recents".to_owned())
    }

    fn same_effect(&self, expected: &Bytes, actual: &Bytes) -> Result<(), Difference> {
        let decode = |bytes| RecentsEffect::decode(bytes).map_err(|error| error.to_string());
        let (expected, actual) = (decode(expected)?, decode(actual)?);
        match (&expected, &actual) {
            (RecentsEffect::Purge(expected), RecentsEffect::Purge(actual)) => {
                same("purged user", &expected.user, &actual.user)?;
                // A number begins with its entry's index.
                same("purge through", &expected.through, &(actual.through >> 24))
            }
            _ => same("effect", &expected, &actual),
        }
    }

    fn check(&mut self, sight: &Sight<'_>) -> Result<(), Difference> {
        let mut touched = std::mem::take(&mut self.touched);
        if sight.full {
            touched = TENANTS
                .into_iter()
                .flat_map(|tenant| USERS.map(|user| (tenant, user.to_owned())))
                .collect();
            check_usage(&self.users, sight)?;
        }
        touched.sort();
        touched.dedup();
        for (tenant, name) in touched {
            let user = self.users.iter_mut().find(|u| u.tenant == tenant && u.name == name);
            check_user(tenant, &name, user, sight)
                .map_err(|what| format!("user {name} of tenant {tenant}: {what}"))?;
        }
        Ok(())
    }

    /// What a user cleared is in the archive no more, not even in an object of a failed upload.
    fn check_healed(&mut self, sight: &Sight<'_>) -> Result<(), Difference> {
        for (tenant, user, index) in &self.cleared {
            let folder = folder(*tenant, user);
            let of_user = sight.archive.keys().filter(|name| name.starts_with(&folder));
            for name in of_user {
                if last_of(name) >> 24 < *index {
                    return Err(format!("{name} is left of {user}, cleared in entry {index}"));
                }
            }
        }
        Ok(())
    }
}

fn check_usage(users: &[User], sight: &Sight<'_>) -> Result<(), Difference> {
    for tenant in TENANTS {
        let mine: Vec<&User> = users.iter().filter(|user| user.tenant == tenant).collect();
        let found = sight.usage.get(&tenant).copied().unwrap_or_default();
        let rows = mine
            .iter()
            .flat_map(|user| recents::oldest(sight.rows, tenant, &user.name, u64::MAX, usize::MAX));
        let bytes: u64 = rows.map(|entry| entry.row_bytes).sum();
        let notes = mine.iter().flat_map(|user| {
            sight.rows.scan(&Scan::prefix(&recents::user_key(tenant, b'x', &user.name)))
        });
        let bytes = bytes + notes.map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>();
        same("users counted", &(mine.len() as i64), &found.entities)?;
        same("bytes counted", &i64::try_from(bytes).expect("small"), &found.bytes)?;
    }
    Ok(())
}

fn check_user(
    tenant: TenantId,
    name: &str,
    user: Option<&mut User>,
    sight: &Sight<'_>,
) -> Result<(), Difference> {
    let row = recents::list_row(tenant, name);
    let items = |row: &Bytes| -> Vec<(u64, u64, String)> {
        List::decode(row).items().map(|i| (i.folded, i.at_ms, i.query.to_owned())).collect()
    };
    let stored = sight.rows.get(&row);
    let view = sight.views.get(&(MACHINE, row.into()));
    let Some(user) = user else {
        same("list of a user who is not there", &None, &stored)?;
        if let Some(view) = view {
            let shown = view.as_ref().map(items);
            same("view of a user who is not there", &Some(Vec::new()), &shown)?;
        }
        return same("history of a user who is not there", &0, &read(tenant, name, sight)?.len());
    };
    same("list", &Some(&user.list), &stored.as_ref().map(items).as_ref())?;
    if let Some(view) = view {
        let expected = user.shown.then(|| user.list.clone());
        same("view", &expected, &view.as_ref().map(items))?;
    }
    learn_numbers(tenant, user, sight)?;
    let expected: Vec<Stored> = user
        .history
        .iter()
        .rev()
        .filter(|search| !search.removed)
        .map(|s| Stored {
            number: s.number.expect("learned above"),
            at_ms: s.at_ms,
            folded: s.folded,
            query: s.query.clone(),
        })
        .collect();
    let expected: Vec<String> = expected.iter().map(|s| format!("{s:?}")).collect();
    let actual: Vec<String> = read(tenant, name, sight)?.iter().map(|s| format!("{s:?}")).collect();
    same("history", &expected, &actual)
}

/// The machine numbers searches as it likes, as long as the numbers grow.
fn learn_numbers(tenant: TenantId, user: &mut User, sight: &Sight<'_>) -> Result<(), Difference> {
    let rows = recents::oldest(sight.rows, tenant, &user.name, u64::MAX, usize::MAX);
    let before = user.history.iter().filter_map(|search| search.number).max().unwrap_or(0);
    let in_rows: Vec<&mut Search> =
        user.history.iter_mut().filter(|search| !search.archived).collect();
    same("searches in rows", &in_rows.len(), &rows.len())?;
    let mut last = before;
    for (search, row) in in_rows.into_iter().zip(rows) {
        if search.number.is_none() {
            if row.number <= last {
                return Err(format!("search {} was numbered after {last}", row.number));
            }
            last = row.number;
        }
        let number = *search.number.get_or_insert(row.number);
        same("search's number", &number, &row.number)?;
    }
    Ok(())
}

/// All of a user's history, page by page as the edge reads it: rows first, then the archive.
fn read(tenant: TenantId, user: &str, sight: &Sight<'_>) -> Result<Vec<Stored>, Difference> {
    let removals = recents::removals(sight.rows, tenant, user);
    let mut found: Vec<Stored> = Vec::new();
    let mut before = u64::MAX;
    loop {
        let page = recents::history(sight.rows, tenant, user, before, PAGE, &removals);
        found.extend(page.entries.iter().map(|entry| Stored {
            number: entry.number,
            at_ms: entry.at_ms,
            folded: entry.folded,
            query: entry.query.clone(),
        }));
        before = page.entries.last().map_or(before, |entry| entry.number);
        if page.rows_exhausted {
            break;
        }
        if page.entries.is_empty() {
            return Err("an empty page of history that is not the last".to_owned());
        }
    }
    for manifest in recents::manifests(sight.rows, tenant, user, before, usize::MAX) {
        let object = sight.archive.get(&manifest.object);
        let object = object.ok_or_else(|| format!("{} is not there", manifest.object))?;
        let stored: Vec<Stored> = postcard::from_bytes(object).expect("written by the executor");
        let shown = stored.into_iter().rev().filter(|s| !removals.hide(s.folded, s.number));
        found.extend(shown);
    }
    Ok(found)
}
