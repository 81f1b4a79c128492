//! Root access of tests: tests that mount file systems need root, or a user namespace in which they are root.

use std::process::{Command, Stdio};

use crate::repository::Repository;

/// How tests get root access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RootAccess {
    /// The caller is root.
    Caller,
    /// Each test program runs in its own namespaces, in which it is root.
    Namespace,
    /// No root access: tests that need root are reported as ignored.
    Unavailable,
}

/// Starts a program as root of a new user namespace and mount namespace.
const UNSHARE: [&str; 4] = ["unshare", "--user", "--map-root-user", "--mount"];

impl RootAccess {
    pub(super) fn detect() -> Self {
        if Repository::is_root() {
            return Self::Caller;
        }
        let mut probe = Command::new(UNSHARE[0]);
        probe.args(&UNSHARE[1..]).arg("true").stdout(Stdio::null()).stderr(Stdio::null());
        // The program may be missing, or the machine may not allow user namespaces.
        match probe.status() {
            Ok(status) if status.success() => Self::Namespace,
            _ => Self::Unavailable,
        }
    }

    /// Whether tests that need root can run.
    pub(super) const fn is_available(self) -> bool {
        !matches!(self, Self::Unavailable)
    }

    /// The cargo settings that start every test program as root.
    pub(super) fn cargo_settings(self) -> Option<[String; 2]> {
        let words = UNSHARE.map(|word| format!("\"{word}\"")).join(", ");
        let setting = format!("target.\"cfg(unix)\".runner = [{words}]");
        (self == Self::Namespace).then(|| ["--config".to_owned(), setting])
    }

    /// The cargo-nextest filter that excludes tests that need root in the initial namespace: they ignore
    /// themselves, but cargo-nextest starts tests by name, which would run them.
    pub(super) fn nextest_filter(self) -> Option<[&'static str; 2]> {
        let filter = "not (package(lanyard) & (binary(crash) | binary(memory)))";
        (self != Self::Caller).then_some(["--filterset", filter])
    }

    /// The next step if tests are ignored.
    pub(super) const fn hint(self) -> Option<&'static str> {
        match self {
            Self::Unavailable => {
                Some("ignored tests need root, or user namespaces (`unshare --user`)")
            }
            Self::Namespace => {
                Some("the tests `crash` and `memory` of the package `lanyard` need root")
            }
            Self::Caller => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_run_as_root_of_a_namespace_if_needed() {
        let [flag, setting] = RootAccess::Namespace.cargo_settings().expect("a runner");
        assert_eq!(flag, "--config");
        let runner = r#"["unshare", "--user", "--map-root-user", "--mount"]"#;
        assert_eq!(setting, format!("target.\"cfg(unix)\".runner = {runner}"));
        assert_eq!(RootAccess::Caller.cargo_settings(), None);
        assert_eq!(RootAccess::Caller.nextest_filter(), None);
        assert_eq!(RootAccess::Unavailable.cargo_settings(), None);
    }

    #[test]
    fn tests_that_need_root_are_ignored_only_without_root_and_namespaces() {
        assert!(RootAccess::Caller.is_available() && RootAccess::Namespace.is_available());
        assert!(
            !RootAccess::Unavailable.is_available() && RootAccess::Unavailable.hint().is_some()
        );
    }
}
