//! The `azure.sock` server: offers the built-in Key Vault provider to other drivers and to the Secret sync
//! controller.
//!
//! Upstream drivers (v1.5.6, v1.6.0) and `secrets-store-sync-controller` call the provider protocol
//! `v1alpha1`. Their requests differ little: the controller sends the path `/mnt/secrets-store`, its own pod
//! as the pod, and always `{}` as secrets.
//!
//! The server trusts the caller's statements about the pod: only root can open the socket. A driver merges
//! the volume's attributes into the class before it calls, so the server cannot distinguish the parameters of
//! the class from those of the pod; the policy still checks every object that is read.

mod mount_request;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use lanyard_clock::{RetryClass, SharedClock};
use lanyard_grpc::provider::csi_driver_provider_server::CsiDriverProvider;
use lanyard_grpc::provider::{
    File, MountRequest, MountResponse, ObjectVersion as WireVersion, VersionRequest,
    VersionResponse,
};
use lanyard_provider::{Provider, ProviderError, ProviderRequest, ProviderResponse};
use lanyard_vocabulary::{OutcomeCode, RecoveryMode};
use parking_lot::Mutex;
use tonic::{Code, Request, Response, Status};

use crate::memory::{FetchMemory, MemoryAccount};
use crate::provider::socket::PROTOCOL;

pub(crate) use mount_request::ParsedMountRequest;

/// The runtime name in the response of `Version`.
const RUNTIME: &str = "lanyard";

/// The number of served volumes that are remembered: many times the volumes of a node.
const MAX_SERVED_VOLUMES: usize = 4096;

/// The minimum time since the last response for a request to count as a poll. A driver that failed to write
/// the response repeats the request sooner, while a pod waits for it.
const ROTATION_AFTER: Duration = Duration::from_mins(1);

/// How long a read waits for memory. Drivers give up after two minutes.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(90);

/// Serves the provider protocol with a provider of this process.
pub struct ProviderServer {
    provider: Arc<dyn Provider>,
    clock: SharedClock,
    memory: MemoryAccount,
    served_volumes: Mutex<ServedVolumes>,
}

impl ProviderServer {
    /// Creates a server for this provider, which includes the policy check, if there is one. Reads are
    /// charged to `memory`.
    pub fn new(provider: Arc<dyn Provider>, memory: MemoryAccount, clock: SharedClock) -> Self {
        Self { provider, clock, memory, served_volumes: Mutex::default() }
    }

    /// Fetches a response and reserves memory for the message and its encoded copy.
    async fn fetch_with_reservation(
        &self,
        request: &ProviderRequest<'_>,
    ) -> Result<ProviderResponse, ProviderError> {
        let fetched = self.provider.fetch(request).await?;
        let content = fetched.files.iter().map(|file| byte_length(file.content.len()));
        let reservation = content.fold(0, u64::saturating_add).saturating_mul(2);
        request
            .memory
            .reserve_read_memory(reservation)
            .await
            .map_err(ProviderError::from_memory_exhausted)?;
        Ok(fetched)
    }
}

/// The served volumes and the time of their last response, keyed by a digest. A volume that is requested
/// again after a while is already mounted and is polled: its read has a lower priority than the reads of
/// starting pods. The oldest entry is evicted first; its next request counts as a mount, which only affects
/// the priority.
#[derive(Default)]
struct ServedVolumes {
    last_served: HashMap<[u8; 32], Duration>,
    order: VecDeque<[u8; 32]>,
}

impl ServedVolumes {
    fn was_served_before(&self, volume: &[u8; 32], now: Duration) -> bool {
        let filled = self.last_served.get(volume);
        filled.is_some_and(|filled| now.saturating_sub(*filled) >= ROTATION_AFTER)
    }

    fn insert(&mut self, volume: [u8; 32], now: Duration) {
        if self.last_served.insert(volume, now).is_some() {
            return;
        }
        self.order.push_back(volume);
        if self.order.len() > MAX_SERVED_VOLUMES
            && let Some(oldest) = self.order.pop_front()
        {
            self.last_served.remove(&oldest);
        }
    }
}

impl fmt::Debug for ProviderServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ServedProvider")
            .field("provider", &self.provider)
            .finish_non_exhaustive()
    }
}

#[tonic::async_trait]
impl CsiDriverProvider for ProviderServer {
    /// Returns the protocol version regardless of the caller's version, as upstream providers do.
    async fn version(
        &self,
        _request: Request<VersionRequest>,
    ) -> Result<Response<VersionResponse>, Status> {
        Ok(Response::new(VersionResponse {
            version: PROTOCOL.to_owned(),
            runtime_name: RUNTIME.to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
        }))
    }

    async fn mount(
        &self,
        request: Request<MountRequest>,
    ) -> Result<Response<MountResponse>, Status> {
        let parsed = ParsedMountRequest::parse(request.into_inner()).map_err(|problem| {
            grpc_status(
                &ProviderError::new(OutcomeCode::InvalidRequest, problem.to_string()).with_hint(
                    "check the driver: the kubelet passes pod name and namespace with `podInfoOnMount: true`",
                ),
            )
        })?;
        let volume = parsed.volume_digest();
        let now = self.clock.monotonic();
        let was_filled =
            volume.is_some_and(|volume| self.served_volumes.lock().was_served_before(&volume, now));
        let urgency = parsed.urgency(was_filled);
        let memory = self.memory.fetch_memory(urgency, MEMORY_TIMEOUT, &self.clock);
        match self.fetch_with_reservation(&parsed.provider_request(urgency, &memory)).await {
            Ok(fetched) => {
                for warning in &fetched.warnings {
                    tracing::warn!(pod = %parsed.pod, "{warning}");
                }
                if let Some(volume) = volume {
                    self.served_volumes.lock().insert(volume, self.clock.monotonic());
                }
                let mut response = Response::new(mount_response(fetched, parsed.permission));
                response.extensions_mut().insert(memory);
                Ok(response)
            }
            Err(error) => {
                tracing::warn!(
                    pod = %parsed.pod,
                    code = %error.code,
                    hint = error.hint,
                    "a mount through the provider's socket failed: {error}"
                );
                Err(grpc_status(&error))
            }
        }
    }
}

/// Holds the memory reservation of a response, which [`ProviderServer`] attaches to it, until the response is
/// encoded and sent.
pub(crate) async fn hold_memory_until_sent(
    mut response: http::Response<Body>,
) -> http::Response<Body> {
    let Some(memory) = response.extensions_mut().remove::<FetchMemory>() else { return response };
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _kept = &memory;
            frame
        }))
    })
}

/// Builds the response. A file without a mode gets the mode of the request.
fn mount_response(fetched: ProviderResponse, permission: u32) -> MountResponse {
    let file = |file: lanyard_provider::ProviderFile| File {
        path: file.path.as_str().to_owned(),
        mode: i32::try_from(file.mode.unwrap_or(permission)).unwrap_or_default(),
        contents: file.content.expose().to_vec(),
    };
    let version = |object: lanyard_provider::ProviderObjectVersion| WireVersion {
        id: object.id,
        version: object.version,
    };
    MountResponse {
        object_version: fetched.versions.into_iter().map(version).collect(),
        error: None,
        files: fetched.files.into_iter().map(file).collect(),
    }
}

fn byte_length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Returns the status for another driver. Upstream's provider returns `Unknown` for every error; these codes
/// are chosen by how drivers and kubelets react to them.
fn grpc_status(error: &ProviderError) -> Status {
    let recovery_note = match error.code.recovery_mode() {
        RecoveryMode::Never => " (this does not recover by itself)",
        RecoveryMode::ByItself => "",
    };
    let text = format!("{}: {error}{recovery_note}; hint: {}", error.code, error.hint);
    Status::new(grpc_code(error), text)
}

/// A driver retries immediately on `Unavailable`, so throttling and lack of memory must not map to it.
const fn grpc_code(error: &ProviderError) -> Code {
    match error.retry {
        RetryClass::Throttled { .. } => Code::ResourceExhausted,
        RetryClass::Denied => Code::PermissionDenied,
        RetryClass::Invalid => match error.code {
            OutcomeCode::PolicyDenied => Code::PermissionDenied,
            OutcomeCode::ObjectNotFound => Code::NotFound,
            OutcomeCode::InvalidRequest | OutcomeCode::SecretProviderClassInvalid => {
                Code::InvalidArgument
            }
            _ => Code::FailedPrecondition,
        },
        // The error may pass by itself.
        _ => match error.code {
            OutcomeCode::VolumeMemoryExhausted => Code::ResourceExhausted,
            _ => Code::Unavailable,
        },
    }
}
