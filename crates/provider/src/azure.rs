//! The built-in Key Vault provider: converts the objects read by [`NodeVaults`] into provider responses.

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
use lanyard_volume::{FilePath, ParseFilePathError};

use self::error_mapping::provider_error;
use self::serve_stale::ServeStaleLimit;
use crate::interval::{IntervalBounds, PollInterval};
use crate::provider::{
    ObjectTimestamps, Provider, ProviderError, ProviderFile, ProviderObjectVersion,
    ProviderRequest, ProviderResponse, StaleResponse, Urgency,
};
use crate::rotation_policy::RotationPolicy;

/// Settings of an [`AzureProvider`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AzureProviderSettings {
    /// The poll interval of volumes whose SecretProviderClass sets none.
    pub interval: PollInterval,
    /// The bounds of the interval that a SecretProviderClass may set.
    pub bounds: IntervalBounds,
    /// The maximum age of a cached value for a starting pod. It makes a hundred pods that start
    /// together cause one read.
    pub mount_max_age: Duration,
}

impl Default for AzureProviderSettings {
    /// The poll interval of the Secrets Store CSI driver, two minutes, and ten seconds for mounts.
    fn default() -> Self {
        Self {
            interval: PollInterval::DEFAULT,
            bounds: IntervalBounds::CLASS,
            mount_max_age: Duration::from_secs(10),
        }
    }
}

/// The built-in Key Vault provider.
///
/// With the annotation `lanyard.dev/serve-stale: <duration>`, a SecretProviderClass opts in to
/// cached responses during a vault outage. The duration is the maximum age of such a response.
#[derive(Debug)]
pub struct AzureProvider {
    vaults: Arc<NodeVaults>,
    settings: AzureProviderSettings,
}

impl AzureProvider {
    /// Creates a provider that reads from `vaults`.
    pub const fn new(vaults: Arc<NodeVaults>, settings: AzureProviderSettings) -> Self {
        Self { vaults, settings }
    }

    /// Returns the maximum age of a cached value for this request, and its priority.
    ///
    /// A poll of a mounted volume accepts a value that another volume read within the interval, so
    /// that all volumes together cause one read per object and interval. The cost: a change reaches
    /// the last of the volumes that share an object within about two intervals (at most 2.1), and a
    /// volume with an unshared object within one (1.1). An object with a known renewal time is read
    /// more often around that time: as often as the volumes are polled.
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
                    max_age_near_renewal: own(interval.min_wait()),
                }
            }
        }
    }
}

/// The maximum age of a shared read, as a fraction of the interval. It is slightly below 1, and no wait is
/// shorter than the interval: a volume that polls again after its own interval never receives its own last
/// read, only newer reads of other volumes. The margin covers the time between the start of a poll and the
/// start of its read.
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
            let invalid = ProviderError::new(
                OutcomeCode::SecretProviderClassInvalid,
                format_error_chain(&problems),
            );
            if hint.is_empty() { invalid } else { invalid.with_hint(hint) }
        })?;
        let order = VolumeReadRequest {
            parameters: &parameters,
            pod: request.pod,
            credentials: request.pod_credentials,
            freshness: self.freshness(request),
            serve_stale: ServeStaleLimit::parse(request.class)?.map(ServeStaleLimit::max_age),
            memory: request.memory,
        };
        // The future of the vault clients is large, so it is boxed.
        let reading =
            Box::pin(self.vaults.fetch(&order)).await.map_err(|error| provider_error(&error))?;
        provider_response(&parameters, reading)
    }
}

fn provider_response(
    parameters: &ProviderParameters,
    reading: VolumeReadResult,
) -> Result<ProviderResponse, ProviderError> {
    let (mut versions, mut timestamps) = (BTreeMap::new(), BTreeMap::new());
    let mut files = Vec::with_capacity(reading.files.len());
    for file in reading.files {
        let id = file.object.as_str().to_owned();
        versions.insert(id.clone(), file.version.to_string());
        // A secret may be mounted twice, in two encodings. It is a credential if one file is.
        let found = object_timestamps(&file);
        let known = timestamps.entry(id.clone()).or_insert(found);
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
    let versions = versions.collect();
    let warnings = reading.warnings.iter().map(ToString::to_string).collect();
    Ok(ProviderResponse { files, versions, timestamps, warnings, stale })
}

fn provider_file(id: String, file: MountedFile) -> Result<ProviderFile, ProviderError> {
    let path: FilePath = file.path.parse().map_err(|error: ParseFilePathError| {
        ProviderError::new(OutcomeCode::SecretProviderClassInvalid, error.to_string())
            .with_hint("correct objectAlias")
    })?;
    let mode = file.is_mode_explicit.then_some(file.mode);
    Ok(ProviderFile { path, mode, content: file.content, object: Some(id) })
}

/// Returns the timestamps of an object: from the credential document if it is one, otherwise from the vault's
/// attributes.
fn object_timestamps(file: &MountedFile) -> ObjectTimestamps {
    let attributes = &file.attributes;
    let vault_times = ObjectTimestamps {
        created: attributes.created,
        not_before: attributes.not_before,
        not_after: attributes.expires,
        renew_after: attributes.renew_after(),
        is_credential: false,
    };
    let content = file.content.expose();
    // A cheap check: a credential document is one JSON object.
    if content.trim_ascii_start().first() != Some(&b'{') {
        return vault_times;
    }
    // The parse error of other content quotes nothing and is not reported.
    let Ok(document) = CredentialDocument::parse(content) else { return vault_times };
    let timestamps = document.timestamps();
    ObjectTimestamps {
        created: vault_times.created,
        not_before: Some(timestamps.not_before),
        not_after: timestamps.not_after.or(vault_times.not_after),
        renew_after: timestamps.renew_after.or(vault_times.renew_after),
        is_credential: true,
    }
}

#[cfg(test)]
mod tests;
