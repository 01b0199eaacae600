//! What becomes of commands whose output nobody reads.

use super::*;

/// The end of a pipe that nobody reads.
fn unread() -> Stdio {
    let (_reader, writer) = std::io::pipe().expect("a pipe");
    writer.into()
}

fn full() -> Stdio {
    std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it").into()
}

#[test]
fn lines_are_sent_to_the_last_though_nobody_reads_what_came_of_them() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs"]);
    let file = server.folder.path().join("lines");
    std::fs::write(&file, "x\n".repeat(1234)).expect("written");
    let file = file.to_str().expect("UTF-8");
    for (stdout, code, sent) in [(unread(), 0, 1234), (full(), 1, 2468)] {
        let mut send = server.command(&["queue", "--json", "send", "jobs", "--lines"]);
        let output = send.args(["--file", file]).stdout(stdout).output().expect("it runs");
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr).contains("could not all be printed"), code == 1);
        assert_eq!(server.counts("jobs"), [sent, 0, 0]);
    }
    let mut look = server.command(&["queue", "peek", "jobs"]);
    let looked = look.stdout(unread()).status().expect("it runs");
    assert_eq!(looked.code(), Some(0), "who looks may have had enough");
}

#[test]
fn what_is_not_printed_is_not_acked() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs"]);
    server.says(&["queue", "send", "jobs", "x"]);
    let mut receive = server.command(&["queue", "receive", "jobs", "--ack"]);
    let output = receive.stdout(unread()).output().expect("it runs");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("stampede: not acked, because it cannot be printed: "), "{said}");
    assert_eq!(server.counts("jobs"), [0, 0, 1], "it comes back");
}

#[test]
fn a_redrive_is_followed_to_its_end_though_nobody_reads_how_far_it_is() {
    let server = Server::start();
    for queue in ["dead", "jobs"] {
        server.says(&["queue", "create", queue]);
    }
    server.fed(&["queue", "send", "dead", "--lines"], b"1\n2\n3\n");
    let mut redrive = server.command(&["queue", "--json", "redrive", "dead", "--to", "jobs"]);
    let output = redrive.args(["--rate", "1"]).stdout(unread()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(server.counts("jobs"), [3, 0, 0]);
}

#[test]
fn mistakes_have_their_exit_code_where_nobody_reads_what_they_are() {
    for (arguments, code) in [(&["queue", "sned"][..], 2), (&["queue", "ls", "--server", "X"], 2)] {
        let mut command = stampede("http://127.0.0.1:1");
        let status = command.args(arguments).stderr(unread()).status().expect("it runs");
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn messages_that_are_taken_for_good_are_shown_whole() {
    let server = Server::start();
    server.says(&["queue", "create", "jobs"]);
    let body = format!("{}\u{9b}2J end", "0123456789".repeat(50));
    server.says(&["queue", "send", "jobs", &body]);
    let looked = server.says(&["queue", "peek", "jobs"]);
    assert!(looked.contains('…') && !looked.contains("end"), "{looked}");
    let taken = server.says(&["queue", "receive", "jobs", "--ack"]);
    assert!(taken.ends_with("0123456789\\u{9b}2J end\"\n") && !taken.contains('…'), "{taken}");
    assert_eq!(server.counts("jobs"), [0, 0, 0]);
}

#[test]
fn lines_whose_request_fails_are_named_with_how_many_were_sent_before() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    // Takes the first request, and is gone.
    let stub = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let asked = request(&mut stream);
        let body = asked.split_once("\r\n\r\n").expect("a body").1;
        let body: Value = serde_json::from_str(body).expect("JSON");
        let count = body["messages"].as_array().expect("messages").len();
        let one = |n| json!({"index": n, "messageId": "m", "sequence": n});
        let answer = json!({"results": (0..count).map(one).collect::<Vec<_>>()}).to_string();
        drop(listener);
        let head =
            format!("HTTP/1.1 200 x\r\nconnection: close\r\ncontent-length: {}", answer.len());
        stream.write_all(format!("{head}\r\n\r\n{answer}").as_bytes()).expect("it reads");
        count
    });
    let mut send = stampede(&url);
    send.args(["queue", "send", "jobs", "--lines"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = send.spawn().expect("it runs");
    // More than one request takes; it may be gone before it has read them all.
    let _ = child.stdin.take().expect("piped").write_all("x\n".repeat(1200).as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let count = stub.join().expect("a request");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with(&format!("stampede: lines {} to ", count + 1)), "{said}");
    assert!(said.contains(&format!(", after {count} were sent: cannot reach {url}")), "{said}");
}
