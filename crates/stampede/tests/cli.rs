//! The binary as a user runs it.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};

use common::{Server, folder, stampede, text};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

impl Server {
    /// One request on a connection of its own; the status and the body.
    fn call(&self, method: &str, path: &str, key: Option<&str>, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let key = key.map_or(String::new(), |key| format!("Authorization: Bearer {key}\r\n"));
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{key}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status, body.to_owned())
    }

    fn search(&self, user: &str, query: &str) {
        let body = format!("{{\"q\":\"{query}\"}}");
        let (status, answer) =
            self.call("POST", &format!("/v1/users/{user}/searches"), None, &body);
        assert_eq!(status, 201, "{answer}");
    }

    fn list(&self, user: &str) -> String {
        self.call("GET", &format!("/v1/users/{user}/searches"), None, "").1
    }

    fn terminate(mut self) -> bool {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it is there");
        self.child.wait().expect("it ends").success()
    }
}

fn run(args: &[&str]) -> Output {
    stampede().args(args).output().expect("the binary runs")
}

fn path(dir: &TempDir) -> &str {
    dir.path().to_str().expect("UTF-8")
}

#[test]
fn tour_of_the_readme_shows_what_it_says() {
    let readme = include_str!("../../../README.md");
    let tour = readme.split("## Five minutes with curl").nth(1).expect("the tour is there");
    let tour = tour.split("\n## ").next().expect("it ends");
    let script: Vec<&str> = tour
        .split("```")
        .skip(1)
        .step_by(2)
        .map(|block| block.trim_start_matches("sh\n"))
        .collect();
    assert_eq!(script.len(), 3, "three blocks of shell");
    let dir = folder();
    let server = Server::start(dir.path(), &["--dev"]);
    let script = script
        .join("\n")
        .replace("S=http://127.0.0.1:7700", &format!("S=http://{}", server.address));
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut bash = Command::new("bash");
    let output = bash.args(["-euc", &script]).current_dir(root).output().expect("bash is there");
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}{}", text(&output.stderr));
    for expected in [
        "\"ready\":true",
        "{\"items\":[{\"q\":\"FLIGHTS to  paris\"",
        "\"nextCursor\"",
        "\"receiveCount\":1,\"sequence\":1",
        "\"body\":{\"send\": \"mail\"}",
        "\"inflight\":1",
        "\"body\":\"# Stampede",
        "\"type\":\"invalid-body\"",
        "unknown field `query`, expected `q`",
    ] {
        assert!(shown.contains(expected), "{expected} is not in {shown}");
    }
    let (status, list) = server.call("GET", "/v1/users/ann/searches", None, "");
    assert_eq!((status, list.as_str()), (200, "{\"items\":[]}"), "the tour ends with forgetting");
}

/// The examples of the documentation, by operation, as a reader sees them.
fn documented(page: &str) -> Vec<(String, String)> {
    let articles = page.split("<article id=\"").skip(1);
    let example = |article: &str| {
        let operation = article.split('"').next().expect("an id").to_owned();
        let code = article.split("<pre><code>curl").nth(1).expect("an example");
        let code = code.split("</code>").next().expect("it ends");
        let code = code.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">");
        (operation, format!("curl{}", code.replace("&amp;", "&")))
    };
    articles.map(example).collect()
}

#[test]
fn examples_of_the_documentation_run_as_they_stand() {
    let dir = folder();
    let server = Server::start(dir.path(), &["--dev", "--shards", "1"]);
    let examples = documented(&server.call("GET", "/docs", None, "").1);
    assert!(examples.len() > 50, "{}", examples.len());
    let shell = |script: &str, variables: &[(&str, &str)]| {
        let mut sh = Command::new("sh");
        sh.args(["-c", &format!("{script} -s -w '\\n%{{http_code}}'")]);
        sh.env("STAMPEDE", &server.address).env_remove("KEY").envs(variables.iter().copied());
        let said = text(&sh.output().expect("sh is there").stdout);
        let (body, status) = said.rsplit_once('\n').expect("a status");
        (status.parse::<u16>().unwrap_or(0), body.to_owned())
    };
    let run = |operation: &str| {
        let (_, script) = examples.iter().find(|(name, _)| name == operation).expect("documented");
        shell(script, &[])
    };
    // What an answer of this operation holds under this name.
    let answered = |operation: &str, name: &str| {
        let (status, body) = run(operation);
        assert!(status < 300, "{operation}: {status} {body}");
        let after = body.split(&format!("\"{name}\":\"")).nth(1).expect("it is in the answer");
        after.split('"').next().expect("it ends").to_owned()
    };
    for (operation, script) in &examples {
        // Each finds what the first examples of its system have made, and no leftovers.
        for before in ["queues.delete", "queues.create", "topics.delete", "topics.create"] {
            run(before);
        }
        for before in ["topics.subscribe", "curl.put", "recents.add"] {
            run(before);
        }
        if operation.starts_with("streams.") || operation.starts_with("groups.") {
            for before in ["streams.delete", "streams.create", "streams.append", "groups.fetch"] {
                run(before);
            }
        }
        if operation == "groups.delete" {
            run("groups.leave");
        }
        let mut variables = Vec::new();
        for (variable, from, name) in [
            ("RECEIPT_HANDLE", "curl.get", "receiptHandle"),
            ("REDRIVE_ID", "redrives.start", "redriveId"),
            ("KEY_ID", "keys.create", "keyId"),
        ] {
            if script.contains(&format!("${variable}")) {
                variables.push((variable, answered(from, name)));
            }
        }
        // Deleted by its own example, perhaps, which is not the last of its system.
        run("tenants.create");
        run("tenants.setShopperKeys");
        if operation == "tenants.create" {
            run("tenants.delete");
        }
        let variables: Vec<_> = variables.iter().map(|(name, v)| (*name, v.as_str())).collect();
        let (status, body) = shell(script, &variables);
        assert!((200..300).contains(&status), "{operation}: {status} {body}\n{script}");
    }
}

#[test]
fn writes_survive_kill_and_the_key_of_the_first_start_opens_the_second() {
    let dir = folder();
    let server = Server::start(dir.path(), &[]);
    let key = server.admin_key.clone().expect("the first start prints a key");
    let (status, _) = server.call("GET", "/v1/users/ann/searches", None, "");
    assert_eq!(status, 401, "no key, no answer");
    let body = "{\"q\":\"rome\"}";
    let (status, _) = server.call("POST", "/v1/users/ann/searches", Some(&key), body);
    assert_eq!(status, 201);
    drop(server); // SIGKILL
    let server = Server::start(dir.path(), &[]);
    assert_eq!(server.admin_key, None, "it is shown once");
    let (_, list) = server.call("GET", "/v1/users/ann/searches", Some(&key), "");
    assert!(list.contains("rome"), "{list}");
}

#[test]
fn termination_is_graceful_and_leaves_nothing_to_replay() {
    let dir = folder();
    let server = Server::start(dir.path(), &["--dev", "--shards", "1"]);
    for n in 0..20 {
        server.search("ann", &format!("query {n}"));
    }
    assert!(server.terminate());
    let server = Server::start(dir.path(), &["--dev"]);
    assert!(server.list("ann").contains("query 19"));
    let check = run(&["check", path(&dir)]);
    assert!(text(&check.stdout).contains("in use"), "{}", text(&check.stdout));
}

#[test]
fn check_and_dump_read_a_folder_and_name_the_damage() {
    let dir = folder();
    let server = Server::start(dir.path(), &["--dev", "--shards", "1"]);
    for n in 0..50 {
        server.search("ann", &format!("query {n}"));
    }
    drop(server); // SIGKILL: the entries are still in the log
    let check = run(&["check", path(&dir)]);
    let shown = text(&check.stdout);
    assert!(check.status.success() && shown.ends_with("sound\n"), "{shown}");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let unread = stampede().args(["check", path(&dir)]).stdout(writer).output().expect("it runs");
    assert!(unread.status.success(), "nobody reads it: {}", text(&unread.stderr));
    let dump = text(&run(&["dump", path(&dir)]).stdout);
    assert!(dump.lines().count() > 50, "an entry a line");
    assert!(dump.contains("query 7") && dump.contains("\"machine\":\"recents\""), "{dump}");
    assert_eq!(text(&run(&["dump", path(&dir), "--shard", "0"]).stdout), dump);
    let lost = run(&["dump", path(&dir), "--shard", "9"]);
    assert_eq!(lost.status.code(), Some(2));
    let said = text(&lost.stderr);
    assert!(said.starts_with("stampede: --shard 9: only shard 0 is in "), "{said}");
    let below = run(&["dump", path(&dir), "--from", "-1"]);
    assert!(text(&below.stderr).contains("a whole number, 0 or more"), "{}", text(&below.stderr));
    let line = dump.lines().find(|line| line.contains("query 7\"") || line.contains("query 7\\\""));
    let entry: serde_json::Value = serde_json::from_str(line.expect("it is there")).expect("JSON");
    let file = dir.path().join("shard-00/log").join(entry["file"].as_str().expect("a file"));
    let mut bytes = std::fs::read(&file).expect("the segment");
    let offset = usize::try_from(entry["offset"].as_u64().expect("a number")).expect("small");
    bytes[offset + 60] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    let check = run(&["check", path(&dir)]);
    let shown = text(&check.stdout);
    assert!(!check.status.success(), "{shown}");
    assert!(shown.contains("CORRUPT") && shown.contains(&format!("offset {offset}")), "{shown}");
    let serve = run(&["serve", "--dev", "--listen", "127.0.0.1:0", "--data", path(&dir)]);
    let said = text(&serve.stderr);
    assert!(!serve.status.success() && said.contains(&format!("offset {offset}")), "{said}");
}

#[test]
fn check_holds_rows_against_the_log() {
    let dir = folder();
    let server = Server::start(dir.path(), &["--dev", "--shards", "1"]);
    for n in 0..20 {
        server.search("ann", &format!("query {n}"));
    }
    assert!(server.terminate());
    let check = run(&["check", path(&dir)]);
    assert!(check.status.success(), "{}", text(&check.stdout));
    let log = dir.path().join("shard-00/log");
    for entry in std::fs::read_dir(&log).expect("a folder") {
        std::fs::remove_file(entry.expect("it can be read").path()).expect("removed");
    }
    let check = run(&["check", path(&dir)]);
    let shown = text(&check.stdout);
    assert!(!check.status.success() && shown.contains("do not fit the log"), "{shown}");
}

#[test]
fn start_that_fails_does_not_use_up_the_admin_key() {
    let dir = folder();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let failed = run(&["serve", "--data", path(&dir), "--listen", &address]);
    assert!(!failed.status.success());
    let server = Server::start(dir.path(), &[]);
    assert!(server.admin_key.is_some(), "the start that works shows it");
}

#[test]
fn folder_that_is_none_is_said_to_be_none() {
    let dir = folder();
    let check = run(&["check", path(&dir)]);
    assert!(!check.status.success());
    assert!(text(&check.stderr).contains("not a data folder"), "{}", text(&check.stderr));
}

#[test]
fn flag_wins_over_variable_and_variable_over_file() {
    let dir = folder();
    let file = dir.path().join("stampede.toml");
    std::fs::write(&file, "recents-keep = 3\nshards = 1\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    let kept = |env: Option<&str>, flag: Option<&str>| {
        let data = folder();
        let mut options = vec!["--dev", "--config", file];
        options.extend(flag.iter().flat_map(|keep| ["--recents-keep", keep]));
        let variables: Vec<_> = env.iter().map(|keep| ("STAMPEDE_RECENTS_KEEP", *keep)).collect();
        let server = Server::start_with(data.path(), &options, &variables);
        for n in 0..6 {
            server.search("ann", &format!("query {n}"));
        }
        server.list("ann").matches("query").count()
    };
    assert_eq!(kept(None, None), 3);
    assert_eq!(kept(Some("4"), None), 4);
    assert_eq!(kept(Some("4"), Some("5")), 5);
}

#[test]
fn a_server_with_no_memory_for_crowds_makes_each_read_anew() {
    let dir = folder();
    let server = Server::start(dir.path(), &["--dev", "--shards", "1", "--views-mib", "0"]);
    for n in 0..3 {
        server.search("ann", &format!("query {n}"));
        assert_eq!(server.list("ann").matches("query").count(), n + 1);
    }
    assert_eq!(server.list("ann"), server.list("ann"));
    let help = text(&run(&["serve", "--help"]).stdout);
    assert!(help.contains("with 0 each read is made anew"), "{help}");
}

#[test]
fn simulator_runs_a_seed_and_says_what_it_did() {
    let output = run(&["sim", "--seed", "7", "--machine", "recents", "--steps", "300"]);
    assert!(output.status.success(), "{}", text(&output.stdout));
    assert!(text(&output.stdout).ends_with("\nseed 7 held\n"), "{}", text(&output.stdout));
    let many = ["sim", "--runs", "3", "--machine", "recents", "--steps", "100"];
    let said = text(&run(&many).stdout);
    assert!(said.ends_with("\nall 3 seeds held\n"), "{said}");
    let unknown = run(&["sim", "--machine", "nothing"]);
    let said = text(&unknown.stderr);
    let machines = said.split("nothing: ").nth(1).and_then(|rest| rest.split(" or all").next());
    let machines = machines.unwrap_or_else(|| panic!("{said}"));
    assert_eq!(machines, "recents, probe, tenants, queue, streams");
    let help = text(&run(&["sim", "--help"]).stdout);
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains(&format!("under test: {machines}, or all")), "{help}");
}
