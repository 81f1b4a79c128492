//! How the workspace is built. Every build for tests, suites, lints and documentation enables all features of
//! all packages, so that cargo compiles each crate once for all of them.

use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The arguments that select every package with every feature.
pub(crate) const ALL_PACKAGES: [&str; 3] = ["--workspace", "--all-features", "--locked"];

/// The arguments that select every package with tests. The fuzz targets have no tests and need a C++
/// compiler. Leaving them out does not change the features of the other packages.
pub(crate) const TEST_PACKAGES: [&str; 5] =
    ["--workspace", "--exclude", "lanyard-fuzz", "--all-features", "--locked"];

/// The packages whose programs the suites run.
const SUITE_PACKAGES: [&str; 4] =
    ["lanyard", "lanyard-cluster", "lanyard-conformance", "lanyard-conformance-image"];

/// Builds the programs that the suites run. It selects all features of the workspace even for these
/// programs, so that cargo reuses the dependencies of every other build.
pub(crate) fn build_programs(repository: &Repository) -> Result<(), TaskError> {
    let mut build = repository.cargo();
    build.arg("build").args(ALL_PACKAGES);
    for program in SUITE_PACKAGES {
        build.args(["--bin", program]);
    }
    process::run(&mut build)
}

/// Features of workspace packages that let tests change the behaviour of a program. No released program has
/// them.
pub(crate) const TEST_FEATURES: [&str; 4] = ["crash-points", "fuzzing", "sanity", "test-util"];

/// The environment variables that enable behaviour for tests. A released program does not contain their
/// names.
const TEST_SWITCHES: [&str; 4] = [
    "LANYARD_CLOCK_AHEAD",
    "LANYARD_CRASH_AT",
    "LANYARD_MOUNT_IN_PLACE",
    "LANYARD_TEST_CONTROLLER",
];

/// Finds the names of test switches in a program.
pub(crate) fn find_test_switches(program: &[u8]) -> Vec<&'static str> {
    let holds = |name: &&str| program.windows(name.len()).any(|part| part == name.as_bytes());
    TEST_SWITCHES.into_iter().filter(holds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_switches_are_found_in_a_program() {
        let program = b"\x7fELF..LANYARD_CRASH_AT\0LANYARD_CLOCK".as_slice();
        assert_eq!(find_test_switches(program), ["LANYARD_CRASH_AT"]);
        assert_eq!(find_test_switches(b""), Vec::<&str>::new());
    }

    #[test]
    fn test_switches_are_read_in_settings_only() {
        let repository =
            Repository::from_environment().expect("the tests run inside the repository");
        let path = repository.root().join("lanyard/src/settings.rs");
        let text = std::fs::read_to_string(path).expect("it is there");
        for name in TEST_SWITCHES {
            assert!(text.contains(&format!("\"{name}\"")), "{name}");
        }
    }
}
