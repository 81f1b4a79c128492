//! Pods that read a volume again and again, and what they say about it.

use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{DRIVER, NAMESPACE, START, Stage, chain};

/// Where the volume lies in every pod.
pub(super) const MOUNT: &str = "/mnt/secrets";

/// The volume of a pod.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Volume {
    /// The SecretProviderClass.
    pub(super) class: &'static str,
    /// `nodePublishSecretRef`.
    pub(super) secret: Option<&'static str>,
    /// `subPath` of the container's mount.
    pub(super) sub_path: Option<&'static str>,
}

impl Volume {
    pub(super) fn of(class: &'static str) -> Self {
        Self { class, ..Self::default() }
    }
}

/// A pod whose one container is the witness.
#[derive(Debug, Clone)]
pub(super) struct Pod<'a> {
    stage: &'a Stage,
    name: &'static str,
    manifest: Value,
}

/// What the witness tells.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum Sight {
    /// A file has this content now.
    Seen { path: String, digest: String },
    /// A file cannot be read.
    Lost { path: String, error: String },
    /// So many reads until now.
    Alive { reads: u64 },
}

impl<'a> Pod<'a> {
    /// A pod that watches files of its volume.
    pub(super) fn new(
        stage: &'a Stage,
        name: &'static str,
        volume: Volume,
        files: &[&str],
    ) -> Self {
        let mut arguments = vec!["watch".to_owned(), "20".to_owned()];
        arguments.extend(files.iter().map(|file| format!("{MOUNT}/{file}")));
        let mut mount = json!({ "name": "secrets", "mountPath": MOUNT, "readOnly": true });
        if let Some(path) = volume.sub_path {
            mount["subPath"] = json!(path);
            mount["mountPath"] = json!(format!("{MOUNT}/{path}"));
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
                    "image": stage.images.witness,
                    "imagePullPolicy": "Never",
                    "args": arguments,
                    "volumeMounts": [mount],
                }],
                "volumes": [{ "name": "secrets", "csi": csi }],
            },
        });
        Self { stage, name, manifest }
    }

    /// The same with a ServiceAccount.
    pub(super) fn with_account(mut self, account: &str) -> Self {
        self.manifest["spec"]["serviceAccountName"] = json!(account);
        self
    }

    /// The same as a user, with the groups that a pod may have.
    pub(super) fn with_security(mut self, security: Value) -> Self {
        self.manifest["spec"]["securityContext"] = security;
        self
    }

    /// Makes the pod and waits until it runs and has read once.
    pub(super) async fn run(&self) -> Result<(), Failed> {
        self.create()?;
        let runs = |pod: &Value| pod["status"]["phase"] == "Running";
        let what = format!("pod {} runs", self.name);
        let (kubectl, place) = (&self.stage.site.kubectl, self.place());
        let running = kubectl.await_object(&what, START, &place, runs).await;
        running.map_err(|error| self.told(&error.to_string()))?;
        self.await_sight("the first read", START, |sights| !sights.is_empty()).await?;
        Ok(())
    }

    /// Makes the pod.
    pub(super) fn create(&self) -> Result<(), Failed> {
        self.stage.site.kubectl.apply(&self.manifest).map_err(chain)
    }

    /// The pod as the API has it.
    pub(super) fn object(&self) -> Result<Value, Failed> {
        self.stage.site.kubectl.read(&self.place()).map_err(chain)
    }

    /// A file of the volume, read by a new process in the container.
    pub(super) fn read(&self, file: &str) -> Result<String, Failed> {
        self.witness(&["read", &format!("{MOUNT}/{file}")])
    }

    /// What a new process in the container says.
    pub(super) fn witness(&self, words: &[&str]) -> Result<String, Failed> {
        let mut arguments = vec!["exec", self.name, "--namespace", NAMESPACE, "--", "/witness"];
        arguments.extend(words);
        self.stage.site.kubectl.run(&arguments).map_err(chain)
    }

    /// Everything that the container has told.
    pub(super) fn sights(&self) -> Result<Vec<Sight>, Failed> {
        let log = self.stage.site.kubectl.run(&["logs", self.name, "--namespace", NAMESPACE]);
        let log = log.map_err(chain)?;
        // The last line may still be written.
        let lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.map(|line| serde_json::from_str(line).map_err(chain)).collect()
    }

    /// Waits until what the container has told is as `is_so` says.
    pub(super) async fn await_sight(
        &self,
        what: &str,
        patience: Duration,
        is_so: impl Fn(&[Sight]) -> bool,
    ) -> Result<Vec<Sight>, Failed> {
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + patience;
        loop {
            // A container that has just begun has no log yet.
            let sights = self.sights();
            if sights.as_ref().is_ok_and(|sights| is_so(sights)) {
                return sights;
            }
            if clock.monotonic() > deadline {
                let seen = format!("{what}: not within {} s; {sights:?}", patience.as_secs());
                return Err(self.told(&seen));
            }
            clock.sleep(Duration::from_millis(300)).await;
        }
    }

    /// Nothing was ever lost, and something was read all the time, by one container: the log of one
    /// that was started again does not hold what its forerunner lost.
    pub(super) fn judge_whole(&self, sights: &[Sight]) -> Result<(), Failed> {
        let container = self.object()?["status"]["containerStatuses"][0].take();
        if container["restartCount"] != 0 {
            return Err(format!("the container was restarted: {container}").into());
        }
        judge(sights)
    }

    /// Deletes the pod and waits until it is gone.
    pub(super) fn delete(&self) -> Result<(), Failed> {
        let arguments = ["pod", self.name, "--namespace", NAMESPACE];
        self.stage.site.kubectl.delete(&arguments).map_err(chain)
    }

    /// Events about the pod, newest last.
    pub(super) fn events(&self) -> Result<Vec<(String, String)>, Failed> {
        let selector = format!("involvedObject.name={}", self.name);
        let arguments = ["events", "--namespace", NAMESPACE, "--field-selector", &selector];
        let events = self.stage.site.kubectl.read(&arguments).map_err(chain)?;
        let text = |event: &Value, field: &str| {
            event[field].as_str().map(str::to_owned).unwrap_or_default()
        };
        let items = events["items"].as_array().cloned().unwrap_or_default();
        Ok(items.iter().map(|event| (text(event, "reason"), text(event, "message"))).collect())
    }

    fn place(&self) -> [&str; 4] {
        ["pod", self.name, "--namespace", NAMESPACE]
    }

    /// A failure with what the cluster has told about the pod.
    fn told(&self, message: &str) -> Failed {
        let events = self.events().unwrap_or_default();
        let events: Vec<String> =
            events.iter().map(|(reason, text)| format!("\n  {reason}: {text}")).collect();
        let log = self.stage.plugin_log();
        format!("{message}\nevents:{}\nplugin:\n{log}", events.concat()).into()
    }
}

/// The contents that were seen of a file, in their order.
pub(super) fn digests<'a>(sights: &'a [Sight], file: &str) -> Vec<&'a str> {
    sights
        .iter()
        .filter_map(|sight| match sight {
            Sight::Seen { path, digest } if path.ends_with(file) => Some(digest.as_str()),
            _ => None,
        })
        .collect()
}

/// Nothing was ever lost, and something was read.
fn judge(sights: &[Sight]) -> Result<(), Failed> {
    let lost: Vec<_> = sights.iter().filter(|it| matches!(it, Sight::Lost { .. })).collect();
    if !lost.is_empty() {
        return Err(format!("files were lost: {lost:?}").into());
    }
    let reads = sights.iter().rev().find_map(|sight| match sight {
        Sight::Alive { reads } => Some(*reads),
        _ => None,
    });
    if reads.is_some_and(|reads| reads > 0) { Ok(()) } else { Err("nothing was read".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: &str, digest: &str) -> Sight {
        Sight::Seen { path: path.to_owned(), digest: digest.to_owned() }
    }

    #[test]
    fn a_lost_file_is_never_forgiven() {
        let whole = vec![seen("/a", "1"), Sight::Alive { reads: 50 }, seen("/a", "2")];
        assert!(judge(&whole).is_ok());
        let lost = Sight::Lost { path: "/a".to_owned(), error: "gone".to_owned() };
        assert!(judge(&[whole.clone(), vec![lost]].concat()).is_err());
        assert!(judge(&whole[..1]).is_err());
        assert_eq!(digests(&whole, "/a"), ["1", "2"]);
    }

    #[test]
    fn the_lines_of_the_witness_are_understood() {
        let line = r#"{"event":"seen","path":"/a","length":3,"digest":"00ff"}"#;
        assert_eq!(serde_json::from_str::<Sight>(line).expect("it is one"), seen("/a", "00ff"));
        let line = r#"{"event":"lost","path":"/a","error":"gone"}"#;
        assert!(matches!(serde_json::from_str(line), Ok(Sight::Lost { .. })));
        let line = r#"{"event":"alive","reads":7}"#;
        assert_eq!(
            serde_json::from_str::<Sight>(line).expect("it is one"),
            Sight::Alive { reads: 7 }
        );
    }
}
