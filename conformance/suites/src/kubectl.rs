//! The Kubernetes API through `kubectl`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use serde_json::{Value, json};
use thiserror::Error;

/// How often an object is read while waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A `kubectl` command failed.
#[derive(Debug, Error)]
pub(crate) enum KubectlError {
    #[error("`{}` could not be started", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("`kubectl {command}` failed: {message}")]
    Failed { command: String, message: String },
    #[error("`kubectl {command}` did not print JSON")]
    InvalidJson {
        command: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("condition `{what}` did not hold within {} s; last object: {last_object}", timeout.as_secs())]
    TimedOut { what: String, timeout: Duration, last_object: String },
}

/// `kubectl` for one cluster.
#[derive(Debug, Clone)]
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub(crate) fn new(program: &Path, kubeconfig: &Path) -> Self {
        Self { program: program.to_path_buf(), kubeconfig: kubeconfig.to_path_buf() }
    }

    /// The path of the kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs `kubectl` and returns its standard output.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String, KubectlError> {
        self.run_with_input(arguments, "")
    }

    /// Applies objects with strict validation: an unknown field is an error.
    pub(crate) fn apply(&self, objects: &Value) -> Result<(), KubectlError> {
        self.run_with_input(&["apply", "--validate=strict", "--filename=-"], &objects.to_string())
            .map(drop)
    }

    /// Installs custom resource definitions and creates a namespace.
    pub(crate) fn create_namespace_with_definitions(
        &self,
        namespace: &str,
        definitions: &str,
    ) -> Result<(), KubectlError> {
        self.run(&["apply", "--filename", definitions])?;
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace },
        }))
    }

    /// Applies objects in YAML as a server-side dry run with strict validation.
    pub(crate) fn apply_dry_run(&self, objects: &str) -> Result<(), KubectlError> {
        let arguments = ["apply", "--dry-run=server", "--validate=strict", "--filename=-"];
        self.run_with_input(&arguments, objects).map(drop)
    }

    /// Reads an object.
    pub(crate) fn get_json(&self, arguments: &[&str]) -> Result<Value, KubectlError> {
        let mut whole = vec!["get", "--output=json"];
        whole.extend(arguments);
        let answer = self.run(&whole)?;
        serde_json::from_str(&answer)
            .map_err(|source| KubectlError::InvalidJson { command: whole.join(" "), source })
    }

    /// Deletes objects and waits until they are gone. Missing objects are not an error.
    pub(crate) fn delete(&self, arguments: &[&str]) -> Result<(), KubectlError> {
        let mut whole = vec!["delete", "--ignore-not-found", "--timeout=90s"];
        whole.extend(arguments);
        self.run(&whole).map(drop)
    }

    /// Waits until a condition holds for an object, and returns the object.
    pub(crate) async fn wait_for_object(
        &self,
        what: &str,
        timeout: Duration,
        arguments: &[&str],
        mut condition: impl FnMut(&Value) -> bool,
    ) -> Result<Value, KubectlError> {
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + timeout;
        loop {
            let observed = self.get_json(arguments);
            if let Ok(object) = &observed
                && condition(object)
            {
                return observed;
            }
            if clock.monotonic() > deadline {
                let observed = match observed {
                    Ok(object) => object.get("status").unwrap_or(&object).to_string(),
                    Err(error) => error.to_string(),
                };
                return Err(KubectlError::TimedOut {
                    what: what.to_owned(),
                    timeout,
                    last_object: observed,
                });
            }
            clock.sleep(POLL_INTERVAL).await;
        }
    }

    /// `kubectl` with `--kubeconfig` as its only argument.
    pub(crate) fn base_command(&self) -> Command {
        let mut command = self.command_with_kubeconfig_variable();
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }

    /// `kubectl` with `KUBECONFIG` set instead of a flag, because no flag may precede the name of a plugin.
    pub(crate) fn command_with_kubeconfig_variable(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("KUBECONFIG", &self.kubeconfig);
        // The proxy of the environment cannot reach a cluster on loopback.
        for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
            command.env_remove(name);
        }
        command
    }

    fn run_with_input(&self, arguments: &[&str], input: &str) -> Result<String, KubectlError> {
        let start = |source| KubectlError::Start { program: self.program.clone(), source };
        let mut command = self.base_command();
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(start)?;
        if let Some(mut stdin) = child.stdin.take() {
            // The exit status shows why a program ended before it read its input.
            stdin.write_all(input.as_bytes()).unwrap_or_default();
        }
        let Output { status, stdout, stderr } = child.wait_with_output().map_err(start)?;
        if status.success() {
            return Ok(String::from_utf8_lossy(&stdout).into_owned());
        }
        let message = String::from_utf8_lossy(&stderr).trim().to_owned();
        Err(KubectlError::Failed { command: arguments.join(" "), message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_call_shows_command_and_error() {
        let kubectl = Kubectl::new(Path::new("false"), Path::new("/nowhere"));
        let error = kubectl.run(&["get", "nodes"]).expect_err("it fails");
        assert!(error.to_string().starts_with("`kubectl get nodes` failed"), "{error}");
    }

    #[test]
    fn non_json_output_is_an_error() {
        let kubectl = Kubectl::new(Path::new("echo"), Path::new("/nowhere"));
        assert!(matches!(kubectl.get_json(&["nodes"]), Err(KubectlError::InvalidJson { .. })));
    }
}
