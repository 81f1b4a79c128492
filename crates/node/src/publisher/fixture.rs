//! What the tests of the publisher share: a node of its own on real memory file systems.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_api::SecretProviderClass;
use lanyard_clock::ManualClock;
use lanyard_keyvault::{Pod, Proofs, SecretBytes};
use lanyard_vocabulary::OutcomeCode;
use parking_lot::Mutex;
use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::failure::PublishFailure;
use super::{Publisher, PublisherParts, PublisherSettings};
use crate::classes::MemoryClasses;
use crate::marker::Marker;
use crate::mount::Mount;
use crate::mount_table::MountTable;
use crate::order::MountOrder;
use crate::provider::{
    FillRequest, FilledFile, Filling, ObjectVersion, Provider, Refusal, Stale, Stamps, Urgency,
};
use crate::reporter::{Looked, Notice, NoticeKind, ReportError, Reporter, VolumeReport};

pub(super) const DRIVER: &str = "secrets-store.csi.k8s.io";

pub(super) fn pod() -> Pod {
    Pod {
        namespace: "ns".to_owned(),
        name: "pod".to_owned(),
        uid: "11111111-2222-3333-4444-555555555555".to_owned(),
        service_account: "sa".to_owned(),
    }
}

pub(super) fn order(target: impl Into<PathBuf>) -> MountOrder {
    MountOrder {
        volume_id: "csi-1".to_owned(),
        target: target.into(),
        pod: pod(),
        class_name: "class".to_owned(),
        attributes: BTreeMap::new(),
        proofs: Proofs::default(),
        group: None,
    }
}

pub(super) fn marker(generation: &str) -> Marker {
    let blank = Marker::blank(&order("/t"), Timestamp::UNIX_EPOCH);
    Marker { generation: generation.to_owned(), ..blank }
}

/// A provider that gives what it is told to give, and lets nobody through while its gate is shut.
#[derive(Debug)]
pub(super) struct ScriptedProvider {
    answer: Mutex<Answer>,
    gate: Semaphore,
    pub(super) asked: AtomicUsize,
    pub(super) urgencies: Mutex<Vec<Urgency>>,
}

#[derive(Debug, Clone)]
struct Answer {
    files: Vec<(String, String)>,
    version: String,
    stamps: Stamps,
    stale: Option<Stale>,
    refusal: Option<Refusal>,
}

impl ScriptedProvider {
    pub(super) fn gives(&self, files: &[(&str, &str)], version: &str) {
        let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        *self.answer.lock() = Answer {
            files: files.iter().map(own).collect(),
            version: version.to_owned(),
            stamps: Stamps::default(),
            stale: None,
            refusal: None,
        };
    }

    /// From now on a credential document, which begins to be valid then.
    pub(super) fn gives_credential(&self, text: &str, version: &str, not_before: Timestamp) {
        self.gives(&[("cert", text)], version);
        self.stamps(Stamps {
            not_before: Some(not_before),
            is_credential: true,
            ..Stamps::default()
        });
    }

    pub(super) fn stamps(&self, stamps: Stamps) {
        self.answer.lock().stamps = stamps;
    }

    /// What it gives is from the cache since then, because the vault is not reached.
    pub(super) fn stale_since(&self, since: Option<Timestamp>) {
        let instead_of = || Refusal::new(OutcomeCode::VaultUnavailable, "no way to the vault");
        self.answer.lock().stale = since.map(|since| Stale { since, instead_of: instead_of() });
    }

    pub(super) fn refuses(&self, code: OutcomeCode) {
        self.answer.lock().refusal = Some(Refusal::new(code, "the vault said no"));
    }

    pub(super) fn recovers(&self) {
        self.answer.lock().refusal = None;
    }

    /// Lets nobody through until [`Self::open`].
    pub(super) async fn shut(&self) {
        self.gate.acquire_many(OPEN).await.unwrap().forget();
    }

    pub(super) fn open(&self) {
        self.gate.add_permits(usize::try_from(OPEN).unwrap());
    }

    pub(super) fn times_asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

const OPEN: u32 = 1000;

#[async_trait]
impl Provider for ScriptedProvider {
    async fn fill(&self, request: &FillRequest<'_>) -> Result<Filling, Refusal> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.urgencies.lock().push(request.urgency);
        let _through = self.gate.acquire().await.unwrap();
        let answer = self.answer.lock().clone();
        if let Some(refusal) = answer.refusal {
            return Err(refusal);
        }
        let id = "secret/one".to_owned();
        let file = |(path, text): &(String, String)| FilledFile {
            path: path.parse().unwrap(),
            mode: None,
            content: SecretBytes::from(text.clone()),
            object: Some(id.clone()),
        };
        Ok(Filling {
            files: answer.files.iter().map(file).collect(),
            versions: vec![ObjectVersion { id: id.clone(), version: answer.version }],
            stamps: BTreeMap::from([(id, answer.stamps)]),
            stale: answer.stale,
        })
    }
}

/// Remembers what it is told.
#[derive(Debug, Default)]
pub(super) struct Listener {
    pub(super) reports: Mutex<Vec<VolumeReport>>,
    pub(super) notices: Mutex<Vec<Notice>>,
    pub(super) looks: Mutex<Vec<Looked>>,
    pub(super) forgotten: Mutex<Vec<PathBuf>>,
    pub(super) is_deaf: std::sync::atomic::AtomicBool,
}

impl Listener {
    pub(super) fn kinds(&self) -> Vec<NoticeKind> {
        self.notices.lock().iter().map(|notice| notice.kind).collect()
    }
}

#[async_trait]
impl Reporter for Listener {
    async fn report(&self, report: &VolumeReport) -> Result<(), ReportError> {
        if self.is_deaf.load(Ordering::SeqCst) {
            return Err(ReportError { message: "nobody answers".to_owned() });
        }
        self.reports.lock().push(report.clone());
        Ok(())
    }

    fn tell(&self, notice: Notice) {
        self.notices.lock().push(notice);
    }

    fn looked(&self, look: &Looked) {
        self.looks.lock().push(look.clone());
    }

    fn forget(&self, target: &Path) {
        self.forgotten.lock().push(target.to_owned());
    }
}

/// A kubelet's directory, a provider and a listener. Whatever is mounted in it goes with it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) dir: TempDir,
    pub(super) clock: ManualClock,
    pub(super) provider: Arc<ScriptedProvider>,
    pub(super) listener: Arc<Listener>,
    pub(super) staged: bool,
}

impl Node {
    /// A node whose volumes are mounted, which takes a privilege.
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let probe = Mount::tmpfs(dir.path(), 1 << 20).and_then(Mount::unmount);
        probe.expect("mount file systems as root, or in a user and mount namespace");

        let answer = Answer {
            files: vec![("cert".to_owned(), "one".to_owned())],
            version: "v1".to_owned(),
            stamps: Stamps::default(),
            stale: None,
            refusal: None,
        };
        let provider = ScriptedProvider {
            answer: Mutex::new(answer),
            gate: Semaphore::new(usize::try_from(OPEN).unwrap()),
            asked: AtomicUsize::new(0),
            urgencies: Mutex::default(),
        };
        Self {
            dir,
            clock: ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap()),
            provider: Arc::new(provider),
            listener: Arc::default(),
            staged: true,
        }
    }

    /// A new process of the node plugin.
    pub(super) fn start(&self) -> Publisher {
        let settings = PublisherSettings {
            staged_mounts: self.staged,
            ..PublisherSettings::new(self.dir.path(), DRIVER)
        };
        self.start_with(settings)
    }

    pub(super) fn start_with(&self, settings: PublisherSettings) -> Publisher {
        self.start_with_annotations(settings, &[])
    }

    /// The same where the class has annotations.
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
            classes: Arc::new(MemoryClasses::new([class])),
            provider: Arc::<ScriptedProvider>::clone(&self.provider),
            reporter: Arc::<Listener>::clone(&self.listener),
            clock: Arc::new(self.clock.clone()),
        };
        Publisher::new(settings, parts)
    }

    pub(super) fn target(&self, volume: &str) -> PathBuf {
        let below = format!("pods/{}/volumes/kubernetes.io~csi/{volume}/mount", pod().uid);
        self.dir.path().join(below)
    }

    /// What the kubelet makes before it calls: everything but the target itself.
    pub(super) fn prepared(&self, volume: &str) -> PathBuf {
        let target = self.target(volume);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        target
    }

    pub(super) fn layers(&self, target: &Path) -> usize {
        let below = target.strip_prefix(self.dir.path()).unwrap();
        let real = self.dir.path().canonicalize().unwrap().join(below);
        MountTable::load().unwrap().layers(&real)
    }

    /// Shuts the provider, and begins a publish that waits for it.
    pub(super) async fn publishing(
        &self,
        publisher: &Publisher,
        target: &Path,
    ) -> JoinHandle<Result<(), PublishFailure>> {
        self.provider.shut().await;
        let (publisher, order) = (publisher.clone(), order(target));
        let call = tokio::spawn(async move { publisher.publish(order).await });
        while self.provider.times_asked() == 0 {
            tokio::task::yield_now().await;
        }
        call
    }

    /// Time passes until a volume that is well is due again.
    pub(super) fn wait(&self) {
        self.clock.advance(Duration::from_mins(3));
    }
}

impl Drop for Node {
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

pub(super) fn read(target: &Path, name: &str) -> String {
    std::fs::read_to_string(target.join(name)).unwrap()
}
