//! `stampede queue` and `stampede work`, as a user runs them against a server.

mod mistakes;
mod redrives;
mod unread;
mod work;

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

fn stampede(server: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stampede"));
    command.env("STAMPEDE_LOG", "warn").env("STAMPEDE_SERVER", server);
    command.env_remove("STAMPEDE_KEY");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A process that does not outlive its test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> (Running, BufReader<ChildStdout>) {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary runs");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        (Running(child), stdout)
    }

    fn signal(&self, signal: Signal) {
        kill(signal, Pid::from_child(&self.0));
    }

    fn wait(&mut self) -> Option<i32> {
        self.0.wait().expect("it ends").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already ended, perhaps.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kill(signal: Signal, pid: Pid) {
    kill_process(pid, signal).expect("it is there");
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("text");
    line.trim_end().to_owned()
}

struct Server {
    url: String,
    key: Option<String>,
    _running: Running,
    folder: TempDir,
}

impl Server {
    fn start() -> Server {
        Server::start_with(&["--dev"])
    }

    fn start_with(options: &[&str]) -> Server {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = stampede("");
        command.args(["serve", "--shards", "1", "--listen", "127.0.0.1:0", "--data"]);
        let (running, mut stdout) = Running::start(command.arg(folder.path()).args(options));
        let mut key = None;
        loop {
            let line = line(&mut stdout);
            assert!(!line.is_empty(), "it ended without a word of being ready");
            if let Some(secret) = line.strip_prefix("admin key, shown this once: ") {
                key = Some(secret.to_owned());
            }
            if let Some(url) = line.strip_prefix("stampede is ready on ") {
                return Server { url: url.to_owned(), key, _running: running, folder };
            }
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = stampede(&self.url);
        command.args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().expect("the binary runs")
    }

    /// What it prints; it must succeed.
    #[track_caller]
    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let said = self.says(&[&["queue", "--json"], arguments].concat());
        said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Runs with this on stdin.
    fn fed(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        child.stdin.take().expect("piped").write_all(input).expect("it reads");
        child.wait_with_output().expect("it ends")
    }

    fn worker(&self, queue: &str, options: &[&str], script: &str) -> Command {
        let first = ["work", "--queue", queue];
        self.command(&[&first[..], options, &["--", "sh", "-c", script]].concat())
    }

    fn counts(&self, queue: &str) -> [u64; 3] {
        let info = self.json(&["ls", queue]).remove(0);
        ["visible", "delayed", "inflight"].map(|name| info[name].as_u64().expect("a number"))
    }
}

#[test]
fn queues_and_messages_are_shown_in_tables_and_as_json() {
    let server = Server::start();
    assert!(server.says(&["queue", "create", "jobs"]).starts_with("jobs was made, as q_"));
    assert!(server.says(&["queue", "create", "jobs"]).starts_with("jobs was there before, as q_"));
    for created in [true, false] {
        let made = server.json(&["create", "orders.fifo", "--fifo", "--visibility", "2m"]);
        assert_eq!(
            (&made[0]["name"], &made[0]["created"]),
            (&json!("orders.fifo"), &json!(created))
        );
    }
    server.says(&["queue", "send", "jobs", r#"{"n": 1.50}"#, "-a", "kind=mail", "-a", "size:=3"]);
    let sent = server.json(&["send", "jobs", "hello", "--priority", "9"]);
    assert_eq!(sent[0]["sequence"], 2);
    server.says(&["queue", "send", "jobs", "later", "--delay", "1h"]);

    let table = server.says(&["queue", "ls"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "NAME         MODE      VISIBLE  DELAYED  INFLIGHT  DEAD  OLDEST");
    assert!(lines[1].starts_with("jobs         standard        2        1         0     0 "));
    assert!(lines[2].starts_with("orders.fifo  fifo            0 "), "{table}");
    let queues = server.json(&["ls", "o"]);
    assert_eq!((queues.len(), &queues[0]["mode"]), (1, &json!("FIFO")));
    assert_eq!(queues[0]["defaultVisibilityTimeoutSeconds"], 120);

    let table = server.says(&["queue", "peek", "jobs"]);
    assert!(table.starts_with("SEQUENCE  RECEIVES  SENT "), "{table}");
    assert!(table.contains(r#"kind=mail,size=3  {"n": 1.50}"#), "{table}");
    let delayed = server.json(&["peek", "jobs", "--state", "delayed"]);
    assert_eq!(delayed[0]["body"], "later");

    let leased = server.json(&["receive", "jobs"]);
    assert_eq!((&leased[0]["body"], &leased[0]["receiveCount"]), (&json!("hello"), &json!(1)));
    assert!(leased[0]["receiptHandle"].is_string());
    assert_eq!(server.counts("jobs"), [1, 1, 1], "it is leased, not gone");
    let gone = server.says(&["queue", "receive", "jobs", "-n", "10", "--ack"]);
    assert!(gone.contains("1.50"), "{gone}");
    assert_eq!(server.counts("jobs"), [0, 1, 1]);
    assert!(server.json(&["receive", "jobs"]).is_empty());
    assert_eq!(server.says(&["queue", "purge", "jobs"]), "jobs is empty\n");
    assert_eq!(server.counts("jobs"), [0, 0, 0]);
}

#[test]
fn a_queue_is_shown_changed_and_deleted() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs", "--max-messages", "9"]);
    server.says(&["queue", "send", "jobs", "x"]);
    let shown = server.says(&["queue", "show", "jobs"]);
    let has = |shown: &str, name: &str, value: &str| {
        let found = shown.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        assert_eq!(found, Some(value), "{shown}");
    };
    has(&shown, "visible", "1");
    has(&shown, "max messages", "9");
    has(&shown, "dead letter", "-");
    let dead = ["--max-receives", "3", "--dead-letter", "dead", "--backoff", "10s"];
    let first = ["queue", "update", "jobs", "--no-max-messages", "--retention", "1h"];
    let shown = server.says(&[&first[..], &dead].concat());
    has(&shown, "max messages", "-");
    has(&shown, "retention", "3600s");
    has(&shown, "max receives", "3");
    has(&shown, "dead letter", "dead");
    has(&shown, "backoff", "10s, up to 900s, with jitter");
    let changed = server.json(&["update", "jobs", "--no-dead-letter", "--dedup-by-body", "true"]);
    assert_eq!(
        (&changed[0]["deadLetterQueue"], &changed[0]["deduplicateByBody"]),
        (&Value::Null, &json!(true))
    );
    assert_eq!(server.json(&["show", "jobs"])[0]["retentionSeconds"], 3600);

    // The server refuses in the names of its fields; here they are flags.
    for (arguments, said) in [
        (
            &["queue", "update", "jobs", "--max-receives", "3"][..],
            "--max-receives needs --dead-letter",
        ),
        (
            &["queue", "update", "jobs", "--retention", "0"],
            "--retention: it must be from 1s to 3650d",
        ),
        (
            &["queue", "create", "x", "--visibility", "13h"],
            "--visibility: it must be from 0 to 12h",
        ),
        (
            &[
                "queue",
                "create",
                "jobs",
                "--fifo",
                "--backoff",
                "4s",
                "--no-jitter",
                "--tag",
                "a=b",
            ],
            "there is a queue `jobs`, with other settings: --fifo, --retention, --backoff, \
             --no-jitter, --dedup-by-body, --tag (409",
        ),
        (
            &["queue", "update", "jobs", "--backoff", "9s", "--backoff-max", "1s"],
            "--backoff-max: it must",
        ),
        (&["queue", "send", "jobs", "x", "--group", "g"], "--group: only a FIFO queue"),
        (&["queue", "peek", "jobs", "--cursor", "!"], "--cursor: not a cursor"),
        (&["queue", "redrive", "jobs", "--to", "lost"], "--to: there is no queue `lost`"),
        (&["queue", "redrive", "jobs", "--filter", "5"], "--filter: "),
        (&["queue", "show", "lost"], "there is no queue `lost`"),
    ] {
        let output = server.run(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.starts_with(&format!("stampede: {said}")), "{arguments:?}: {stderr}");
    }
    assert_eq!(server.says(&["queue", "delete", "jobs"]), "jobs is gone\n");
    assert_eq!(server.run(&["queue", "delete", "jobs", "--yes"]).status.code(), Some(1));
    for help in [&["--help"][..], &["queue", "--help"], &["topic", "--help"], &["work", "--help"]] {
        assert!(server.says(help).contains("Exit codes: 0 done"), "{help:?}");
    }
}

#[test]
fn topics_are_made_subscribed_to_and_published_to() {
    let server = Server::start();
    assert!(server.says(&["topic", "create", "news"]).starts_with("news was made, as t_"));
    assert!(server.says(&["topic", "create", "news"]).starts_with("news was there before, as t_"));
    let said = server.says(&["topic", "subscribe", "news", "all"]);
    assert_eq!(said, "all gets all that is published to news\n");
    let filter = r#"{"kind": ["mail"]}"#;
    let subscribe = ["topic", "subscribe", "news", "mails", "--filter", filter];
    let settings = ["--max-receives", "2", "--dead-letter", "dead", "--json"];
    let made = server.says(&[&subscribe[..], &settings].concat());
    assert_eq!(serde_json::from_str::<Value>(&made).expect("JSON")["name"], "mails");
    let table = server.says(&["topic", "subscriptions", "news"]);
    assert_eq!(table, "QUEUE  FILTER\nall    -\nmails  {\"kind\":[\"mail\"]}\n");
    let said = server.says(&["topic", "publish", "news", "hello"]);
    assert!(said.ends_with("is number 1, for 1 subscription\n"), "{said}");
    let piped = server.fed(&["topic", "publish", "news", "-a", "kind=mail"], b"{\"n\": 1}\n");
    assert!(text(&piped.stdout).contains("for 2 subscriptions"), "{}", text(&piped.stdout));
    let got = server.json(&["receive", "mails", "--wait", "20s"]);
    assert_eq!(got[0]["body"], json!({"n": 1}));
    let filtered = server.says(&["topic", "subscribe", "news", "sms", "--filter", filter]);
    assert_eq!(filtered, "sms gets what is published to news and matches the filter\n");
    server.says(&["topic", "unsubscribe", "news", "sms"]);
    let table = server.says(&["topic", "ls"]);
    assert!(table.starts_with("NAME  SUBSCRIPTIONS  CREATED\nnews              2  2"), "{table}");
    assert_eq!(server.says(&["topic", "unsubscribe", "news", "all"]), "all gets no more of news\n");
    let left = server.says(&["topic", "subscriptions", "news", "--json"]);
    assert_eq!(left, "{\"name\":\"mails\",\"filter\":{\"kind\":[\"mail\"]}}\n");
    assert_eq!(server.says(&["topic", "delete", "news"]), "news is gone\n");
    let output = server.run(&["topic", "publish", "news", "x"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("there is no topic `news`"), "{}", text(&output.stderr));
}

#[test]
fn a_look_goes_on_where_the_last_one_ended() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs"]);
    let lines: String = (0..7).map(|n| format!("{n}\n")).collect();
    server.fed(&["queue", "send", "jobs", "--lines"], lines.as_bytes());
    let mut bodies = Vec::new();
    let mut cursor = Vec::new();
    loop {
        let mut arguments = vec!["peek", "jobs", "-n", "3"];
        arguments.extend(cursor.iter().map(String::as_str));
        let mut lines = server.json(&arguments);
        let next = lines.last().and_then(|line| line["nextCursor"].as_str()).map(str::to_owned);
        if next.is_some() {
            lines.pop();
        }
        bodies.extend(lines.into_iter().map(|line| line["body"].clone()));
        let Some(next) = next else { break };
        let table = server.says(&[&["queue"], &arguments[..]].concat());
        assert!(table.ends_with(&format!("\nmore with --cursor {next}\n")), "{table}");
        cursor = vec!["--cursor".to_owned(), next];
    }
    assert_eq!(Value::Array(bodies), json!([0, 1, 2, 3, 4, 5, 6]));
}

#[test]
fn lines_that_cannot_be_sent_keep_no_others_out() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs"]);
    let output = server.fed(&["queue", "send", "jobs", "--lines"], b"one\r\n\xff\n\n two \n");
    let said = (text(&output.stdout), text(&output.stderr));
    let refused = "stampede: line 2: it is not text, which is UTF-8\n";
    assert_eq!((said.0.as_str(), said.1.as_str()), ("2 sent, 1 refused\n", refused));
    assert_eq!(output.status.code(), Some(1));
    let bodies: Vec<_> = server.json(&["peek", "jobs"]).iter().map(|m| m["body"].clone()).collect();
    assert_eq!(bodies, ["one", " two "]);
    for (input, what) in [(&b""[..], "stdin is empty"), (b"\n \n", "stdin has no line that is not")]
    {
        let output = server.fed(&["queue", "send", "jobs", "--lines"], input);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(what), "{}", text(&output.stderr));
    }
}

#[test]
fn bodies_come_from_arguments_files_stdin_and_lines() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs"]);
    let file = server.folder.path().join("body");
    std::fs::write(&file, "two\nlines\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    server.says(&["queue", "send", "jobs", "--file", file]);
    assert!(server.fed(&["queue", "send", "jobs"], b"piped\n").status.success());
    server.says(&["queue", "send", "jobs", "--text", "17"]);
    let lines = server.fed(&["queue", "send", "jobs", "--lines"], b"one\n\n{\"two\": 2}\n3");
    assert_eq!(text(&lines.stdout), "3 sent, 0 refused\n");
    let first = ["queue", "--json", "send", "jobs", "--dedup", "k", "x"];
    server.says(&first);
    let again: Value = serde_json::from_str(&server.says(&first)).expect("JSON");
    assert_eq!(again["duplicate"], true);
    let bodies: Vec<Value> =
        server.json(&["peek", "jobs"]).iter().map(|message| message["body"].clone()).collect();
    let expected = json!(["two\nlines\n", "piped", "17", "one", {"two": 2}, 3, "x"]);
    assert_eq!(Value::Array(bodies), expected);

    let many: String = (0..1234).map(|n| format!("{n}\n")).collect();
    let sent = server.fed(&["queue", "--json", "send", "jobs", "--lines"], many.as_bytes());
    assert_eq!(text(&sent.stdout).lines().count(), 1234);
    let large = format!("small\n{}\n", "x".repeat(262_200));
    let sent = server.fed(&["queue", "send", "jobs", "--lines"], large.as_bytes());
    assert_eq!((text(&sent.stdout).as_str(), sent.status.code()), ("1 sent, 1 refused\n", Some(1)));
    assert!(text(&sent.stderr).starts_with("stampede: line 2: at body"), "{}", text(&sent.stderr));
    let bytes = server.fed(&["queue", "send", "jobs"], &[0xff, 0]);
    assert_eq!(bytes.status.code(), Some(2));
    assert!(text(&bytes.stderr).contains("curl -T"), "{}", text(&bytes.stderr));
}

#[test]
fn an_empty_stdin_or_file_is_no_message_and_an_empty_argument_is_one() {
    let server = Server::start();
    let file = server.folder.path().join("empty");
    std::fs::write(&file, "").expect("written");
    let file = file.to_str().expect("UTF-8");
    server.says(&["queue", "create", "jobs"]);
    server.says(&["topic", "create", "news"]);
    let send = ["queue", "send", "jobs"];
    let publish = ["topic", "publish", "news"];
    for (arguments, input, empty) in [
        (&send[..], &b""[..], "stdin"),
        (&send, b"\n", "stdin"),
        (&["queue", "send", "jobs", "--file", "-"], b"", "stdin"),
        (&["queue", "send", "jobs", "--file", file], b"", file),
        (&["topic", "publish", "news", "--file", file], b"", file),
        (&publish, b"", "stdin"),
    ] {
        let refused = server.fed(arguments, input);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(&format!("{empty} is empty")), "{arguments:?}: {said}");
    }
    assert_eq!(server.counts("jobs"), [0, 0, 0]);
    server.says(&["queue", "send", "jobs", ""]);
    assert_eq!(server.json(&["peek", "jobs"])[0]["body"], "");
}

#[test]
fn large_bodies_go_in_and_come_out() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs", "--large-bodies"]);
    let body = "0123456789".repeat(30 << 10);
    let file = server.folder.path().join("body");
    std::fs::write(&file, &body).expect("written");
    server.says(&["queue", "send", "jobs", "--file", file.to_str().expect("UTF-8")]);
    assert!(server.json(&["peek", "jobs"])[0]["body"] == body);
    assert!(server.json(&["receive", "jobs", "--ack"])[0]["body"] == body);
    assert_eq!(server.counts("jobs"), [0, 0, 0]);
}

#[test]
fn tail_prints_what_arrives_and_takes_nothing() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs"]);
    server.says(&["queue", "send", "jobs", "before"]);
    let tail = ["queue", "tail", "jobs", "--interval-ms", "20", "--max", "3"];
    let (mut tailing, mut stdout) = Running::start(&mut server.command(&tail));
    assert!(line(&mut stdout).contains("SEQUENCE"));
    assert!(line(&mut stdout).ends_with("\"before\""));
    server.says(&["queue", "send", "jobs", "first"]);
    assert!(line(&mut stdout).ends_with("\"first\""));
    server.says(&["queue", "receive", "jobs", "--ack"]);
    server.says(&["queue", "send", "jobs", "second"]);
    assert!(line(&mut stdout).ends_with("\"second\""));
    assert_eq!(tailing.wait(), Some(0));
    assert_eq!(server.counts("jobs"), [2, 0, 0]);
    let json = server.json(&["tail", "jobs", "-n", "1", "--max", "1"]);
    assert_eq!((&json[0]["body"], &json[0]["receiveCount"]), (&json!("second"), &json!(0)));
}

#[test]
fn a_key_is_needed_and_taken_from_the_environment() {
    let server = Server::start_with(&[]);
    let key = server.key.clone().expect("the first start prints a key");
    let output = server.run(&["queue", "ls"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("401, unauthenticated") && said.contains("--key"), "{said}");
    assert!(said.contains("STAMPEDE_KEY") && said.lines().count() == 1, "{said}");
    let with = server.command(&["queue", "create", "jobs"]).env("STAMPEDE_KEY", &key).output();
    assert!(with.expect("it runs").status.success());
    assert!(server.says(&["queue", "ls", "--key", &key]).contains("jobs"));
    let open = Server::start();
    let empty = ["STAMPEDE_KEY", "STAMPEDE_TENANT", "STAMPEDE_CA_CERT"].map(|name| (name, ""));
    let output = open.command(&["queue", "ls"]).envs(empty).output().expect("it runs");
    assert!(output.status.success(), "an empty key is none: {}", text(&output.stderr));
}

/// Reads a request to the end of its body.
fn request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let whole = text(&bytes);
        if let Some((head, body)) = whole.split_once("\r\n\r\n") {
            let length = head.to_lowercase();
            let length = length.split("content-length: ").nth(1).and_then(|l| l.lines().next());
            if body.len() >= length.map_or(0, |length| length.parse().expect("a number")) {
                return whole;
            }
        }
        let mut part = [0; 4096];
        let count = stream.read(&mut part).expect("a request");
        bytes.extend(&part[..count]);
    }
}

#[test]
fn redrive_asks_as_it_was_told_and_follows_to_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let stub = std::thread::spawn(move || {
        let progress = |state, moved| json!({"redriveId": "r 1", "state": state, "moved": moved, "matched": 5, "skipped": 2});
        let answers = [
            (202, json!({"redriveId": "r 1"})),
            (200, progress("running", 3)),
            (200, progress("done", 5)),
        ];
        let answer = |(status, body): (u16, Value)| {
            let (mut stream, _) = listener.accept().expect("a connection");
            let asked = request(&mut stream);
            let body = body.to_string();
            let head = format!("HTTP/1.1 {status} x\r\nconnection: close\r\n");
            let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).expect("it reads");
            asked
        };
        answers.map(answer)
    });
    let output = stampede(&url)
        .args(["queue", "redrive", "dead", "--to", "jobs", "--rate", "50", "--limit", "5"])
        .args(["--filter", r#"{"kind": "mail"}"#])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "done: 5 moved, 5 matched, 2 skipped\n");
    let asked = stub.join().expect("three requests");
    assert!(asked[0].starts_with("POST /v1/queues/dead:redrive HTTP/1.1\r\n"), "{}", asked[0]);
    assert!(asked[0].to_lowercase().contains("\r\nidempotency-key: "), "{}", asked[0]);
    let body = asked[0].split_once("\r\n\r\n").expect("a body").1;
    let body: Value = serde_json::from_str(body).expect("JSON");
    let expected = json!({
        "targetQueue": "jobs", "maxMessagesPerSecond": 50, "limit": 5, "filter": {"kind": "mail"}
    });
    assert_eq!(body, expected);
    assert!(asked[1].starts_with("GET /v1/redrives/r%201 HTTP/1.1\r\n"), "{}", asked[1]);
}

#[test]
fn a_redrive_outlives_who_follows_it_until_it_is_cancelled() {
    let server = Server::start();
    for queue in ["dead", "jobs"] {
        server.says(&["queue", "create", queue]);
    }
    // At one a second it does not end by itself before the test does.
    let sent = server.fed(&["queue", "send", "dead", "--lines"], "x\n".repeat(1000).as_bytes());
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    let mut follow = stampede(&server.url);
    follow.args(["queue", "redrive", "dead", "--to", "jobs", "--rate", "1"]);
    let mut child = follow.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    let id = line(&mut stderr).strip_prefix("redrive ").expect("its id").to_owned();
    let mut child = Running(child);
    child.signal(Signal::INT);
    assert_eq!(child.wait(), Some(130));
    let said = line(&mut stderr);
    assert_eq!(said, format!("{id} goes on; to end it: stampede queue redrive --cancel {id}"));

    let said = server.says(&["queue", "redrive", "--status", &id]);
    assert!(said.starts_with("moving: "), "{said}");
    assert!(said.contains(" left; dead to jobs, from "), "{said}");
    let second = server.run(&["queue", "redrive", "dead", "--to", "jobs"]);
    assert!(text(&second.stderr).contains(&id), "{}", text(&second.stderr));
    let said = server.says(&["queue", "redrive", "--cancel", &id]);
    assert!(said.starts_with("cancelled: "), "{said}");
    let shown = &server.json(&["redrive", "--status", &id])[0];
    assert_eq!((&shown["state"], &shown["waiting"]), (&"cancelled".into(), &1000.into()));
    assert!(shown["endedAt"].is_string(), "{shown}");
    assert_eq!(&server.json(&["redrive", "dead", "--list"])[..], std::slice::from_ref(shown));
    let listed = server.says(&["queue", "redrive", "dead", "--list"]);
    assert!(listed.starts_with("ID ") && listed.contains(&id), "{listed}");
    let lost = server.run(&["queue", "redrive", "--cancel", "rd_1_dead"]);
    assert_eq!(lost.status.code(), Some(1));
    assert!(text(&lost.stderr).contains("there is no redrive `rd_"), "{}", text(&lost.stderr));
    for bad in [
        &["queue", "redrive"][..],
        &["queue", "redrive", "--list"],
        &["queue", "redrive", "dead", "--list", "--limit", "1"],
        &["queue", "redrive", "dead", "--status", &id],
    ] {
        assert_eq!(server.run(bad).status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn a_redrive_that_passes_over_what_did_not_die_says_so() {
    let server = Server::start();
    for queue in ["jobs", "other"] {
        server.says(&["queue", "create", queue]);
    }
    server.says(&["queue", "send", "jobs", "x"]);
    let note = "without --to only messages that died in another queue are moved, and 1 did not";
    let filter = r#"{"kind": ["mail"]}"#;
    for (options, said, is_noted) in [
        (&[][..], "done: 0 moved, 0 matched, 1 skipped\n", true),
        (&["--filter", filter], "done: 0 moved, 0 matched, 1 skipped\n", false),
        // What was once said for --to.
        (&["--target", "other"], "done: 1 moved, 1 matched, 0 skipped\n", false),
        (&[], "done: 0 moved, 0 matched, 0 skipped\n", false),
    ] {
        let output = server.run(&[&["queue", "redrive", "jobs"], options].concat());
        assert_eq!(text(&output.stdout), said, "{options:?}");
        assert_eq!(text(&output.stderr).contains(note), is_noted, "{options:?}");
    }
}

#[test]
fn a_server_with_a_certificate_of_a_private_authority_is_trusted_when_it_is_named() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into(), "127.0.0.1".into()]);
    let made = made.expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let (cert, secret) = (path("cert.pem"), path("key.pem"));
    std::fs::write(&cert, made.cert.pem()).expect("it can be written");
    std::fs::write(&secret, made.signing_key.serialize_pem()).expect("it can be written");
    let server = Server::start_with(&["--dev", "--tls-cert", &cert, "--tls-key", &secret]);
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let refused = server.run(&["queue", "ls"]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("--ca-cert"), "{}", text(&refused.stderr));
    server.says(&["queue", "ls", "--ca-cert", &cert]);
    let by_variable = server.command(&["queue", "ls"]).env("STAMPEDE_CA_CERT", &cert).output();
    assert!(by_variable.expect("the binary runs").status.success());
    let lost = path("lost.pem");
    for bad in [&lost, &secret] {
        let wrong = server.run(&["queue", "ls", "--ca-cert", bad]);
        assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
        let named = format!("--ca-cert {bad}: ");
        assert!(text(&wrong.stderr).contains(&named), "{}", text(&wrong.stderr));
    }
}

#[test]
fn a_certificate_that_only_an_authority_may_have_is_told_as_such() {
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".into()]).expect("a name");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let signing_key = rcgen::KeyPair::generate().expect("a key");
    let made = params.self_signed(&signing_key).expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let (cert, secret) = (path("cert.pem"), path("key.pem"));
    std::fs::write(&cert, made.pem()).expect("it can be written");
    std::fs::write(&secret, signing_key.serialize_pem()).expect("it can be written");
    let server = Server::start_with(&["--dev", "--tls-cert", &cert, "--tls-key", &secret]);
    let refused = server.run(&["queue", "ls", "--ca-cert", &cert]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("CA:FALSE"), "{}", text(&refused.stderr));
}

#[test]
fn a_queue_that_is_there_is_subscribed_as_it_is() {
    let server = Server::start();
    server.says(&["queue", "create", "mail", "--max-receives", "5", "--dead-letter", "dead"]);
    server.says(&["topic", "create", "news"]);
    let subscribe = ["topic", "subscribe", "news", "mail"];
    let help = server.says(&["topic", "subscribe", "--help"]);
    assert!(help.contains("again without --filter takes the filter away"), "{help}");
    for filter in [r#"{"kind":["mail"]}"#, r#"{"kind":["sms"]}"#] {
        server.says(&[&subscribe[..], &["--filter", filter]].concat());
        let table = server.says(&["topic", "subscriptions", "news"]);
        assert_eq!(table, format!("QUEUE  FILTER\nmail   {filter}\n"));
    }
    let said = server.says(&subscribe);
    assert_eq!(said, "mail gets all that is published to news\n");
    let table = server.says(&["topic", "subscriptions", "news"]);
    assert_eq!(table, "QUEUE  FILTER\nmail   -\n", "the filter is gone");
    let refused = server.run(&[&subscribe[..], &["--delay", "5s"]].concat());
    assert_eq!(refused.status.code(), Some(1));
    let said = "with other settings: --delay, --max-receives, --dead-letter";
    assert!(text(&refused.stderr).contains(said), "{}", text(&refused.stderr));
}

#[test]
fn every_setting_of_a_queue_has_a_flag() {
    let server = Server::start();
    let create = "queue create jobs --retention 1d --visibility 1m --delay 2s --receive-wait 3s \
         --max-receives 5 --dead-letter dead --backoff 4s --backoff-max 8s --no-jitter \
         --dedup-window 10m --dedup-by-body --max-messages 100 --max-bytes 5000 \
         --max-publish-per-second 50 --max-age 9m --max-inflight 7 --max-body-bytes 999 --large-bodies --tag team=mail --tag empty=";
    server.says(&create.split_whitespace().collect::<Vec<_>>());
    let shown = server.json(&["show", "jobs"]).remove(0);
    let expected = json!({
        "retentionSeconds": 86400, "defaultVisibilityTimeoutSeconds": 60, "delaySeconds": 2,
        "receiveWaitSeconds": 3, "maxReceiveCount": 5, "deadLetterQueue": "dead",
        "retryBackoff": {"baseSeconds": 4, "maxSeconds": 8, "jitter": false},
        "deduplicationWindowSeconds": 600, "deduplicateByBody": true, "maxMessages": 100,
        "maxBytes": 5000, "maxPublishPerSecond": 50, "maxAgeSeconds": 540, "maxInflight": 7, "maxBodyBytes": 999, "largeBodies": true,
        "tags": {"team": "mail", "empty": ""},
    });
    for (field, value) in expected.as_object().expect("an object") {
        assert_eq!(shown[field], *value, "{field}");
    }
    let table = server.says(&["queue", "show", "jobs"]);
    for row in ["large bodies       true\n", "backoff            4s, up to 8s, without jitter\n"] {
        assert!(table.contains(row), "{table}");
    }
    server.says(&["queue", "update", "jobs", "--no-max-bytes", "--receive-wait", "0"]);
    server.says(&["queue", "update", "jobs", "--no-max-publish-per-second", "--no-max-age"]);
    let shown = server.json(&["show", "jobs"]).remove(0);
    let none = [&shown["maxPublishPerSecond"], &shown["maxAgeSeconds"]];
    assert_eq!(none, [&Value::Null, &Value::Null]);
    assert_eq!((&shown["maxBytes"], &shown["receiveWaitSeconds"]), (&Value::Null, &json!(0)));
    assert_eq!(shown["tags"], expected["tags"], "what is not given stays");
    let refused = server.run(&["queue", "update", "jobs", "--receive-wait", "21s"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("--receive-wait"), "{}", text(&refused.stderr));
}
