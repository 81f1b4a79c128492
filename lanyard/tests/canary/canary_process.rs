//! Runs canaries as processes, with the flags of their pods, and reads their metrics.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use lanyard_desired::{ValidatedHostedCluster, desired_proof_calls, validate};
use lanyard_vocabulary::component::CredentialPathSource;
use lanyard_vocabulary::{Cloud, Component};

use crate::up_process::UpProcess;

/// The HostedCluster for which `lanyard up` runs.
pub(crate) fn example_cluster() -> ValidatedHostedCluster {
    let text = include_str!("../../../examples/hostedcluster.yaml");
    let wire = lanyard_api::HostedCluster::parse_yaml(text).unwrap();
    validate(&wire).unwrap().hosted_cluster
}

/// The mounted credential file of a component's first consumer.
pub(crate) fn credential_file(directory: &Path, component: Component) -> PathBuf {
    let consumer = &component.consumers()[0];
    let name = &example_cluster().identities[&component].secret_name;
    directory.join(consumer.deployment).join(consumer.volume).join(name.as_str())
}

/// A canary process that ends when it is dropped.
pub(crate) struct TestCanaryProcess {
    pub(crate) component: Component,
    child: Child,
    log: PathBuf,
    address: String,
}

impl TestCanaryProcess {
    /// Starts a canary that finds the credential file in the same way as the component.
    pub(crate) fn start(
        up: &UpProcess,
        mounts: &Path,
        scratch: &Path,
        component: Component,
        more: &[&str],
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lanyard"));
        let endpoints = Cloud::Public.endpoints().unwrap();
        let call =
            desired_proof_calls(&example_cluster())[&component].granted.request_line(endpoints);
        let component_flag = format!("--component={component}");
        command.args(["canary", &component_flag, "--call", &call, "--interval=1s"]);
        command.args(["--token-interval=3s", "--metrics-addr=127.0.0.1:0"]).args(more);
        let file = credential_file(mounts, component);
        match component.consumers()[0].path_source {
            CredentialPathSource::CloudConfig { .. }
            | CredentialPathSource::StorageOperator { .. } => {
                let config = scratch.join(format!("{component}.conf"));
                let content = serde_json::json!({
                    "cloud": "AzurePublicCloud",
                    "useManagedIdentityExtension": false,
                    "aadMSIDataPlaneIdentityPath": file,
                });
                std::fs::write(&config, content.to_string()).unwrap();
                command.arg("--cloud-config").arg(config);
            }
            CredentialPathSource::Environment { name }
            | CredentialPathSource::Rendered { name, .. } => {
                command.arg("--credential-file-from-env").arg(name).env(name, file);
            }
            CredentialPathSource::Computed | CredentialPathSource::ClusterIdentity => {
                command.arg("--credential-file").arg(file);
            }
        }
        let log = scratch.join(format!("{component}.log"));
        let child = command
            .envs(up.exports())
            .env("LANYARD_LOG", "trace")
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut canary = Self { component, child, log, address: String::new() };
        canary.address = wait_for(|| canary.http_address());
        canary
    }

    /// The address of its HTTP endpoints, once the log contains it.
    fn http_address(&self) -> Option<String> {
        let log = self.log();
        let line = log.lines().find(|line| line.contains("serving metrics and health"))?;
        let address = line.split("address").nth(1)?;
        let plain: String = without_colour(address);
        let port = plain.trim_start_matches('=').split_whitespace().next()?;
        Some(port.to_owned())
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        without_colour(&std::fs::read_to_string(&self.log).unwrap())
    }

    /// The response body of an endpoint, and whether the status is 200.
    pub(crate) fn fetch_page(&self, path: &str) -> (bool, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: canary\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        (head.starts_with("HTTP/1.1 200"), body.to_owned())
    }

    /// The value of a metric, given the start of its line.
    pub(crate) fn metric_value(&self, line: &str) -> Option<f64> {
        let page = self.fetch_page("/metrics").1;
        let found = page.lines().find_map(|it| it.strip_prefix(line)?.strip_prefix(' '));
        found?.parse().ok()
    }

    pub(crate) fn is_hop_good(&self, hop: &str) -> Option<bool> {
        let good = self.metric_value(&format!(r#"lanyard_canary_hop_good{{hop="{hop}"}}"#))?;
        Some(good > 0.5)
    }

    /// Waits until a condition about the canary holds.
    pub(crate) fn wait_until(&self, reached: impl Fn(&Self) -> bool) {
        wait_for(|| reached(self).then_some(()));
    }
}

impl Drop for TestCanaryProcess {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &pid]).status();
        let ended = self.child.wait();
        if !std::thread::panicking() {
            assert!(asked.unwrap().success());
            assert_eq!(ended.unwrap().code(), Some(0), "{} exited with an error", self.component);
        }
    }
}

fn without_colour(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, behind)| behind);
    }
    plain + rest
}

/// Polls until there is a value; fails after a minute.
pub(crate) fn wait_for<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let clock = SystemClock::new();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(
            clock.monotonic() < Duration::from_mins(1),
            "the condition did not hold within a minute"
        );
        // Leaves the processor to other processes.
        std::thread::park_timeout(Duration::from_millis(20));
    }
}
