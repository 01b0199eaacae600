//! PostgreSQL: a table as a queue, with `SKIP LOCKED`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::child::{self, Child, User};
use super::peer::{Consumer, Later, NotInstalled, Peer, Producer, Received, Subject};
use super::pgwire::Session;
use crate::proc::Setup;
use crate::server::free_address;

pub(crate) const SUBJECT: Subject = Subject {
    name: "postgres",
    usual: true,
    peer: true,
    settings: "fsync on, synchronous_commit on, shared_buffers 512MB, max_wal_size 4GB; prepared \
               statements: INSERT of many rows, UPDATE … FOR UPDATE SKIP LOCKED … RETURNING, DELETE; \
               polled every millisecond when empty",
    find,
    start,
};

const VERSIONS: &str = "/usr/lib/postgresql";
/// Whose rights it takes on when the bench runs as root, which it refuses.
const USER: &str = "postgres";
/// There is nothing to wait on in a table.
const POLL: Duration = Duration::from_millis(1);

/// The newest of Debian's versions, or the one on the `PATH`.
fn find(_setup: &Setup) -> Result<Result<PathBuf, NotInstalled>> {
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let versions = std::fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let newest = versions.map(|entry| entry.path()).filter(|path| version(path).is_some());
    let newest = newest.max_by_key(version).map(|path| path.join("bin/postgres"));
    let found = newest.filter(|path| path.is_file()).or_else(|| child::find("postgres"));
    Ok(found.ok_or(NotInstalled("postgres".to_owned())))
}

struct Postgres {
    addr: SocketAddr,
    version: String,
    _child: Child,
}

fn start(program: &Path, folder: &Path) -> Result<Box<dyn Peer>> {
    let user = match rustix::process::geteuid().is_root() {
        true => Some(User::named(USER)?.with_context(|| format!("there is no user {USER}"))?),
        false => None,
    };
    if let Some(User { id, group }) = user {
        std::os::unix::fs::chown(folder, Some(id), Some(group)).context("a server's folder")?;
    }
    let data = folder.join("data");
    // It may be a link, and its neighbour is not linked.
    let program = program.canonicalize().context("postgres")?;
    let mut initdb = child::command(&program.with_file_name("initdb"), user, Signal::KILL);
    initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "-D"]);
    let output = initdb.arg(&data).current_dir(folder).output().context("initdb")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "initdb: {} {said}", output.status);

    let addr = free_address()?;
    // Asked to quit, so that it takes its other processes along.
    let mut child = Child::start(&program, user, Signal::QUIT, folder, |command| {
        command.arg("-D").arg(&data).args(["-p", &addr.port().to_string(), "-h", "127.0.0.1"]);
        command.arg("-k").arg(folder);
        for setting in
            ["fsync=on", "synchronous_commit=on", "shared_buffers=512MB", "max_wal_size=4GB"]
        {
            command.args(["-c", setting]);
        }
    })?;
    child.wait_until_listening(addr)?;
    let version = child::version(&program, &["--version"]);
    let version = version.split_whitespace().nth(2).unwrap_or(&version).to_owned();
    Ok(Box::new(Postgres { addr, version, _child: child }))
}

struct Conn {
    session: Session,
    batch: String,
}

impl Postgres {
    async fn session(&self) -> Result<Session> {
        let mut waited = Duration::ZERO;
        loop {
            // It listens before it answers.
            match Session::connect(self.addr).await {
                Err(_) if waited < Duration::from_secs(10) => {
                    tokio::time::sleep(POLL * 10).await;
                    waited += POLL * 10;
                }
                done => return done,
            }
        }
    }
}

impl Peer for Postgres {
    fn version(&self) -> String {
        self.version.clone()
    }

    fn create<'a>(&'a self, queue: &'a str) -> Later<'a, ()> {
        Box::pin(async move {
            let mut session = self.session().await?;
            let table = format!(
                "CREATE TABLE {queue} (id bigserial PRIMARY KEY, msg text NOT NULL, \
                 created_at timestamptz NOT NULL DEFAULT now(), picked_at timestamptz, \
                 receipt_handle uuid)"
            );
            session.simple(&table).await?;
            let index = format!("CREATE INDEX ON {queue} (id) WHERE picked_at IS NULL");
            session.simple(&index).await?;
            Ok(())
        })
    }

    fn producer<'a>(&'a self, queue: &'a str, batch: usize) -> Later<'a, Box<dyn Producer>> {
        Box::pin(async move {
            let mut session = self.session().await?;
            let rows: Vec<String> = (1..=batch).map(|number| format!("(${number})")).collect();
            let insert = format!("INSERT INTO {queue} (msg) VALUES {}", rows.join(", "));
            session.prepare("publish", &insert).await?;
            Ok(Box::new(Conn { session, batch: batch.to_string() }) as _)
        })
    }

    fn consumer<'a>(&'a self, queue: &'a str, batch: usize) -> Later<'a, Box<dyn Consumer>> {
        Box::pin(async move {
            let mut session = self.session().await?;
            // A plan made while the table is small is kept when it is large.
            session.simple("SET enable_seqscan = off").await?;
            let receive = format!(
                "WITH picked AS (SELECT id FROM {queue} WHERE picked_at IS NULL ORDER BY id \
                 LIMIT $1::int FOR UPDATE SKIP LOCKED) \
                 UPDATE {queue} q SET picked_at = now(), receipt_handle = gen_random_uuid() \
                 FROM picked WHERE q.id = picked.id RETURNING q.id, q.receipt_handle, q.msg"
            );
            session.prepare("receive", &receive).await?;
            let ack = format!(
                "DELETE FROM {queue} WHERE id = ANY($1::bigint[]) \
                 AND receipt_handle = ANY($2::uuid[])"
            );
            session.prepare("ack", &ack).await?;
            Ok(Box::new(Conn { session, batch: batch.to_string() }) as _)
        })
    }

    fn left<'a>(&'a self, queue: &'a str) -> Later<'a, u64> {
        Box::pin(async move {
            let mut session = self.session().await?;
            let answer = session.simple(&format!("SELECT count(*) FROM {queue}")).await?;
            let count = answer.rows.first().and_then(|row| row.first());
            let count = count.and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
            count.context("a count of rows")
        })
    }
}

impl Producer for Conn {
    fn publish<'a>(&'a mut self, bodies: &'a [String]) -> Later<'a, ()> {
        Box::pin(async move {
            let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
            let count = self.session.run("publish", &bodies).await?.count()?;
            ensure!(count == bodies.len() as u64, "inserted only {count}");
            Ok(())
        })
    }
}

impl Consumer for Conn {
    fn receive(&mut self) -> Later<'_, Vec<Received>> {
        Box::pin(async move {
            let answer = self.session.run("receive", &[&self.batch]).await?;
            if answer.rows.is_empty() {
                tokio::time::sleep(POLL).await;
            }
            answer.rows.iter().map(|row| received(row)).collect()
        })
    }

    fn ack<'a>(&'a mut self, received: &'a [Received]) -> Later<'a, ()> {
        Box::pin(async move {
            let (ids, receipts): (Vec<&str>, Vec<&str>) =
                received.iter().filter_map(|received| received.handle.split_once(' ')).unzip();
            let list = |items: Vec<&str>| format!("{{{}}}", items.join(","));
            let (ids, receipts) = (list(ids), list(receipts));
            let count = self.session.run("ack", &[&ids, &receipts]).await?.count()?;
            ensure!(count == received.len() as u64, "deleted only {count}");
            Ok(())
        })
    }
}

fn received(row: &[Vec<u8>]) -> Result<Received> {
    let [id, receipt, body] = row else { anyhow::bail!("a row of {} columns", row.len()) };
    let text = |bytes| std::str::from_utf8(bytes).context("a column that is not text");
    Received::new(body, format!("{} {}", text(id)?, text(receipt)?))
}
