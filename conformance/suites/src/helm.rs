//! Helm with lanyard's charts.

use std::path::{Path, PathBuf};
use std::process::Command;

use thiserror::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LanyardChart {
    /// The node plugin.
    Node,
    Operator,
    /// The local Azure.
    Azure,
}

impl LanyardChart {
    /// The directory of the chart below `charts/`.
    const fn directory_name(self) -> &'static str {
        match self {
            Self::Node => "lanyard-node",
            Self::Operator => "lanyard-operator",
            Self::Azure => "lanyard-azure",
        }
    }

    /// The name of the release that the suites install.
    const fn release_name(self) -> &'static str {
        match self {
            Self::Node => "conformance",
            Self::Operator => "conformance-operator",
            Self::Azure => "conformance-azure",
        }
    }

    /// The key of the image repository, which the chart has no default for.
    const fn image_repository_key(self) -> &'static str {
        match self {
            Self::Node => "linux.image.repository",
            Self::Operator | Self::Azure => "image.repository",
        }
    }
}

/// Environment variables of the directories in which Helm stores files.
pub(crate) const HOME_VARIABLES: [&str; 3] =
    ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"];

/// A Helm command failed.
#[derive(Debug, Error)]
pub(crate) enum HelmError {
    #[error("`{}` could not be started", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("`helm {command}` failed: {message}")]
    Failed { command: String, message: String },
}

/// Helm for one chart on one cluster.
#[derive(Debug, Clone)]
pub(crate) struct Helm {
    program: PathBuf,
    chart: LanyardChart,
    directory: PathBuf,
    kubeconfig: PathBuf,
    /// The directory in which Helm stores its files instead of the home directory.
    home: PathBuf,
}

impl Helm {
    /// The namespace of the release.
    pub(crate) const NAMESPACE: &str = "kube-system";

    /// Creates a Helm for a chart of the repository.
    pub(crate) fn new(
        program: &Path,
        repository: &Path,
        chart: LanyardChart,
        kubeconfig: &Path,
        home: &Path,
    ) -> Self {
        Self {
            program: program.to_path_buf(),
            chart,
            directory: repository.join("charts").join(chart.directory_name()),
            kubeconfig: kubeconfig.to_path_buf(),
            home: home.to_path_buf(),
        }
    }

    /// The directory of the chart's CRDs.
    pub(crate) fn crd_directory(&self) -> String {
        self.directory.join("files").join("crds").display().to_string()
    }

    /// Runs `helm lint --strict` with an image repository, which the chart has no default for.
    pub(crate) fn lint(&self) -> Result<(), HelmError> {
        let chart = self.directory.display().to_string();
        let image = format!("{}=localhost/lanyard", self.chart.image_repository_key());
        self.run(&["lint", "--strict", &chart, "--set", &image]).map(drop)
    }

    /// Renders the objects of a release without a cluster.
    pub(crate) fn template(&self, values: &Path, more: &[&str]) -> Result<String, HelmError> {
        self.run_on_release("template", values, more)
    }

    /// Installs the release.
    pub(crate) fn install(&self, values: &Path, more: &[&str]) -> Result<(), HelmError> {
        self.run_on_release("install", values, more).map(drop)
    }

    /// Upgrades the release.
    pub(crate) fn upgrade(&self, values: &Path, more: &[&str]) -> Result<(), HelmError> {
        self.run_on_release("upgrade", values, more).map(drop)
    }

    /// Removes the release, if there is one, and waits until its objects are gone.
    pub(crate) fn uninstall(&self) -> Result<(), HelmError> {
        let release = self.chart.release_name();
        let place = ["--namespace", Self::NAMESPACE];
        let how = ["--ignore-not-found", "--wait"];
        self.run(&[&["uninstall", release][..], &place, &how].concat()).map(drop)
    }

    fn run_on_release(
        &self,
        verb: &str,
        values: &Path,
        more: &[&str],
    ) -> Result<String, HelmError> {
        let (chart, values) = (self.directory.display().to_string(), values.display().to_string());
        let mut arguments = vec![
            verb,
            self.chart.release_name(),
            &chart,
            "--namespace",
            Self::NAMESPACE,
            "--values",
            &values,
        ];
        arguments.extend(more);
        self.run(&arguments)
    }

    fn run(&self, arguments: &[&str]) -> Result<String, HelmError> {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig);
        for name in HOME_VARIABLES {
            command.env(name, &self.home);
        }
        // The proxy of the environment cannot reach a cluster on loopback.
        for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
            command.env_remove(name);
        }
        let output = command
            .output()
            .map_err(|source| HelmError::Start { program: self.program.clone(), source })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(HelmError::Failed { command: arguments.join(" "), message })
    }
}
