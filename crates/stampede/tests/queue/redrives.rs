//! `stampede queue redrive` of less than all that there is.

use super::*;

#[test]
fn a_dry_run_moves_nothing_and_a_limit_moves_just_so_many() {
    let server = Server::start();
    for queue in ["dead", "jobs"] {
        server.says(&["queue", "create", queue]);
    }
    let sent = server.fed(&["queue", "send", "dead", "--lines"], b"1\n2\n3\n4\n5\n");
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    let redrive = ["queue", "redrive", "dead", "--to", "jobs"];
    for (options, said, left) in [
        (&["--dry-run"][..], "done: 5 match, 0 do not; none was moved\n", 5),
        (&["--dry-run", "--limit", "2"], "done: 2 match, 0 do not; none was moved\n", 5),
        (&["--limit", "2"], "done: 2 moved, 2 matched, 0 skipped\n", 3),
        (&["--dry-run"], "done: 3 match, 0 do not; none was moved\n", 3),
        (&["--limit", "9"], "done: 3 moved, 3 matched, 0 skipped\n", 0),
    ] {
        assert_eq!(server.says(&[&redrive[..], options].concat()), said, "{options:?}");
        assert_eq!(server.counts("dead"), [left, 0, 0], "{options:?}");
        assert_eq!(server.counts("jobs"), [5 - left, 0, 0], "{options:?}");
    }
    let shown = server.json(&["redrive", "jobs", "--to", "dead", "--dry-run"]).pop();
    let shown = shown.expect("its end");
    assert_eq!(
        [&shown["dryRun"], &shown["matched"], &shown["moved"]],
        [&json!(true), &json!(5), &json!(0)]
    );
}
