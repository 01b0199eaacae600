//! `stampede stream`, as a user runs it against a server.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

fn stampede() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stampede"));
    command.env("STAMPEDE_LOG", "warn").env_remove("STAMPEDE_KEY");
    command
}

/// A server that does not outlive its test.
struct Server {
    url: String,
    child: Child,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already ended, perhaps.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start() -> Server {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = stampede();
        command.args(["serve", "--dev", "--shards", "1", "--listen", "127.0.0.1:0", "--data"]);
        command.arg(folder.path()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let lines = stdout.lines().map(|line| line.expect("text"));
        let ready = |line: String| line.strip_prefix("stampede is ready on ").map(str::to_owned);
        let url = lines.into_iter().find_map(ready).expect("it is ready");
        Server { url, child, _folder: folder }
    }

    fn fed(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = stampede();
        command.env("STAMPEDE_SERVER", &self.url).arg("stream").args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        // It may not read.
        let _ = child.stdin.take().expect("piped").write_all(input);
        child.wait_with_output().expect("it ends")
    }

    /// What it prints; it must succeed.
    #[track_caller]
    fn says(&self, arguments: &[&str]) -> String {
        let output = self.fed(arguments, b"");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        String::from_utf8(output.stdout).expect("text")
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let said = self.says(&[&["--json"], arguments].concat());
        said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

#[test]
fn streams_are_used_by_hand_and_by_scripts() {
    let server = Server::start();
    let made = server.says(&["create", "clicks", "--partitions", "2", "--retention", "1d"]);
    assert!(made.starts_with("clicks was made, as s_"), "{made}");
    let again = server.says(&["create", "clicks", "--partitions", "2", "--retention", "1d"]);
    assert!(again.starts_with("clicks was there before, as s_"), "{again}");
    server.json(&["create", "kept", "--retention", "forever", "--retention-bytes", "1000"]);
    let table = server.says(&["ls"]);
    assert_eq!(
        table,
        "NAME    PARTITIONS  GROUPS  RETENTION  KEEP BYTES\n\
         clicks           2       0     86400s           -\n\
         kept             1       0          -        1000\n"
    );
    assert_eq!(server.json(&["ls", "k"])[0]["retentionSeconds"], Value::Null);

    let placed = server.json(&["append", "clicks", r#"{"n": 1.50}"#, "--record-key", "ann"]);
    let partition = placed[0]["partition"].to_string();
    let output = server.fed(&["append", "clicks", "-k", "ann"], b"one\n\ntwo\n");
    let said = String::from_utf8(output.stdout).expect("text");
    assert_eq!(said, format!("partition {partition} offset 1\npartition {partition} offset 2\n"));
    let read = server.says(&["read", "clicks", "-p", &partition]);
    assert!(read.starts_with("PARTITION  OFFSET  TIMESTAMP "), "{read}");
    assert!(read.contains(r#"ann  {"n": 1.50}"#), "{read}");
    let read = server.json(&["read", "clicks", "-p", &partition, "--offset", "1", "-n", "1"]);
    assert_eq!((read.len(), &read[0]["value"]), (1, &json!("one")));

    // Wherever they are.
    assert_eq!(server.json(&["read", "clicks"]).len(), 3);
    assert_eq!(server.json(&["read", "clicks", "-n", "2"]).len(), 2);

    let past = server.fed(&["read", "clicks", "-p", &partition, "--offset", "50"], b"");
    let note = format!("stampede: partition {partition} has no offset 50 yet, its next is 3\n");
    assert_eq!(String::from_utf8_lossy(&past.stderr), note);
    assert!(past.status.success());
    let past = server.fed(&["read", "clicks", "--offset", "50"], b"");
    let note = "stampede: 2 of 2 partitions that were read have no offset 50 yet\n";
    assert_eq!(String::from_utf8_lossy(&past.stderr), note, "once");
    let past = server.fed(&["read", "clicks", "--offset", "2"], b"");
    let note = "stampede: 1 of 2 partitions that were read have no offset 2 yet\n";
    assert_eq!(String::from_utf8_lossy(&past.stderr), note);

    let shown = server.says(&["show", "clicks"]);
    assert!(shown.starts_with("name        clicks\nid          s_"), "{shown}");
    assert!(shown.contains("records     3\n"), "{shown}");
    assert!(shown.contains("PARTITION  FIRST  NEXT\n"), "{shown}");
    assert!(shown.contains(&format!("        {partition}      0     3\n")), "{shown}");
    let shown = &server.json(&["show", "clicks"])[0];
    assert_eq!((&shown["records"], &shown["partitions"]), (&json!(3), &json!(2)));
    let mut ends = [0, 1].map(|n| (json!(n), json!(0), json!(0)));
    ends[partition.parse::<usize>().expect("a number")].2 = json!(3);
    let [first, second] = [0, 1].map(|n| &shown["perPartition"][n]);
    let ends_of = |p: &Value| (p["partition"].clone(), p["start"].clone(), p["end"].clone());
    assert_eq!([first, second].map(ends_of), ends);
    assert_eq!(shown["perPartition"].as_array().map(Vec::len), Some(2));

    let sought = server.json(&["seek", "clicks", "report", "earliest"]);
    let epoch = sought[0]["epoch"].to_string();
    let groups = server.says(&["groups", "clicks"]);
    let width = epoch.len();
    assert_eq!(
        groups,
        format!("GROUP   {:>width$}  MEMBERS  LAG\nreport  {epoch}        0    3\n", "EPOCH")
    );
    let to = format!("{partition}=2");
    let sought = server.says(&["seek", "clicks", "report", &to]);
    assert_eq!(sought, format!("PARTITION  OFFSET\n        {partition}       2\n"));
    let time = read[0]["timestamp"].as_str().expect("a time");
    server.says(&["seek", "clicks", "report", time]);
    assert_eq!(server.json(&["groups", "clicks"])[0]["lag"], 2);
    assert_eq!(server.says(&["delete", "clicks"]), "clicks is gone\n");
    assert_eq!(server.json(&["ls"]).len(), 1);
}

#[test]
fn lines_that_are_all_empty_are_told_so() {
    let server = Server::start();
    server.says(&["create", "kept"]);
    let output = server.fed(&["append", "kept"], b"\n\r\n\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("stdin has no line that is not empty, so nothing was"), "{said}");
}

#[test]
fn lines_that_are_refused_keep_no_others_out() {
    let server = Server::start();
    server.says(&["create", "kept"]);
    let mut input = b"one\n\xff\n".to_vec();
    input.extend(format!("{}\r\n \n{{\"n\": 1}}", "x".repeat(2 << 20)).into_bytes());
    let output = server.fed(&["append", "kept"], &input);
    let (said, refused) = (String::from_utf8_lossy(&output.stdout), output.stderr);
    let offsets: Vec<_> = (0..3).map(|n| format!("partition 0 offset {n}\n")).collect();
    assert_eq!(said, offsets.concat());
    let refused = String::from_utf8_lossy(&refused);
    assert_eq!(output.status.code(), Some(1), "{refused}");
    let lines: Vec<_> = refused.lines().collect();
    assert_eq!(lines[0], "stampede: line 2: it is not text, which is UTF-8");
    assert!(lines.len() == 2 && lines[1].starts_with("stampede: line 3: "), "{refused}");
    let values: Vec<_> =
        server.json(&["read", "kept"]).iter().map(|record| record["value"].clone()).collect();
    assert_eq!(values, [json!("one"), json!(" "), json!({"n": 1})]);
}

#[test]
fn mistakes_are_told_in_one_line() {
    let server = Server::start();
    server.says(&["create", "kept"]);
    for (arguments, code, what) in [
        (&["read", "none"][..], 1, "there is no stream `none`"),
        (&["append", "none", "x"], 1, "there is no stream `none`"),
        (&["delete", "none"], 1, "there is no stream `none`"),
        (&["create", "a b"], 1, "name"),
        (&["create", "s", "--partitions", "2000"], 2, "a whole number from 1 to 1024"),
        (&["create", "s", "--partitions", "0"], 2, "'--partitions <N>': it must be a whole number"),
        (&["create", "s", "--retention", "soon"], 2, "2h or 1d; forever keeps them all"),
        (&["create", "s", "--retention", "-5s"], 2, "it must not be less than 0"),
        (&["create", "s", "--retention", "9999d"], 1, "--retention: it must be from 1s to 3650d"),
        (&["create", "s", "--retention-bytes", "-1"], 2, "a whole number, 1 or more"),
        (&["read", "s", "-n", "5000"], 2, "a whole number from 1 to 1000"),
        (&["append", "kept"], 2, "stdin is empty, so nothing was appended"),
        (
            &["create", "kept", "--partitions", "2", "--retention", "5d", "--retention-bytes", "5"],
            1,
            "with other settings: --partitions, --retention, --retention-bytes (409",
        ),
        (&["seek", "none", "g", "0="], 2, "0=5,1=7"),
        (&["seek", "none", "g", "5"], 2, "earliest, latest, a time"),
        (&["seek", "none"], 2, "GROUP"),
    ] {
        let output = server.fed(arguments, b"");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.lines().count() == 1 && stderr.contains(what), "{arguments:?}: {stderr}");
    }
}
