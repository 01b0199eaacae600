//! The machines of a shard, by number.

use std::collections::BTreeMap;

use kernel::machine::KERNEL;
use kernel::{Machine, MachineId, Unreadable};

/// The machines that a shard runs.
#[derive(Default)]
pub struct Machines {
    by_id: BTreeMap<MachineId, Box<dyn Machine>>,
}

impl Machines {
    /// Adds a machine.
    ///
    /// # Panics
    /// If its number is taken: numbers are for ever, so this is a mistake in the registry.
    #[must_use]
    pub fn with(mut self, machine: Box<dyn Machine>) -> Machines {
        let id = machine.id();
        assert!(id > KERNEL, "numbers up to {KERNEL} are the kernel's and the store's");
        let name = machine.name();
        let taken = self.by_id.insert(id, machine);
        assert!(taken.is_none(), "{name} has a number that is taken: {id}");
        self
    }

    /// The machine with this number.
    ///
    /// # Errors
    /// [`Unreadable::Machine`] when there is none: the log is newer than the binary.
    pub fn get(&mut self, id: MachineId) -> Result<&mut dyn Machine, Unreadable> {
        match self.by_id.get_mut(&id) {
            Some(machine) => Ok(machine.as_mut()),
            None => Err(Unreadable::Machine(id)),
        }
    }

    /// Numbers and names.
    pub fn names(&self) -> impl Iterator<Item = (MachineId, &'static str)> + '_ {
        self.by_id.iter().map(|(id, machine)| (*id, machine.name()))
    }
}
