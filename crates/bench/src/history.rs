//! What clients of a server that is killed know: what they sent, and what was acknowledged.

use std::collections::HashMap;

use anyhow::{Context, Result, bail, ensure};

use crate::http1::Client;

/// How a write ended, as its client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was answered: it must be there, once.
    Acknowledged,
    /// The answer never came: it may be there, once.
    Unknown,
}

/// The writes of one user, in the order in which they were sent, one at a time.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) user: String,
    pub(crate) writes: Vec<(String, Fate)>,
}

/// What an audit of users found, all of it as it should be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) acknowledged: u64,
    /// Of those whose answer never came.
    pub(crate) unknown: u64,
    pub(crate) unknown_there: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.unknown_there += other.unknown_there;
    }
}

fn queries(items: &serde_json::Value) -> Result<Vec<String>> {
    let items = items.as_array().context("items")?;
    items.iter().map(|item| Ok(item["q"].as_str().context("q")?.to_owned())).collect()
}

/// The whole history of a user, oldest first.
fn history(client: &mut Client, user: &str) -> Result<Vec<String>> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        // An odd limit, so that pages end in all kinds of places.
        let path = format!("/v1/users/{user}/searches/history?limit=97{cursor}");
        let page = client.ask("GET", &path, "")?.json(200)?;
        all.extend(queries(&page["items"])?);
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    all.reverse();
    Ok(all)
}

/// Compares what the server has of a user with what was sent.
pub(crate) fn audit(client: &mut Client, sent: &Sent) -> Result<Tally> {
    let found = history(client, &sent.user)?;
    let tally = check(sent, &found).with_context(|| format!("user {}", sent.user))?;
    let path = format!("/v1/users/{}/searches?limit=10", sent.user);
    let list = queries(&client.ask("GET", &path, "")?.json(200)?["items"])?;
    let newest: Vec<String> = found.iter().rev().take(10).cloned().collect();
    ensure!(list == newest, "user {}: the list is {list:?}, the history {newest:?}", sent.user);
    Ok(tally)
}

/// Every query is unique, so the history must be the writes in their order, less some whose
/// answer never came.
fn check(sent: &Sent, found: &[String]) -> Result<Tally> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (place, query) in found.iter().enumerate() {
        if places.insert(query, place).is_some() {
            bail!("{query} is there twice");
        }
    }
    let mut tally = Tally::default();
    let mut last = None;
    for (query, fate) in &sent.writes {
        let place = places.remove(query.as_str());
        match fate {
            Fate::Acknowledged => {
                ensure!(place.is_some(), "{query} was acknowledged and is lost");
                tally.acknowledged += 1;
            }
            Fate::Unknown => {
                tally.unknown += 1;
                tally.unknown_there += u64::from(place.is_some());
            }
        }
        if let Some(place) = place {
            ensure!(last.is_none_or(|last| last < place), "{query} is out of order");
            last = Some(place);
        }
    }
    ensure!(places.is_empty(), "nobody wrote {:?}", places.keys());
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::{Fate, Sent, check};

    fn verdict(writes: &[(&str, Fate)], found: &[&str]) -> bool {
        let writes = writes.iter().map(|(query, fate)| ((*query).to_owned(), *fate)).collect();
        let found: Vec<String> = found.iter().map(|query| (*query).to_owned()).collect();
        check(&Sent { user: "u".into(), writes }, &found).is_ok()
    }

    #[test]
    fn what_was_acknowledged_must_be_there_once_and_in_order() {
        use Fate::{Acknowledged as Yes, Unknown};
        assert!(verdict(&[("a", Yes), ("b", Unknown), ("c", Yes)], &["a", "c"]));
        assert!(verdict(&[("a", Yes), ("b", Unknown), ("c", Yes)], &["a", "b", "c"]));
        assert!(!verdict(&[("a", Yes), ("c", Yes)], &["a"]), "lost");
        assert!(!verdict(&[("a", Yes), ("c", Yes)], &["c", "a"]), "out of order");
        assert!(!verdict(&[("a", Yes)], &["a", "a"]), "twice");
        assert!(!verdict(&[("a", Yes)], &["a", "x"]), "from nowhere");
    }
}
