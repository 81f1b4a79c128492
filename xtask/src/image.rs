//! The binary of the container image is built without the emulator; this proves it.

pub(crate) mod archive;

use crate::failure::TaskError;
use crate::house::House;
use crate::process;

/// Builds the binary as the image does and looks for the emulator in its graph.
pub(crate) fn check(house: &House) -> Result<(), TaskError> {
    let mut build = house.cargo();
    build.args(["build", "--locked", "--package", "lanyard", "--no-default-features"]);
    process::run(&mut build)?;

    let mut tree = house.cargo();
    tree.args(["tree", "--locked", "--package", "lanyard", "--no-default-features"]);
    tree.args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    let graph = process::capture(&mut tree)?;
    let findings = forbidden_packages(&String::from_utf8_lossy(&graph));
    if findings.is_empty() {
        return Ok(());
    }
    Err(TaskError::Findings { check: "packages that the image must not hold", findings })
}

/// Packages that exist for the local Azure only.
const LOCAL_ONLY: [&str; 2] = ["lanyard-emulator", "lanyard-up"];

fn forbidden_packages(tree: &str) -> Vec<String> {
    let mut found: Vec<String> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|package| LOCAL_ONLY.contains(package))
        .map(str::to_owned)
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emulator_is_found_in_a_tree() {
        let tree =
            "lanyard v0.1.0 (/src/lanyard)\nlanyard-api v0.1.0\nlanyard-emulator v0.1.0 (*)\n";
        assert_eq!(forbidden_packages(tree), ["lanyard-emulator"]);
    }

    #[test]
    fn names_that_only_begin_alike_are_not_found() {
        assert!(forbidden_packages("lanyard-upgrade v1.0.0\nlanyard v0.1.0\n").is_empty());
    }
}
