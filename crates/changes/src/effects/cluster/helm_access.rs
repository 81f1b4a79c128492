//! Access to the Helm releases of one cluster for effects: runs `helm`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use lanyard_clock::SharedClock;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::helm_command::{HelmRelease, major_version, release_arguments, upgrade_arguments};
use super::helm_error::{HelmError, HelmFailure};
use super::helm_output::{
    DEPLOYED, METADATA, PendingRepair, error_message, failure_of, is_abandoned, is_pending,
    pending_repair, release_body,
};
use super::ids::HelmReleaseId;
use crate::accepted_write::WriteProgress;
use crate::creation_evidence::CreationMark;
use crate::effect::EffectAccess;
use crate::effect_error::EffectError;
use crate::live_state::LiveResource;
use crate::ownership_tags::OwnershipTags;
use crate::resource_id::ResourceId;

/// The longest run of a command that waits for nothing.
const SHORT_LIMIT: Duration = Duration::from_mins(1);

/// The longest run of an uninstallation or a roll-back. Helm waits for 5 minutes for each hook and for the objects.
const REMOVAL_LIMIT: Duration = Duration::from_mins(15);

const JSON: &str = "--output=json";

/// How `helm` is run for one cluster.
#[derive(Clone)]
pub struct HelmSettings {
    /// The name of the cluster in ids.
    pub cluster: String,
    /// The program: Helm 3.13 or later, or 4.
    pub binary: PathBuf,
    /// The kubeconfig file.
    pub kubeconfig: PathBuf,
    /// The context of the kubeconfig; `None` for the current one.
    pub context: Option<String>,
    /// An existing private directory for Helm's cache, configuration and data.
    pub home: PathBuf,
    /// The environment of Helm beside `KUBECONFIG` and the directories: Helm gets no other variable of this process.
    /// Credential plugins need `PATH` and `HOME`.
    pub environment: Vec<(OsString, OsString)>,
    /// After this time, a release that is still pending was left by a killed Helm. Longer than any timeout of a release.
    pub lease: Duration,
}

/// Reads and writes the releases of one cluster.
pub struct HelmAccess {
    settings: HelmSettings,
    major_version: u32,
    clock: SharedClock,
}

lanyard_vocabulary::debug_fields!(HelmSettings);
lanyard_vocabulary::debug_fields!(HelmAccess);

impl HelmAccess {
    /// Reads the version of Helm. Sends no request to the cluster.
    ///
    /// # Errors
    ///
    /// [`HelmError`] if Helm is missing or too old.
    pub async fn open(settings: HelmSettings, clock: SharedClock) -> Result<Self, HelmError> {
        let mut access = Self { settings, major_version: 0, clock };
        let arguments = ["version", "--template={{.Version}}"].map(str::to_owned);
        let output = access.run(&arguments, None, SHORT_LIMIT).await?;
        let version = error_message(&String::from_utf8_lossy(&output));
        let Some(major_version) = major_version(&version) else {
            return Err(HelmError::Version { binary: access.settings.binary, version });
        };
        access.major_version = major_version;
        Ok(access)
    }

    /// Installs or upgrades a release, and waits until its objects are ready.
    pub(super) async fn upgrade(
        &self,
        id: &HelmReleaseId,
        release: &HelmRelease,
        values: &Value,
        tags: Option<&OwnershipTags>,
    ) -> Result<(), HelmError> {
        let arguments = upgrade_arguments(id, release, tags, self.major_version);
        // The timeout counts for each hook and for the objects.
        let limit = release.timeout.saturating_mul(3).saturating_add(SHORT_LIMIT);
        self.run(&arguments, Some(values.to_string()), limit).await.map(drop)
    }

    /// Repairs a release that a killed Helm left. One on which another Helm may still work is an error.
    pub(super) async fn repair(&self, id: &HelmReleaseId, live: &Value) -> Result<(), HelmError> {
        if !is_pending(live) {
            return Ok(());
        }
        self.check_abandoned(id, live)?;
        let status = live["status"].as_str().unwrap_or_default();
        let history = self.query(&["history"], id, JSON).await?;
        match pending_repair(status, &history) {
            // The upgrade behind it waits.
            PendingRepair::RollBack(revision) => self.roll_back(id, revision, &[]).await,
            PendingRepair::Uninstall => self.uninstall(id).await,
        }
    }

    /// The release with this id, which must be one of this cluster.
    pub(super) fn release(&self, id: &ResourceId) -> Result<HelmReleaseId, HelmError> {
        Ok(HelmReleaseId::of(&self.settings.cluster, id)?)
    }

    pub(super) async fn read_body(&self, id: &HelmReleaseId) -> Result<Option<Value>, HelmError> {
        let status = match self.query(&["status"], id, JSON).await {
            Err(HelmError::Failed { failure: HelmFailure::ReleaseNotFound, .. }) => {
                return Ok(None);
            }
            status => status?,
        };
        let metadata = self.query(&["get", "all"], id, METADATA).await?;
        Ok(Some(release_body(&status, &metadata)))
    }

    fn check_abandoned(&self, id: &HelmReleaseId, live: &Value) -> Result<(), HelmError> {
        if !is_pending(live) || is_abandoned(live, self.clock.now(), self.settings.lease) {
            return Ok(());
        }
        let release = format!("{}/{}", id.namespace, id.name);
        let text = |name: &str| live[name].as_str().unwrap_or("an unknown time").to_owned();
        Err(HelmError::Pending { release, status: text("status"), since: text("lastChanged") })
    }

    async fn roll_back(
        &self,
        id: &HelmReleaseId,
        revision: u64,
        flags: &[&str],
    ) -> Result<(), HelmError> {
        let revision = revision.to_string();
        let arguments = release_arguments(&["rollback"], id, &[&[&*revision], flags].concat());
        self.run(&arguments, None, REMOVAL_LIMIT).await.map(drop)
    }

    async fn uninstall(&self, id: &HelmReleaseId) -> Result<(), HelmError> {
        let arguments = release_arguments(&["uninstall"], id, &["--wait", "--ignore-not-found"]);
        self.run(&arguments, None, REMOVAL_LIMIT).await.map(drop)
    }

    /// Runs a command that prints JSON.
    async fn query(
        &self,
        command: &[&str],
        id: &HelmReleaseId,
        format: &str,
    ) -> Result<Value, HelmError> {
        let arguments = release_arguments(command, id, &[format]);
        let output = self.run(&arguments, None, SHORT_LIMIT).await?;
        serde_json::from_slice(&output).map_err(|error| {
            // Never the text, which can contain values of the release.
            let (category, line) = (error.classify(), error.line());
            let message = format!("the output is invalid: {category:?}, line {line}");
            let command = command.join(" ");
            HelmError::Failed { command, message, failure: HelmFailure::Invalid }
        })
    }

    /// Runs Helm, and returns what it printed. `input` is its standard input.
    async fn run(
        &self,
        arguments: &[String],
        input: Option<String>,
        limit: Duration,
    ) -> Result<Vec<u8>, HelmError> {
        let HelmSettings { binary, kubeconfig, context, home, environment, .. } = &self.settings;
        let mut command = Command::new(binary);
        command.args(arguments).env_clear().env("KUBECONFIG", kubeconfig);
        for (variable, directory) in [
            ("HELM_CACHE_HOME", "cache"),
            ("HELM_CONFIG_HOME", "config"),
            ("HELM_DATA_HOME", "data"),
            ("KUBECACHEDIR", "discovery"),
        ] {
            command.env(variable, home.join(directory));
        }
        if let Some(context) = context {
            command.arg(format!("--kube-context={context}"));
        }
        command.envs(environment.iter().map(|(name, value)| (name, value))).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start_error = |source| HelmError::Start { binary: binary.clone(), source };
        let mut child = command.spawn().map_err(start_error)?;
        let stdin = child.stdin.take();
        let write = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // A Helm that ends before it has read the values reports why.
                drop(stdin.write_all(input.as_bytes()).await);
            }
        };
        let run = async { tokio::join!(write, child.wait_with_output()).1 };
        let failed = |message: String, failure| {
            let command = arguments.first().cloned().unwrap_or_default();
            Err(HelmError::Failed { command, message, failure })
        };
        let output = tokio::select! {
            output = run => output.map_err(start_error)?,
            () = self.clock.sleep(limit) => {
                let message = format!("it did not end within {}s", limit.as_secs());
                return failed(message, HelmFailure::NotReady);
            }
        };
        if output.status.success() {
            return Ok(output.stdout);
        }
        let message = error_message(&String::from_utf8_lossy(&output.stderr));
        let failure = failure_of(&message);
        failed(if message.is_empty() { output.status.to_string() } else { message }, failure)
    }
}

impl EffectAccess for HelmAccess {
    /// An uninstalled release cannot be restored, because its chart is not in the journal.
    fn is_container(_id: &ResourceId) -> bool {
        true
    }

    fn live_resource(id: &ResourceId, body: Value) -> LiveResource {
        let at = body["firstDeployed"].as_str().map(str::to_owned);
        let creation = CreationMark { at, ..CreationMark::default() };
        LiveResource { id: id.clone(), body, creation, has_tags: true }
    }

    fn is_restored(_id: &ResourceId, body: &Value, live: &Value) -> bool {
        live["status"] == DEPLOYED && ["chart", "values"].iter().all(|it| body[it] == live[it])
    }

    async fn read(&self, id: &ResourceId) -> Result<Option<LiveResource>, EffectError> {
        let body = self.read_body(&self.release(id)?).await?;
        Ok(body.map(|body| Self::live_resource(id, body)))
    }

    async fn delete(
        &self,
        id: &ResourceId,
        live: &LiveResource,
    ) -> Result<WriteProgress, EffectError> {
        let id = self.release(id)?;
        self.check_abandoned(&id, &live.body)?;
        self.uninstall(&id).await?;
        Ok(WriteProgress::Complete(Value::Null))
    }

    /// Rolls back to the revision before the run.
    async fn restore(
        &self,
        id: &ResourceId,
        body: &Value,
        live: Option<&LiveResource>,
    ) -> Result<WriteProgress, EffectError> {
        let id = self.release(id)?;
        if let Some(live) = live {
            self.check_abandoned(&id, &live.body)?;
        }
        self.roll_back(&id, body["revision"].as_u64().unwrap_or_default(), &["--wait"]).await?;
        Ok(WriteProgress::Complete(self.read_body(&id).await?.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use lanyard_clock::SystemClock;
    use serde_json::json;

    use super::super::helm_command::HelmChart;
    use super::*;
    use crate::effect::Effect as _;
    use crate::live_state::LiveState;

    /// Writes down how it was run, and prints a release.
    const FAKE_HELM: &str = r#"#!/bin/sh
case "$1" in
version) echo v4.3.1 ;;
upgrade)
  echo "$@" > "$HELM_CACHE_HOME.arguments"
  /usr/bin/env > "$HELM_CACHE_HOME.environment"
  /bin/cat > "$HELM_CACHE_HOME.values" ;;
status) echo '{"version": 1, "info": {"status": "deployed"}}' ;;
get) echo '["api", "1.0.0", ""]' ;;
*) echo "Error: unknown command $1" >&2; exit 1 ;;
esac
"#;

    #[tokio::test]
    async fn values_and_environment_of_helm_are_private() {
        let directory = tempfile::tempdir().unwrap();
        let (binary, home) = (directory.path().join("helm"), directory.path().to_owned());
        std::fs::write(&binary, FAKE_HELM).unwrap();
        std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
        let settings = HelmSettings {
            cluster: "weu".to_owned(),
            binary,
            kubeconfig: "/kubeconfig".into(),
            context: Some("admin".to_owned()),
            home: home.clone(),
            environment: vec![("HOME".into(), "/home".into())],
            lease: Duration::ZERO,
        };
        let access = HelmAccess::open(settings, SystemClock::shared()).await.unwrap();
        let release = HelmRelease {
            chart: HelmChart::Oci("oci://r.example/api".to_owned()),
            version: None,
            values: json!({ "key": "planted" }),
            timeout: Duration::from_secs(9),
            creates_namespace: false,
            rolls_back: false,
        };
        let (tags, live) = (OwnershipTags::new("shop", "shop"), LiveState::default());
        let id = ResourceId::from("helm:weu/shop/api".to_owned());
        let written = release.write(&access, &id, None, &live, &tags).await.unwrap();
        assert!(matches!(written, WriteProgress::Complete(body) if body["status"] == DEPLOYED));
        let read = |name: &str| std::fs::read_to_string(home.join(name)).unwrap();
        let arguments = read("cache.arguments");
        assert!(arguments.ends_with(" --kube-context=admin\n") && !arguments.contains("planted"));
        assert_eq!(read("cache.values"), r#"{"key":"planted"}"#);
        let environment = read("cache.environment");
        let names = environment.lines().filter_map(|line| Some(line.split_once('=')?.0));
        let mut names: Vec<_> = names.filter(|it| !["PWD", "SHLVL", "_"].contains(it)).collect();
        names.sort_unstable();
        let expected = ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "HOME"];
        assert_eq!(names, [&expected[..], &["KUBECACHEDIR", "KUBECONFIG"]].concat());
        let other = ResourceId::from("helm:neu/shop/api".to_owned());
        let problem = access.read(&other).await.unwrap_err().to_string();
        assert_eq!(problem, "`helm:neu/shop/api` is not a resource of the cluster `weu`");
    }
}
