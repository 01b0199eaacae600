//! `cargo run --release -p sim --example explore -- <machine> <runs> <first seed> <steps>`.

use sim::{Arguments, cli};

fn main() -> std::io::Result<()> {
    let mut given = std::env::args().skip(1);
    let mut arguments = Arguments::default();
    if let Some(machine) = given.next() {
        arguments.machine = machine.parse().expect("recents, probe, tenants or all");
    }
    let mut number = |or: u64| given.next().map_or(or, |n| n.parse().expect("a number"));
    arguments.runs = number(arguments.runs);
    arguments.first_seed = number(arguments.first_seed);
    arguments.steps = number(arguments.steps);
    if arguments.runs == 0 {
        arguments.seed = Some(arguments.first_seed);
    }
    let code = cli(&arguments, &mut std::io::stdout())?;
    std::process::exit(code);
}
