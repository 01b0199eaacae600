//! As much of HTTP/1.1 as the bench needs: requests as bytes, answers cut at their length, and a
//! small blocking client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// A request as bytes. `headers` are whole lines, each with its end.
pub(crate) fn write_request(
    out: &mut Vec<u8>,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) {
    out.clear();
    // Writing to a vector does not fail.
    let _ = write!(out, "{method} {path} HTTP/1.1\r\nHost: bench\r\n{headers}");
    if method == "POST" || method == "PUT" {
        let length = body.len();
        let _ = write!(out, "Content-Type: application/json\r\nContent-Length: {length}\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body.as_bytes());
}

/// An answer at the front of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The status.
    pub(crate) status: u16,
    /// Bytes before the body.
    pub(crate) head: usize,
    /// Bytes of the body.
    pub(crate) body: usize,
}

/// Reads the head of an answer; `None` while it is not all there.
pub(crate) fn parse_head(bytes: &[u8]) -> Result<Option<Head>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        ensure!(bytes.len() < 64 << 10, "an answer has an endless head");
        return Ok(None);
    };
    let head = &bytes[..end];
    ensure!(head.starts_with(b"HTTP/1.1 ") && head.len() >= 12, "not an answer of HTTP/1.1");
    let status =
        head[9..12].iter().fold(0, |n, digit| n * 10 + u16::from(digit.wrapping_sub(b'0')));
    let mut body = None;
    for line in head.split(|byte| *byte == b'\n').skip(1) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        if line[..colon].eq_ignore_ascii_case(b"content-length") {
            let digits = std::str::from_utf8(&line[colon + 1..]).unwrap_or_default();
            body = Some(digits.trim().parse().context("content-length")?);
        }
    }
    let body = match (status, body) {
        (204 | 304, _) => 0,
        (_, Some(body)) => body,
        (_, None) => bail!("an answer {status} without a length"),
    };
    Ok(Some(Head { status, head: end + 4, body }))
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body, if the status is the one expected.
    pub(crate) fn json(&self, expected: u16) -> Result<Value> {
        let text = String::from_utf8_lossy(&self.body);
        ensure!(self.status == expected, "{} instead of {expected}: {text}", self.status);
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {text}"))
    }
}

/// A connection that asks one thing at a time.
pub(crate) struct Client {
    stream: TcpStream,
    headers: String,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects. `headers` are sent with every request; whole lines.
    pub(crate) fn connect(addr: SocketAddr, headers: &str) -> Result<Client> {
        let stream = TcpStream::connect_timeout(&addr, Duration::from_secs(2))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Client { stream, headers: headers.to_owned(), buffer: Vec::new() })
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<Answer> {
        self.ask_with(method, path, "", body)
    }

    /// Asks with more headers.
    pub(crate) fn ask_with(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> Result<Answer> {
        let mut request = Vec::new();
        let headers = format!("{}{headers}", self.headers);
        write_request(&mut request, method, path, &headers, body);
        self.stream.write_all(&request)?;
        self.buffer.clear();
        let mut chunk = [0; 16 << 10];
        loop {
            if let Some(Head { status, head, body }) = parse_head(&self.buffer)?
                && self.buffer.len() >= head + body
            {
                let body = self.buffer[head..head + body].to_vec();
                return Ok(Answer { status, body });
            }
            let count = self.stream.read(&mut chunk)?;
            ensure!(count > 0, "the server hung up");
            self.buffer.extend_from_slice(&chunk[..count]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Head, parse_head, write_request};

    #[test]
    fn an_answer_is_cut_at_its_length() {
        let bytes = b"HTTP/1.1 201 Created\r\nContent-LENGTH:  3\r\nx: y\r\n\r\nabcdef";
        let head = parse_head(bytes).unwrap().unwrap();
        assert_eq!(head, Head { status: 201, head: bytes.len() - 6, body: 3 });
        assert_eq!(parse_head(&bytes[..20]).unwrap(), None);
        assert!(parse_head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert_eq!(parse_head(b"HTTP/1.1 204 No\r\n\r\n").unwrap().unwrap().body, 0);
    }

    #[test]
    fn a_body_goes_with_its_length() {
        let mut out = Vec::new();
        write_request(&mut out, "POST", "/a", "X-User: u\r\n", "{}");
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("Content-Length: 2\r\n\r\n{}"), "{text}");
    }
}
