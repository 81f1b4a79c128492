//! The process that is killed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use lanyard_api::SecretProviderClass;
use lanyard_clock::SystemClock;
use lanyard_keyvault::{Pod, Proofs, SecretBytes};
use lanyard_node::{
    FillRequest, FilledFile, Filling, MemoryClasses, MountOrder, NoReporter, ObjectVersion,
    Provider, PublishFailure, Publisher, PublisherParts, PublisherSettings, Refusal,
};
use lanyard_vocabulary::OutcomeCode;
use libtest_mimic::Failed;

/// The first argument of a child.
pub(crate) const NAME: &str = "child";

/// The exit code of a child whose work was refused.
pub(crate) const REFUSED: u8 = 3;

/// What a generation of this version holds, by path. Later ones are larger, so that the file
/// system has to grow.
pub(crate) fn files(version: &str) -> BTreeMap<&'static str, String> {
    let size = 50_000 * version.parse::<usize>().unwrap_or(0);
    BTreeMap::from([
        ("cert", format!("cert {version}")),
        ("large", format!("{version}{}", "x".repeat(size))),
        ("tls/key", format!("key {version}")),
        ("tls/chain/root", format!("root {version}")),
        if version == "1" { ("old", "1".to_owned()) } else { ("new", version.to_owned()) },
    ])
}

/// `work kubelet-dir target version staged crash-point`.
///
/// # Errors
///
/// Where it could not be begun.
pub(crate) fn main(mut arguments: impl Iterator<Item = String>) -> Result<ExitCode, Failed> {
    let mut next = || arguments.next().unwrap_or_default();
    let (work, kubelet_dir, target, version) = (next(), next(), next(), next());
    let (is_staged, crash) = (next() == "staged", next());
    let mut settings = PublisherSettings::new(kubelet_dir, "secrets-store.csi.k8s.io");
    settings.staged_mounts = is_staged;
    settings.crash_at = if crash.is_empty() { None } else { Some(crash.parse()?) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(match runtime.block_on(run(&work, settings, PathBuf::from(target), version)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            writeln!(std::io::stderr(), "{}", failure.status_message())?;
            ExitCode::from(REFUSED)
        }
    })
}

async fn run(
    work: &str,
    settings: PublisherSettings,
    target: PathBuf,
    version: String,
) -> Result<(), PublishFailure> {
    let mut class = SecretProviderClass::default();
    class.metadata.namespace = Some("ns".to_owned());
    class.metadata.name = Some("class".to_owned());
    let parts = PublisherParts {
        classes: Arc::new(MemoryClasses::new([class])),
        provider: Arc::new(Vault(version.clone())),
        reporter: Arc::new(NoReporter),
        clock: SystemClock::shared(),
    };
    let publisher = Publisher::new(settings, parts);
    publisher.recover().await?;
    if work == "unpublish" {
        return publisher.unpublish("csi-1", &target).await;
    }
    // Another attribute makes a mounted volume due at once, whatever the time.
    let attributes = BTreeMap::from([("version".to_owned(), version)]);
    let pod = Pod {
        namespace: "ns".to_owned(),
        name: "pod".to_owned(),
        uid: "uid".to_owned(),
        service_account: "sa".to_owned(),
    };
    let order = MountOrder {
        volume_id: "csi-1".to_owned(),
        target,
        pod,
        class_name: "class".to_owned(),
        attributes,
        proofs: Proofs::default(),
        group: Some(2000),
    };
    publisher.publish(order.clone()).await?;
    // The kubelet comes again within a second.
    publisher.publish(order).await
}

/// Gives the files of a version, or nothing at all.
#[derive(Debug)]
struct Vault(String);

#[async_trait]
impl Provider for Vault {
    async fn fill(&self, _request: &FillRequest<'_>) -> Result<Filling, Refusal> {
        if self.0 == "fail" {
            return Err(Refusal::new(OutcomeCode::VaultUnavailable, "out of reach"));
        }
        let id = "secret/one".to_owned();
        let file = |(path, text): (&str, String)| {
            let content = SecretBytes::from(text);
            Some(FilledFile { path: path.parse().ok()?, mode: None, content, object: None })
        };
        Ok(Filling {
            files: files(&self.0).into_iter().filter_map(file).collect(),
            versions: vec![ObjectVersion { id, version: self.0.clone() }],
            stamps: BTreeMap::new(),
            stale_since: None,
        })
    }
}
