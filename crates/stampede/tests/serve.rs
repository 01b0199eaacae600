//! What `serve` says to whoever cannot be served: in one line, with what to do and the exit code.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;

use common::{Server, folder, stampede, text};
use rustix::process::{Pid, Signal, kill_process};

/// What the user wrote is wrong.
const WRITTEN: i32 = 2;
/// What the user wrote would do elsewhere, or later.
const MET: i32 = 1;

/// Starts a server that cannot start; what it says.
#[track_caller]
fn refused(data: &Path, options: &[&str], code: i32) -> String {
    let mut command = stampede();
    // As a variable, over which a flag wins.
    command.env("STAMPEDE_LISTEN", "127.0.0.1:0");
    command.args(["serve", "--data"]).arg(data).args(options);
    let output = command.output().expect("the binary runs");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{options:?}: {said}");
    assert!(said.starts_with("stampede: ") && said.ends_with('\n'), "{options:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{options:?}: {said}");
    said
}

#[test]
fn what_is_written_wrong_is_told_by_name_before_anything_is_made() {
    let dir = folder();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let unknown = write("unknown.toml", "shards = 1\nrecent-keep = 3\n");
    let broken = write("broken.toml", "shards = \n");
    let mistyped = write("mistyped.toml", "# Mine\n\nlisten = \"nowhere\"\n");
    let keyless = format!("shop={}", write("keys.json", "{}"));
    let archive = write("archive.toml", "archive = \"file://folder\"\n");
    let shards = write("shards.toml", "shards = 65\n");
    let lost = format!("{unknown}.lost");
    for (options, said) in [
        (&["--dev", "--listen", "0.0.0.0:0"][..], "loopback"),
        (&["--config", &unknown], "unknown.toml, line 2: unknown field `recent-keep`, expected"),
        (&["--config", &broken], "broken.toml, line 1: "),
        (&["--config", &mistyped], "mistyped.toml, line 3: "),
        (&["--config", &lost], "unknown.toml.lost: No such file"),
        (&["--shards", "0"], "--shards"),
        (&["--shards", "some"], "it must be a whole number from 1 to 64"),
        (&["--shards", "100000"], "it must be a whole number from 1 to 64"),
        (&["--views-mib", "-1"], "--views-mib <MIB>': it must be a whole number from 0"),
        (&["--shard", "2"], "--shard"),
        (&["--recents-keep", "0"], "recents-keep"),
        (&["--tls-cert", "x.pem"], "--tls-key"),
        (&["--jwks", "nothing"], "TENANT=FILE"),
        (&["--jwks", "shop=lost.json"], "--jwks shop=lost.json: No such file"),
        (&["--jwks", &keyless], "keys.json: "),
        (&["--archive", "s3://bucket"], "--archive s3://bucket: it is like file:///absolute/path"),
        (&["--archive", "file://folder"], "--archive file://folder: it is like file:///absolute"),
        (&["--config", &archive], "--archive file://folder: it is like file:///absolute/path"),
        (&["--config", &shards], "--shards must be from 1 to 64"),
        (&["--otlp", "ftp://host"], "--otlp ftp://host"),
        (&["--listen", "nowhere"], "nowhere is not like 127.0.0.1:7700"),
        (&["--listen", "127.0.0.1:99999"], "127.0.0.1:99999: ports go up to 65535"),
        (&["--listen", ":7700"], "localhost:7700"),
        (&["--listen", "name.invalid:7700"], "--listen name.invalid:7700: name.invalid has no"),
        (&["--log", "=="], "--log"),
    ] {
        let data = dir.path().join("data");
        let told = refused(&data, options, WRITTEN);
        assert!(told.contains(said), "{options:?}: {told}");
        assert!(!data.exists(), "{options:?} made the folder");
    }
}

fn full() -> std::fs::File {
    std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it")
}

#[test]
fn a_key_that_cannot_be_shown_is_told_with_the_way_out() {
    let dir = folder();
    let mut command = stampede();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(dir.path());
    let output = command.stdout(full()).output().expect("the binary runs");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(MET), "{said}");
    let told = said.lines().last().unwrap_or_default();
    assert!(told.contains("cannot be shown") && told.contains("--dev"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn a_server_whose_log_lines_cannot_be_written_serves_and_ends_as_usual() {
    let dir = folder();
    let mut command = stampede();
    command.args(["serve", "--dev", "--log", "debug", "--listen", "127.0.0.1:0", "--data"]);
    command.arg(dir.path()).stdout(std::process::Stdio::piped()).stderr(full());
    let mut server = command.spawn().expect("the binary runs");
    let mut lines = std::io::BufReader::new(server.stdout.take().expect("asked for")).lines();
    let ready = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("ready")));
    let ready = ready.expect("it is ready").expect("a line");
    let address = ready.rsplit("//").next().expect("an address");
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    stream
        .write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .expect("read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    kill_process(Pid::from_child(&server), Signal::TERM).expect("it is there");
    assert!(server.wait().expect("it ends").success());
}

#[test]
fn certificates_that_cannot_be_used_are_told_before_anything_is_made() {
    let made = || rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("it is made");
    let (one, other) = (made(), made());
    let dir = folder();
    let write = |name: &str, pem: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, pem).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let cert = write("cert.pem", one.cert.pem());
    let key = write("key.pem", one.signing_key.serialize_pem());
    let strange = write("strange.pem", other.signing_key.serialize_pem());
    let lost = format!("{cert}.lost");
    for (cert, key, said) in [
        (&lost, &key, format!("--tls-cert {lost}: ")),
        (&key, &key, format!("--tls-cert {key}: ")),
        (&cert, &lost, format!("--tls-key {lost}: ")),
        (&cert, &cert, format!("--tls-key {cert}: there is no private key in it")),
        (&cert, &strange, format!("--tls-cert {cert} and --tls-key {strange} do not")),
    ] {
        let data = dir.path().join("data");
        let told = refused(&data, &["--tls-cert", cert, "--tls-key", key], WRITTEN);
        assert!(told.contains(&said), "{said}: {told}");
        assert!(!data.exists(), "the folder was made: {told}");
    }
}

#[test]
fn exit_codes_are_in_the_help() {
    let output = stampede().args(["serve", "--help"]).output().expect("the binary runs");
    let said = text(&output.stdout);
    assert!(said.contains("Exit codes: 0 "), "{said}");
}

#[test]
fn port_that_is_taken_is_told_with_the_flag_for_another() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let dir = folder();
    let data = dir.path().join("data");
    let told = refused(&data, &["--listen", &address], MET);
    assert!(told.contains(&address) && told.contains("in use"), "{told}");
    assert!(told.contains("--listen"), "{told}");
    assert!(!data.exists(), "nothing is made for a server that cannot start");
}

#[test]
fn a_name_is_listened_on_wherever_it_is_written() {
    let dir = folder();
    let file = dir.path().join("stampede.toml");
    std::fs::write(&file, "listen = \"localhost:0\"\nshards = 1\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    for (options, variable) in [
        (&["--listen", "localhost:0"][..], ""),
        (&[], "localhost:0"),
        // What is empty is not set.
        (&["--config", file], ""),
    ] {
        let data = folder();
        let mut command = stampede();
        command.env("STAMPEDE_LISTEN", variable).env("STAMPEDE_SHARDS", "");
        command.args(["serve", "--dev", "--data"]).arg(data.path()).args(options);
        let server = Server::wait_for(&mut command);
        assert!(server.address.starts_with("127.0.0.1:"), "{options:?}: {}", server.address);
    }
}

#[test]
fn an_empty_variable_that_must_not_be_is_refused() {
    for variable in ["STAMPEDE_DATA", "STAMPEDE_CONFIG", "STAMPEDE_TLS_CERT", "STAMPEDE_TLS_KEY"] {
        let dir = folder();
        let mut command = stampede();
        command.current_dir(dir.path()).env("STAMPEDE_LISTEN", "127.0.0.1:0").env(variable, "");
        let output = command.args(["serve", "--dev"]).output().expect("the binary runs");
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(WRITTEN), "{variable}: {told}");
        // Not its flag, which nobody wrote.
        assert!(
            told.contains(&format!("{variable} is empty")) && !told.contains("a value is required"),
            "{told}"
        );
        assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0, "{variable}");
    }
}

#[test]
fn a_variable_that_makes_no_sense_is_told_by_its_name() {
    let dir = folder();
    let said = |options: &[&str]| {
        let mut command = stampede();
        command.env("STAMPEDE_RECENTS_KEEP", "abc").current_dir(dir.path()).arg("serve");
        let output = command.args(options).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(WRITTEN), "{options:?}");
        text(&output.stderr)
    };
    let (why, see) = ("it must be a whole number from 1 to 1000", "see --help\n");
    let told = format!("stampede: invalid value 'abc' for STAMPEDE_RECENTS_KEEP: {why}; {see}");
    assert_eq!(said(&[]), told);
    let told = format!("stampede: invalid value 'abc' for '--recents-keep <N>': {why}; {see}");
    assert_eq!(said(&["--recents-keep", "abc"]), told);
}

#[test]
fn an_empty_flag_is_told_as_such_and_one_with_a_value_wins_over_an_empty_variable() {
    let dir = folder();
    for flag in [&["--data", ""][..], &["--data="]] {
        let mut command = stampede();
        command.env("STAMPEDE_DATA", "").current_dir(dir.path());
        let output = command.args(["serve", "--dev"]).args(flag).output().expect("the binary runs");
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(WRITTEN), "{told}");
        assert!(told.contains("'--data <DIR>'") && !told.contains("STAMPEDE_DATA"), "{told}");
    }
    Server::start_with(dir.path(), &["--dev"], &[("STAMPEDE_DATA", "")]);
}

#[test]
fn an_admin_key_is_shown_with_a_word_that_none_is_needed_where_that_is_so() {
    for (options, said) in [
        (&["--dev"][..], "admin key, shown this once (with --dev none is needed): sk_"),
        (&[], "admin key, shown this once: sk_"),
    ] {
        let dir = folder();
        let mut command = stampede();
        command.args(["serve", "--shards", "1", "--listen", "127.0.0.1:0", "--data"]);
        command.arg(dir.path()).args(options).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        let read = BufReader::new(stdout).read_line(&mut line);
        child.kill().and_then(|()| child.wait()).expect("it runs");
        assert!(read.is_ok() && line.starts_with(said), "{options:?}: {line}");
    }
}

#[test]
fn folder_of_another_server_is_told_with_the_flag_for_another() {
    let dir = folder();
    let _server = Server::start(dir.path(), &["--dev"]);
    let told = refused(dir.path(), &["--dev"], MET);
    assert!(told.contains(dir.path().to_str().expect("UTF-8")), "{told}");
    assert!(told.contains("in use by another process") && told.contains("--data"), "{told}");
}

#[test]
fn folder_that_cannot_be_written_is_told_with_the_flag_for_another() {
    let dir = folder();
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("written");
    // Where root may not write either.
    for data in [&file, &file.join("below"), Path::new("/proc/stampede")] {
        let told = refused(data, &["--dev"], MET);
        assert!(told.contains(data.to_str().expect("UTF-8")), "{told}");
        assert!(told.contains("--data names another"), "{told}");
    }
}

#[test]
fn other_number_of_shards_than_the_folder_has_is_told_with_both() {
    let dir = folder();
    drop(Server::start(dir.path(), &["--dev", "--shards", "2"]));
    let told = refused(dir.path(), &["--dev", "--shards", "3"], WRITTEN);
    assert!(told.contains("2 shards, not 3: leave --shards out"), "{told}");
}
