//! The shared test fixture of the publisher: a node on real tmpfs mounts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_api::SecretProviderClass;
use lanyard_clock::ManualClock;
use lanyard_keyvault::{PodCredentials, SharedSecretBytes, VolumePod};
use lanyard_provider::{
    InMemoryClassSource, ObjectTimestamps, Provider, ProviderError, ProviderFile,
    ProviderObjectVersion, ProviderRequest, ProviderResponse, StaleResponse, Urgency,
};
use lanyard_vocabulary::OutcomeCode;
use lanyard_volume::{MountTable, TmpfsMount};
use parking_lot::Mutex;
use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::failure::PublishFailure;
use super::{Publisher, PublisherParts, PublisherSettings};
use crate::marker::VolumeMarker;
use crate::publish_request::PublishRequest;
use crate::reporter::{
    PodEvent, PodEventKind, PollResult, Reporter, StatusReportError, VolumeStatusUpdate,
};

pub(super) const DRIVER_NAME: &str = "secrets-store.csi.k8s.io";

pub(super) fn pod() -> VolumePod {
    VolumePod {
        namespace: "ns".to_owned(),
        name: "pod".to_owned(),
        uid: "11111111-2222-3333-4444-555555555555".to_owned(),
        service_account: "sa".to_owned(),
    }
}

pub(super) fn publish_request(target: impl Into<PathBuf>) -> PublishRequest {
    PublishRequest {
        volume_id: "csi-1".to_owned(),
        target: target.into(),
        pod: pod(),
        class_name: "class".to_owned(),
        attributes: BTreeMap::new(),
        pod_credentials: PodCredentials::default(),
        group: None,
    }
}

pub(super) fn marker_with_generation(generation: &str) -> VolumeMarker {
    let blank = VolumeMarker::uncertified_for(&publish_request("/t"), Timestamp::UNIX_EPOCH);
    VolumeMarker { generation: generation.to_owned(), ..blank }
}

/// A provider that returns scripted responses and blocks requests while its gate is closed.
#[derive(Debug)]
pub(super) struct ScriptedProvider {
    response: Mutex<ScriptedResponse>,
    gate: Semaphore,
    pub(super) requests: AtomicUsize,
    pub(super) urgencies: Mutex<Vec<Urgency>>,
}

#[derive(Debug, Clone)]
struct ScriptedResponse {
    files: Vec<(String, String)>,
    version: String,
    timestamps: ObjectTimestamps,
    warnings: Vec<String>,
    stale: Option<StaleResponse>,
    error: Option<ProviderError>,
}

impl ScriptedProvider {
    pub(super) fn set_files(&self, files: &[(&str, &str)], version: &str) {
        let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        *self.response.lock() = ScriptedResponse {
            files: files.iter().map(own).collect(),
            version: version.to_owned(),
            timestamps: ObjectTimestamps::default(),
            warnings: Vec::new(),
            stale: None,
            error: None,
        };
    }

    /// Responds with a credential document from now on, with these timestamps.
    pub(super) fn set_credential(&self, text: &str, version: &str, not_before: Timestamp) {
        self.set_files(&[("cert", text)], version);
        self.set_timestamps(ObjectTimestamps {
            not_before: Some(not_before),
            is_credential: true,
            ..ObjectTimestamps::default()
        });
    }

    pub(super) fn set_timestamps(&self, stamps: ObjectTimestamps) {
        self.response.lock().timestamps = stamps;
    }

    pub(super) fn set_warnings(&self, warnings: &[&str]) {
        self.response.lock().warnings = warnings.iter().map(ToString::to_string).collect();
    }

    /// Responds with cached content since then, because the vault is unreachable.
    pub(super) fn set_stale_since(&self, since: Option<Timestamp>) {
        let instead_of =
            || ProviderError::new(OutcomeCode::VaultUnavailable, "no way to the vault");
        self.response.lock().stale =
            since.map(|since| StaleResponse { since, fetch_error: instead_of() });
    }

    pub(super) fn fail_with(&self, code: OutcomeCode) {
        self.response.lock().error = Some(ProviderError::new(code, "the vault said no"));
    }

    pub(super) fn clear_failure(&self) {
        self.response.lock().error = None;
    }

    /// Blocks requests until [`Self::open_gate`].
    pub(super) async fn close_gate(&self) {
        self.gate.acquire_many(GATE_PERMITS).await.unwrap().forget();
    }

    pub(super) fn open_gate(&self) {
        self.gate.add_permits(usize::try_from(GATE_PERMITS).unwrap());
    }

    pub(super) fn request_count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

const GATE_PERMITS: u32 = 1000;

#[async_trait]
impl Provider for ScriptedProvider {
    async fn fetch(
        &self,
        request: &ProviderRequest<'_>,
    ) -> Result<ProviderResponse, ProviderError> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.urgencies.lock().push(request.urgency);
        let _through = self.gate.acquire().await.unwrap();
        let answer = self.response.lock().clone();
        if let Some(error) = answer.error {
            return Err(error);
        }
        let id = "secret/one".to_owned();
        let file = |(path, text): &(String, String)| ProviderFile {
            path: path.parse().unwrap(),
            mode: None,
            content: SharedSecretBytes::from(text.clone()),
            object: Some(id.clone()),
        };
        Ok(ProviderResponse {
            files: answer.files.iter().map(file).collect(),
            versions: vec![ProviderObjectVersion { id: id.clone(), version: answer.version }],
            timestamps: BTreeMap::from([(id, answer.timestamps)]),
            warnings: answer.warnings,
            stale: answer.stale,
        })
    }
}

/// A reporter that records events and polls.
#[derive(Debug, Default)]
pub(super) struct RecordingReporter {
    pub(super) reports: Mutex<Vec<VolumeStatusUpdate>>,
    pub(super) events: Mutex<Vec<PodEvent>>,
    pub(super) polls: Mutex<Vec<PollResult>>,
    pub(super) forgotten: Mutex<Vec<PathBuf>>,
    pub(super) fails_status_writes: std::sync::atomic::AtomicBool,
}

impl RecordingReporter {
    pub(super) fn event_kinds(&self) -> Vec<PodEventKind> {
        self.events.lock().iter().map(|notice| notice.kind).collect()
    }
}

#[async_trait]
impl Reporter for RecordingReporter {
    async fn report_status(&self, report: &VolumeStatusUpdate) -> Result<(), StatusReportError> {
        if self.fails_status_writes.load(Ordering::SeqCst) {
            return Err(StatusReportError { message: "no response".to_owned() });
        }
        self.reports.lock().push(report.clone());
        Ok(())
    }

    fn emit_event(&self, notice: PodEvent) {
        self.events.lock().push(notice);
    }

    fn record_poll(&self, poll: &PollResult) {
        self.polls.lock().push(poll.clone());
    }

    fn forget_volume(&self, target: &Path) {
        self.forgotten.lock().push(target.to_owned());
    }
}

/// A kubelet's directory, a provider and a reporter. Dropping it unmounts its mounts.
#[derive(Debug)]
pub(super) struct PublisherFixture {
    pub(super) dir: TempDir,
    pub(super) clock: ManualClock,
    pub(super) provider: Arc<ScriptedProvider>,
    pub(super) reporter: Arc<RecordingReporter>,
    pub(super) staged_mounts: bool,
}

impl PublisherFixture {
    /// A node that mounts volumes, which needs a privilege.
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let probe = TmpfsMount::mount_or_adopt(dir.path(), 1 << 20).and_then(TmpfsMount::unmount);
        probe.expect("mount file systems as root, or in a user and mount namespace");

        let answer = ScriptedResponse {
            files: vec![("cert".to_owned(), "one".to_owned())],
            version: "v1".to_owned(),
            timestamps: ObjectTimestamps::default(),
            warnings: Vec::new(),
            stale: None,
            error: None,
        };
        let provider = ScriptedProvider {
            response: Mutex::new(answer),
            gate: Semaphore::new(usize::try_from(GATE_PERMITS).unwrap()),
            requests: AtomicUsize::new(0),
            urgencies: Mutex::default(),
        };
        Self {
            dir,
            clock: ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap()),
            provider: Arc::new(provider),
            reporter: Arc::default(),
            staged_mounts: true,
        }
    }

    /// A new process of the node plugin.
    pub(super) fn start(&self) -> Publisher {
        let settings = PublisherSettings {
            staged_mounts: self.staged_mounts,
            ..PublisherSettings::new(self.dir.path(), DRIVER_NAME)
        };
        self.start_with(settings)
    }

    pub(super) fn start_with(&self, settings: PublisherSettings) -> Publisher {
        self.start_with_annotations(settings, &[])
    }

    /// Sets the class with annotations.
    pub(super) fn start_with_annotations(
        &self,
        settings: PublisherSettings,
        annotations: &[(&str, &str)],
    ) -> Publisher {
        let own = |(key, text): &(&str, &str)| ((*key).to_owned(), (*text).to_owned());
        let mut class = SecretProviderClass::default();
        class.metadata.namespace = Some("ns".to_owned());
        class.metadata.name = Some("class".to_owned());
        class.metadata.annotations = Some(annotations.iter().map(own).collect());
        let parts = PublisherParts {
            classes: Arc::new(InMemoryClassSource::new([class])),
            provider: Arc::<ScriptedProvider>::clone(&self.provider),
            reporter: Arc::<RecordingReporter>::clone(&self.reporter),
            clock: Arc::new(self.clock.clone()),
        };
        Publisher::new(settings, parts)
    }

    pub(super) fn target_path(&self, volume: &str) -> PathBuf {
        let below = format!("pods/{}/volumes/kubernetes.io~csi/{volume}/mount", pod().uid);
        self.dir.path().join(below)
    }

    /// Creates what the kubelet creates before it calls: the parents of the target.
    pub(super) fn prepare_target(&self, volume: &str) -> PathBuf {
        let target = self.target_path(volume);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        target
    }

    pub(super) fn mount_layers(&self, target: &Path) -> usize {
        let below = target.strip_prefix(self.dir.path()).unwrap();
        let real = self.dir.path().canonicalize().unwrap().join(below);
        MountTable::load().unwrap().layer_count(&real)
    }

    /// Closes the gate of the provider and starts a publish that waits for it.
    pub(super) async fn start_blocked_publish(
        &self,
        publisher: &Publisher,
        target: &Path,
    ) -> JoinHandle<Result<(), PublishFailure>> {
        self.provider.close_gate().await;
        let (publisher, request) = (publisher.clone(), publish_request(target));
        let call = tokio::spawn(async move { publisher.publish(request).await });
        while self.provider.request_count() == 0 {
            tokio::task::yield_now().await;
        }
        call
    }

    /// Advances the clock until a healthy volume is due again.
    pub(super) fn advance_to_next_poll(&self) {
        self.clock.advance(Duration::from_mins(3));
    }
}

impl Drop for PublisherFixture {
    fn drop(&mut self) {
        let dir = self.dir.path().canonicalize().unwrap();
        let Ok(table) = std::fs::read_to_string("/proc/self/mountinfo") else { return };
        let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        let mut points: Vec<_> = points.filter(|point| point.starts_with(&dir)).collect();
        points.reverse();
        for point in points {
            let _gone = unmount(&point, UnmountFlags::DETACH);
        }
    }
}

pub(super) fn read_file(target: &Path, name: &str) -> String {
    std::fs::read_to_string(target.join(name)).unwrap()
}
