//! Other people's providers, each asked over its socket.
//!
//! The client of the provider protocol `v1alpha1`, with the rules of the Secrets Store CSI driver
//! v1.6.0: sockets `<directory>/<name>.sock`, connections made at the first use and kept, calls that
//! wait for a provider that is starting, three attempts where it is unavailable, a limit to the size
//! of an answer. Different here:
//!
//! | | upstream | here |
//! |---|---|---|
//! | who may listen | anybody | root, in directories of root |
//! | how long a call waits for a listener | until the kubelet gives up (2 min) | 10 s, then the outcome says why |
//! | memory for an answer | what comes | taken from the node's before it is asked for |
//! | an answer with versions and without files | success, and an empty volume | an error |
//! | file mode 0 | a file that nobody may read | the mode of the volume |
//! | hostile paths, modes and ids | found one by one while writing | all told before anything is written |
//! | volume attributes | override the class | do not ([`PodOverrides`](super::PodOverrides)) |

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
use parking_lot::Mutex;
use tonic::Code;
use tonic::transport::Channel;

use crate::provider::name::ProviderName;
use crate::provider::{Provider, ProviderError, ProviderRequest, ProviderResponse};

pub(crate) use message::parse_response;
use message::{content_size, mount_request};

/// The version of the protocol.
pub(crate) const PROTOCOL: &str = "v1alpha1";

/// How often an unavailable provider is asked.
const MAX_ATTEMPTS: u32 = 3;
/// The pause after the first attempt; each later one is a tenth longer.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long a call may take in all. Less than the publisher waits for a filling (100 s), so that
/// whoever looks is told which provider it was.
const CALL_DEADLINE: Duration = Duration::from_secs(90);
/// How long a provider may take at least, however long the wait for memory was (90 s at most).
const SHORTEST_CALL: Duration = Duration::from_secs(8);
/// The largest answer for which memory is taken at first, in bytes.
const INITIAL_RESPONSE_LIMIT: usize = 256 << 10;
/// How much larger an answer may be each time that one was too large.
const RESPONSE_LIMIT_FACTOR: usize = 4;
/// How long a health check may take.
const HEALTH_DEADLINE: Duration = Duration::from_secs(5);

/// Where other providers are found, and what they may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketProviderSettings {
    /// The directories with their sockets, in the order in which they are searched.
    pub directories: Vec<PathBuf>,
    /// `--max-call-recv-msg-size`: the largest answer, in bytes.
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

/// The providers that listen on this node.
#[derive(Debug)]
pub struct SocketProviders {
    settings: SocketProviderSettings,
    clock: SharedClock,
    channels: Mutex<BTreeMap<ProviderName, (PathBuf, Channel)>>,
}

impl SocketProviders {
    /// Providers with these settings. Nothing is connected yet.
    pub const fn new(settings: SocketProviderSettings, clock: SharedClock) -> Self {
        Self { settings, clock, channels: Mutex::new(BTreeMap::new()) }
    }

    /// Asks every provider that was asked before whether it is there, again and again, and logs
    /// what it says (`--provider-health-check`). Ends never.
    pub async fn watch_health(&self, interval: Duration) {
        loop {
            self.clock.sleep(interval).await;
            self.check_health().await;
        }
    }

    /// One round of [`SocketProviders::watch_health`]: the providers that did not answer.
    pub(crate) async fn check_health(&self) -> Vec<ProviderName> {
        let connected: Vec<_> = {
            let connected = self.channels.lock();
            connected.iter().map(|(name, (_, channel))| (name.clone(), channel.clone())).collect()
        };
        let mut failed = Vec::new();
        for (name, channel) in connected {
            let mut client = CsiDriverProviderClient::new(channel);
            let asked = client.version(VersionRequest { version: PROTOCOL.to_owned() });
            let answer = tokio::select! {
                answer = asked => answer.map_err(|status| status.code().description()),
                () = self.clock.sleep(HEALTH_DEADLINE) => Err("no answer within five seconds"),
            };
            match answer {
                Ok(_) => tracing::debug!(provider = %name, "the provider is there"),
                Err(reason) => {
                    tracing::warn!(provider = %name, reason, "the provider is not well");
                    failed.push(name);
                }
            }
        }
        failed
    }

    /// Asks a provider, waiting for one that starts and again where it is unavailable.
    async fn mount_with_retries(
        &self,
        name: &ProviderName,
        request: &MountRequest,
        largest: usize,
    ) -> Result<MountResponse, call_error::ProviderCallError> {
        let mut pause = FIRST_PAUSE;
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
            self.clock.sleep(pause).await;
            pause = (pause * 11 / 10).min(LONGEST_PAUSE);
            attempt += 1;
        }
    }

    /// The answer of a provider, with memory for it. Most answers are small, so that is tried first: a
    /// provider that does not answer is to keep little of the node's memory from others.
    async fn mount_with_reservation(
        &self,
        name: &ProviderName,
        message: &MountRequest,
        request: &ProviderRequest<'_>,
    ) -> Result<MountResponse, ProviderError> {
        let largest = self.settings.max_response_bytes;
        let mut limit = largest.min(INITIAL_RESPONSE_LIMIT);
        let began = self.clock.monotonic();
        loop {
            let room = reservation_bytes(limit);
            request
                .memory
                .reserve_read_memory(room)
                .await
                .map_err(ProviderError::from_memory_exhausted)?;
            // Not before: the provider is not to blame for the wait for memory.
            let passed = self.clock.monotonic().saturating_sub(began);
            let after = time_left(passed);
            let asked = tokio::select! {
                asked = self.mount_with_retries(name, message, limit) => asked,
                () = self.clock.sleep(after) => Err(call_error::ProviderCallError::DeadlineExceeded { after }),
            };
            match asked {
                Ok(answer) => {
                    request
                        .memory
                        .finish_read(room, u64::try_from(content_size(&answer)).unwrap_or(room));
                    return Ok(answer);
                }
                Err(error) if limit < largest && error.is_too_large() => {
                    request.memory.finish_read(room, 0);
                    limit = next_response_limit(limit, request.memory.max_read_reservation())
                        .min(largest);
                }
                Err(error) => {
                    return Err(call_error::call_error(
                        name,
                        &self.settings,
                        &error,
                        request.proofs,
                    ));
                }
            }
        }
    }
}

/// How long the provider may take after `passed`, part of which was a wait for memory.
fn time_left(passed: Duration) -> Duration {
    let least = SHORTEST_CALL.min((CALL_DEADLINE + SHORTEST_CALL).saturating_sub(passed));
    CALL_DEADLINE.saturating_sub(passed).max(least)
}

/// The limit of an answer after `limit` was too small, where one read may take `memory` bytes. If
/// memory for a larger answer can never be had, there is no limit: asking for that says why.
fn next_response_limit(limit: usize, memory: u64) -> usize {
    let most = usize::try_from(memory / 2).unwrap_or(usize::MAX);
    let next = limit.saturating_mul(RESPONSE_LIMIT_FACTOR).min(most);
    if next > limit { next } else { usize::MAX }
}

/// The memory that an answer takes: the message, and its content beside it.
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
