//! The three container images: their commands, and how their programs are compiled.

use clap::ValueEnum;

use crate::workspace::TEST_FEATURES;

/// A container image. The program is `lanyard` in each image; its commands differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImageKind {
    /// The node plugin
    #[value(name = "lanyard-node")]
    Node,
    /// The operator, the canaries, the KMS plugin, the node plugin and the commands for people
    #[value(name = "lanyard")]
    Lanyard,
    /// All of these, and the local Azure
    #[value(name = "lanyard-azure")]
    Azure,
}

impl ImageKind {
    pub(crate) const ALL: [Self; 3] = [Self::Node, Self::Lanyard, Self::Azure];

    /// The name of the image.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Node => "lanyard-node",
            Self::Lanyard => "lanyard",
            Self::Azure => "lanyard-azure",
        }
    }

    /// The image name with the workspace's version as its tag.
    pub(super) fn reference(self) -> String {
        format!("localhost/{}:{}", self.name(), env!("CARGO_PKG_VERSION"))
    }

    /// The features of the package `lanyard`.
    pub(super) const fn features(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Lanyard => "node,operator,kms,canary,cli",
            Self::Azure => "node,operator,kms,canary,cli,emulator",
        }
    }

    /// The features for suites: with `suite-build`, so that the crates on which the program depends are not
    /// compiled once more for each image.
    pub(super) fn features_for_suites(self) -> String {
        format!("{},suite-build", self.features())
    }

    /// The profile of a release build; `Cargo.toml` explains why there are two.
    pub(crate) const fn profile(self) -> &'static str {
        match self {
            Self::Node => "dist-node",
            Self::Lanyard | Self::Azure => "dist",
        }
    }

    /// The commands that the image's `--help` must list, sorted.
    pub(super) fn commands(self) -> Vec<&'static str> {
        let mut commands = match self {
            Self::Node => vec!["node"],
            Self::Lanyard => LANYARD_COMMANDS.to_vec(),
            Self::Azure => [LANYARD_COMMANDS, AZURE_COMMANDS].concat(),
        };
        commands.sort_unstable();
        commands
    }

    /// The packages and features in the output of `cargo tree --format '{p} {f}'` that this image must not
    /// contain, sorted.
    pub(super) fn find_forbidden(self, tree: &str) -> Vec<String> {
        let mut found: Vec<String> =
            tree.lines().filter_map(|line| self.find_forbidden_in_line(line)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    fn find_forbidden_in_line(self, line: &str) -> Option<String> {
        let package = line.split_whitespace().next()?;
        if self.forbidden_packages().contains(&package) {
            return Some(format!("{}: {package}", self.name()));
        }
        let is_ours = package == "lanyard" || package.starts_with("lanyard-");
        let features = line.trim_end_matches(" (*)").rsplit(' ').next()?.split(',');
        let mut test_features = features.filter(|it| is_ours && TEST_FEATURES.contains(it));
        test_features.next().map(|feature| format!("{}: {package} with {feature}", self.name()))
    }

    const fn forbidden_packages(self) -> &'static [&'static str] {
        match self {
            Self::Node => &[
                "lanyard-canary",
                "lanyard-desired",
                "lanyard-emulator",
                "lanyard-kms",
                "lanyard-operator",
                "lanyard-up",
                "comfy-table",
                "mimalloc",
            ],
            Self::Lanyard => &["lanyard-emulator", "lanyard-up", "mimalloc"],
            Self::Azure => &[],
        }
    }
}

/// The commands that only the image with the local Azure has.
const AZURE_COMMANDS: &[&str] = &["azure", "up"];

/// The commands without the local Azure.
const LANYARD_COMMANDS: &[&str] = &[
    "apply",
    "canary",
    "ccoctl",
    "check",
    "completions",
    "create",
    "credential",
    "destroy",
    "fleet",
    "forecast",
    "identities",
    "import",
    "kms",
    "man",
    "node",
    "operator",
    "plan",
    "refresh",
    "render",
    "rotate",
    "sweep",
    "version",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_sorted_and_unique() {
        for image in ImageKind::ALL {
            let commands = image.commands();
            assert!(commands.is_sorted_by(|one, next| one < next), "{commands:?}");
        }
    }

    #[test]
    fn emulator_dependency_is_found() {
        let tree = "lanyard v0.1.0 (/src/lanyard) cli\nlanyard-api v0.1.0 (/src/crates/api) \n\
                    lanyard-emulator v0.1.0 (/src/local-azure/emulator)  (*)\n";
        assert_eq!(ImageKind::Lanyard.find_forbidden(tree), ["lanyard: lanyard-emulator"]);
        assert!(ImageKind::Azure.find_forbidden(tree).is_empty());
    }

    #[test]
    fn packages_with_a_common_name_prefix_are_allowed() {
        let tree = "lanyard-upgrade v1.0.0 \nlanyard v0.1.0 (/src/lanyard) node\n";
        assert!(ImageKind::Node.find_forbidden(tree).is_empty());
    }

    #[test]
    fn test_features_are_found_in_workspace_crates_only() {
        let tree = "lanyard-node v0.1.0 (/src/crates/node) crash-points,sanity\n\
                    lanyard-clock v0.1.0 (/src/crates/clock) test-util (*)\n\
                    tokio v1.54.0 full,test-util\n";
        let found = [
            "lanyard-azure: lanyard-clock with test-util",
            "lanyard-azure: lanyard-node with crash-points",
        ];
        assert_eq!(ImageKind::Azure.find_forbidden(tree), found);
    }
}
