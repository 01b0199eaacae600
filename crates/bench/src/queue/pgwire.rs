//! As much of PostgreSQL's protocol as the bench needs: statements that are prepared once.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};

use super::wire::Wire;

/// Version 3.0.
const PROTOCOL: u32 = 196_608;

/// Rows, and the words at the end of a statement, as `DELETE 10`.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) rows: Vec<Vec<Vec<u8>>>,
    pub(crate) done: String,
}

impl Answer {
    /// How many rows it was about.
    pub(crate) fn count(&self) -> Result<u64> {
        let last = self.done.rsplit(' ').next().and_then(|last| last.parse().ok());
        last.with_context(|| format!("no count in {}", self.done))
    }
}

/// A session.
pub(crate) struct Session {
    wire: Wire,
    out: Vec<u8>,
}

/// Appends a message: its letter, its length, its contents.
fn message(out: &mut Vec<u8>, letter: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    if letter != 0 {
        out.push(letter);
    }
    let at = out.len();
    out.extend([0; 4]);
    fill(out);
    let length = u32::try_from(out.len() - at).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

fn length(out: &mut Vec<u8>, length: usize) {
    out.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

impl Session {
    pub(crate) async fn connect(addr: SocketAddr) -> Result<Session> {
        let mut session = Session { wire: Wire::connect(addr).await?, out: Vec::new() };
        message(&mut session.out, 0, |out| {
            out.extend(PROTOCOL.to_be_bytes());
            for word in ["user", "postgres", "database", "postgres", ""] {
                text(out, word);
            }
        });
        session.answer().await.context("cannot log in")?;
        Ok(session)
    }

    /// Statements without parameters.
    pub(crate) async fn simple(&mut self, sql: &str) -> Result<Answer> {
        message(&mut self.out, b'Q', |out| text(out, sql));
        self.answer().await.with_context(|| sql.to_owned())
    }

    /// Names a statement.
    pub(crate) async fn prepare(&mut self, name: &str, sql: &str) -> Result<()> {
        message(&mut self.out, b'P', |out| {
            text(out, name);
            text(out, sql);
            out.extend([0, 0]);
        });
        message(&mut self.out, b'S', |_| {});
        self.answer().await.with_context(|| sql.to_owned())?;
        Ok(())
    }

    /// Runs a prepared statement, all of it in one write. Parameters are text.
    pub(crate) async fn run(&mut self, name: &str, parameters: &[&str]) -> Result<Answer> {
        message(&mut self.out, b'B', |out| {
            text(out, ""); // the portal
            text(out, name);
            out.extend([0, 0]); // all parameters are text
            out.extend(u16::try_from(parameters.len()).unwrap_or(u16::MAX).to_be_bytes());
            for parameter in parameters {
                length(out, parameter.len());
                out.extend_from_slice(parameter.as_bytes());
            }
            out.extend([0, 0]); // so are all columns
        });
        message(&mut self.out, b'E', |out| out.extend([0; 5]));
        message(&mut self.out, b'S', |_| {});
        self.answer().await.with_context(|| format!("statement {name}"))
    }

    /// Sends what is to be sent, and reads until the server is ready again.
    async fn answer(&mut self) -> Result<Answer> {
        self.wire.send(&self.out).await?;
        self.out.clear();
        let mut answer = Answer::default();
        let mut refused = None;
        loop {
            let head = self.wire.take(5).await?;
            let (letter, length) = (head[0], number(&head[1..]));
            let body = self.wire.take(length.saturating_sub(4)).await?;
            match letter {
                b'D' => answer.rows.push(row(body)?),
                b'C' => {
                    let words = body.strip_suffix(&[0]).unwrap_or(body);
                    answer.done = String::from_utf8_lossy(words).into_owned();
                }
                b'E' => refused = Some(String::from_utf8_lossy(body).replace('\0', " ")),
                b'R' if number(body) != 0 => bail!("the server asks for a password"),
                b'Z' => break,
                // Parameters, notices, a statement parsed or bound.
                _ => {}
            }
        }
        match refused {
            Some(error) => bail!("refused: {error}"),
            None => Ok(answer),
        }
    }
}

fn row(mut body: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut columns = Vec::new();
    let (count, rest) = body.split_at_checked(2).context("a short row")?;
    body = rest;
    for _ in 0..number(count) {
        let (length, rest) = body.split_at_checked(4).context("a short row")?;
        let length = if length == [0xff; 4] { 0 } else { number(length) };
        let (column, rest) = rest.split_at_checked(length).context("a short row")?;
        columns.push(column.to_vec());
        body = rest;
    }
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use super::{Answer, message, row, text};

    #[test]
    fn a_message_counts_itself() {
        let mut out = Vec::new();
        message(&mut out, b'Q', |out| text(out, "ab"));
        assert_eq!(out, b"Q\0\0\0\x07ab\0");
    }

    #[test]
    fn a_row_is_its_columns() {
        let bytes = b"\0\x02\0\0\0\x01a\xff\xff\xff\xff";
        assert_eq!(row(bytes).unwrap(), [b"a".to_vec(), Vec::new()]);
        assert!(row(&bytes[..5]).is_err());
    }

    #[test]
    fn a_statement_says_how_many_rows() {
        let answer = Answer { rows: Vec::new(), done: "INSERT 0 10".to_owned() };
        assert_eq!(answer.count().unwrap(), 10);
    }
}
