//! What must hold, one sentence a test.

use bytes::Bytes;
use expect_test::{Expect, expect};
use kernel::TenantId;
use kernel::rig::Rig;

use crate::command::{Add, Archived, Clear, Remove};
use crate::*;

const TENANT: TenantId = TenantId(7);
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Ten in the morning of the first day.
const START_MS: u64 = 10 * 60 * 60 * 1000;

fn rig() -> Rig<Recents> {
    Rig::new(Recents::default(), START_MS)
}

fn apply(rig: &mut Rig<Recents>, command: &Command) -> Reply {
    let reply = rig.apply(TENANT, &command.encode()).expect("readable");
    Reply::decode(&reply).expect("a reply")
}

fn search(rig: &mut Rig<Recents>, user: &str, query: &str) {
    rig.advance(1000);
    let (user, query) = (user.to_owned(), query.to_owned());
    let folded = fold(&query);
    let at_ms = rig.now_ms;
    let reply = apply(rig, &Command::Add(Add { user, query, folded }));
    assert_eq!(reply, Reply::Added { at_ms });
}

fn remove(rig: &mut Rig<Recents>, user: &str, query: &str) {
    let remove = Remove { user: user.into(), folded: fold(query) };
    assert_eq!(apply(rig, &Command::Remove(remove)), Reply::Removed);
}

fn clear(rig: &mut Rig<Recents>, user: &str) {
    assert_eq!(apply(rig, &Command::Clear(Clear { user: user.into() })), Reply::Cleared);
}

fn queries(row: &Bytes) -> Vec<String> {
    List::decode(row).items().map(|item| item.query.to_owned()).collect()
}

/// What a reader sees: the view, or the row where there is no view.
fn list(rig: &Rig<Recents>, user: &str) -> Vec<String> {
    let key = list_row(TENANT, user);
    let row = rig.rows.get(&key);
    match rig.views.get(&key[..]) {
        Some(view) => {
            if let Some(row) = &row {
                assert_eq!(queries(view), queries(row), "a view shows its row");
            }
            queries(view)
        }
        None => row.map_or_else(Vec::new, |row| queries(&row)),
    }
}

fn rows_history(rig: &Rig<Recents>, user: &str) -> Vec<String> {
    let removals = removals(&rig.rows, TENANT, user);
    let page = history(&rig.rows, TENANT, user, u64::MAX, 1000, &removals);
    page.entries.into_iter().map(|entry| entry.query).collect()
}

/// Runs a script of one-word commands and compares what a reader sees at its end.
fn check(script: &str, expected: Expect) {
    let mut rig = rig();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "search" => search(&mut rig, "ann", rest),
            "remove" => remove(&mut rig, "ann", rest),
            "clear" => clear(&mut rig, "ann"),
            "keep" => {
                let keep = rest.parse().expect("a number");
                let settings = Settings { keep, ..Settings::default() };
                assert_eq!(apply(&mut rig, &Command::Configure(settings)), Reply::Configured);
            }
            "checkpoint" => rig.checkpoint(),
            other => panic!("no such verb: {other}"),
        }
    }
    let list = list(&rig, "ann").join(" | ");
    let history = rows_history(&rig, "ann").join(" | ");
    expected.assert_eq(&format!("list: {list}\nhistory: {history}\n"));
}

#[test]
fn newest_search_comes_first() {
    check(
        "search paris
         search rome",
        expect![[r#"
            list: rome | paris
            history: rome | paris
        "#]],
    );
}

#[test]
fn another_spelling_moves_to_the_front_and_replaces_the_old_one() {
    check(
        "search Flights to  Paris
         search rome
         search flights TO paris",
        expect![[r#"
            list: flights TO paris | rome
            history: flights TO paris | rome | Flights to  Paris
        "#]],
    );
}

#[test]
fn list_is_bounded_and_history_is_not() {
    check(
        "keep 2
         search a
         search b
         checkpoint
         search c",
        expect![[r#"
            list: c | b
            history: c | b | a
        "#]],
    );
}

#[test]
fn removed_query_is_gone_from_list_and_history_until_searched_again() {
    check(
        "search a
         search b
         checkpoint
         remove A
         search c
         search a",
        expect![[r#"
            list: a | c | b
            history: a | c | b
        "#]],
    );
}

#[test]
fn removing_what_was_never_searched_changes_nothing() {
    check(
        "remove x
         search a
         remove x",
        expect![[r#"
            list: a
            history: a
        "#]],
    );
}

#[test]
fn cleared_user_starts_anew() {
    check(
        "search a
         checkpoint
         search b
         clear
         search c",
        expect![[r#"
            list: c
            history: c
        "#]],
    );
}

#[test]
fn users_and_tenants_do_not_see_each_other() {
    let mut rig = rig();
    search(&mut rig, "ann", "a");
    search(&mut rig, "anna", "b");
    assert_eq!(list(&rig, "ann"), ["a"]);
    assert_eq!(rows_history(&rig, "ann"), ["a"]);
    clear(&mut rig, "ann");
    assert_eq!(list(&rig, "anna"), ["b"]);
    let elsewhere = list_row(TenantId(8), "anna");
    assert_eq!(rig.rows.get(&elsewhere), None);
}

#[test]
fn idle_user_leaves_memory_after_thirty_days_and_not_before() {
    let mut rig = rig();
    search(&mut rig, "ann", "a");
    rig.advance(29 * DAY_MS);
    search(&mut rig, "ann", "b");
    rig.advance(29 * DAY_MS);
    assert!(rig.views.contains_key(&list_row(TENANT, "ann")[..]), "searched 29 days ago");
    rig.advance(2 * DAY_MS);
    assert!(!rig.views.contains_key(&list_row(TENANT, "ann")[..]), "searched 31 days ago");
    assert_eq!(list(&rig, "ann"), ["b", "a"], "the row is still there");
    search(&mut rig, "ann", "c");
    assert_eq!(list(&rig, "ann"), ["c", "b", "a"]);
}

/// Lets the only effect be an archive of `expected`, and reports it as done.
fn archive(rig: &mut Rig<Recents>, user: &str, expected: &[&str]) -> Reply {
    let [effect] = &rig.effects()[..] else { panic!("{:?}", rig.effects()) };
    let asked = RecentsEffect::decode(&effect.payload).expect("readable");
    let RecentsEffect::Archive(asked) = asked else { panic!("{asked:?}") };
    let entries = oldest(&rig.rows, TENANT, &asked.user, asked.before_ms, 100);
    let found: Vec<&str> = entries.iter().map(|entry| entry.query.as_str()).collect();
    assert_eq!(found, expected);
    let archived = Archived {
        user: user.into(),
        effect: effect.number,
        object: format!("object-{}", effect.number),
        numbers: entries.iter().map(|entry| entry.number).collect(),
        row_bytes: entries.iter().map(|entry| entry.row_bytes).sum(),
    };
    apply(rig, &Command::Archived(archived))
}

#[test]
fn history_is_archived_after_180_days_and_usage_shrinks() {
    let mut rig = rig();
    search(&mut rig, "ann", "old");
    rig.advance(100 * DAY_MS);
    search(&mut rig, "ann", "new");
    let before = rig.ground.usage()[&TENANT];
    rig.advance(79 * DAY_MS);
    assert_eq!(rig.effects(), [], "nothing is 180 days old");
    rig.advance(2 * DAY_MS);
    assert_eq!(archive(&mut rig, "ann", &["old"]), Reply::Archived);
    assert_eq!(rows_history(&rig, "ann"), ["new"]);
    assert_eq!(list(&rig, "ann"), ["new", "old"], "the list keeps it");
    let found = manifests(&rig.rows, TENANT, "ann", u64::MAX, 10);
    assert_eq!(found.iter().map(|m| m.count).collect::<Vec<_>>(), [1]);
    assert!(rig.ground.usage()[&TENANT].bytes < before.bytes);
    rig.advance(100 * DAY_MS);
    assert_eq!(archive(&mut rig, "ann", &["new"]), Reply::Archived);
    assert_eq!(rig.ground.usage()[&TENANT].bytes, 0);
    rig.advance(400 * DAY_MS);
    assert_eq!(rig.effects(), [], "nothing is left to archive");
}

#[test]
fn archive_report_that_comes_twice_or_after_clearing_is_stale() {
    let mut rig = rig();
    search(&mut rig, "ann", "old");
    rig.advance(181 * DAY_MS);
    let effect = rig.effects()[0].clone();
    let report = Command::Archived(Archived {
        user: "ann".into(),
        effect: effect.number,
        object: "object".into(),
        numbers: Vec::new(),
        row_bytes: 0,
    });
    clear(&mut rig, "ann");
    assert_eq!(apply(&mut rig, &report), Reply::Stale);
    let [purge] = &rig.effects()[..] else { panic!("{:?}", rig.effects()) };
    let asked = RecentsEffect::decode(&purge.payload).expect("readable");
    assert!(matches!(asked, RecentsEffect::Purge(_)), "the upload may have happened: {asked:?}");
    let purged = Command::Purged { effect: purge.number };
    assert_eq!(apply(&mut rig, &purged), Reply::Purged);
    assert_eq!(rig.effects(), []);
}

#[test]
fn clearing_gives_back_what_was_counted() {
    let mut rig = rig();
    search(&mut rig, "ann", "a");
    search(&mut rig, "bob", "b");
    assert_eq!(rig.ground.usage()[&TENANT].entities, 2);
    clear(&mut rig, "ann");
    clear(&mut rig, "bob");
    clear(&mut rig, "bob");
    assert_eq!(rig.ground.usage()[&TENANT], kernel::machine::Usage::default());
}

#[test]
fn folding_ignores_case_and_space_and_nothing_else() {
    assert_eq!(fold("  Straße \t zum  Meer "), fold("straße ZUM meer"));
    assert_ne!(fold("new york"), fold("newyork"));
    assert_ne!(fold("café"), fold("cafe"));
}

/// The bytes that logs out there hold. A test that fails here means a new version, not a new
/// expectation.
#[test]
fn commands_have_the_bytes_they_always_had() {
    let commands = [
        Command::Add(Add { user: "u".into(), query: "q".into(), folded: 300 }),
        Command::Remove(Remove { user: "u".into(), folded: 300 }),
        Command::Clear(Clear { user: "u".into() }),
        Command::Archived(Archived {
            user: "u".into(),
            effect: 5,
            object: "o".into(),
            numbers: vec![1, 300],
            row_bytes: 9,
        }),
        Command::Configure(Settings::default()),
        Command::Purged { effect: 5 },
    ];
    let mut lines = String::new();
    for command in commands {
        let bytes = command.encode();
        assert_eq!(Command::decode(&bytes), Ok(command));
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        lines += &format!("{}\n", hex.join(" "));
    }
    expect![[r#"
        01 01 01 75 01 71 ac 02
        02 01 01 75 ac 02
        03 01 01 75
        04 01 01 75 05 01 6f 02 01 ac 02 09
        05 01 0a b4 01 1e
        06 01 05
    "#]]
    .assert_eq(&lines);
}

#[test]
fn commands_from_the_future_are_unreadable_not_ignored() {
    for bytes in [&b""[..], &[1], &[1, 2, 0], &[99, 1], &[1, 1, 0xff], &[6, 1, 5, 0]] {
        assert!(Command::decode(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn paging_past_removed_queries_loses_no_search() {
    let mut rig = rig();
    for query in ["a", "b", "c", "d", "x", "e"] {
        search(&mut rig, "ann", query);
    }
    remove(&mut rig, "ann", "x");
    let removals = removals(&rig.rows, TENANT, "ann");
    let (mut before, mut seen) = (u64::MAX, Vec::new());
    loop {
        let page = history(&rig.rows, TENANT, "ann", before, 4, &removals);
        before = page.entries.last().map_or(before, |entry| entry.number);
        seen.extend(page.entries.into_iter().map(|entry| entry.query));
        if page.rows_exhausted {
            break;
        }
    }
    assert_eq!(seen, ["e", "d", "c", "b", "a"]);
}

#[test]
fn removal_by_an_idle_user_does_not_bring_the_list_into_memory() {
    let mut rig = rig();
    search(&mut rig, "ann", "a");
    search(&mut rig, "ann", "b");
    rig.advance(31 * DAY_MS);
    remove(&mut rig, "ann", "a");
    assert!(!rig.views.contains_key(&list_row(TENANT, "ann")[..]));
    assert_eq!(list(&rig, "ann"), ["b"]);
}

#[test]
fn removals_are_counted_and_bounded_and_clearing_gives_them_back() {
    let mut rig = rig();
    search(&mut rig, "ann", "a");
    let before = rig.ground.usage()[&TENANT].bytes;
    let removal = |n: u32| {
        Command::Remove(Remove { user: "ann".into(), folded: fold(&format!("never {n}")) })
    };
    for n in 0..1000 {
        assert_eq!(apply(&mut rig, &removal(n)), Reply::Removed);
    }
    assert_eq!(apply(&mut rig, &removal(7)), Reply::Removed, "noted before");
    assert_eq!(apply(&mut rig, &removal(1000)), Reply::TooManyRemovals);
    assert!(rig.ground.usage()[&TENANT].bytes > before);
    clear(&mut rig, "ann");
    assert_eq!(rig.ground.usage()[&TENANT].bytes, 0);
}
