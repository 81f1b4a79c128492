//! `cargo xtask bench`: ourselves beside our peers, measured in the same run.

use clap::ValueEnum;

use crate::failure::TaskError;
use crate::house::House;
use crate::process;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What to measure
    bench: Bench,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Bench {
    /// Cached tokens, cold scopes and reloads of the credential library
    Credential,
}

pub(crate) fn run(house: &House, arguments: &Arguments) -> Result<(), TaskError> {
    match arguments.bench {
        Bench::Credential => {
            let mut command = house.cargo();
            command.args(["bench", "--locked", "--package", "lanyard-credential"]);
            process::run(command.args(["--bench", "credential"]))
        }
    }
}
