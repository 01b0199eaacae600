//! What the simulator must know of a machine: how to make it, what to ask of it, how its effects
//! are carried out, and the plain model it is compared with.

use std::collections::BTreeMap;

use bytes::Bytes;
use kernel::machine::{Effect, Usage};
use kernel::rows::RowsReader;
use kernel::{Index, Machine, MachineId, TenantId, VirtualShard};

use crate::naive::Scene;
use crate::random::Random;

/// What went wrong, in words: expected and actual.
pub type Difference = String;

/// Objects in the simulated archive, by name. It outlives every crash.
pub type Archive = BTreeMap<String, Bytes>;

/// What a shard has published since it was opened, by machine and key.
pub type Views = BTreeMap<(MachineId, Bytes), Option<Bytes>>;

/// A command that a client wants to send.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Where.
    pub to: VirtualShard,
    /// On whose behalf.
    pub tenant: TenantId,
    /// What.
    pub command: Bytes,
}

/// A machine under test. To add one, implement this and [`Model`], and name it in
/// [`Choice`](crate::Choice).
pub trait Subject {
    /// Its number.
    fn id(&self) -> MachineId;

    /// A new machine, as a shard opens with it.
    fn machine(&self) -> Box<dyn Machine>;

    /// The model of a shard in which nothing has happened.
    fn model(&self) -> Box<dyn Model>;

    /// Something that a client might ask.
    fn draft(&mut self, random: &mut Random, now_ms: u64) -> Draft;

    /// Carries an effect out, up to the report: reads rows, changes the archive, and returns the
    /// command to be sent.
    fn perform(
        &mut self,
        effect: &Effect,
        rows: &RowsReader,
        archive: &mut Archive,
        random: &mut Random,
    ) -> Bytes;

    /// The report was answered.
    fn settle(
        &mut self,
        _effect: &Effect,
        _report: &Bytes,
        _reply: &Bytes,
        _rows: &RowsReader,
        _archive: &mut Archive,
    ) {
    }

    /// Whether `later` is not begun while `earlier` is being carried out.
    fn waits(&self, _earlier: &Effect, _later: &Effect) -> bool {
        false
    }
}

/// A machine again, written as plainly as can be.
pub trait Model {
    /// What a command does, and what it answers; [`Model::same_reply`] compares.
    fn apply(&mut self, scene: &mut Scene<'_>, command: &Bytes) -> Result<Bytes, Difference>;

    /// Whether it decides from an entry's time alone what is due, in [`Model::tick`]. Then its
    /// machine sets timers as it likes, and only what comes of them is compared; effects it looks at
    /// by itself, in [`Model::check`].
    fn keeps_time(&self) -> bool {
        false
    }

    /// An entry begins, and timers have fired.
    fn tick(&mut self, _scene: &mut Scene<'_>) -> Result<(), Difference> {
        Ok(())
    }

    /// Whether so many timers are no more than a machine that sets them as it likes may have.
    fn check_timers(&self, _count: usize) -> Result<(), Difference> {
        Ok(())
    }

    /// What of a model that keeps time is left that should have been done at `now_ms`.
    fn unfinished(&self, _now_ms: u64) -> Option<String> {
        None
    }

    /// What a timer does.
    fn fire(&mut self, scene: &mut Scene<'_>, payload: &Bytes) -> Result<(), Difference>;

    /// What a letter does.
    fn receive(&mut self, scene: &mut Scene<'_>, body: &Bytes) -> Result<(), Difference>;

    /// Whether an answer is the one expected.
    fn same_reply(&mut self, expected: &Bytes, actual: &Bytes) -> Result<(), Difference> {
        same("reply", expected, actual)
    }

    /// Whether an effect is the one expected.
    fn same_effect(&self, expected: &Bytes, actual: &Bytes) -> Result<(), Difference> {
        same("effect", expected, actual)
    }

    /// Whether the machine's state, as its readers see it, is that of the model.
    fn check(&mut self, sight: &Sight<'_>) -> Result<(), Difference>;

    /// What must hold when everything pending has been done.
    fn check_healed(&mut self, _sight: &Sight<'_>) -> Result<(), Difference> {
        Ok(())
    }
}

/// What can be seen of a shard from outside.
pub struct Sight<'a> {
    /// The last entry applied.
    pub index: Index,
    /// Its rows.
    pub rows: &'a RowsReader,
    /// What it has published.
    pub views: &'a Views,
    /// What it has said that tenants use.
    pub usage: &'a BTreeMap<TenantId, Usage>,
    /// The archive of the node.
    pub archive: &'a Archive,
    /// Look at everything, not only at what the last entry touched.
    pub full: bool,
}

/// That two things are equal.
///
/// # Errors
/// Both, in short, when they are not.
pub fn same<T: PartialEq + std::fmt::Debug + ?Sized>(
    what: &str,
    expected: &T,
    actual: &T,
) -> Result<(), Difference> {
    if expected == actual {
        return Ok(());
    }
    Err(format!("{what}: expected {}, actual {}", short(expected), short(actual)))
}

/// As it is printed, cut to a few lines.
pub fn short(value: &(impl std::fmt::Debug + ?Sized)) -> String {
    let text = format!("{value:?}");
    if text.chars().count() <= 600 {
        return text;
    }
    let cut: String = text.chars().take(600).collect();
    format!("{cut}… ({} characters)", text.chars().count())
}
