//! `stampede work`: a command for each message.

use std::path::Path;

use super::*;

#[test]
fn a_command_is_run_for_each_message_and_its_status_settles_it() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs"]);
    server.says(&["queue", "send", "jobs", "hello", "-a", "kind=mail"]);
    server.says(&["queue", "send", "jobs", r#"{"n": 1}"#]);
    let script = "echo \"$STAMPEDE_QUEUE $STAMPEDE_SEQUENCE $STAMPEDE_RECEIVE_COUNT \
        $STAMPEDE_MESSAGE_ID ${STAMPEDE_ATTR_kind-none} $(cat)\"";
    let output = server.worker("jobs", &["--once"], script).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!((&lines[0][..3], &lines[0][4..]), (&["jobs", "1", "1"][..], &["mail", "hello"][..]));
    assert_eq!((lines[1][1], &lines[1][4..]), ("2", &["none", "{\"n\":", "1}"][..]));
    assert!(text(&output.stderr).contains("2 done, 0 failed"), "{}", text(&output.stderr));
    assert_eq!(server.counts("jobs"), [0, 0, 0]);

    server.says(&["queue", "send", "jobs", "x"]);
    let status = |command: &[&str]| {
        let arguments = [&["work", "--queue", "jobs", "--once", "--"], command].concat();
        let code = server.run(&arguments).status.code();
        let left = server.json(&["peek", "jobs"]);
        assert_eq!(code, Some(i32::from(!left.is_empty())), "{command:?}: a failure shows");
        left.first().map(|message| message["lastReason"].as_str().expect("a reason").to_owned())
    };
    assert_eq!(status(&["false"]).as_deref(), Some("exit status 1"));
    let script = "echo one >&2; echo 'no such address' >&2; echo >&2; exit 3";
    assert_eq!(status(&["sh", "-c", script]).as_deref(), Some("exit status 3: no such address"));
    assert_eq!(status(&["sh", "-c", "kill -9 $$"]).as_deref(), Some("killed by signal 9"));
    assert_eq!(status(&["true"]), None);
}

#[test]
fn a_program_that_cannot_be_started_ends_the_worker_and_costs_no_message() {
    let server = Server::start();
    // One receive that counted would make a dead letter.
    server.says(&["queue", "create", "jobs", "--max-receives", "1", "--dead-letter", "dead"]);
    let lines: String = (0..20).map(|n| format!("{n}\n")).collect();
    server.fed(&["queue", "send", "jobs", "--lines"], lines.as_bytes());
    let file = server.folder.path().join("script");
    std::fs::write(&file, "#!/no/such/interpreter\n").expect("written");
    let script = file.to_str().expect("UTF-8");
    for once in [&["--once"][..], &[]] {
        let work = |program: &str| {
            let first = ["work", "--queue", "jobs"];
            let output = server.run(&[&first[..], once, &["--", program]].concat());
            assert_eq!(output.status.code(), Some(1), "{program}");
            text(&output.stderr)
        };
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("changed");
        for (program, why) in [
            ("/no/such/command", "No such file"),
            ("no-such-command-anywhere", "No such file"),
            (script, "Permission denied"),
        ] {
            let said = work(program);
            let expected = format!("stampede: cannot start {program}: {why}");
            assert!(said.starts_with(&expected) && said.lines().count() == 1, "{said}");
        }
        // It looks like a program until it is started.
        std::fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("changed");
        let said = work(script);
        assert!(said.contains(&format!("stampede: cannot start {script}: No such file")), "{said}");
        assert!(said.contains("0 failed, 1 given back"), "{said}");
    }
    let left = server.json(&["peek", "jobs", "-n", "100"]);
    assert_eq!((left.len(), server.counts("jobs")), (20, [20, 0, 0]));
    assert!(left.iter().all(|message| message["receiveCount"] == 0), "{left:?}");
}

#[test]
fn the_message_of_a_worker_that_was_killed_goes_to_another() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs"]);
    server.says(&["queue", "send", "jobs", "x"]);
    let mut first = server.worker("jobs", &["--visibility", "2s"], "echo $$; exec sleep 1000");
    let (first, mut stdout) = Running::start(&mut first);
    let orphan = line(&mut stdout).parse().ok().and_then(Pid::from_raw).expect("its number");
    first.signal(Signal::KILL);
    let mut second = server.worker("jobs", &[], "echo \"again $STAMPEDE_RECEIVE_COUNT\"");
    let (mut second, mut stdout) = Running::start(&mut second);
    assert_eq!(line(&mut stdout), "again 2");
    kill(Signal::KILL, orphan);
    second.signal(Signal::TERM);
    assert_eq!(second.wait(), Some(0));
    assert_eq!(server.counts("jobs"), [0, 0, 0]);
}

#[test]
fn the_first_signal_waits_for_commands_and_the_second_kills_them() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs"]);
    let go = server.folder.path().join("go");
    let script = format!("echo begun; while [ ! -e {} ]; do sleep 0.02; done", go.display());
    for (signal, kills) in [(Signal::INT, false), (Signal::TERM, true)] {
        let _ = std::fs::remove_file(&go);
        server.says(&["queue", "send", "jobs", "x"]);
        let mut command = server.worker("jobs", &[], &script);
        let (mut worker, mut stdout) = Running::start(command.stderr(Stdio::piped()));
        assert_eq!(line(&mut stdout), "begun");
        let mut stderr = BufReader::new(worker.0.stderr.take().expect("piped"));
        worker.signal(signal);
        assert!(line(&mut stderr).contains("waiting for running commands"));
        if kills {
            worker.signal(signal);
            assert!(line(&mut stderr).contains("0 done, 0 failed, 1 given back"));
            assert_eq!(worker.wait(), Some(1));
            assert_eq!(server.counts("jobs"), [1, 0, 0]);
        } else {
            std::fs::write(&go, "").expect("written");
            assert_eq!(worker.wait(), Some(0));
            assert_eq!(server.counts("jobs"), [0, 0, 0]);
        }
    }
}

#[test]
fn a_worker_keeps_the_key_to_itself_unless_it_is_told_otherwise() {
    let server = Server::start_with(&[]);
    let key = server.key.clone().expect("an empty folder");
    let run = |arguments: &[&str]| {
        let mut command = server.command(arguments);
        let output = command.env("STAMPEDE_KEY", &key).output().expect("the binary runs");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    run(&["queue", "create", "jobs"]);
    let script = "echo \"[$STAMPEDE_KEY] $STAMPEDE_QUEUE\"; cat > /dev/null";
    for (options, seen) in [(&[][..], ""), (&["--pass-key"][..], key.as_str())] {
        run(&["queue", "send", "jobs", "x"]);
        let work = ["work", "--queue", "jobs", "--once"];
        let said = run(&[&work, options, &["--", "sh", "-c", script]].concat());
        assert_eq!(said.trim_end(), format!("[{seen}] jobs"));
    }
}

#[test]
fn what_a_command_that_failed_has_started_is_killed() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs"]);
    server.says(&["queue", "send", "jobs", "x"]);
    let mut worker = server.worker("jobs", &["--once"], "sleep 1000 & echo begun; exit 3");
    // It has our stdout, which so ends with it.
    let output = worker.output().expect("it runs");
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("begun\n", Some(1)));
    assert_eq!(server.json(&["peek", "jobs"])[0]["lastReason"], "exit status 3");
}

/// A command that says `begun`, and ends when there is this file.
fn until(go: &Path) -> String {
    format!("echo begun; while [ ! -e {} ]; do sleep 0.02; done", go.display())
}

#[test]
fn a_worker_whose_stderr_is_closed_stops_all_the_same() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs"]);
    server.says(&["queue", "send", "jobs", "x"]);
    let go = server.folder.path().join("go");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = server.worker("jobs", &[], &until(&go));
    let (mut worker, mut stdout) = Running::start(command.stderr(writer));
    assert_eq!(line(&mut stdout), "begun");
    worker.signal(Signal::INT);
    std::fs::write(&go, "").expect("written");
    assert_eq!(worker.wait(), Some(0));
    assert_eq!(server.counts("jobs"), [0, 0, 0]);
}

#[test]
fn a_stderr_that_nobody_reads_holds_up_nothing_and_what_it_did_not_take_is_told() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs"]);
    server.fed(&["queue", "send", "jobs", "--lines"], b"1\n2\n3\n");
    let script = "head -c 4000000 /dev/zero | tr '\\0' x >&2";
    let mut command = server.worker("jobs", &["--concurrency", "2"], script);
    let (mut worker, _stdout) = Running::start(command.stderr(Stdio::piped()));
    while server.counts("jobs") != [0, 0, 0] {}
    let mut stderr = BufReader::new(worker.0.stderr.take().expect("piped"));
    let said = line(&mut stderr);
    assert!(said.ends_with(" bytes of stderr were dropped"), "{} bytes", said.len());
    worker.signal(Signal::TERM);
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).expect("text");
    assert_eq!(worker.wait(), Some(0));
    assert!(rest.ends_with("stampede: 3 done, 0 failed, 0 given back, 0 not known acked\n"));
}

#[test]
fn a_worker_whose_terminal_is_gone_waits_for_its_commands() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs"]);
    server.says(&["queue", "send", "jobs", "x"]);
    let go = server.folder.path().join("go");
    let mut command = server.worker("jobs", &[], &until(&go));
    let (mut worker, mut stdout) = Running::start(command.stderr(Stdio::piped()));
    assert_eq!(line(&mut stdout), "begun");
    let mut stderr = BufReader::new(worker.0.stderr.take().expect("piped"));
    worker.signal(Signal::HUP);
    assert!(line(&mut stderr).contains("waiting for running commands"));
    // Shells say it once more, and do not mean to kill.
    worker.signal(Signal::HUP);
    std::fs::write(&go, "").expect("written");
    assert!(line(&mut stderr).contains("1 done, 0 failed, 0 given back"));
    assert_eq!(worker.wait(), Some(0));
}

#[test]
fn a_worker_that_is_to_outlive_its_terminal_goes_on() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs"]);
    server.says(&["queue", "send", "jobs", "one"]);
    let worker = server.worker("jobs", &[], "echo $(cat)");
    // As nohup does.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(worker.get_program());
    shell.args(worker.get_args()).env("STAMPEDE_SERVER", &server.url).env_remove("STAMPEDE_KEY");
    let (mut worker, mut stdout) = Running::start(&mut shell);
    assert_eq!(line(&mut stdout), "one");
    worker.signal(Signal::HUP);
    server.says(&["queue", "send", "jobs", "two"]);
    assert_eq!(line(&mut stdout), "two");
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait(), Some(0));
}
