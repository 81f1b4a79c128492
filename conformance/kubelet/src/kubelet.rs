//! The stand-in itself.

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

use crate::calls;
use crate::context::{Publish, desired_request};
use crate::disk::{DiskError, Layout, volume_id};
use crate::event::{Event, VolumeKey};
use crate::lifecycle::{Hold, Lifecycle, PublishEnd, Step};
use crate::pod::{InlineVolume, PodSpec, SecretText};
use crate::registry::{Registered, Registry};
use crate::settings::{DriverObject, Settings};
use crate::token::{OpaqueTokens, TokenCache, TokenError, TokenSource, render_tokens};

/// A stand-in for the kubelet of one node. Clones share it.
#[derive(Debug, Clone)]
pub struct Kubelet(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    layout: Layout,
    clock: SharedClock,
    settings: Settings,
    tokens: Arc<dyn TokenSource>,
    registry: tokio::sync::Mutex<Registry>,
    state: Mutex<State>,
    /// How often it was restarted: changed under the lock of the state, so that a call that ends
    /// sees whether its kubelet still lives.
    restarts: watch::Sender<u64>,
}

/// The life of a kubelet, from one restart to the next: changed means over.
type Life = watch::Receiver<u64>;

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, DriverObject>,
    pods: BTreeMap<String, PodSpec>,
    volumes: BTreeMap<VolumeKey, Slot>,
    minted: TokenCache,
    /// What the registry said last, so that a publish never waits for a registration.
    registry: Registry,
    events: Vec<Event>,
}

/// A volume that is or was wanted.
#[derive(Debug)]
struct Slot {
    driver: String,
    lifecycle: Lifecycle,
}

impl Kubelet {
    /// A kubelet on this directory, as `--root-dir` names it, with tokens that nobody verifies.
    pub fn new(root: &Path, clock: SharedClock) -> Self {
        Self::with(root, clock, Settings::default(), Arc::new(OpaqueTokens))
    }

    /// A kubelet with other settings and tokens.
    pub fn with(
        root: &Path,
        clock: SharedClock,
        settings: Settings,
        tokens: Arc<dyn TokenSource>,
    ) -> Self {
        Self(Arc::new(Inner {
            layout: Layout::new(root),
            clock,
            settings,
            tokens,
            registry: tokio::sync::Mutex::default(),
            state: Mutex::default(),
            restarts: watch::Sender::new(0),
        }))
    }

    /// Creates or replaces a CSIDriver object. Without one, a driver is told nothing about pods
    /// and is not asked again.
    pub fn apply(&self, driver: DriverObject) {
        self.0.state.lock().objects.insert(driver.name.clone(), driver);
    }

    /// Adds a pod: its volumes are due now.
    pub fn add(&self, pod: PodSpec) {
        let now = self.0.clock.monotonic();
        let mut state = self.0.state.lock();
        for volume in &pod.volumes {
            let key = VolumeKey::new(&pod.uid, &volume.name);
            let lifecycle = Lifecycle::new(volume_id(&pod.uid, &volume.name), now);
            let driver = volume.driver.clone();
            state.volumes.entry(key).or_insert(Slot { driver, lifecycle });
        }
        state.pods.insert(pod.uid.clone(), pod);
    }

    /// Deletes a pod: its volumes are to go now.
    pub fn delete(&self, pod_uid: &str) {
        let now = self.0.clock.monotonic();
        let mut state = self.0.state.lock();
        state.pods.remove(pod_uid);
        state.minted.forget_pod(pod_uid);
        for (key, slot) in &mut state.volumes {
            if key.pod_uid == pod_uid {
                slot.lifecycle.release(now);
            }
        }
        state.volumes.retain(|_, slot| !slot.lifecycle.is_over());
    }

    /// Where a volume appears.
    pub fn target(&self, key: &VolumeKey) -> PathBuf {
        self.0.layout.target(key)
    }

    /// Whether the driver said of a volume that it is there, and not yet that it is gone.
    pub fn is_mounted(&self, key: &VolumeKey) -> bool {
        let state = self.0.state.lock();
        state.volumes.get(key).is_some_and(|slot| slot.lifecycle.hold() == Hold::Mounted)
    }

    /// How many volumes are there or on their way in or out.
    pub fn volumes(&self) -> usize {
        self.0.state.lock().volumes.len()
    }

    /// The driver of this name, if it is registered.
    pub fn registered(&self, driver: &str) -> Option<Registered> {
        self.0.state.lock().registry.driver(driver).cloned()
    }

    /// How long until a volume is due, on the clock; nothing where none ever will be.
    pub fn next_due(&self) -> Option<Duration> {
        let now = self.0.clock.monotonic();
        let state = self.0.state.lock();
        let dues = state.volumes.values().filter_map(|slot| slot.lifecycle.next_due());
        dues.min().map(|due| due.saturating_sub(now))
    }

    /// Looks at the registration sockets, does everything that is due, and waits for all of it.
    pub async fn tick(&self) -> Vec<Event> {
        self.look_at_registry().await;
        loop {
            let begun = self.begin_due();
            if begun.is_empty() {
                return std::mem::take(&mut self.0.state.lock().events);
            }
            join_all(begun.into_iter().map(|begun| self.perform(begun))).await;
        }
    }

    /// Does what is due all the time, until `stop` is ready; then waits for the calls in flight.
    /// What happens meanwhile is told by [`Kubelet::take_events`].
    pub async fn run(&self, stop: impl Future<Output = ()> + Send) {
        let mut stop = std::pin::pin!(stop);
        let mut running = JoinSet::new();
        loop {
            self.look_at_registry().await;
            for begun in self.begin_due() {
                let kubelet = self.clone();
                running.spawn(async move { kubelet.perform(begun).await });
            }
            let rest = self.next_due().unwrap_or(REGISTRY_LOOK).min(REGISTRY_LOOK);
            tokio::select! {
                () = &mut stop => break,
                () = self.0.clock.sleep(rest) => {}
                Some(ended) = running.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a call ended without an outcome");
                    }
                }
            }
        }
        while running.join_next().await.is_some() {}
    }

    /// What has happened since the last time.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.state.lock().events)
    }

    /// Restarts: forgets everything but the pods and the CSIDriver objects, which the API server
    /// knows, and finds drivers and volumes on disk again. Calls in flight break off, as those of a
    /// process that dies; the driver may have done their work all the same. A pod that was deleted
    /// while the kubelet was down is unpublished by what `vol_data.json` says.
    ///
    /// # Errors
    ///
    /// Where the directory cannot be read.
    pub async fn restart(&self) -> Result<(), DiskError> {
        *self.0.registry.lock().await = Registry::default();
        let now = self.0.clock.monotonic();
        let mut state = self.0.state.lock();
        let found = self.0.layout.find_volumes()?;
        self.0.restarts.send_modify(|restarts| *restarts = restarts.wrapping_add(1));
        state.minted = TokenCache::default();
        state.registry = Registry::default();
        let pods: Vec<PodSpec> = state.pods.values().cloned().collect();
        state.volumes = found
            .into_iter()
            .map(|(key, data)| {
                let is_wanted = pods.iter().any(|pod| pod.uid == key.pod_uid);
                let lifecycle = Lifecycle::found(data.volume_handle, is_wanted, now);
                (key, Slot { driver: data.driver_name, lifecycle })
            })
            .collect();
        drop(state);
        for pod in pods {
            self.add(pod);
        }
        Ok(())
    }

    async fn look_at_registry(&self) {
        let Inner { layout, clock, .. } = &*self.0;
        let mut registry = self.0.registry.lock().await;
        match registry.look(&**clock, &layout.registry()).await {
            Ok(events) => {
                let mut state = self.0.state.lock();
                state.registry = registry.clone();
                state.events.extend(events);
            }
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "could not look for plugins");
            }
        }
    }

    fn begin_due(&self) -> Vec<Begun> {
        let now = self.0.clock.monotonic();
        let mut state = self.0.state.lock();
        let life = self.0.restarts.subscribe();
        let mut begun = Vec::new();
        for (key, slot) in &mut state.volumes {
            if let Some(step) = slot.lifecycle.step(now) {
                slot.lifecycle.begin();
                begun.push(Begun { key: key.clone(), step, life: life.clone() });
            }
        }
        begun
    }

    async fn perform(&self, begun: Begun) {
        let Begun { key, step, life } = begun;
        let mut end_of_life = life.clone();
        let work = async {
            match step {
                Step::Publish => self.publish(key, &life).await,
                Step::Unpublish => self.unpublish(key, &life).await,
            }
        };
        tokio::select! {
            biased;
            _ = end_of_life.changed() => {}
            () = work => {}
        }
    }

    async fn publish(&self, key: VolumeKey, life: &Life) {
        let outcome = self.try_publish(&key).await;
        let now = self.0.clock.monotonic();
        let mut state = self.0.state.lock();
        if is_over(life) {
            return;
        }
        let state = &mut *state;
        let Some(slot) = state.volumes.get_mut(&key) else { return };
        let was_published = slot.lifecycle.hold() == Hold::Mounted;
        let (end, event) = match outcome {
            Ok(()) => {
                let count = slot.lifecycle.published().saturating_add(1);
                (PublishEnd::Done, Event::Published { key: key.clone(), count })
            }
            Err(Failure::Refused(status)) => {
                let is_final = calls::is_final(status.code());
                let (code, message) = (status.code(), status.message().to_owned());
                let event = Event::PublishFailed { key: key.clone(), code, message, was_published };
                (PublishEnd::Failed { is_final }, event)
            }
            Err(Failure::NotSent(message)) => {
                (PublishEnd::NotSent, Event::NotSent { key: key.clone(), message })
            }
        };
        let republishes = state.objects.get(&slot.driver).is_some_and(|it| it.requires_republish);
        let period = republishes.then_some(self.0.settings.sync_period);
        slot.lifecycle.publish_ended(end, now, period);
        let is_final = end == PublishEnd::Failed { is_final: true };
        if is_final && (!was_published || self.0.settings.removes_after_republish_error) {
            self.remove_from_disk(&key);
        }
        state.events.push(event);
        state.volumes.retain(|_, slot| !slot.lifecycle.is_over());
    }

    async fn try_publish(&self, key: &VolumeKey) -> Result<(), Failure> {
        let Inner { layout, clock, settings, .. } = &*self.0;
        let (pod, volume, driver) = self.find(key)?;
        layout
            .prepare(key, &volume.driver, &settings.node_name)
            .map_err(|error| Failure::NotSent(format!("{error}: {}", error.source)))?;
        let Some(Registered { endpoint, .. }) = self.registered(&volume.driver) else {
            let name = &volume.driver;
            return Err(Failure::NotSent(format!("driver {name} is not registered on this node")));
        };
        let takes_group = calls::takes_group(&**clock, &endpoint)
            .await
            .map_err(|status| Failure::NotSent(calls::describe(&status)))?;
        let tokens = self.tokens(&pod, &driver).await.map_err(|error| {
            // As the kubelet does, the volume is not asked for.
            Failure::NotSent(error.to_string())
        })?;
        let target = layout.target(key);
        let request = desired_request(Publish {
            pod: &pod,
            volume: &volume,
            driver: &driver,
            tokens: tokens.as_ref(),
            takes_group,
            target: &target.to_string_lossy(),
        });
        calls::publish(&**clock, &endpoint, request).await.map_err(Failure::Refused)
    }

    fn find(&self, key: &VolumeKey) -> Result<(PodSpec, InlineVolume, DriverObject), Failure> {
        let gone = || Failure::NotSent(format!("there is no volume {key} any more"));
        let state = self.0.state.lock();
        let pod = state.pods.get(&key.pod_uid).ok_or_else(gone)?;
        let volume = pod.volumes.iter().find(|it| it.name == key.volume).ok_or_else(gone)?;
        let driver = state.objects.get(&volume.driver).cloned().unwrap_or_else(|| DriverObject {
            pod_info_on_mount: false,
            requires_republish: false,
            ..DriverObject::new(&volume.driver)
        });
        Ok((pod.clone(), volume.clone(), driver))
    }

    /// The tokens that a driver asks for; nothing where it asks for none.
    async fn tokens(
        &self,
        pod: &PodSpec,
        driver: &DriverObject,
    ) -> Result<Option<SecretText>, TokenError> {
        if driver.token_requests.is_empty() {
            return Ok(None);
        }
        let mut tokens = BTreeMap::new();
        for request in &driver.token_requests {
            let now = self.0.clock.now();
            let kept = self.0.state.lock().minted.find(pod, &request.audience, now);
            let token = match kept {
                Some(token) => token,
                None => self.0.tokens.mint(pod, &request.audience, now, request.lifetime).await?,
            };
            self.0.state.lock().minted.keep(pod, &request.audience, now, &token);
            tokens.insert(request.audience.clone(), token);
        }
        Ok(Some(render_tokens(&tokens)))
    }

    async fn unpublish(&self, key: VolumeKey, life: &Life) {
        let outcome = self.try_unpublish(&key).await;
        let now = self.0.clock.monotonic();
        let mut state = self.0.state.lock();
        if is_over(life) {
            return;
        }
        let event = match &outcome {
            Ok(()) => {
                let still_mounted = self.remove_from_disk(&key);
                Event::Unpublished { key: key.clone(), still_mounted }
            }
            Err(status) => Event::UnpublishFailed {
                key: key.clone(),
                code: status.code(),
                message: status.message().to_owned(),
            },
        };
        if let Some(slot) = state.volumes.get_mut(&key) {
            slot.lifecycle.unpublish_ended(outcome.is_ok(), now);
        }
        state.events.push(event);
        state.volumes.retain(|_, slot| !slot.lifecycle.is_over());
    }

    async fn try_unpublish(&self, key: &VolumeKey) -> Result<(), Status> {
        let driver = self.0.state.lock().volumes.get(key).map(|slot| slot.driver.clone());
        let driver = driver.unwrap_or_default();
        let Some(Registered { endpoint, .. }) = self.registered(&driver) else {
            let problem = format!("driver {driver} is not registered on this node");
            return Err(Status::unavailable(problem));
        };
        let request = NodeUnpublishVolumeRequest {
            volume_id: volume_id(&key.pod_uid, &key.volume),
            target_path: self.target(key).to_string_lossy().into_owned(),
        };
        calls::unpublish(&*self.0.clock, &endpoint, request).await
    }

    /// Whether something is mounted on the target all the same.
    fn remove_from_disk(&self, key: &VolumeKey) -> bool {
        self.0.layout.remove(key).unwrap_or_else(|error| {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, volume = %key, "something of a volume was left on disk");
            false
        })
    }
}

/// Something that is being done to a volume.
#[derive(Debug)]
struct Begun {
    key: VolumeKey,
    step: Step,
    life: Life,
}

/// Whether the kubelet that this life belongs to is gone.
fn is_over(life: &Life) -> bool {
    life.has_changed().unwrap_or(true)
}

/// A publish that came to nothing.
#[derive(Debug)]
enum Failure {
    /// The driver answered.
    Refused(Status),
    /// It was not asked.
    NotSent(String),
}

/// How often [`Kubelet::run`] looks for plugins.
const REGISTRY_LOOK: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
