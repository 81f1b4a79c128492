//! One million reads by sixteen readers over a thousand rotations of one volume, through the publisher, on a
//! tmpfs: no file is ever missing or torn, no reader sees an older version after a newer one, and a reader of
//! a whole generation never reads a mixture. The test mounts a file system and needs root; without root it is
//! reported as ignored.

#![cfg(test)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use lanyard_api::SecretProviderClass;
use lanyard_clock::SystemClock;
use lanyard_keyvault::{PodCredentials, SharedSecretBytes, VolumePod};
use lanyard_node::{
    NoopReporter, PublishRequest, Publisher, PublisherParts, PublisherSettings, RefreshOutcome,
};
use lanyard_provider::{
    InMemoryClassSource, Provider, ProviderError, ProviderFile, ProviderObjectVersion,
    ProviderRequest, ProviderResponse, Urgency,
};
use libtest_mimic::{Arguments, Trial};
use parking_lot::{Condvar, Mutex};

const READERS: u64 = 16;
const READS: u64 = 1_000_000;
const ROTATIONS: u64 = 1_000;

/// Returns a new version each time.
#[derive(Debug, Default)]
struct CountingProvider(AtomicU64);

#[async_trait]
impl Provider for CountingProvider {
    async fn fetch(
        &self,
        _request: &ProviderRequest<'_>,
    ) -> Result<ProviderResponse, ProviderError> {
        let version = self.0.fetch_add(1, Ordering::SeqCst);
        let file = |path: &str| ProviderFile {
            path: path.parse().unwrap(),
            mode: None,
            content: SharedSecretBytes::from(content(version)),
            object: None,
        };
        let id = "secret/one".to_owned();
        Ok(ProviderResponse {
            files: vec![file("cert"), file("tls/key")],
            versions: vec![ProviderObjectVersion { id, version: version.to_string() }],
            timestamps: BTreeMap::new(),
            warnings: Vec::new(),
            stale: None,
        })
    }
}

/// Returns a text of which only a complete read yields `version`, with varying lengths.
fn content(version: u64) -> String {
    let length = usize::try_from(version * 37 % 6_000).unwrap();
    format!("{version}:{}:{version}", "x".repeat(length))
}

fn parse_version(text: &str) -> u64 {
    let version = text.split(':').next().unwrap().parse().unwrap();
    assert_eq!(text, content(version), "torn");
    version
}

/// The current rotation. Readers do a fixed number of reads during each, so that the test covers the
/// interleaving of reads and rotations instead of the distribution of processor time.
#[derive(Debug, Default)]
struct RotationRounds(Mutex<u64>, Condvar);

impl RotationRounds {
    fn start_round(&self, round: u64) {
        *self.0.lock() = round;
        self.1.notify_all();
    }

    fn wait_for(&self, round: u64) {
        self.1.wait_while(&mut self.0.lock(), |current| *current < round);
    }
}

/// Reads each file through its symlink, and both files of one generation.
fn read_every_round(target: &Path, rounds: &RotationRounds) -> u64 {
    let read = |path: PathBuf| parse_version(&std::fs::read_to_string(path).unwrap());
    let (mut count, mut last) = (0, 0);
    for round in 1..=ROTATIONS {
        rounds.wait_for(round);
        for _ in 0..READS.div_ceil(READERS * ROTATIONS * 4) {
            let first = read(target.join("cert"));
            let second = read(target.join("tls/key"));
            assert!(last <= first && first <= second, "{last} {first} {second}");
            let generation = target.join(std::fs::read_link(target.join("..data")).unwrap());
            let (third, fourth) = (read(generation.join("cert")), read(generation.join("tls/key")));
            assert!(second <= third && third == fourth, "{second} {third} {fourth}");
            (count, last) = (count + 4, fourth);
        }
    }
    count
}

/// Unmounts the volume, however the test ends.
struct UnmountOnDrop(PathBuf);

impl Drop for UnmountOnDrop {
    fn drop(&mut self) {
        let _absent = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

fn publish_request(target: &Path) -> PublishRequest {
    PublishRequest {
        volume_id: "csi-1".to_owned(),
        target: target.to_owned(),
        pod: VolumePod {
            namespace: "ns".to_owned(),
            name: "pod".to_owned(),
            uid: "uid".to_owned(),
            service_account: "sa".to_owned(),
        },
        class_name: "class".to_owned(),
        attributes: BTreeMap::new(),
        pod_credentials: PodCredentials::default(),
        group: None,
    }
}

fn main() -> ExitCode {
    let name = "a_million_reads_over_a_thousand_rotations_see_no_mixture_and_miss_no_file";
    let trial = Trial::test(name, || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(read_a_million_times());
        Ok(())
    });
    let trial = trial.with_ignored_flag(!rustix::process::geteuid().is_root());
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

async fn read_a_million_times() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("pods/uid/volumes/kubernetes.io~csi/v/mount");
    let _unmounted = UnmountOnDrop(target.clone());
    let mut class = SecretProviderClass::default();
    class.metadata.namespace = Some("ns".to_owned());
    class.metadata.name = Some("class".to_owned());
    let parts = PublisherParts {
        classes: Arc::new(InMemoryClassSource::new([class])),
        provider: Arc::new(CountingProvider::default()),
        reporter: Arc::new(NoopReporter),
        clock: SystemClock::shared(),
    };
    let settings = PublisherSettings::new(dir.path(), "secrets-store.csi.k8s.io");
    let publisher = Publisher::new(settings, parts);
    publisher.publish(publish_request(&target)).await.unwrap();

    let rounds = Arc::new(RotationRounds::default());
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let (target, rounds) = (target.clone(), Arc::clone(&rounds));
            std::thread::spawn(move || read_every_round(&target, &rounds))
        })
        .collect();
    for round in 1..=ROTATIONS {
        rounds.start_round(round);
        let refreshed = publisher.refresh(&target, Urgency::ForceRefresh).await.unwrap();
        assert_eq!(refreshed, RefreshOutcome::Changed);
    }
    let reads: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
    println!("{reads} reads by {READERS} readers over {ROTATIONS} rotations");
    assert!(reads >= READS);
    publisher.unpublish("csi-1", &target).await.unwrap();
    assert!(!target.exists());
}
