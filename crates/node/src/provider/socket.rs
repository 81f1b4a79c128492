//! External providers, called over their sockets.
//!
//! The client of the provider protocol `v1alpha1`, with the rules of the Secrets Store CSI driver v1.6.0:
//! sockets `<directory>/<name>.sock`, connections opened at the first use and kept, calls that wait for a
//! starting provider, three attempts if it is unavailable, a size limit of responses. The differences:
//!
//! | | upstream | here |
//! |---|---|---|
//! | who may listen | any user | root, in directories of root |
//! | how long a call waits for a listener | until the kubelet gives up (2 min) | 10 s, then the outcome says why |
//! | memory of a response | unlimited | reserved on the node before the call |
//! | a response with versions and without files | success, and an empty volume | an error |
//! | file mode 0 | an unreadable file | the mode of the volume |
//! | hostile paths, modes and ids | found one by one while writing | all reported before anything is written |
//! | volume attributes | override the class | do not override it ([`PodOverrides`](super::PodOverrides)) |

mod call_error;
mod connection;
mod message;
#[cfg(test)]
mod tests;
mod trusted_socket;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use lanyard_clock::SharedClock;
use lanyard_grpc::provider::csi_driver_provider_client::CsiDriverProviderClient;
use lanyard_grpc::provider::{MountRequest, MountResponse, VersionRequest};
use lanyard_provider::{Provider, ProviderError, ProviderRequest, ProviderResponse};
use parking_lot::Mutex;
use tonic::Code;
use tonic::transport::Channel;

use crate::provider::name::ProviderName;

pub(crate) use message::parse_response;
use message::{content_size, mount_request};

/// The version of the provider protocol.
pub(crate) const PROTOCOL: &str = "v1alpha1";

/// The maximum number of attempts while a provider is unavailable.
const MAX_ATTEMPTS: u32 = 3;
/// The pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The deadline of a call with all attempts. It is below the publisher's fetch deadline (100 s), so that the
/// error names the provider.
const CALL_DEADLINE: Duration = Duration::from_secs(90);
/// The minimum time that a provider gets, however long the wait for memory was (at most 90 s).
const SHORTEST_CALL: Duration = Duration::from_secs(8);
/// The initial limit of a response for which memory is reserved, in bytes.
const INITIAL_RESPONSE_LIMIT: usize = 256 << 10;
/// The factor by which the limit grows after a response was too large.
const RESPONSE_LIMIT_FACTOR: usize = 4;
/// The deadline of a health check.
const HEALTH_DEADLINE: Duration = Duration::from_secs(5);

/// Settings of [`SocketProviders`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketProviderSettings {
    /// The directories with provider sockets, in search order.
    pub directories: Vec<PathBuf>,
    /// `--max-call-recv-msg-size`: the maximum size of a response, in bytes.
    pub max_response_bytes: usize,
}

impl Default for SocketProviderSettings {
    /// The directories of the Secrets Store CSI driver, and 4 MiB.
    fn default() -> Self {
        let directories =
            ["/etc/kubernetes/secrets-store-csi-providers", "/var/run/secrets-store-csi-providers"];
        Self { directories: directories.map(PathBuf::from).into(), max_response_bytes: 4 << 20 }
    }
}

/// Calls the external providers of this node.
#[derive(Debug)]
pub struct SocketProviders {
    settings: SocketProviderSettings,
    clock: SharedClock,
    channels: Mutex<BTreeMap<ProviderName, (PathBuf, Channel)>>,
}

impl SocketProviders {
    /// Creates a client with these settings. It connects at the first use.
    pub const fn new(settings: SocketProviderSettings, clock: SharedClock) -> Self {
        Self { settings, clock, channels: Mutex::new(BTreeMap::new()) }
    }

    /// Checks the health of every connected provider at this interval and logs the result
    /// (`--provider-health-check`). Never returns.
    pub async fn watch_health(&self, interval: Duration) {
        loop {
            self.clock.sleep(interval).await;
            self.check_health().await;
        }
    }

    /// Runs one round of [`SocketProviders::watch_health`] and returns the providers that did not answer.
    pub(crate) async fn check_health(&self) -> Vec<ProviderName> {
        let connected: Vec<_> = {
            let connected = self.channels.lock();
            connected.iter().map(|(name, (_, channel))| (name.clone(), channel.clone())).collect()
        };
        let mut failed = Vec::new();
        for (name, channel) in connected {
            let mut client = CsiDriverProviderClient::new(channel);
            let outcome = client.version(VersionRequest { version: PROTOCOL.to_owned() });
            let answer = tokio::select! {
                answer = outcome => answer.map_err(|status| status.code().description()),
                () = self.clock.sleep(HEALTH_DEADLINE) => Err("no answer within five seconds"),
            };
            match answer {
                Ok(_) => tracing::debug!(provider = %name, "the provider is healthy"),
                Err(reason) => {
                    tracing::warn!(provider = %name, reason, "the provider is unhealthy");
                    failed.push(name);
                }
            }
        }
        failed
    }

    /// Calls a provider: waits for a starting one, and retries while it is unavailable.
    async fn mount_with_retries(
        &self,
        name: &ProviderName,
        request: &MountRequest,
        largest: usize,
    ) -> Result<MountResponse, call_error::ProviderCallError> {
        let mut attempt = 1;
        loop {
            let channel = self.channel(name).await?;
            let mut client =
                CsiDriverProviderClient::new(channel).max_decoding_message_size(largest);
            let status = match client.mount(request.clone()).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            if status.code() != Code::Unavailable || attempt == MAX_ATTEMPTS {
                return Err(call_error::ProviderCallError::Status { status, attempts: attempt });
            }
            self.channels.lock().remove(name);
            self.clock.sleep(RETRY_PAUSE).await;
            attempt += 1;
        }
    }

    /// Calls a provider with a memory reservation for the response. Most responses are small, so a small
    /// limit is tried first: a provider that does not answer should occupy little of the node's memory.
    async fn mount_with_reservation(
        &self,
        name: &ProviderName,
        message: &MountRequest,
        request: &ProviderRequest<'_>,
    ) -> Result<MountResponse, ProviderError> {
        let largest = self.settings.max_response_bytes;
        let mut limit = largest.min(INITIAL_RESPONSE_LIMIT);
        let started = self.clock.monotonic();
        loop {
            let reservation = reservation_bytes(limit);
            request
                .memory
                .reserve_read_memory(reservation)
                .await
                .map_err(ProviderError::from_memory_exhausted)?;
            // The deadline starts here: the provider is not responsible for the wait for memory.
            let passed = self.clock.monotonic().saturating_sub(started);
            let after = time_left(passed);
            let outcome = tokio::select! {
                outcome = self.mount_with_retries(name, message, limit) => outcome,
                () = self.clock.sleep(after) => Err(call_error::ProviderCallError::DeadlineExceeded { after }),
            };
            match outcome {
                Ok(answer) => {
                    request.memory.finish_read(
                        reservation,
                        u64::try_from(content_size(&answer)).unwrap_or(reservation),
                    );
                    return Ok(answer);
                }
                Err(error) if limit < largest && error.is_too_large() => {
                    request.memory.finish_read(reservation, 0);
                    limit = next_response_limit(limit, request.memory.max_read_reservation())
                        .min(largest);
                }
                Err(error) => {
                    return Err(call_error::call_error(
                        name,
                        &self.settings,
                        &error,
                        request.pod_credentials,
                    ));
                }
            }
        }
    }
}

/// Returns the time left for the provider after `passed`, which includes a wait for memory.
fn time_left(passed: Duration) -> Duration {
    let least = SHORTEST_CALL.min((CALL_DEADLINE + SHORTEST_CALL).saturating_sub(passed));
    CALL_DEADLINE.saturating_sub(passed).max(least)
}

/// Returns the next response limit after `limit` was too small, where one read may reserve `memory` bytes. If
/// the memory for a larger response can never be available, there is no limit: reserving it returns an error
/// with the reason.
fn next_response_limit(limit: usize, memory: u64) -> usize {
    let most = usize::try_from(memory / 2).unwrap_or(usize::MAX);
    let next = limit.saturating_mul(RESPONSE_LIMIT_FACTOR).min(most);
    if next > limit { next } else { usize::MAX }
}

/// Returns the memory that a response needs: the message and a copy of its content.
fn reservation_bytes(answer: usize) -> u64 {
    u64::try_from(answer).unwrap_or(u64::MAX).saturating_mul(2)
}

#[async_trait]
impl Provider for SocketProviders {
    async fn fetch(
        &self,
        request: &ProviderRequest<'_>,
    ) -> Result<ProviderResponse, ProviderError> {
        let name: ProviderName = request
            .class
            .spec
            .provider
            .as_deref()
            .unwrap_or_default()
            .parse()
            .map_err(|error| call_error::invalid_name_error(&error))?;
        let message = mount_request(request);
        let answer = self.mount_with_reservation(&name, &message, request).await?;
        let size = content_size(&answer);
        if size > message::LARGE_RESPONSE_BYTES {
            tracing::warn!(
                provider = %name,
                pod = %request.pod,
                size,
                "the volume holds more than 1 MiB: its files may be too large for a Secret"
            );
        }
        parse_response(answer)
            .map_err(|problems| call_error::invalid_response_error(&name, &problems))
    }
}
