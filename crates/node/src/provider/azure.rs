//! The Key Vault provider in this process: what [`NodeVaults`] reads, as the fillings of volumes.

mod refusal;
mod stale;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanyard_api::{ParameterProblem, ProviderParameters};
use lanyard_credential::document::CredentialDocument;
use lanyard_keyvault::{
    Demand, FetchError, MountedFile, NodeVaultError, NodeVaults, Priority, ReadOrder, VaultReading,
};
use lanyard_vocabulary::{OutcomeCode, causes};

use self::refusal::refusal_of;
use self::stale::StaleWish;
use crate::path::FilePath;
use crate::provider::{
    FillRequest, FilledFile, Filling, ObjectVersion, Provider, Refusal, Stale, Stamps, Urgency,
};
use crate::rotation::{ClassWishes, IntervalBounds, PollInterval, shortest_wait};

/// How volumes share what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AzureProviderSettings {
    /// How often volumes are looked at whose class says nothing else.
    pub interval: PollInterval,
    /// Between which intervals a class may choose.
    pub bounds: IntervalBounds,
    /// How old a value may be that a starting pod is given: so that a hundred pods which start
    /// together cost one read.
    pub mount_max_age: Duration,
}

impl Default for AzureProviderSettings {
    /// Two minutes, as upstream, and ten seconds for mounts.
    fn default() -> Self {
        Self {
            interval: PollInterval::DEFAULT,
            bounds: IntervalBounds::CLASS,
            mount_max_age: Duration::from_secs(10),
        }
    }
}

/// The Key Vault provider.
///
/// A class opts in to what is served while the vault is not there by the annotation
/// `lanyard.dev/serve-stale: <duration>`: no older than that.
#[derive(Debug)]
pub struct AzureProvider {
    vaults: Arc<NodeVaults>,
    settings: AzureProviderSettings,
}

impl AzureProvider {
    /// A provider that reads from `vaults`.
    pub const fn new(vaults: Arc<NodeVaults>, settings: AzureProviderSettings) -> Self {
        Self { vaults, settings }
    }

    /// How new what is read has to be, and who waits for it.
    ///
    /// A look at a mounted volume takes what another volume read within the interval, so that all
    /// volumes together cost one read for each object and interval. The price: a change reaches the
    /// last of the volumes that share an object within about two intervals (2.1 at most), and a
    /// volume that shares it with none within one (1.1). What tells of its own renewal is read more often around it,
    /// as often as the volumes are looked at.
    fn demand(&self, request: &FillRequest<'_>) -> Demand {
        match request.urgency {
            Urgency::Mount => Demand::within(Priority::High, self.settings.mount_max_age),
            Urgency::Refresh => Demand::within(Priority::Normal, Duration::ZERO),
            Urgency::Rotation => {
                let wishes = ClassWishes::parse(request.class, self.settings.bounds);
                let interval = wishes.interval.unwrap_or(self.settings.interval);
                let own = |wait: Duration| wait.mul_f64(SHORTEST_OWN_CYCLE);
                Demand {
                    priority: Priority::Low,
                    max_age: own(interval.duration()),
                    max_age_near_renewal: own(shortest_wait(interval)),
                }
            }
        }
    }
}

/// A little less than the interval, which no wait is shorter than: a volume that is looked at again
/// after its own interval is never given what it has, only what another has read since. The rest is
/// for what lies between the beginning of a look and that of its read.
const SHORTEST_OWN_CYCLE: f64 = 0.98;

#[async_trait]
impl Provider for AzureProvider {
    async fn fill(&self, request: &FillRequest<'_>) -> Result<Filling, Refusal> {
        let parameters = request.class.parse_parameters().map_err(|problems| {
            let hints = problems.problems().iter().filter_map(ParameterProblem::hint);
            let hint = hints.collect::<Vec<_>>().join("; ");
            let refusal = Refusal::new(OutcomeCode::SecretProviderClassInvalid, causes(&problems));
            if hint.is_empty() { refusal } else { refusal.with_hint(hint) }
        })?;
        let order = ReadOrder {
            parameters: &parameters,
            pod: request.pod,
            proofs: request.proofs,
            demand: self.demand(request),
            serve_stale: StaleWish::parse(request.class)?.map(StaleWish::max_age),
            memory: request.memory,
        };
        // A future of the vault's clients is large.
        let reading =
            Box::pin(self.vaults.fetch(&order)).await.map_err(|error| refusal_of(&error))?;
        filling_of(&parameters, reading)
    }
}

fn filling_of(parameters: &ProviderParameters, reading: VaultReading) -> Result<Filling, Refusal> {
    let (mut versions, mut stamps) = (BTreeMap::new(), BTreeMap::new());
    let mut files = Vec::with_capacity(reading.files.len());
    for file in reading.files {
        let id = file.object.as_str().to_owned();
        versions.insert(id.clone(), file.version.to_string());
        // A secret may be mounted twice, and in two encodings: what is a credential in one of them
        // is one.
        let found = stamps_of(&file);
        let known = stamps.entry(id.clone()).or_insert(found);
        if found.is_credential {
            *known = found;
        }
        files.push(filled_file(id, file)?);
    }
    let stale = reading.outage.map(|outage| {
        let error = NodeVaultError::from(FetchError::from(outage.error));
        Stale { since: outage.since, instead_of: refusal_of(&error) }
    });
    tracing::debug!(vault = %parameters.vault_name, files = files.len(), "vault read");
    let versions = versions.into_iter().map(|(id, version)| ObjectVersion { id, version });
    Ok(Filling { files, versions: versions.collect(), stamps, stale })
}

fn filled_file(id: String, file: MountedFile) -> Result<FilledFile, Refusal> {
    let path: FilePath = file.path.parse().map_err(|error: crate::path::ParseFilePathError| {
        Refusal::new(OutcomeCode::SecretProviderClassInvalid, error.to_string())
            .with_hint("correct objectAlias")
    })?;
    let mode = file.names_mode.then_some(file.mode);
    Ok(FilledFile { path, mode, content: file.content, object: Some(id) })
}

/// What is known about the times of an object: from the credential itself if it is one, else from
/// what the vault tells.
fn stamps_of(file: &MountedFile) -> Stamps {
    let attributes = &file.attributes;
    let told = Stamps {
        created: attributes.created,
        not_before: attributes.not_before,
        not_after: attributes.expires,
        renew_after: attributes.renew_after(),
        is_credential: false,
    };
    let content = file.content.expose();
    // Cheap to tell apart: a document is one JSON object.
    if content.trim_ascii_start().first() != Some(&b'{') {
        return told;
    }
    // The problems of what is none quote nothing, and are of no interest.
    let Ok(document) = CredentialDocument::parse(content) else { return told };
    let stamps = document.stamps();
    Stamps {
        created: told.created,
        not_before: Some(stamps.not_before),
        not_after: stamps.not_after.or(told.not_after),
        renew_after: stamps.renew_after.or(told.renew_after),
        is_credential: true,
    }
}

#[cfg(test)]
mod tests;
