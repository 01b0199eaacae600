//! Clients of AWS SQS as people have them, against the real server with keys and signatures.
//!
//! `cargo xtask test` installs them under `target/test-clients`, from the pins in `clients/`, where
//! the scripts are too.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Server, folder, text};

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");
/// Present ones speak AWS JSON, old ones the query protocol.
const PYTHONS: [&str; 2] = ["venv", "venv-old"];

fn installed(path: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-clients");
    let path = root.join(path);
    assert!(path.exists(), "{} is not there: `cargo xtask test` installs it", path.display());
    path
}

/// A program that is ended when it takes too long, without anything of whoever runs this.
fn program(path: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after", "5", "240"]).arg(path).current_dir(SCRIPTS);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.envs([("AWS_CONFIG_FILE", "/dev/null"), ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")]);
    command.envs([("NO_PROXY", "127.0.0.1"), ("no_proxy", "127.0.0.1")]);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn python(venv: &str, script: &str) -> Command {
    let mut command = program(&installed(&format!("{venv}/bin/python")));
    command.arg(script);
    command
}

/// A server that a script can be pointed at.
struct Target {
    server: Server,
    url: String,
    key: String,
    data: tempfile::TempDir,
}

impl Target {
    fn start() -> Target {
        let data = folder();
        let server = Server::start(data.path(), &[]);
        let url = format!("http://{}", server.address);
        let key = server.admin_key.clone().expect("the first start prints a key");
        Target { server, url, key, data }
    }

    /// Runs a script to its end, which must be a good one.
    fn run(&self, command: &mut Command) {
        let output = command.output().expect("it runs");
        let (shown, said) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{}\n{shown}\n{said}", output.status);
    }
}

fn boto3(script: &str) {
    for venv in PYTHONS {
        let target = Target::start();
        target.run(python(venv, script).args([&target.url, &target.key]));
    }
}

#[test]
#[ignore = "needs clients that cargo xtask test installs"]
fn boto3_makes_changes_lists_and_removes_queues() {
    boto3("boto_queues.py");
}

#[test]
#[ignore = "needs clients that cargo xtask test installs"]
fn boto3_sends_receives_and_deletes_messages() {
    boto3("boto_messages.py");
}

#[test]
#[ignore = "needs clients that cargo xtask test installs"]
fn boto3_has_fifo_queues() {
    boto3("boto_fifo.py");
}

#[test]
#[ignore = "needs clients that cargo xtask test installs"]
fn boto3_is_told_what_is_wrong() {
    boto3("boto_errors.py");
}

#[test]
#[ignore = "needs clients that cargo xtask test installs"]
fn aws_cli_works_by_hand() {
    let target = Target::start();
    let mut command = program(Path::new("sh"));
    command.args(["cli.sh", &target.url]);
    command.env("AWS", installed("venv/bin/aws"));
    command.envs([("AWS_ACCESS_KEY_ID", &target.key), ("AWS_SECRET_ACCESS_KEY", &target.key)]);
    target.run(&mut command);
}

#[test]
#[ignore = "needs clients that cargo xtask test installs"]
fn celery_worker_does_tasks_and_stops_in_order() {
    let target = Target::start();
    let results = folder();
    let mut command = python("venv", "celery_run.py");
    target.run(command.args([&target.url, &target.key]).arg(results.path()));
}

#[test]
#[ignore = "needs clients that cargo xtask test installs"]
fn sqs_consumer_takes_messages_and_tries_again() {
    let target = Target::start();
    // Modules are looked for beside the script.
    let script = installed("node").join("consumer.mjs");
    std::fs::copy(Path::new(SCRIPTS).join("consumer.mjs"), &script).expect("copied");
    let mut command = program(Path::new("node"));
    target.run(command.arg(script).args([&target.url, &target.key]));
}

#[test]
#[ignore = "needs clients that cargo xtask test installs"]
fn what_clients_were_answered_outlives_kill_9() {
    const KILLS: usize = 6;
    let mut target = Target::start();
    let mut command = python("venv", "kill9.py");
    command.args([&target.url, &target.key]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut clients = command.spawn().expect("it runs");
    let mut lines = BufReader::new(clients.stdout.take().expect("piped")).lines();
    // Each line says that some more has been done since the last.
    for _ in 0..KILLS {
        let line = lines.next().expect("the clients go on").expect("text");
        assert!(line.starts_with("done "), "{line}");
        let address = target.server.address.clone();
        drop(target.server); // SIGKILL
        target.server = Server::start_at(&address, target.data.path(), &[], &[]);
    }
    let mut stdin = clients.stdin.take().expect("piped");
    stdin.write_all(b"end\n").expect("it reads");
    let rest: Vec<String> = lines.map(|line| line.expect("text")).collect();
    let status = clients.wait().expect("it ends");
    assert!(status.success(), "{status}: {}", rest.join("\n"));
}
