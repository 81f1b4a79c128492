//! The Key Vault provider in this process: what [`NodeVaults`] reads, as the fillings of volumes.

mod error_mapping;
mod serve_stale;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanyard_api::{ParameterProblem, ProviderParameters};
use lanyard_credential::document::CredentialDocument;
use lanyard_keyvault::{
    FetchError, Freshness, MountedFile, NodeVaultError, NodeVaults, RequestPriority,
    VolumeReadRequest, VolumeReadResult,
};
use lanyard_vocabulary::{OutcomeCode, format_error_chain};

use self::error_mapping::provider_error;
use self::serve_stale::ServeStaleLimit;
use crate::file_path::FilePath;
use crate::provider::{
    ObjectTimestamps, Provider, ProviderError, ProviderFile, ProviderObjectVersion,
    ProviderRequest, ProviderResponse, StaleResponse, Urgency,
};
use crate::rotation::{IntervalBounds, PollInterval, RotationPolicy, shortest_wait};

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
    fn freshness(&self, request: &ProviderRequest<'_>) -> Freshness {
        match request.urgency {
            Urgency::Mount => {
                Freshness::with_max_age(RequestPriority::High, self.settings.mount_max_age)
            }
            Urgency::ForceRefresh => {
                Freshness::with_max_age(RequestPriority::Normal, Duration::ZERO)
            }
            Urgency::Rotation => {
                let wishes = RotationPolicy::parse(request.class, self.settings.bounds);
                let interval = wishes.interval.unwrap_or(self.settings.interval);
                let own = |wait: Duration| wait.mul_f64(MAX_AGE_FRACTION);
                Freshness {
                    priority: RequestPriority::Low,
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
const MAX_AGE_FRACTION: f64 = 0.98;

#[async_trait]
impl Provider for AzureProvider {
    async fn fetch(
        &self,
        request: &ProviderRequest<'_>,
    ) -> Result<ProviderResponse, ProviderError> {
        let parameters = request.class.parse_parameters().map_err(|problems| {
            let hints = problems.problems().iter().filter_map(ParameterProblem::hint);
            let hint = hints.collect::<Vec<_>>().join("; ");
            let refusal = ProviderError::new(
                OutcomeCode::SecretProviderClassInvalid,
                format_error_chain(&problems),
            );
            if hint.is_empty() { refusal } else { refusal.with_hint(hint) }
        })?;
        let order = VolumeReadRequest {
            parameters: &parameters,
            pod: request.pod,
            credentials: request.proofs,
            freshness: self.freshness(request),
            serve_stale: ServeStaleLimit::parse(request.class)?.map(ServeStaleLimit::max_age),
            memory: request.memory,
        };
        // A future of the vault's clients is large.
        let reading =
            Box::pin(self.vaults.fetch(&order)).await.map_err(|error| provider_error(&error))?;
        provider_response(&parameters, reading)
    }
}

fn provider_response(
    parameters: &ProviderParameters,
    reading: VolumeReadResult,
) -> Result<ProviderResponse, ProviderError> {
    let (mut versions, mut stamps) = (BTreeMap::new(), BTreeMap::new());
    let mut files = Vec::with_capacity(reading.files.len());
    for file in reading.files {
        let id = file.object.as_str().to_owned();
        versions.insert(id.clone(), file.version.to_string());
        // A secret may be mounted twice, and in two encodings: what is a credential in one of them
        // is one.
        let found = object_timestamps(&file);
        let known = stamps.entry(id.clone()).or_insert(found);
        if found.is_credential {
            *known = found;
        }
        files.push(provider_file(id, file)?);
    }
    let stale = reading.outage.map(|outage| {
        let error = NodeVaultError::from(FetchError::from(outage.error));
        StaleResponse { since: outage.since, fetch_error: provider_error(&error) }
    });
    tracing::debug!(vault = %parameters.vault_name, files = files.len(), "vault read");
    let versions = versions.into_iter().map(|(id, version)| ProviderObjectVersion { id, version });
    Ok(ProviderResponse { files, versions: versions.collect(), timestamps: stamps, stale })
}

fn provider_file(id: String, file: MountedFile) -> Result<ProviderFile, ProviderError> {
    let path: FilePath =
        file.path.parse().map_err(|error: crate::file_path::ParseFilePathError| {
            ProviderError::new(OutcomeCode::SecretProviderClassInvalid, error.to_string())
                .with_hint("correct objectAlias")
        })?;
    let mode = file.is_mode_explicit.then_some(file.mode);
    Ok(ProviderFile { path, mode, content: file.content, object: Some(id) })
}

/// What is known about the times of an object: from the credential itself if it is one, else from
/// what the vault tells.
fn object_timestamps(file: &MountedFile) -> ObjectTimestamps {
    let attributes = &file.attributes;
    let told = ObjectTimestamps {
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
    let stamps = document.timestamps();
    ObjectTimestamps {
        created: told.created,
        not_before: Some(stamps.not_before),
        not_after: stamps.not_after.or(told.not_after),
        renew_after: stamps.renew_after.or(told.renew_after),
        is_credential: true,
    }
}

#[cfg(test)]
mod tests;
