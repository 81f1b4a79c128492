//! The fake kubelet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use lanyard_clock::SharedClock;
use lanyard_grpc::csi::NodeUnpublishVolumeRequest;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::Status;

use crate::directory::{KubeletDirectory, KubeletDirectoryError, volume_id};
use crate::driver_calls;
use crate::event::{KubeletEvent, VolumeKey};
use crate::lifecycle::{DriverCall, PublishCallResult, VolumeLifecycle, VolumeMountState};
use crate::pod::{InlineVolume, PodSpec, RedactedString};
use crate::publish_request::{PublishRequestInputs, build_publish_request};
use crate::registry::{DriverRegistry, RegisteredDriver};
use crate::settings::{CsiDriverObject, FakeKubeletSettings};
use crate::token_minter::{
    OpaqueTokenMinter, TokenCache, TokenMintError, TokenMinter, render_tokens,
};

/// A fake kubelet of one node. Clones share its state.
#[derive(Debug, Clone)]
pub struct FakeKubelet(Arc<FakeKubeletShared>);

#[derive(Debug)]
struct FakeKubeletShared {
    directory: KubeletDirectory,
    clock: SharedClock,
    settings: FakeKubeletSettings,
    token_minter: Arc<dyn TokenMinter>,
    registry: tokio::sync::Mutex<DriverRegistry>,
    state: Mutex<State>,
    /// The number of restarts. It changes under the lock of `state`, so that a call that ends can check
    /// whether its kubelet has been restarted.
    restart_count: watch::Sender<u64>,
}

/// A receiver for the restart counter. A change means that the kubelet was restarted.
type RestartSignal = watch::Receiver<u64>;

#[derive(Debug, Default)]
struct State {
    drivers: BTreeMap<String, CsiDriverObject>,
    pods: BTreeMap<String, PodSpec>,
    volumes: BTreeMap<VolumeKey, ManagedVolume>,
    token_cache: TokenCache,
    /// A copy of the registry after its last scan, so that a publish never waits for a registration.
    registry: DriverRegistry,
    events: Vec<KubeletEvent>,
}

/// A volume of a pod that exists or is being deleted.
#[derive(Debug)]
struct ManagedVolume {
    driver: String,
    lifecycle: VolumeLifecycle,
}

impl FakeKubelet {
    /// Creates a kubelet on this directory (`--root-dir`), with tokens that cannot be verified.
    pub fn new(root: &Path, clock: SharedClock) -> Self {
        Self::with_settings(
            root,
            clock,
            FakeKubeletSettings::default(),
            Arc::new(OpaqueTokenMinter),
        )
    }

    /// Creates a kubelet with other settings and another token minter.
    pub fn with_settings(
        root: &Path,
        clock: SharedClock,
        settings: FakeKubeletSettings,
        tokens: Arc<dyn TokenMinter>,
    ) -> Self {
        Self(Arc::new(FakeKubeletShared {
            directory: KubeletDirectory::new(root),
            clock,
            settings,
            token_minter: tokens,
            registry: tokio::sync::Mutex::default(),
            state: Mutex::default(),
            restart_count: watch::Sender::new(0),
        }))
    }

    /// Creates or replaces a CSIDriver object. A driver without one gets no pod information and no
    /// republishing.
    pub fn apply_driver(&self, driver: CsiDriverObject) {
        self.0.state.lock().drivers.insert(driver.name.clone(), driver);
    }

    /// Adds a pod. Its volumes are due for publishing now.
    pub fn add_pod(&self, pod: PodSpec) {
        let now = self.0.clock.monotonic();
        let mut state = self.0.state.lock();
        for volume in &pod.volumes {
            let key = VolumeKey::new(&pod.uid, &volume.name);
            let lifecycle = VolumeLifecycle::new(volume_id(&pod.uid, &volume.name), now);
            let driver = volume.driver.clone();
            state.volumes.entry(key).or_insert(ManagedVolume { driver, lifecycle });
        }
        state.pods.insert(pod.uid.clone(), pod);
    }

    /// Deletes a pod. Its volumes are due for unpublishing now.
    pub fn delete_pod(&self, pod_uid: &str) {
        let now = self.0.clock.monotonic();
        let mut state = self.0.state.lock();
        state.pods.remove(pod_uid);
        state.token_cache.remove_pod(pod_uid);
        for (key, slot) in &mut state.volumes {
            if key.pod_uid == pod_uid {
                slot.lifecycle.mark_pod_deleted(now);
            }
        }
        state.volumes.retain(|_, slot| !slot.lifecycle.is_finished());
    }

    /// The target path of a volume.
    pub fn target_path(&self, key: &VolumeKey) -> PathBuf {
        self.0.directory.target_path(key)
    }

    /// Whether the driver has published the volume and not unpublished it since.
    pub fn is_mounted(&self, key: &VolumeKey) -> bool {
        let state = self.0.state.lock();
        state
            .volumes
            .get(key)
            .is_some_and(|slot| slot.lifecycle.mount_state() == VolumeMountState::Mounted)
    }

    /// The number of volumes that are published, being published or being unpublished.
    pub fn volume_count(&self) -> usize {
        self.0.state.lock().volumes.len()
    }

    /// The driver of this name, if it is registered.
    pub fn registered_driver(&self, driver: &str) -> Option<RegisteredDriver> {
        self.0.state.lock().registry.driver(driver).cloned()
    }

    /// The time until the next call of a volume is due; `None` if none will be due.
    pub fn next_due(&self) -> Option<Duration> {
        let now = self.0.clock.monotonic();
        let state = self.0.state.lock();
        let dues = state.volumes.values().filter_map(|slot| slot.lifecycle.next_due());
        dues.min().map(|due| due.saturating_sub(now))
    }

    /// Scans the registration sockets, makes all calls that are due, and waits for them.
    pub async fn tick(&self) -> Vec<KubeletEvent> {
        self.scan_registrations().await;
        loop {
            let begun = self.start_due_calls();
            if begun.is_empty() {
                return std::mem::take(&mut self.0.state.lock().events);
            }
            join_all(begun.into_iter().map(|begun| self.perform_call(begun))).await;
        }
    }

    /// Scans registration sockets and makes calls as they fall due, until `stop` completes; then waits for
    /// the calls in flight. [`FakeKubelet::take_events`] returns the events.
    pub async fn run(&self, stop: impl Future<Output = ()> + Send) {
        let mut stop = std::pin::pin!(stop);
        let mut running = JoinSet::new();
        loop {
            self.scan_registrations().await;
            for begun in self.start_due_calls() {
                let kubelet = self.clone();
                running.spawn(async move { kubelet.perform_call(begun).await });
            }
            let rest = self
                .next_due()
                .unwrap_or(REGISTRATION_SCAN_INTERVAL)
                .min(REGISTRATION_SCAN_INTERVAL);
            tokio::select! {
                () = &mut stop => break,
                () = self.0.clock.sleep(rest) => {}
                Some(ended) = running.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a driver call panicked");
                    }
                }
            }
        }
        while running.join_next().await.is_some() {}
    }

    /// Returns the events since the last call.
    pub fn take_events(&self) -> Vec<KubeletEvent> {
        std::mem::take(&mut self.0.state.lock().events)
    }

    /// Restarts the kubelet: discards everything except the pods and the CSIDriver objects, which the API
    /// server stores, and finds drivers and volumes on disk again. Calls in flight are cancelled, as when a
    /// process dies; the driver may have completed them. A pod that was deleted while the kubelet was down is
    /// unpublished from its `vol_data.json`.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be read.
    pub async fn restart(&self) -> Result<(), KubeletDirectoryError> {
        *self.0.registry.lock().await = DriverRegistry::default();
        let now = self.0.clock.monotonic();
        let mut state = self.0.state.lock();
        let found = self.0.directory.find_volumes()?;
        self.0.restart_count.send_modify(|restarts| *restarts = restarts.wrapping_add(1));
        state.token_cache = TokenCache::default();
        state.registry = DriverRegistry::default();
        let pods: Vec<PodSpec> = state.pods.values().cloned().collect();
        state.volumes = found
            .into_iter()
            .map(|(key, data)| {
                let is_wanted = pods.iter().any(|pod| pod.uid == key.pod_uid);
                let lifecycle = VolumeLifecycle::from_disk(data.volume_handle, is_wanted, now);
                (key, ManagedVolume { driver: data.driver_name, lifecycle })
            })
            .collect();
        drop(state);
        for pod in pods {
            self.add_pod(pod);
        }
        Ok(())
    }

    async fn scan_registrations(&self) {
        let FakeKubeletShared { directory: layout, clock, .. } = &*self.0;
        let mut registry = self.0.registry.lock().await;
        match registry.scan_sockets(&**clock, &layout.registration_directory()).await {
            Ok(events) => {
                let mut state = self.0.state.lock();
                state.registry = registry.clone();
                state.events.extend(events);
            }
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "could not scan for plugins");
            }
        }
    }

    fn start_due_calls(&self) -> Vec<StartedDriverCall> {
        let now = self.0.clock.monotonic();
        let mut state = self.0.state.lock();
        let life = self.0.restart_count.subscribe();
        let mut begun = Vec::new();
        for (key, slot) in &mut state.volumes {
            if let Some(step) = slot.lifecycle.due_call(now) {
                slot.lifecycle.mark_in_progress();
                begun.push(StartedDriverCall {
                    key: key.clone(),
                    call: step,
                    restart_signal: life.clone(),
                });
            }
        }
        begun
    }

    async fn perform_call(&self, begun: StartedDriverCall) {
        let StartedDriverCall { key, call: step, restart_signal: life } = begun;
        let mut end_of_life = life.clone();
        let work = async {
            match step {
                DriverCall::Publish => self.publish_volume(key, &life).await,
                DriverCall::Unpublish => self.unpublish_volume(key, &life).await,
            }
        };
        tokio::select! {
            biased;
            _ = end_of_life.changed() => {}
            () = work => {}
        }
    }

    async fn publish_volume(&self, key: VolumeKey, life: &RestartSignal) {
        let outcome = self.try_publish(&key).await;
        let now = self.0.clock.monotonic();
        let mut state = self.0.state.lock();
        if was_restarted(life) {
            return;
        }
        let state = &mut *state;
        let Some(slot) = state.volumes.get_mut(&key) else { return };
        let was_published = slot.lifecycle.mount_state() == VolumeMountState::Mounted;
        let (end, event) = match outcome {
            Ok(()) => {
                let count = slot.lifecycle.publish_successes().saturating_add(1);
                (PublishCallResult::Published, KubeletEvent::Published { key: key.clone(), count })
            }
            Err(PublishAttemptError::DriverError(status)) => {
                let is_final = driver_calls::is_final_code(status.code());
                let (code, message) = (status.code(), status.message().to_owned());
                let event =
                    KubeletEvent::PublishFailed { key: key.clone(), code, message, was_published };
                (PublishCallResult::Failed { is_final }, event)
            }
            Err(PublishAttemptError::NotSent(message)) => (
                PublishCallResult::NotSent,
                KubeletEvent::PublishNotSent { key: key.clone(), message },
            ),
        };
        let republishes = state.drivers.get(&slot.driver).is_some_and(|it| it.requires_republish);
        let period = republishes.then_some(self.0.settings.sync_period);
        slot.lifecycle.record_publish_result(end, now, period);
        let is_final = end == PublishCallResult::Failed { is_final: true };
        if is_final && (!was_published || self.0.settings.removes_after_republish_error) {
            self.remove_from_disk(&key);
        }
        state.events.push(event);
        state.volumes.retain(|_, slot| !slot.lifecycle.is_finished());
    }

    async fn try_publish(&self, key: &VolumeKey) -> Result<(), PublishAttemptError> {
        let FakeKubeletShared { directory: layout, clock, settings, .. } = &*self.0;
        let (pod, volume, driver) = self.find_volume(key)?;
        layout
            .create_volume_directory(key, &volume.driver, &settings.node_name)
            .map_err(|error| PublishAttemptError::NotSent(format!("{error}: {}", error.source)))?;
        let Some(RegisteredDriver { endpoint, .. }) = self.registered_driver(&volume.driver) else {
            let name = &volume.driver;
            return Err(PublishAttemptError::NotSent(format!(
                "driver {name} is not registered on this node"
            )));
        };
        let takes_group =
            driver_calls::supports_mount_group(&**clock, &endpoint).await.map_err(|status| {
                PublishAttemptError::NotSent(driver_calls::describe_status(&status))
            })?;
        let tokens = self.collect_tokens(&pod, &driver).await.map_err(|error| {
            // Like the kubelet, no publish call is made without the tokens.
            PublishAttemptError::NotSent(error.to_string())
        })?;
        let target = layout.target_path(key);
        let request = build_publish_request(PublishRequestInputs {
            pod: &pod,
            volume: &volume,
            driver: &driver,
            tokens: tokens.as_ref(),
            supports_mount_group: takes_group,
            target: &target.to_string_lossy(),
        });
        driver_calls::publish_volume(&**clock, &endpoint, request)
            .await
            .map_err(PublishAttemptError::DriverError)
    }

    fn find_volume(
        &self,
        key: &VolumeKey,
    ) -> Result<(PodSpec, InlineVolume, CsiDriverObject), PublishAttemptError> {
        let gone = || PublishAttemptError::NotSent(format!("there is no volume {key} any more"));
        let state = self.0.state.lock();
        let pod = state.pods.get(&key.pod_uid).ok_or_else(gone)?;
        let volume = pod.volumes.iter().find(|it| it.name == key.volume).ok_or_else(gone)?;
        let driver =
            state.drivers.get(&volume.driver).cloned().unwrap_or_else(|| CsiDriverObject {
                pod_info_on_mount: false,
                requires_republish: false,
                ..CsiDriverObject::new(&volume.driver)
            });
        Ok((pod.clone(), volume.clone(), driver))
    }

    /// The tokens that a driver requests; `None` if it requests none.
    async fn collect_tokens(
        &self,
        pod: &PodSpec,
        driver: &CsiDriverObject,
    ) -> Result<Option<RedactedString>, TokenMintError> {
        if driver.token_requests.is_empty() {
            return Ok(None);
        }
        let mut tokens = BTreeMap::new();
        for request in &driver.token_requests {
            let now = self.0.clock.now();
            let retained = self.0.state.lock().token_cache.get(pod, &request.audience, now);
            let token = match retained {
                Some(token) => token,
                None => {
                    self.0.token_minter.mint(pod, &request.audience, now, request.lifetime).await?
                }
            };
            self.0.state.lock().token_cache.insert(pod, &request.audience, now, &token);
            tokens.insert(request.audience.clone(), token);
        }
        Ok(Some(render_tokens(&tokens)))
    }

    async fn unpublish_volume(&self, key: VolumeKey, life: &RestartSignal) {
        let outcome = self.try_unpublish(&key).await;
        let now = self.0.clock.monotonic();
        let mut state = self.0.state.lock();
        if was_restarted(life) {
            return;
        }
        let event = match &outcome {
            Ok(()) => {
                let still_mounted = self.remove_from_disk(&key);
                KubeletEvent::Unpublished { key: key.clone(), still_mounted }
            }
            Err(status) => KubeletEvent::UnpublishFailed {
                key: key.clone(),
                code: status.code(),
                message: status.message().to_owned(),
            },
        };
        if let Some(slot) = state.volumes.get_mut(&key) {
            slot.lifecycle.record_unpublish_result(outcome.is_ok(), now);
        }
        state.events.push(event);
        state.volumes.retain(|_, slot| !slot.lifecycle.is_finished());
    }

    async fn try_unpublish(&self, key: &VolumeKey) -> Result<(), Status> {
        let driver = self.0.state.lock().volumes.get(key).map(|slot| slot.driver.clone());
        let driver = driver.unwrap_or_default();
        let Some(RegisteredDriver { endpoint, .. }) = self.registered_driver(&driver) else {
            let problem = format!("driver {driver} is not registered on this node");
            return Err(Status::unavailable(problem));
        };
        let request = NodeUnpublishVolumeRequest {
            volume_id: volume_id(&key.pod_uid, &key.volume),
            target_path: self.target_path(key).to_string_lossy().into_owned(),
        };
        driver_calls::unpublish_volume(&*self.0.clock, &endpoint, request).await
    }

    /// Removes the directory of a volume. Returns whether a file system is still mounted on the target.
    fn remove_from_disk(&self, key: &VolumeKey) -> bool {
        self.0.directory.remove_volume_directory(key).unwrap_or_else(|error| {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, volume = %key, "could not remove the directory of a volume");
            false
        })
    }
}

/// A call to a driver that has been started.
#[derive(Debug)]
struct StartedDriverCall {
    key: VolumeKey,
    call: DriverCall,
    restart_signal: RestartSignal,
}

/// Whether the kubelet was restarted since `life` was subscribed.
fn was_restarted(life: &RestartSignal) -> bool {
    life.has_changed().unwrap_or(true)
}

/// Why a publish failed.
#[derive(Debug)]
enum PublishAttemptError {
    /// The driver returned an error.
    DriverError(Status),
    /// No call was made.
    NotSent(String),
}

/// How often [`FakeKubelet::run`] scans for plugins.
const REGISTRATION_SCAN_INTERVAL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
