//! What is said of arguments that make no sense, and of servers that are not there.

use super::*;

#[test]
fn mistakes_are_told_in_one_line() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let nobody = format!("http://{closed}");
    for (arguments, code, said) in [
        (&["queue", "ls", "--colour"][..], 2, "--colour"),
        (&["queue", "create"][..], 2, "<NAME>"),
        (&["queue", "create", "x", "--max-receives", "3"][..], 2, "--dead-letter"),
        (&["queue", "peek", "jobs", "--state", "lost"][..], 2, "visible, delayed, inflight"),
        (&["queue", "send", "jobs", "x", "--delay", "soon"][..], 2, "30s, 5m"),
        (&["queue", "send", "jobs", "x", "--attribute", "k"][..], 2, "NAME=TEXT"),
        (&["queue", "send", "jobs", "x", "--priority", "10"][..], 2, "10"),
        (&["queue", "send", "jobs", "x", "--priority", "-1"][..], 2, "a whole number from 0 to 9"),
        (
            &["queue", "send", "jobs", "x", "--priority", "high"][..],
            2,
            "a whole number from 0 to 9",
        ),
        (&["queue", "redrive", "x", "--rate", "1.5"][..], 2, "a whole number from 1 to 100000"),
        (&["queue", "create", "x", "--max-messages", "none"][..], 2, "a whole number, 1 or more"),
        (&["queue", "create", "x", "--max-messages", "-1"][..], 2, "a whole number, 1 or more"),
        (&["queue", "peek", "x", "-n", "-1"][..], 2, "a whole number from 1 to 1000"),
        (&["queue", "tail", "x", "--max", "-1"][..], 2, "a whole number, 0 or more"),
        (&["queue", "create", "x", "--visibility", "-5s"][..], 2, "'-5s' for '--visibility"),
        (&["topic", "subscribe", "t", "q", "--delay", "-1"][..], 2, "must not be less than 0"),
        (&["queue", "create", "x", "--delay", "99999999999999999999d"][..], 2, "is too large"),
        (&["queue", "create", "x", "--tag", "a=b", "--tag", "a=c"][..], 2, "--tag a: it is given"),
        (&["work", "--queue", "q", "--visibility", "0s", "--", "cat"][..], 2, "from 1s to 12h"),
        (&["work", "-q", "q", "-n", "-1", "--", "cat"][..], 2, "a whole number from 1 to 1000"),
        (&["work", "-q", "q", "--once", "cat"][..], 2, "goes after --, as in stampede work"),
        (
            &["--server", "X", "queue", "ls"][..],
            2,
            "'--server' found: it goes after the command, as in stampede queue --server; see --help",
        ),
        (&["--data=d", "serve"][..], 2, "as in stampede serve --data; see --help"),
        (&["--colour", "queue", "ls"][..], 2, "'--colour' found; see --help"),
        (&["queue", "sned", "jobs", "x"][..], 2, "'sned': did you mean send? see --help"),
        (&["queue", "ls", "--jsno"][..], 2, "'--jsno' found: did you mean --json? see --help"),
        (&["quue", "ls"][..], 2, "'quue': did you mean queue? see --help"),
        (&["queue", "create", "x", "--max-recieves", "3"][..], 2, "did you mean --max-receives?"),
        (&["queue", "create", "x", "--backoff-max", "60"][..], 2, "--backoff-max needs --backoff"),
        (&["queue", "update", "x", "--backoff-max", "60"][..], 2, "--backoff-max needs --backoff"),
        (
            &["queue", "update", "x", "--no-backoff", "--backoff-max", "60"][..],
            2,
            "--backoff-max needs --backoff",
        ),
        (&["topic", "subscribe", "t", "q", "--no-jitter"][..], 2, "--no-jitter needs --backoff"),
        (&["queue", "send", "jobs", "x", "--lines"][..], 2, "--lines"),
        (&["queue", "ls", "--server", "nowhere"][..], 2, "http://HOST:PORT"),
        (&["queue", "ls", "--key", "a\nb"][..], 2, "the key has"),
        (&["work", "--queue", "jobs"][..], 2, "<CMD>"),
        (&["work", "--", "true"][..], 2, "--queue"),
        (&["work", "--queue", "jobs", "--", "/no/such"][..], 1, "cannot start /no/such: No such"),
        (&["queue", "create", "x", "--dead-letter", "d"][..], 2, "--max-receives"),
        (&["queue", "create", "x", "--max-receives", "0"][..], 2, "--max-receives"),
        (&["queue", "update", "x"][..], 2, "nothing to change"),
        (&["queue", "update", "x", "--no-dead-letter", "--max-receives", "3"][..], 2, "--no-dead"),
        (&["queue", "receive", "x", "-n", "101"][..], 2, "--max"),
        (&["queue", "peek", "x", "-n", "0"][..], 2, "--max"),
        (&["queue", "redrive", "x", "--rate", "0"][..], 2, "--rate"),
        (&["queue", "redrive", "x", "--filter", "mail"][..], 2, "--filter is not JSON"),
        (&["topic", "subscribe", "t", "q", "--filter", "{"][..], 2, "--filter is not JSON"),
        (&["topic", "publish", "t", "x", "--file", "f"][..], 2, "--file"),
        (&["topic", "ls"][..], 1, "cannot reach http://127.0.0.1:"),
        (&["queue", "ls"][..], 1, "--server or STAMPEDE_SERVER"),
        (&["queue", "ls"][..], 1, "cannot reach http://127.0.0.1:"),
        (&["work", "--queue", "jobs", "--", "true"][..], 1, "cannot reach http://127.0.0.1:"),
    ] {
        let output = stampede(&nobody).args(arguments).stdin(Stdio::null()).output();
        let output = output.expect("it runs");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(
            stderr.starts_with("stampede: ") && stderr.contains(said),
            "{arguments:?}: {stderr}"
        );
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn a_server_without_tls_is_told_as_such() {
    let server = Server::start();
    let https = server.url.replace("http://", "https://");
    let refused = server.run(&["queue", "ls", "--server", &https]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("does not speak TLS there: try http://"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
