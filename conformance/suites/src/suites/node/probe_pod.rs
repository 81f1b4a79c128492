//! Pods that read a volume repeatedly, and the events that they print.

use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{DRIVER, NAMESPACE, NodeSuiteFixture, START_TIMEOUT, failed_with_causes};

/// The mount path of the volume in every pod.
pub(super) const MOUNT_PATH: &str = "/mnt/secrets";

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PodVolume {
    /// The SecretProviderClass.
    pub(super) class: &'static str,
    /// `nodePublishSecretRef`.
    pub(super) secret: Option<&'static str>,
    /// `subPath` of the container's mount.
    pub(super) sub_path: Option<&'static str>,
}

impl PodVolume {
    pub(super) fn of_class(class: &'static str) -> Self {
        Self { class, ..Self::default() }
    }
}

/// A pod whose only container runs the probe program.
#[derive(Debug, Clone)]
pub(super) struct ProbePod<'a> {
    suite: &'a NodeSuiteFixture,
    name: &'static str,
    manifest: Value,
}

/// An event that the probe program prints.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum ProbeEvent {
    /// The content of a file changed.
    Changed { path: String, digest: String },
    /// A file could not be read.
    Unreadable { path: String, error: String },
    /// The number of reads so far.
    Alive { reads: u64 },
}

impl<'a> ProbePod<'a> {
    /// Creates the manifest of a pod that watches files of its volume.
    pub(super) fn new(
        suite: &'a NodeSuiteFixture,
        name: &'static str,
        volume: PodVolume,
        files: &[&str],
    ) -> Self {
        let mut arguments = vec!["watch".to_owned(), "20".to_owned()];
        arguments.extend(files.iter().map(|file| format!("{MOUNT_PATH}/{file}")));
        let mut mount = json!({ "name": "secrets", "mountPath": MOUNT_PATH, "readOnly": true });
        if let Some(path) = volume.sub_path {
            mount["subPath"] = json!(path);
            mount["mountPath"] = json!(format!("{MOUNT_PATH}/{path}"));
        }
        let mut csi = json!({
            "driver": DRIVER,
            "readOnly": true,
            "volumeAttributes": { "secretProviderClass": volume.class },
        });
        if let Some(secret) = volume.secret {
            csi["nodePublishSecretRef"] = json!({ "name": secret });
        }
        let manifest = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": {
                "hostNetwork": true,
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "witness",
                    "image": suite.images.witness,
                    "imagePullPolicy": "Never",
                    "args": arguments,
                    "volumeMounts": [mount],
                }],
                "volumes": [{ "name": "secrets", "csi": csi }],
            },
        });
        Self { suite, name, manifest }
    }

    /// Sets the ServiceAccount.
    pub(super) fn with_account(mut self, account: &str) -> Self {
        self.manifest["spec"]["serviceAccountName"] = json!(account);
        self
    }

    /// Sets the security context.
    pub(super) fn with_security(mut self, security: Value) -> Self {
        self.manifest["spec"]["securityContext"] = security;
        self
    }

    /// Creates the pod and waits until it runs and has read once.
    pub(super) async fn create_and_wait(&self) -> Result<(), Failed> {
        self.create()?;
        let runs = |pod: &Value| pod["status"]["phase"] == "Running";
        let what = format!("pod {} runs", self.name);
        let (kubectl, place) = (&self.suite.suite_cluster.kubectl, self.kubectl_target());
        let running = kubectl.wait_for_object(&what, START_TIMEOUT, &place, runs).await;
        running.map_err(|error| self.failure_with_events(&error.to_string()))?;
        self.wait_for_probe_events("the first read", START_TIMEOUT, |events| !events.is_empty())
            .await?;
        Ok(())
    }

    /// Creates the pod.
    pub(super) fn create(&self) -> Result<(), Failed> {
        self.suite.suite_cluster.kubectl.apply(&self.manifest).map_err(failed_with_causes)
    }

    /// Reads the pod from the API.
    pub(super) fn read_object(&self) -> Result<Value, Failed> {
        self.suite
            .suite_cluster
            .kubectl
            .get_json(&self.kubectl_target())
            .map_err(failed_with_causes)
    }

    /// Reads a file of the volume with a new process in the container.
    pub(super) fn read_file(&self, file: &str) -> Result<String, Failed> {
        self.run_probe(&["read", &format!("{MOUNT_PATH}/{file}")])
    }

    /// Runs the probe program in the container and returns its output.
    pub(super) fn run_probe(&self, words: &[&str]) -> Result<String, Failed> {
        let mut arguments = vec!["exec", self.name, "--namespace", NAMESPACE, "--", "/witness"];
        arguments.extend(words);
        self.suite.suite_cluster.kubectl.run(&arguments).map_err(failed_with_causes)
    }

    /// All events that the container has printed.
    pub(super) fn probe_events(&self) -> Result<Vec<ProbeEvent>, Failed> {
        let log =
            self.suite.suite_cluster.kubectl.run(&["logs", self.name, "--namespace", NAMESPACE]);
        let log = log.map_err(failed_with_causes)?;
        // The last line may be incomplete.
        let lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.map(|line| serde_json::from_str(line).map_err(failed_with_causes)).collect()
    }

    /// Waits until a condition holds for the events of the container.
    pub(super) async fn wait_for_probe_events(
        &self,
        what: &str,
        timeout: Duration,
        condition: impl Fn(&[ProbeEvent]) -> bool,
    ) -> Result<Vec<ProbeEvent>, Failed> {
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + timeout;
        loop {
            // A container that has just started has no log yet.
            let events = self.probe_events();
            if events.as_ref().is_ok_and(|events| condition(events)) {
                return events;
            }
            if clock.monotonic() > deadline {
                let observed = format!(
                    "condition `{what}` did not hold within {} s;  {events:?}",
                    timeout.as_secs()
                );
                return Err(self.failure_with_events(&observed));
            }
            clock.sleep(Duration::from_millis(300)).await;
        }
    }

    /// Expects that every read succeeded in one container. The log of a restarted container lacks the events
    /// of the earlier one.
    pub(super) fn expect_uninterrupted_reads(&self, events: &[ProbeEvent]) -> Result<(), Failed> {
        let container = self.read_object()?["status"]["containerStatuses"][0].take();
        if container["restartCount"] != 0 {
            return Err(format!("the container was restarted: {container}").into());
        }
        expect_no_lost_file(events)
    }

    /// Deletes the pod and waits until it is gone.
    pub(super) fn delete(&self) -> Result<(), Failed> {
        let arguments = ["pod", self.name, "--namespace", NAMESPACE];
        self.suite.suite_cluster.kubectl.delete(&arguments).map_err(failed_with_causes)
    }

    /// Reason and message of the pod's events, newest last.
    pub(super) fn events(&self) -> Result<Vec<(String, String)>, Failed> {
        let selector = format!("involvedObject.name={}", self.name);
        let arguments = ["events", "--namespace", NAMESPACE, "--field-selector", &selector];
        let events =
            self.suite.suite_cluster.kubectl.get_json(&arguments).map_err(failed_with_causes)?;
        let text = |event: &Value, field: &str| {
            event[field].as_str().map(str::to_owned).unwrap_or_default()
        };
        let items = events["items"].as_array().cloned().unwrap_or_default();
        Ok(items.iter().map(|event| (text(event, "reason"), text(event, "message"))).collect())
    }

    fn kubectl_target(&self) -> [&str; 4] {
        ["pod", self.name, "--namespace", NAMESPACE]
    }

    /// A failure message with the pod's events and the plugin's log.
    fn failure_with_events(&self, message: &str) -> Failed {
        let events = self.events().unwrap_or_default();
        let events: Vec<String> =
            events.iter().map(|(reason, text)| format!("\n  {reason}: {text}")).collect();
        let log = self.suite.plugin_log();
        format!("{message}\nevents:{}\nplugin:\n{log}", events.concat()).into()
    }
}

/// The digests of a file's contents, in order.
pub(super) fn file_digests<'a>(events: &'a [ProbeEvent], file: &str) -> Vec<&'a str> {
    events
        .iter()
        .filter_map(|event| match event {
            ProbeEvent::Changed { path, digest } if path.ends_with(file) => Some(digest.as_str()),
            _ => None,
        })
        .collect()
}

/// Expects that reads happened and none failed.
fn expect_no_lost_file(events: &[ProbeEvent]) -> Result<(), Failed> {
    let lost: Vec<_> =
        events.iter().filter(|it| matches!(it, ProbeEvent::Unreadable { .. })).collect();
    if !lost.is_empty() {
        return Err(format!("files were lost: {lost:?}").into());
    }
    let reads = events.iter().rev().find_map(|event| match event {
        ProbeEvent::Alive { reads } => Some(*reads),
        _ => None,
    });
    if reads.is_some_and(|reads| reads > 0) { Ok(()) } else { Err("nothing was read".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen_event(path: &str, digest: &str) -> ProbeEvent {
        ProbeEvent::Changed { path: path.to_owned(), digest: digest.to_owned() }
    }

    #[test]
    fn lost_file_fails_the_check() {
        let whole =
            vec![seen_event("/a", "1"), ProbeEvent::Alive { reads: 50 }, seen_event("/a", "2")];
        assert!(expect_no_lost_file(&whole).is_ok());
        let lost = ProbeEvent::Unreadable { path: "/a".to_owned(), error: "gone".to_owned() };
        assert!(expect_no_lost_file(&[whole.clone(), vec![lost]].concat()).is_err());
        assert!(expect_no_lost_file(&whole[..1]).is_err());
        assert_eq!(file_digests(&whole, "/a"), ["1", "2"]);
    }

    #[test]
    fn probe_event_lines_are_parsed() {
        let line = r#"{"event":"changed","path":"/a","length":3,"digest":"00ff"}"#;
        assert_eq!(
            serde_json::from_str::<ProbeEvent>(line).expect("it is one"),
            seen_event("/a", "00ff")
        );
        let line = r#"{"event":"unreadable","path":"/a","error":"gone"}"#;
        assert!(matches!(serde_json::from_str(line), Ok(ProbeEvent::Unreadable { .. })));
        let line = r#"{"event":"alive","reads":7}"#;
        assert_eq!(
            serde_json::from_str::<ProbeEvent>(line).expect("it is one"),
            ProbeEvent::Alive { reads: 7 }
        );
    }
}
